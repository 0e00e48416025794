//! User and password, from outside the configuration.

use std::fmt;
use std::panic::AssertUnwindSafe;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::time::timeout;

use crate::error::{Error, ErrorKind, Result};

mod read;

/// A password, and perhaps a user, for a connection to a lock server. `Debug` does not show the password.
///
/// # Examples
/// ```
/// use lock_core::Credentials;
///
/// let credentials = Credentials::new("s3cret").with_user("app");
/// assert_eq!(format!("{credentials:?}"), r#"Credentials { user: Some("app"), .. }"#);
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    user: Option<String>,
    password: String,
    previous_password: Option<String>,
}

impl Credentials {
    /// This password. The user is that of the configuration.
    pub fn new(password: impl Into<String>) -> Self {
        Self {
            user: None,
            password: password.into(),
            previous_password: None,
        }
    }

    /// Sets the user. Defaults to that of the configuration.
    #[must_use]
    pub fn with_user(mut self, user: impl Into<String>) -> Self {
        self.user = Some(user.into());
        self
    }

    /// Sets the password that the user had before. Defaults to none. ZooKeeper's scheme `digest` alone uses it, where both passwords
    /// have to be proven while the password changes. Other servers ignore it.
    #[must_use]
    pub fn with_previous_password(mut self, password: impl Into<String>) -> Self {
        self.previous_password = Some(password.into());
        self
    }

    /// The user, if it is not that of the configuration.
    pub fn user(&self) -> Option<&str> {
        self.user.as_deref()
    }

    /// The password.
    pub fn password(&self) -> &str {
        &self.password
    }

    /// The password that the user had before.
    pub fn previous_password(&self) -> Option<&str> {
        self.previous_password.as_deref()
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials")
            .field("user", &self.user)
            .finish_non_exhaustive()
    }
}

/// A source of the password of a lock server. A backend asks it anew before each connection, so that a password can
/// change while the process runs and holds locks.
///
/// Two sources are equal if they are the same file, the same variable, or clones of one function.
///
/// # Examples
/// ```
/// use lock_core::{CredentialSource, Credentials};
///
/// let mounted = CredentialSource::file("/run/secrets/redis");
/// assert_eq!(format!("{mounted:?}"), r#"File("/run/secrets/redis")"#);
///
/// async fn from_vault() -> Result<String, lock_core::Error> {
///     # Ok(String::new())
///     // ..
/// }
/// let vault = CredentialSource::ask(|| async { Ok(Credentials::new(from_vault().await?).with_user("app")) });
/// ```
#[derive(Clone)]
pub struct CredentialSource(Source);

#[derive(Clone)]
enum Source {
    File(PathBuf),
    Env(String),
    Ask(Arc<Ask>),
}

type Ask = dyn Fn() -> BoxFuture<'static, Result<Credentials>> + Send + Sync;

impl CredentialSource {
    /// A file with the password and nothing else, such as a mounted secret. One line break at its end is left out.
    ///
    /// A read may hang, as on a network file system without its server. Then it leaves a thread behind. A runtime that ends waits for the
    /// read no longer than whoever asked for the password, and the process does not wait. While 16 reads of one path hang, later ones wait
    /// until one of these has ended.
    pub fn file(path: impl Into<PathBuf>) -> Self {
        Self(Source::File(path.into()))
    }

    /// An environment variable of this process with the password.
    pub fn env(variable: impl Into<String>) -> Self {
        Self(Source::Env(variable.into()))
    }

    /// A function that returns the credentials, such as a client of a secret store. If it returns an error, no connection is made, and
    /// the caller who needs one gets that error.
    pub fn ask<F, Asked>(ask: F) -> Self
    where
        F: Fn() -> Asked + Send + Sync + 'static,
        Asked: Future<Output = Result<Credentials>> + Send + 'static,
    {
        Self(Source::Ask(Arc::new(move || ask().boxed())))
    }

    /// The credentials as they are now. For backends.
    ///
    /// # Errors
    /// [`ErrorKind::Misconfigured`] if the file cannot be read, if the variable is not set, and if either is empty or not UTF-8.
    /// [`ErrorKind::Unavailable`] if the answer takes longer than `limit`; [`ErrorKind::Unexpected`] if the function panics; else the
    /// function's own error. No error shows a password.
    ///
    /// # Cancel safety
    /// May be dropped at any point, if the function's future may.
    pub async fn get(&self, limit: Duration) -> Result<Credentials> {
        let asking = async {
            match &self.0 {
                Source::File(path) => read::file(path.clone(), limit).await.map(Credentials::new),
                Source::Env(variable) => read::variable(variable).map(Credentials::new),
                // The function may panic before there is a future, too.
                Source::Ask(ask) => async { ask().await }.await,
            }
        };
        match timeout(limit, AssertUnwindSafe(asking).catch_unwind()).await {
            Ok(Ok(answer)) => answer.map_err(Error::not_executed),
            Ok(Err(_panic)) => Err(Error::new(
                ErrorKind::Unexpected,
                "the function that returns the credentials panicked: mend it",
            )),
            Err(_elapsed) => {
                let message = format!("{self} was not read within {limit:?}: check what it waits for");
                Err(Error::new(ErrorKind::Unavailable, message).not_executed())
            }
        }
    }
}

impl PartialEq for CredentialSource {
    fn eq(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            (Source::File(one), Source::File(other)) => one == other,
            (Source::Env(one), Source::Env(other)) => one == other,
            (Source::Ask(one), Source::Ask(other)) => Arc::ptr_eq(one, other),
            _ => false,
        }
    }
}

impl Eq for CredentialSource {}

impl fmt::Debug for CredentialSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Source::File(path) => f.debug_tuple("File").field(path).finish(),
            Source::Env(variable) => f.debug_tuple("Env").field(variable).finish(),
            Source::Ask(_) => f.write_str("Ask(..)"),
        }
    }
}

/// For errors.
impl fmt::Display for CredentialSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Source::File(path) => write!(f, "the password file {}", path.display()),
            Source::Env(variable) => write!(f, "the environment variable {variable}"),
            Source::Ask(_) => f.write_str("the function that returns the credentials"),
        }
    }
}

#[cfg(test)]
mod tests;
