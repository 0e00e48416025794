//! The lock server, as part of an application's configuration.

use std::fmt;
use std::time::Duration;

use lock_core::{FencingToken, Locker, Result};

use crate::connect::Scheme;

#[cfg(feature = "serde")]
mod duration;

/// The lock server and the defaults of all locks, as a part of an application's configuration. Change the URL, and the
/// same code uses another server.
///
/// With the feature `serde`, it can be read from a configuration file. Durations have a unit there: `10s` or `500ms`.
/// Unknown fields are errors.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), polylock::Error> {
/// let config = polylock::Config::new("memory:").with_label("worker 7");
/// let locks = config.connect().await?;
/// # drop(locks); Ok(()) }
/// ```
#[derive(Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize), serde(deny_unknown_fields))]
#[non_exhaustive]
pub struct Config {
    /// The server's URL: see [`connect`](crate::connect).
    pub url: String,
    /// How long a lock stays taken after its process died. Defaults to 30 s: see [`Locker::with_ttl`].
    #[cfg_attr(feature = "serde", serde(default, deserialize_with = "duration::deserialize"))]
    pub ttl: Option<Duration>,
    /// A label, shown to anyone who asks who holds a lock. Empty: no label is stored. Defaults to `host:pid`: see
    /// [`Locker::with_label`].
    #[cfg_attr(feature = "serde", serde(default))]
    pub label: Option<String>,
    /// How many times in a row a lock may pass from one waiter of this process to the next. Defaults to 16: see
    /// [`Locker::with_hand_overs`].
    #[cfg_attr(feature = "serde", serde(default))]
    pub hand_overs: Option<u32>,
    /// How long an operation that does not wait for the lock waits for a server that does not answer. Defaults to 5 s: see
    /// [`Locker::with_operation_timeout`]. How long connecting may take is the parameter `connect_timeout` of the URL.
    #[cfg_attr(feature = "serde", serde(default, deserialize_with = "duration::deserialize"))]
    pub operation_timeout: Option<Duration>,
    /// Every grant's fencing token is larger than this one. Defaults to no floor: see [`Locker::with_token_floor`].
    #[cfg_attr(feature = "serde", serde(default))]
    pub token_floor: Option<FencingToken>,
}

impl Config {
    /// The default settings for the server with this URL.
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            ttl: None,
            label: None,
            hand_overs: None,
            operation_timeout: None,
            token_floor: None,
        }
    }

    /// Sets how long a lock stays taken after its process died. Defaults to 30 s: see [`Locker::with_ttl`].
    #[must_use]
    pub fn with_ttl(mut self, ttl: Duration) -> Self {
        self.ttl = Some(ttl);
        self
    }

    /// Sets a label, shown to anyone who asks who holds a lock. Defaults to `host:pid`: see [`Locker::with_label`].
    #[must_use]
    pub fn with_label(mut self, label: impl Into<String>) -> Self {
        self.label = Some(label.into());
        self
    }

    /// Stores no label with the locks: see [`Locker::without_label`].
    #[must_use]
    pub fn without_label(self) -> Self {
        self.with_label("")
    }

    /// Sets how many times in a row a lock may pass from one waiter of this process to the next. Defaults to 16: see
    /// [`Locker::with_hand_overs`].
    #[must_use]
    pub fn with_hand_overs(mut self, at_most: u32) -> Self {
        self.hand_overs = Some(at_most);
        self
    }

    /// Sets how long an operation that does not wait for the lock waits for a server that does not answer. Defaults to 5 s:
    /// see [`Locker::with_operation_timeout`].
    #[must_use]
    pub fn with_operation_timeout(mut self, limit: Duration) -> Self {
        self.operation_timeout = Some(limit);
        self
    }

    /// Sets a token floor: every grant's fencing token is larger. For fenced data that moved here from another server: see
    /// [`Locker::with_token_floor`]. Defaults to none.
    #[must_use]
    pub fn with_token_floor(mut self, floor: FencingToken) -> Self {
        self.token_floor = Some(floor);
        self
    }

    /// Connects to the server: see [`connect`](crate::connect).
    ///
    /// # Errors
    /// Those of [`connect`](crate::connect).
    ///
    /// # Cancel safety
    /// May be dropped at any point.
    pub async fn connect(&self) -> Result<Locker> {
        let locker = self.connect_lazy()?;
        locker.connect().await?;
        Ok(locker)
    }

    /// Makes a locker without I/O: see [`connect_lazy`](crate::connect_lazy).
    ///
    /// # Errors
    /// Those of [`connect_lazy`](crate::connect_lazy).
    pub fn connect_lazy(&self) -> Result<Locker> {
        let Self {
            url,
            ttl,
            label,
            hand_overs,
            operation_timeout,
            token_floor,
        } = self;
        let mut locker = crate::connect_lazy(url)?;
        if let Some(ttl) = *ttl {
            locker = locker.with_ttl(ttl);
        }
        locker = match label.as_deref() {
            None => locker,
            Some("") => locker.without_label(),
            Some(label) => locker.with_label(label),
        };
        if let Some(hand_overs) = *hand_overs {
            locker = locker.with_hand_overs(hand_overs);
        }
        if let Some(limit) = *operation_timeout {
            locker = locker.with_operation_timeout(limit);
        }
        if let Some(floor) = *token_floor {
            locker = locker.with_token_floor(floor);
        }
        Ok(locker)
    }
}

