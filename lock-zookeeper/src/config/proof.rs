//! The credentials that a connection proves.

use lock_core::{CredentialSource, Credentials, Result};
use lock_kit::url::two_passwords;

use super::{ZooKeeperConfig, misconfigured, rotation, sasl};

/// User and passwords for one connection.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Proof {
    pub(crate) user: String,
    pub(crate) password: String,
    pub(crate) previous_password: Option<String>,
}

impl ZooKeeperConfig {
    /// Sets where the password comes from, and perhaps the user, instead of [`with_password`](Self::with_password) and
    /// [`with_previous_password`](Self::with_previous_password). It is asked before each connection. With the scheme `digest`, nodes
    /// belong to a password: while it changes, the source has to return both
    /// ([`with_previous_password`](Credentials::with_previous_password)). See ["Change of a
    /// password"](https://docs.rs/lock-zookeeper/latest/lock_zookeeper/#change-of-a-password). Defaults to none.
    ///
    /// ```
    /// # use lock_core::CredentialSource;
    /// # use lock_zookeeper::ZooKeeperConfig;
    /// # fn main() -> Result<(), lock_core::Error> {
    /// let source = CredentialSource::file("/run/secrets/zookeeper");
    /// let config = ZooKeeperConfig::new(["zk1"]).with_user("app").with_credentials(source);
    /// assert_eq!(ZooKeeperConfig::from_url("zookeeper://app@zk1/?password_file=/run/secrets/zookeeper")?, config);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn with_credentials(mut self, source: CredentialSource) -> Self {
        self.credentials = Some(source);
        self
    }

    /// For the next connection, with the credentials of this moment.
    pub(crate) async fn proof(&self) -> Result<Option<Proof>> {
        match &self.credentials {
            Some(source) => self.proof_of(&source.get(self.connect_timeout).await?).map(Some),
            None => Ok(self
                .user
                .clone()
                .zip(self.password.clone())
                .map(|(user, password)| Proof {
                    user,
                    password,
                    previous_password: self.previous_password.clone(),
                })),
        }
    }

    /// Checks who may access the nodes.
    pub(super) fn check_access(&self) -> Result<()> {
        if self.credentials.is_some() && (self.password.is_some() || self.previous_password.is_some()) {
            return Err(two_passwords("ZooKeeper"));
        }
        match (&self.user, &self.password) {
            (Some(user), _) if user.is_empty() || user.contains(':') => Err(misconfigured(
                "the user is empty or has a colon in it: use another user",
            )),
            (_, None) if self.credentials.is_some() => Ok(()),
            (Some(_), None) => Err(misconfigured(
                "the user has no password: write zookeeper://user:password@host, or say with password_file where it is",
            )),
            (None, Some(_)) => Err(misconfigured("the password has no user: set both user and password")),
            (user, _) if self.previous_password.is_some() && (user.is_none() || self.has_sasl) => {
                Err(misconfigured(rotation::NO_DIGEST))
            }
            (None, None) if self.has_sasl => Err(misconfigured(sasl::NO_USER)),
            (None, None) if !self.has_open_acl && !self.has_certificate() => Err(misconfigured(NO_ACL)),
            _ => Ok(()),
        }
    }

    fn has_certificate(&self) -> bool {
        #[cfg(feature = "tls")]
        return self.tls.as_ref().is_some_and(|tls| tls.certificate().is_some());
        #[cfg(not(feature = "tls"))]
        false
    }

    fn proof_of(&self, credentials: &Credentials) -> Result<Proof> {
        let user = credentials.user().or(self.user.as_deref());
        let user = user.filter(|user| !user.is_empty() && !user.contains(':'));
        let Some(user) = user else {
            return Err(misconfigured(
                "the credentials have no user, or one with a colon in it: name one in the URL (zookeeper://user@host) or with \
                 Credentials::with_user",
            )
            .not_executed());
        };
        Ok(Proof {
            user: user.to_owned(),
            password: credentials.password().to_owned(),
            previous_password: credentials.previous_password().map(str::to_owned),
        })
    }
}

/// Says both ways to set who may access the nodes.
const NO_ACL: &str = "without credentials anyone who can reach ZooKeeper can end any lock: write \
    zookeeper://user:password@host, use a client certificate, or allow it with acl=open (ZooKeeperConfig::with_open_acl)";
