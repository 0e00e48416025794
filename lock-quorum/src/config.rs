//! The settings, and how they stand in a URL.

use std::time::Duration;

use lock_core::Result;
use lock_kit::url::{duration, misconfigured};

/// The settings of a quorum.
///
/// # Examples
/// ```
/// # use std::time::Duration;
/// # use lock_quorum::QuorumConfig;
/// # fn main() -> Result<(), lock_core::Error> {
/// let url = "quorum:?patience=300ms|redis://a|redis://b|redis://c";
/// let (config, nodes) = QuorumConfig::from_url(url)?;
/// assert_eq!(config, QuorumConfig::new().with_patience(Duration::from_millis(300)));
/// assert_eq!(nodes, ["redis://a", "redis://b", "redis://c"]);
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct QuorumConfig {
    patience: Duration,
    restart_delay: Option<Duration>,
}

impl Default for QuorumConfig {
    fn default() -> Self {
        Self::new()
    }
}

impl QuorumConfig {
    /// Default of [`with_patience`](Self::with_patience).
    pub const DEFAULT_PATIENCE: Duration = Duration::from_millis(500);

    /// The default settings.
    pub fn new() -> Self {
        Self {
            patience: Self::DEFAULT_PATIENCE,
            restart_delay: None,
        }
    }

    /// Sets how long a node may be silent before requests go on without it: 10 ms to 60 s, and never more than a sixth of the
    /// TTL. A node that was silent for so long is asked last for half a TTL, 15 s at most. If a majority is silent for so long,
    /// a request gives its votes back and asks again, with twice the patience each time. Choose at least twice the round trip
    /// to the nodes that make a majority. Defaults to 500 ms.
    #[must_use]
    pub fn with_patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// States for how long each node gives no fresh vote after it may have lost data. A TTL must not be longer: otherwise a
    /// node that was restarted without data votes again while a hold that it forgot still counts as held. Not stated by
    /// default, nor by zero; then nothing limits the TTL.
    #[must_use]
    pub fn with_restart_delay(mut self, delay: Duration) -> Self {
        self.restart_delay = Some(delay).filter(|delay| !delay.is_zero());
        self
    }

    /// The restart delay that was stated.
    pub fn restart_delay(&self) -> Option<Duration> {
        self.restart_delay
    }

    pub(crate) fn patience(&self) -> Duration {
        self.patience
    }

    /// The settings and the URLs of the nodes in a URL `quorum:[?KEY=VALUE[&KEY=VALUE]...|]URL|URL|...`. The keys are
    /// `patience` and `restart_delay`, with durations such as `300ms`. A `|` in a node's URL is written `%7C`.
    ///
    /// # Errors
    /// [`ErrorKind::Misconfigured`](lock_core::ErrorKind::Misconfigured). The error repeats no part of the URL, since that may be a password.
    pub fn from_url(url: &str) -> Result<(Self, Vec<&str>)> {
        let rest = match url.split_once(':') {
            Some((scheme, rest)) if scheme.eq_ignore_ascii_case("quorum") => rest,
            _ => return Err(misconfigured("the URL of a quorum begins with `quorum:`")),
        };
        let mut config = Self::new();
        let rest = match rest.strip_prefix('?') {
            None => rest,
            Some(rest) => {
                let (options, nodes) = rest.split_once('|').unwrap_or((rest, ""));
                for option in options.split('&').filter(|option| !option.is_empty()) {
                    config.set(option)?;
                }
                nodes
            }
        };
        let nodes: Vec<&str> = rest.split('|').collect();
        if nodes.iter().any(|node| node.trim().is_empty()) {
            let message =
                "a quorum needs the URLs of its nodes, separated by `|`: quorum:redis://a|redis://b|redis://c";
            return Err(misconfigured(message));
        }
        config.check()?;
        Ok((config, nodes))
    }

    fn set(&mut self, option: &str) -> Result<()> {
        match option.split_once('=') {
            Some(("patience", value)) => self.patience = duration("patience", value)?,
            Some(("restart_delay", value)) => {
                self.restart_delay = Some(duration("restart_delay", value)?).filter(|delay| !delay.is_zero())
            }
            _ => {
                let message = "unknown parameter of a quorum: the first part of its URL may have `patience` and \
                               `restart_delay`; write a `|` in a password as %7C";
                return Err(misconfigured(message));
            }
        }
        Ok(())
    }

    pub(crate) fn check(&self) -> Result<()> {
        const PATIENCE: std::ops::RangeInclusive<Duration> = Duration::from_millis(10)..=Duration::from_secs(60);
        match PATIENCE.contains(&self.patience) {
            true => Ok(()),
            false => Err(misconfigured(
                "the patience of a quorum is out of range: choose 10ms to 60s",
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use lock_core::ErrorKind;

    use super::*;

    #[test]
    fn a_url_has_settings_first_and_then_nodes() {
        let nodes = |url| QuorumConfig::from_url(url).unwrap().1;
        assert_eq!(nodes("Quorum:redis://a|mysql://u:p%7C@b/c?strategy=lease").len(), 2);
        assert_eq!(nodes("quorum:?|redis://a"), ["redis://a"]);
        let (config, _) = QuorumConfig::from_url("quorum:?restart_delay=1m&patience=20ms|redis://a").unwrap();
        assert_eq!(config.restart_delay(), Some(Duration::from_secs(60)));
        assert_eq!(config.patience(), Duration::from_millis(20));
        let (config, _) = QuorumConfig::from_url("quorum:?restart_delay=0s|redis://a").unwrap();
        assert_eq!(config.restart_delay(), None, "as in the URL of a Redis");
    }

    #[test]
    fn what_cannot_work_is_refused_without_being_repeated() {
        for url in [
            "quorum:",
            "quorum:?patience=1s",
            "quorum:redis://a||secret",
            "quorum:secret://a|",
            "quorum:?secret=1|redis://a",
            "quorum:?patience=secret|redis://a",
            "quorum:?patience=1ms|redis://secret",
            "redis://secret",
        ] {
            let error = QuorumConfig::from_url(url).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Misconfigured, "{url}");
            assert!(!error.to_string().contains("secret"), "{url}: {error}");
        }
    }
}
