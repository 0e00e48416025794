//! What can go wrong.

use std::borrow::Cow;
use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;

use crate::name::LockName;

/// A `Result` with polylock's [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why an operation on a lock failed.
///
/// That somebody else has the lock is no error: [`try_acquire`](crate::Lock::try_acquire) answers `Ok(None)`.
/// One pointer wide and cheap to clone. Its [`Display`](fmt::Display) never repeats its source; print the chain of
/// [`source`](StdError::source)s for the whole story.
#[derive(Clone)]
pub struct Error(Arc<Inner>);

#[derive(Clone)]
struct Inner {
    kind: ErrorKind,
    message: Cow<'static, str>,
    name: Option<LockName>,
    holder: Option<Arc<str>>,
    retryable: bool,
    not_executed: bool,
    source: Option<Arc<dyn StdError + Send + Sync>>,
}

/// The kinds of [`Error`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The lock was not to be had in the time given. [`Error::holder`] says who has it, where that is known.
    TimedOut,
    /// The server cannot be reached, does not answer, or cannot serve at the moment.
    Unavailable,
    /// The server refuses us: wrong credentials, or a permission is missing.
    Denied,
    /// Something in the configuration cannot work, be it ours or the server's; the message says what to change.
    Misconfigured,
    /// The name is not one of 1 to 512 bytes of UTF-8.
    InvalidName,
    /// This backend cannot do what was asked for; see its [`Capabilities`](crate::backend::Capabilities).
    Unsupported,
    /// The hold ended without being released.
    Lost,
    /// The [`Locker`](crate::Locker) was shut down.
    ShutDown,
    /// The server answered something that we did not expect from it.
    Unexpected,
}

impl ErrorKind {
    fn is_passing(self) -> bool {
        matches!(self, Self::TimedOut | Self::Unavailable)
    }
}

impl Error {
    /// An error of this kind; `message` says what happened and what to do, without a final stop.
    ///
    /// [`ErrorKind::TimedOut`] and [`ErrorKind::Unavailable`] start as retryable, all others as final.
    pub fn new(kind: ErrorKind, message: impl Into<Cow<'static, str>>) -> Self {
        Self(Arc::new(Inner {
            kind,
            message: message.into(),
            name: None,
            holder: None,
            retryable: kind.is_passing(),
            not_executed: false,
            source: None,
        }))
    }

    /// Adds the lock that this is about.
    #[must_use]
    pub fn with_name(self, name: &LockName) -> Self {
        self.change(|inner| inner.name = Some(name.clone()))
    }

    /// Adds the label of whoever holds the lock.
    #[must_use]
    pub fn with_holder(self, label: impl Into<Arc<str>>) -> Self {
        self.change(|inner| inner.holder = Some(label.into()))
    }

    /// Says whether the same call may succeed later, where the kind alone says otherwise.
    #[must_use]
    pub fn retryable(self, retryable: bool) -> Self {
        self.change(|inner| inner.retryable = retryable)
    }

    /// States that the server did not execute the request and never will: it refused it, or the request was never sent.
    /// Without this, the outcome counts as unknown.
    #[must_use]
    pub fn not_executed(self) -> Self {
        self.change(|inner| inner.not_executed = true)
    }

    /// Adds what caused it.
    #[must_use]
    pub fn with_source(self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        let source = Arc::from(source.into());
        self.change(|inner| inner.source = Some(source))
    }

    /// Adds the lock, unless the error names one.
    pub(crate) fn about(self, name: &LockName) -> Self {
        if self.0.name.is_some() {
            self
        } else {
            self.with_name(name)
        }
    }

    fn change(mut self, change: impl FnOnce(&mut Inner)) -> Self {
        change(Arc::make_mut(&mut self.0));
        self
    }

    /// What kind of failure it is.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// The lock that it is about, where one is.
    pub fn name(&self) -> Option<&LockName> {
        self.0.name.as_ref()
    }

    /// The label of whoever holds the lock, where it is known.
    pub fn holder(&self) -> Option<&str> {
        self.0.holder.as_deref()
    }

    /// Whether the same call may succeed later without anybody changing anything.
    pub fn is_retryable(&self) -> bool {
        self.0.retryable
    }

    /// Whether the server certainly did not execute the request. If `false`, the outcome is unknown.
    pub fn is_not_executed(&self) -> bool {
        self.0.not_executed
    }

    /// Whether the lock was not to be had in the time given.
    pub fn is_timed_out(&self) -> bool {
        self.0.kind == ErrorKind::TimedOut
    }

    /// Whether the hold ended without being released.
    pub fn is_lost(&self) -> bool {
        self.0.kind == ErrorKind::Lost
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(name) = &self.0.name {
            write!(f, "lock {name:?}: ")?;
        }
        f.write_str(&self.0.message)?;
        if let Some(holder) = &self.0.holder {
            write!(f, " (held by {holder:?})")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("Error");
        debug.field("kind", &self.0.kind).field("message", &self.0.message);
        if let Some(name) = &self.0.name {
            debug.field("name", name);
        }
        if let Some(holder) = &self.0.holder {
            debug.field("holder", holder);
        }
        if let Some(source) = &self.0.source {
            debug.field("source", source);
        }
        debug.finish()
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.0
            .source
            .as_deref()
            .map(|source| source as &(dyn StdError + 'static))
    }
}

/// The hold ended without being released, so that somebody else may have the lock.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the hold of lock {name:?} was lost: {cause}")]
pub struct Lost {
    name: LockName,
    cause: LostCause,
}

/// How a hold was [`Lost`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LostCause {
    /// It was not renewed in time, by this process's own clock.
    #[error("it was not renewed in time")]
    Expired,
    /// The server says that it is not ours any more.
    #[error("the server says that it is not ours any more")]
    NotHeld,
    /// The connection or session that carried the hold has ended.
    #[error("the connection that carried it has ended")]
    Disconnected,
}

impl Lost {
    pub(crate) fn new(name: LockName, cause: LostCause) -> Self {
        Self { name, cause }
    }

    /// Which lock it was.
    pub fn name(&self) -> &LockName {
        &self.name
    }

    /// How it was lost.
    pub fn cause(&self) -> LostCause {
        self.cause
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
    fn is_one_pointer_wide_and_keeps_its_source_typed() {
        assert_eq!(size_of::<Error>(), size_of::<usize>());
        let lost = Lost::new(LockName::new("a").unwrap(), LostCause::Expired);
        let error = Error::from(lost);
        assert!(error.is_lost() && !error.is_retryable());
        assert_eq!(
            error.source().unwrap().downcast_ref::<LostCause>(),
            Some(&LostCause::Expired)
        );
    }

    #[test]
    fn says_which_lock_and_who_has_it() {
        let error = Error::new(ErrorKind::TimedOut, "timed out after 5s")
            .with_name(&LockName::new("orders/42").unwrap())
            .with_holder("worker 3")
            .with_source(std::io::Error::other("deep down"));
        assert_eq!(
            error.to_string(),
            r#"lock "orders/42": timed out after 5s (held by "worker 3")"#
        );
        assert_eq!(error.source().unwrap().to_string(), "deep down");
    }
}
