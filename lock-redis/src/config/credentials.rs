//! The source of the password.

use std::time::Duration;

use lock_core::{CredentialSource, Result};
use lock_kit::url::two_passwords;

use super::RedisConfig;

impl RedisConfig {
    /// Sets where the password comes from, and perhaps the user, instead of [`with_password`](Self::with_password). It is asked before
    /// each connection, so that the password can change while locks are held: see ["Change of a
    /// password"](https://docs.rs/lock-redis/latest/lock_redis/#change-of-a-password). Defaults to none.
    ///
    /// ```
    /// # use lock_core::CredentialSource;
    /// # use lock_redis::RedisConfig;
    /// # fn main() -> Result<(), lock_core::Error> {
    /// let config = RedisConfig::new("cache", 6379).with_user("app").with_credentials(CredentialSource::file("/run/secrets/redis"));
    /// let same = RedisConfig::from_url("redis://app@cache:6379?password_file=/run/secrets/redis")?;
    /// # assert_eq!(format!("{config:?}"), format!("{same:?}"));
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn with_credentials(mut self, source: CredentialSource) -> Self {
        self.credentials = Some(source);
        self
    }

    pub(super) fn check_credentials(&self) -> Result<()> {
        match self.credentials.is_some() && self.info.redis_settings().password().is_some() {
            true => Err(two_passwords("Redis")),
            false => Ok(()),
        }
    }

    pub(crate) fn credentials(&self) -> Option<&CredentialSource> {
        self.credentials.as_ref()
    }

    /// For connecting and for answers.
    pub(crate) fn timeouts(&self) -> (Duration, Duration) {
        (self.connect_timeout, self.response_timeout)
    }
}
