//! Which lock server, as part of an application's configuration.

use std::fmt;
use std::time::Duration;

use lock_core::{Locker, Result};

/// What an application's configuration says of its locks: change the URL, and the same code uses another server.
///
/// With the feature `serde` it can be part of a configuration file; durations are written like `10s` or `500ms`.
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
    /// Which server; see [`connect`](crate::connect).
    pub url: String,
    /// How long a hold may survive its process. Defaults to 30 s.
    #[cfg_attr(feature = "serde", serde(default, with = "humantime_serde"))]
    pub ttl: Option<Duration>,
    /// What this process calls itself towards people. Defaults to nothing.
    #[cfg_attr(feature = "serde", serde(default))]
    pub label: Option<String>,
    /// How many times in a row a lock may pass from one waiter of this process to the next. Defaults to 16.
    #[cfg_attr(feature = "serde", serde(default))]
    pub hand_overs: Option<u32>,
}

impl Config {
    /// The defaults, with this server.
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            ttl: None,
            label: None,
            hand_overs: None,
        }
    }

    /// Sets how long a hold may survive its process. Defaults to 30 s.
    #[must_use]
    pub fn with_ttl(mut self, ttl: Duration) -> Self {
        self.ttl = Some(ttl);
        self
    }

    /// Sets what this process calls itself towards people. Defaults to nothing.
    #[must_use]
    pub fn with_label(mut self, label: impl Into<String>) -> Self {
        self.label = Some(label.into());
        self
    }

    /// Sets how many times in a row a lock may pass from one waiter of this process to the next. Defaults to 16; see
    /// [`Locker::with_hand_overs`].
    #[must_use]
    pub fn with_hand_overs(mut self, at_most: u32) -> Self {
        self.hand_overs = Some(at_most);
        self
    }

    /// As [`connect`](crate::connect).
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

    /// As [`connect_lazy`](crate::connect_lazy).
    ///
    /// # Errors
    /// Those of [`connect_lazy`](crate::connect_lazy).
    pub fn connect_lazy(&self) -> Result<Locker> {
        let Self {
            url,
            ttl,
            label,
            hand_overs,
        } = self;
        let mut locker = crate::connect_lazy(url)?;
        if let Some(ttl) = *ttl {
            locker = locker.with_ttl(ttl);
        }
        if let Some(label) = label {
            locker = locker.with_label(label.as_str());
        }
        if let Some(hand_overs) = *hand_overs {
            locker = locker.with_hand_overs(hand_overs);
        }
        Ok(locker)
    }
}

/// Without the URL, which may hold a password, but for its scheme.
impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = self.url.split_once(':').map_or("", |(scheme, _)| scheme);
        f.debug_struct("Config")
            .field("url", &format_args!("{scheme}:.."))
            .field("ttl", &self.ttl)
            .field("label", &self.label)
            .field("hand_overs", &self.hand_overs)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn never_shows_the_password() {
        let shown = format!("{:?}", Config::new("redis://user:secret@host").with_label("me"));
        assert!(
            !shown.contains("secret") && shown.contains("redis:") && shown.contains("me"),
            "{shown}"
        );
    }

    #[test]
    #[cfg(feature = "serde")]
    fn reads_durations_as_people_write_them() {
        let config: Config = serde_json::from_str(r#"{"url": "memory:", "ttl": "1m 30s", "hand_overs": 4}"#).unwrap();
        assert_eq!(
            config,
            Config::new("memory:")
                .with_ttl(Duration::from_secs(90))
                .with_hand_overs(4)
        );
        assert!(serde_json::from_str::<Config>(r#"{"url": "memory:", "tll": "1s"}"#).is_err());
    }
}
