//! How a hold was lost.

use std::fmt;

use crate::error::{Error, ErrorKind};
use crate::name::LockName;

/// The hold ended without being released: somebody else may hold the lock.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[error("the hold of lock {name:?} was lost: {cause}")]
pub struct Lost {
    name: LockName,
    cause: LostCause,
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
    /// The connection or session to which the hold was bound has ended.
    #[error("the connection to which it was bound has ended")]
    Disconnected,
    /// The server has become read-only, as before a planned switchover: another server may grant the lock.
    #[error("the server has become read-only, and another may have taken its place")]
    ReadOnly,
}

impl Lost {
    pub(crate) fn new(name: LockName, cause: LostCause) -> Self {
        Self { name, cause }
    }

    /// The lock's name.
    pub fn name(&self) -> &LockName {
        &self.name
    }

    /// Why the hold was lost.
    pub fn cause(&self) -> LostCause {
        self.cause
    }
}

/// What `Display` prints: a program whose `main` returns the error prints this.
impl fmt::Debug for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl From<Lost> for Error {
    fn from(lost: Lost) -> Self {
        Self::new(ErrorKind::Lost, "the hold was lost")
            .with_name(&lost.name)
            .with_source(lost.cause)
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
