//! Stands for the parameters of TLS where that is not compiled in.

use lock_core::Result;

use super::without_feature;

/// Refuses all that ask for TLS.
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
