//! The change of a password.

use super::ZooKeeperConfig;

/// A previous password belongs to a user whose identity contains it.
pub(super) const NO_DIGEST: &str =
    "a previous password is for a user with the scheme digest: set user and password, and leave it out with SASL";

impl ZooKeeperConfig {
    /// The password that the [user](Self::with_user) had before. Each connection proves both, and both may access the nodes that it
    /// makes. Only for the scheme `digest`, whose identities contain the password: see ["Change of a
    /// password"](https://docs.rs/lock-zookeeper/latest/lock_zookeeper/#change-of-a-password). Defaults to none.
    ///
    /// ```
    /// # use lock_zookeeper::ZooKeeperConfig;
    /// # fn main() -> Result<(), lock_core::Error> {
    /// let config = ZooKeeperConfig::new(["zk1"]).with_user("app").with_password("new").with_previous_password("old");
    /// assert_eq!(ZooKeeperConfig::from_url("zookeeper://app:new@zk1/?previous_password=old")?, config);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn with_previous_password(mut self, password: impl Into<String>) -> Self {
        self.previous_password = Some(password.into());
        self
    }
}
