//! The source of the password.

use std::time::Duration;

use lock_core::{CredentialSource, Result};
use lock_kit::limits;
use lock_kit::url::two_passwords;
use sqlx::mysql::MySqlConnectOptions;

use super::MySqlConfig;

impl MySqlConfig {
    /// Sets where the password comes from, and perhaps the user, instead of [`with_password`](Self::with_password). It is asked before
    /// each connection, so that the password can change while locks are held: see ["Change of a
    /// password"](https://docs.rs/lock-mysql/latest/lock_mysql/#change-of-a-password). Defaults to none.
    ///
    /// ```
    /// # use lock_core::CredentialSource;
    /// # use lock_mysql::MySqlConfig;
    /// # fn main() -> Result<(), lock_core::Error> {
    /// let source = CredentialSource::file("/run/secrets/mysql");
    /// let config = MySqlConfig::new("db", 3306).with_user("app").with_database("shop").with_credentials(source);
    /// let same = MySqlConfig::from_url("mysql://app@db/shop?password_file=/run/secrets/mysql")?;
    /// # assert_eq!(format!("{config:?}"), format!("{same:?}"));
    /// # Ok(()) }
    /// ```
    pub fn with_credentials(mut self, source: CredentialSource) -> Self {
        self.credentials = Some(source);
        self
    }

    pub(super) fn check_credentials(&self) -> Result<()> {
        match self.has_password && self.credentials.is_some() {
            true => Err(two_passwords("MySQL")),
            false => Ok(()),
        }
    }

    /// For the next connection, with the credentials of this moment.
    pub(crate) async fn options_now(&self, limit: Duration) -> Result<MySqlConnectOptions> {
        let options = self.options.clone();
        let Some(source) = &self.credentials else {
            return Ok(options);
        };
        let credentials = source.get(limit).await?;
        limits::check_credentials(&credentials)?;
        let options = options.password(credentials.password());
        Ok(match credentials.user() {
            Some(user) => options.username(user),
            None => options,
        })
    }
}
