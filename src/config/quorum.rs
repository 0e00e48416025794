//! The settings of a quorum.

use std::time::Duration;

/// The settings of a quorum in a [`Config`](crate::Config) that lists [`urls`](crate::Config::urls).
///
/// # Examples
/// ```
/// # use std::time::Duration;
/// use polylock::{Config, QuorumOptions};
///
/// let quorum = QuorumOptions::new().with_restart_delay(Duration::from_secs(60));
/// let mut config = Config::of_quorum(["redis://a", "redis://b", "redis://c"]);
/// config.quorum = Some(quorum);
/// assert_eq!(config.urls.len(), 3);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize), serde(deny_unknown_fields))]
#[non_exhaustive]
pub struct QuorumOptions {
    /// The time for which a node may be silent before requests continue without it: 10 ms to 60 s. Defaults to 500 ms.
    #[cfg_attr(feature = "serde", serde(default, deserialize_with = "super::duration::deserialize"))]
    pub patience: Option<Duration>,
    /// For how long each node gives no fresh vote after it may have lost data. No TTL may be longer. Defaults to none: then nodes
    /// must lose no data.
    #[cfg_attr(feature = "serde", serde(default, deserialize_with = "super::duration::deserialize"))]
    pub restart_delay: Option<Duration>,
}

impl QuorumOptions {
    /// The default settings.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets how long a node may be silent before requests go on without it: 10 ms to 60 s. Defaults to 500 ms.
    #[must_use]
    pub fn with_patience(mut self, patience: Duration) -> Self {
        self.patience = Some(patience);
        self
    }

    /// Sets for how long each node gives no fresh vote after it may have lost data. No TTL may be longer. Each Redis whose URL has no
    /// `restart_delay` of its own gets this one. Defaults to none: then nodes must lose no data.
    #[must_use]
    pub fn with_restart_delay(mut self, delay: Duration) -> Self {
        self.restart_delay = Some(delay);
        self
    }
}
