//! Stands for the parameters of TLS where that is not compiled in: refuses all that ask for it.

use lock_core::{Error, Result};

use super::misconfigured;

#[derive(Default)]
pub(super) struct TlsParameters {}

impl TlsParameters {
    pub(super) fn want(&mut self) -> Result<()> {
        Err(without_feature())
    }

    pub(super) fn read(&mut self, name: &str, value: &str) -> Result<bool> {
        match (name, value) {
            ("tls", "false") => Ok(true),
            ("tls" | "ca" | "cert" | "key", _) => Err(without_feature()),
            _ => Ok(false),
        }
    }
}

fn without_feature() -> Error {
    misconfigured(
        "TLS to ZooKeeper is not compiled in: enable the feature `zookeeper-tls` of polylock, as in \
         `--features zookeeper-tls` (`tls` of lock-zookeeper)",
    )
}
