//! The loss of a hold, and its cause.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::error::{Error, ErrorKind};
use crate::name::LockName;
use crate::time::before;

/// The hold ended without being released: somebody else may hold the lock.
///
/// Printed, it says why, with the error if there is one. Therefore `source` returns `None`, as that of [`Error`] does.
#[derive(Clone, thiserror::Error)]
#[error("the hold of lock {:?} was lost: {}", .0.name, self.why())]
pub struct Lost(Arc<Inner>);

#[derive(Clone)]
struct Inner {
    name: LockName,
    cause: LostCause,
    error: Option<Error>,
    last_confirmed: Option<Duration>,
    lease_ended: Option<Duration>,
}

/// Why a hold was [`Lost`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LostCause {
    /// It was not renewed in time, by this process's own clock.
    #[error("it was not renewed in time")]
    Expired,
    /// The server answered that another holder has it, or nobody.
    #[error("the server says that it is not ours any more")]
    NotHeld,
    /// Somebody [revoked](crate::Locker::revoke) it. A server that cannot tell answers [`NotHeld`](Self::NotHeld) instead.
    #[error("it was revoked")]
    Revoked,
    /// The connection or session to which the hold was bound has ended.
    #[error("the connection to which it was bound has ended")]
    Disconnected,
    /// The server has become read-only, as before a planned switchover: another server may grant the lock.
    #[error("the server has become read-only, and another may have taken its place")]
    ReadOnly,
    /// It was held for as long as [`Lock::hold_at_most`](crate::Lock::hold_at_most) allows, by this process's own clock.
    #[error("it was held for its maximum time")]
    MaximumHold,
    /// This is a fork of the process that acquired the lock, to which the hold still belongs.
    #[error("the process has forked, and the hold is its parent's: acquire the lock in the child")]
    Forked,
}

impl Lost {
    pub(crate) fn new(name: LockName, cause: LostCause) -> Self {
        Self(Arc::new(Inner {
            name,
            cause,
            error: None,
            last_confirmed: None,
            lease_ended: None,
        }))
    }

    /// The hold is that of the parent of this process.
    pub(crate) fn by_fork(name: &LockName) -> Self {
        Self::new(name.clone(), LostCause::Forked)
    }

    pub(crate) fn with_details(
        self,
        error: Option<Error>,
        last_confirmed: Option<Duration>,
        lease_ended: Option<Duration>,
    ) -> Self {
        Self(Arc::new(Inner {
            error,
            last_confirmed,
            lease_ended,
            ..Arc::unwrap_or_clone(self.0)
        }))
    }

    /// The lock's name.
    pub fn name(&self) -> &LockName {
        &self.0.name
    }

    /// Why the hold was lost.
    pub fn cause(&self) -> LostCause {
        self.0.cause
    }

    /// Returns the error of the last renewal, or that of the connection. `None` if the server answered that the hold is
    /// gone, or if no error is known.
    ///
    /// If this process sent no renewals in time, the error says so: nobody drove the Tokio runtime, or the process was
    /// paused (which look the same), or the machine was suspended. Holds that the backend's session renews lack this.
    pub fn error(&self) -> Option<&Error> {
        self.0.error.as_ref()
    }

    /// Returns the age, when the loss was noticed, of the request whose answer last confirmed the hold.
    pub fn last_confirmed(&self) -> Option<Duration> {
        self.0.last_confirmed
    }

    /// Returns the time between the end of the lease and the moment when the loss was noticed. `None` if the lease had
    /// not ended.
    pub fn lease_ended(&self) -> Option<Duration> {
        self.0.lease_ended
    }

    /// All that is known of it, in one line.
    pub(crate) fn why(&self) -> String {
        let mut why = self.cause().to_string();
        if let Some(confirmed) = self.last_confirmed() {
            why += &format!(" (last confirmed {}", before(confirmed));
            if let Some(ended) = self.lease_ended() {
                why += &format!(", the lease ended {}", before(ended));
            }
            why += ")";
        }
        if let Some(error) = self.error() {
            // The lock is named already.
            why += &format!(": {}", error.line());
        }
        why
    }
}

/// Errors are not compared.
impl PartialEq for Lost {
    fn eq(&self, other: &Self) -> bool {
        let facts = |lost: &Self| (lost.cause(), lost.last_confirmed(), lost.lease_ended());
        self.name() == other.name() && facts(self) == facts(other)
    }
}

impl Eq for Lost {}

/// Prints the same as `Display`, for a program whose `main` returns the error.
impl fmt::Debug for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl From<Lost> for Error {
    fn from(lost: Lost) -> Self {
        Self::new(ErrorKind::Lost, format!("the hold was lost: {}", lost.why()))
            .with_name(lost.name())
            .with_source(lost.cause())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_an_error_it_keeps_its_cause_typed() {
        let lost = Lost::new(LockName::new("a").unwrap(), LostCause::Expired);
        assert_eq!(
            format!("{lost:?}"),
            r#"the hold of lock "a" was lost: it was not renewed in time"#
        );
        let error = Error::from(lost);
        assert!(error.is_lost() && !error.is_retryable());
        let cause = error.cause().unwrap().downcast_ref::<LostCause>();
        assert_eq!(cause, Some(&LostCause::Expired));
        assert_eq!(
            error.to_string(),
            r#"lock "a": the hold was lost: it was not renewed in time"#
        );
    }
}
