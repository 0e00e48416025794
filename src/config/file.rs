//! A configuration as it stands in a file.

use std::time::Duration;

use lock_core::{Error, FencingToken};
use serde::Deserialize;

use super::{Config, QuorumOptions, duration};

#[derive(Deserialize)]
#[serde(rename = "Config", deny_unknown_fields)]
pub(super) struct File {
    #[serde(default)]
    url: String,
    #[serde(default)]
    urls: Vec<String>,
    #[serde(default)]
    quorum: Option<QuorumOptions>,
    #[serde(default, deserialize_with = "duration::deserialize")]
    ttl: Option<Duration>,
    #[serde(default)]
    label: Option<String>,
    #[serde(default)]
    hand_overs: Option<u32>,
    #[serde(default, deserialize_with = "duration::deserialize")]
    operation_timeout: Option<Duration>,
    #[serde(default)]
    token_floor: Option<FencingToken>,
}

/// A file that names no server, or servers in two ways, is refused as soon as it is read.
impl TryFrom<File> for Config {
    type Error = Error;

    fn try_from(file: File) -> Result<Self, Error> {
        let config = Self {
            url: file.url,
            urls: file.urls,
            quorum: file.quorum,
            ttl: file.ttl,
            label: file.label,
            hand_overs: file.hand_overs,
            operation_timeout: file.operation_timeout,
            token_floor: file.token_floor,
        };
        config.servers()?;
        Ok(config)
    }
}
