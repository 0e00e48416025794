//! A request on its way through a cluster.

use crate::error::Failure;
use crate::protocol::Script;
use crate::servers::Route;

/// What a request of a script needs, wherever it is sent.
pub(super) struct Call<'a> {
    pub(super) script: &'a Script,
    pub(super) keys: &'a [&'a str],
    pub(super) arguments: &'a [&'a str],
    /// The channel that has to be subscribed to before.
    pub(super) inbox: Option<&'a str>,
    /// Whether it asks for a fresh grant. A master in its delay must not even see it: what it writes, and how it is undone,
    /// would keep a hold that lives from being put back.
    pub(super) is_fresh: bool,
    /// Whether it can be repeated for each key by itself: then it does not wait until its keys are in one place.
    pub(super) is_divisible: bool,
}

impl<'a> Call<'a> {
    pub(super) fn of(script: &'a Script, keys: &'a [&'a str], arguments: &'a [&'a str]) -> Self {
        Self {
            script,
            keys,
            arguments,
            inbox: None,
            is_fresh: false,
            is_divisible: false,
        }
    }

    pub(super) fn check_delay(&self, on: &Route) -> Result<(), Failure> {
        match on.delay_error().filter(|_| self.is_fresh) {
            Some(why) => Err(Failure::NotExecuted(why)),
            None => Ok(()),
        }
    }
}
