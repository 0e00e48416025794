//! How a kind of server is started.

use std::fmt::Debug;
use std::path::Path;
use std::process::Command;

use crate::Error;
use crate::url::Url;

/// How one kind of server is run.
pub(crate) trait Recipe: Debug + Send + Sync + 'static {
    fn name(&self) -> &'static str;
    /// The environment variable that names a server that runs already.
    fn url_variable(&self) -> &'static str;
    /// Its port where the URL does not say it.
    fn default_port(&self) -> u16;
    fn url(&self, port: u16) -> Url;
    /// The port on which it also listens without TLS, if its own port is one with TLS.
    fn plain_port(&self) -> Option<u16> {
        None
    }
    /// Whether it computes for so long when it starts that it slows down what runs beside it.
    fn is_slow_to_start(&self) -> bool {
        false
    }
    /// Makes what the server needs before its first start in `data`, an empty directory.
    fn fill(&self, data: &Path, port: u16) -> Result<(), Error>;
    fn command(&self, data: &Path, port: u16) -> Result<Command, Error>;
    /// One look. True only when *this* run answers, not a stranger on the same port or the run before it.
    fn is_ready(&self, run: &Run<'_>) -> bool;
}

/// What a recipe may look at to see whether its server is ready.
#[derive(Debug)]
pub(crate) struct Run<'a> {
    pub(crate) pid: u32,
    pub(crate) port: u16,
    pub(crate) data: &'a Path,
}
