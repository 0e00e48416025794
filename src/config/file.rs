//! A configuration as it stands in a file.

use std::path::PathBuf;
use std::time::Duration;

use lock_core::{CredentialSource, Error, ErrorKind, FencingToken, Guarantee};
use serde::Deserialize;

use super::{Config, QuorumOptions, duration};

#[derive(Deserialize)]
#[serde(rename = "Config", deny_unknown_fields)]
pub(super) struct File {
    #[serde(default)]
    url: String,
    #[serde(default, deserialize_with = "no_text::urls")]
    urls: Vec<String>,
    #[serde(default, deserialize_with = "no_text::quorum")]
    quorum: Option<QuorumOptions>,
    #[serde(default, deserialize_with = "duration::deserialize")]
    ttl: Option<Duration>,
    #[serde(default)]
    label: Option<String>,
    #[serde(default)]
    passes: Option<u32>,
    #[serde(default, deserialize_with = "duration::deserialize")]
    operation_timeout: Option<Duration>,
    #[serde(default)]
    token_floor: Option<FencingToken>,
    #[serde(default)]
    password_file: Option<PathBuf>,
    #[serde(default)]
    password_env: Option<String>,
    #[serde(default)]
    require: Vec<String>,
    #[serde(default)]
    trusting: Vec<String>,
}

mod no_text;

/// A file that names no server, or servers in two ways, is refused as soon as it is read.
impl TryFrom<File> for Config {
    type Error = Error;

    fn try_from(file: File) -> Result<Self, Error> {
        let credentials = match (file.password_file, file.password_env) {
            (None, None) => None,
            (Some(path), None) => Some(CredentialSource::file(path)),
            (None, Some(variable)) => Some(CredentialSource::env(variable)),
            (Some(_), Some(_)) => {
                let message = "both `password_file` and `password_env` are given: write one of them";
                return Err(Error::new(ErrorKind::Misconfigured, message));
            }
        };
        let config = Self {
            url: file.url,
            urls: file.urls,
            quorum: file.quorum,
            ttl: file.ttl,
            label: file.label,
            passes: file.passes,
            operation_timeout: file.operation_timeout,
            token_floor: file.token_floor,
            credentials,
            require: guarantees(&file.require)?,
            trusting: guarantees(&file.trusting)?,
        };
        config.servers()?;
        Ok(config)
    }
}

fn guarantees(ids: &[String]) -> Result<Vec<Guarantee>, Error> {
    ids.iter().map(|id| id.parse()).collect()
}