/// Of the URL only a known scheme: any other part may be a password in the wrong place.
impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            url,
            ttl,
            label,
            hand_overs,
            operation_timeout,
            token_floor,
        } = self;
        let scheme = Scheme::split(url).map_or("", |_| url.split(':').next().unwrap_or_default());
        f.debug_struct("Config")
            .field("url", &format_args!("{scheme}:.."))
            .field("ttl", ttl)
            .field("label", label)
            .field("hand_overs", hand_overs)
            .field("operation_timeout", operation_timeout)
            .field("token_floor", token_floor)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn never_shows_the_password() {
        let config = |url: &str| Config::new(url).with_label("me");
        let shown = format!("{:?}", config("Redis://user:secret@host"));
        assert!(
            !shown.contains("secret") && shown.contains("Redis:..") && shown.contains("me"),
            "{shown}"
        );
        for url in ["secret@host:6379", "user:secret@host", "secret", "secret://host"] {
            let shown = format!("{:?}", config(url));
            assert!(!shown.contains("secret") && !shown.contains("user"), "{shown}");
        }
    }

    #[test]
    fn every_option_reaches_the_locker() {
        let options = |config: Config| config.connect_lazy().unwrap().lock("a").options();
        let ttl = Duration::from_secs(90);
        let config = Config::new("memory:").with_ttl(ttl).with_label("me");
        assert_eq!(options(config.clone()).ttl, ttl);
        assert_eq!(options(config.clone()).label.as_deref(), Some("me"));
        assert_eq!(options(config.clone().without_label()).label, None);
        let floor = FencingToken::new(1 << 40).unwrap();
        assert_eq!(options(config.with_token_floor(floor)).token_floor, Some(floor));
        let by_default = options(Config::new("memory:")).label.unwrap();
        assert!(
            by_default.ends_with(&format!(":{}", std::process::id())),
            "{by_default}"
        );
    }

    #[cfg(feature = "serde")]
    fn read(json: &str) -> serde_json::Result<Config> {
        serde_json::from_str(json)
    }

    #[test]
    #[cfg(feature = "serde")]
    fn is_read_from_a_file_with_durations_as_people_write_them() {
        let text = r#"{"url": "memory:", "ttl": "1m 30s", "label": "", "hand_overs": 4, "operation_timeout": "500ms"}"#;
        let config = Config::new("memory:")
            .with_ttl(Duration::from_secs(90))
            .without_label()
            .with_hand_overs(4)
            .with_operation_timeout(Duration::from_millis(500));
        assert_eq!(read(text).unwrap(), config);
        assert_eq!(
            read(r#"{"url": "memory:", "ttl": null}"#).unwrap(),
            Config::new("memory:")
        );
        assert!(read(r#"{"url": "memory:", "tll": "1s"}"#).is_err());
    }

    #[test]
    #[cfg(feature = "serde")]
    fn a_duration_without_a_unit_says_how_to_write_one() {
        for field in ["ttl", "operation_timeout"] {
            for value in ["3", "3.5", "\"3\"", "\"3 sekunden\"", "true"] {
                let error = read(&format!(r#"{{"url": "memory:", "{field}": {value}}}"#)).unwrap_err();
                assert!(error.to_string().contains("write 3s or 500ms"), "{value}: {error}");
            }
        }
    }
}
