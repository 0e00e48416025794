//! The authentication of the user.

use lock_core::Result;

use super::{ZooKeeperConfig, misconfigured};

/// SASL proves who the user is.
pub(super) const NO_USER: &str =
    "auth=sasl needs a user and a password: write zookeeper://user:password@host/?auth=sasl";

impl ZooKeeperConfig {
    /// Authenticates the [user](Self::with_user) by SASL with the mechanism `DIGEST-MD5`, so that the server never gets the password.
    /// The server needs a JAAS configuration with a section `Server` that knows the user, and the provider
    /// `SASLAuthenticationProvider`. The nodes belong to the identity `sasl:user`, so clients by SASL and by the scheme `digest`
    /// cannot share locks. Defaults to the scheme `digest`.
    ///
    /// ```
    /// # use lock_zookeeper::ZooKeeperConfig;
    /// # fn main() -> Result<(), lock_core::Error> {
    /// let config = ZooKeeperConfig::new(["zk1"]).with_user("app").with_password("secret").with_sasl();
    /// assert_eq!(ZooKeeperConfig::from_url("zookeeper://app:secret@zk1/?auth=sasl")?, config);
    /// # Ok(()) }
    /// ```
    #[cfg(feature = "sasl")]
    #[cfg_attr(docsrs, doc(cfg(feature = "sasl")))]
    #[must_use]
    pub fn with_sasl(mut self) -> Self {
        self.has_sasl = true;
        self
    }

    /// Reads the parameter `auth` of a URL.
    pub(super) fn with_auth(mut self, value: &str) -> Result<Self> {
        self.has_sasl = match value {
            "digest" => false,
            "sasl" if cfg!(feature = "sasl") => true,
            "sasl" => {
                return Err(misconfigured(
                    "SASL to ZooKeeper is not compiled in: enable the feature `zookeeper-sasl` of polylock, as in \
                     `--features zookeeper-sasl` (`sasl` of lock-zookeeper)",
                ));
            }
            _ => return Err(misconfigured("auth in the URL is neither digest nor sasl")),
        };
        Ok(self)
    }

    #[cfg(feature = "sasl")]
    pub(crate) fn has_sasl(&self) -> bool {
        self.has_sasl
    }
}
