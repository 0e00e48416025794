//! Errors: why an operation failed.

use std::borrow::Cow;
use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;

use crate::name::LockName;

/// A `Result` with polylock's [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why an operation on a lock failed.
///
/// It is no error if somebody else holds the lock: [`try_acquire`](crate::Lock::try_acquire) returns `Ok(None)`.
///
/// Printed with `{}`, an error says in one line what failed, on which lock, what to do, and all its causes. Therefore
/// [`source`](StdError::source) returns `None`, and a program that prints chains repeats nothing. [`cause`](Self::cause)
/// returns the cause with its type. One pointer wide and cheap to clone.
///
/// # Examples
/// ```
/// # use std::io;
/// # use lock_core::{Error, ErrorKind, LockName};
/// # fn main() -> Result<(), Error> {
/// let error = Error::new(ErrorKind::Unavailable, "Redis at cache:6379 cannot be reached")
///     .with_name(&LockName::new("orders/42")?)
///     .with_source(io::Error::from(io::ErrorKind::ConnectionRefused));
/// let line = r#"lock "orders/42": Redis at cache:6379 cannot be reached: connection refused"#;
/// assert_eq!(error.to_string(), line);
/// # Ok(()) }
/// ```
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
    /// The time was up, and the server last answered that the lock is taken. [`Error::holder`] is the holder's label, if
    /// known.
    TimedOut,
    /// The server cannot be reached, does not answer, or cannot serve at the moment.
    Unavailable,
    /// The server rejected the credentials, or a permission is missing.
    Denied,
    /// A setting of this program or of the server cannot work. The message says what to change.
    Misconfigured,
    /// The name is not one of 1 to 512 bytes of UTF-8.
    InvalidName,
    /// This backend lacks what was asked for: see its [`Capabilities`](crate::backend::Capabilities).
    Unsupported,
    /// The hold ended without being released.
    Lost,
    /// The [`Locker`](crate::Locker) was shut down.
    ShutDown,
    /// The server or the backend did something unexpected.
    Unexpected,
}

impl ErrorKind {
    fn is_passing(self) -> bool {
        matches!(self, Self::TimedOut | Self::Unavailable)
    }
}

impl Error {
    /// An error of this kind. `message` says what failed and what to do: lower case, without a full stop.
    ///
    /// [`ErrorKind::TimedOut`] and [`ErrorKind::Unavailable`] are retryable unless changed, all others are not.
    ///
    /// # Examples
    /// ```
    /// # use lock_core::{Error, ErrorKind};
    /// let error = Error::new(ErrorKind::Unavailable, "the server closed the connection");
    /// assert!(error.is_retryable());
    /// ```
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

    /// Adds the lock's name.
    ///
    /// # Examples
    /// ```
    /// # use lock_core::{Error, ErrorKind, LockName};
    /// let error = Error::new(ErrorKind::Lost, "the hold was lost").with_name(&LockName::new("a").unwrap());
    /// assert_eq!(error.to_string(), r#"lock "a": the hold was lost"#);
    /// ```
    #[must_use]
    pub fn with_name(self, name: &LockName) -> Self {
        self.change(|inner| inner.name = Some(name.clone()))
    }

    /// Adds the holder's label.
    ///
    /// # Examples
    /// ```
    /// # use lock_core::{Error, ErrorKind};
    /// let error = Error::new(ErrorKind::TimedOut, "not acquired within 1s").with_holder("worker 7");
    /// assert_eq!(error.to_string(), r#"not acquired within 1s (held by "worker 7")"#);
    /// ```
    #[must_use]
    pub fn with_holder(self, label: impl Into<Arc<str>>) -> Self {
        self.change(|inner| inner.holder = Some(label.into()))
    }

    /// Sets whether the same call may succeed later. Defaults to what the kind says: see [`new`](Self::new).
    ///
    /// # Examples
    /// ```
    /// # use lock_core::{Error, ErrorKind};
    /// let error = Error::new(ErrorKind::Unavailable, "the server closed the connection");
    /// assert!(!error.retryable(false).is_retryable());
    /// ```
    #[must_use]
    pub fn retryable(self, retryable: bool) -> Self {
        self.change(|inner| inner.retryable = retryable)
    }

    /// States that the server did not execute the request and never will: the server rejected it, or it was never sent.
    /// Without this, the outcome counts as unknown.
    ///
    /// # Examples
    /// ```
    /// # use lock_core::{Error, ErrorKind};
    /// let error = Error::new(ErrorKind::Unavailable, "the server closed the connection");
    /// assert!(!error.is_not_executed());
    /// assert!(error.not_executed().is_not_executed());
    /// ```
    #[must_use]
    pub fn not_executed(self) -> Self {
        self.change(|inner| inner.not_executed = true)
    }

    /// Adds the cause.
    ///
    /// # Examples
    /// ```
    /// # use lock_core::{Error, ErrorKind};
    /// let error = Error::new(ErrorKind::Unavailable, "Redis did not answer").with_source("broken pipe");
    /// assert_eq!(error.to_string(), "Redis did not answer: broken pipe");
    /// ```
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

    /// The kind of failure, to decide by.
    ///
    /// # Examples
    /// ```
    /// # use lock_core::{Error, ErrorKind};
    /// let error = Error::new(ErrorKind::Unavailable, "the server closed the connection");
    /// assert_eq!(error.kind(), ErrorKind::Unavailable);
    /// ```
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// The lock's name, if the error is about one lock.
    ///
    /// # Examples
    /// ```
    /// # use lock_core::{Error, ErrorKind};
    /// let error = Error::new(ErrorKind::Unavailable, "the server closed the connection");
    /// assert_eq!(error.name(), None);
    /// ```
    pub fn name(&self) -> Option<&LockName> {
        self.0.name.as_ref()
    }

    /// The holder's label, if known.
    ///
    /// # Examples
    /// ```
    /// # use lock_core::{Error, ErrorKind};
    /// let error = Error::new(ErrorKind::TimedOut, "not acquired within 1s").with_holder("worker 7");
    /// assert_eq!(error.holder(), Some("worker 7"));
    /// ```
    pub fn holder(&self) -> Option<&str> {
        self.0.holder.as_deref()
    }

    /// The cause with its type: an error of the driver, or another error of this type.
    ///
    /// # Examples
    /// ```
    /// # use lock_core::{Error, ErrorKind};
    /// # use std::io;
    /// let refused = io::Error::from(io::ErrorKind::ConnectionRefused);
    /// let error = Error::new(ErrorKind::Unavailable, "Redis cannot be reached").with_source(refused);
    /// assert!(error.cause().is_some_and(|cause| cause.is::<io::Error>()));
    /// ```
    pub fn cause(&self) -> Option<&(dyn StdError + 'static)> {
        self.0
            .source
            .as_deref()
            .map(|source| source as &(dyn StdError + 'static))
    }

    /// Returns `true` if the same call may succeed later although nobody changes anything.
    ///
    /// # Examples
    /// ```
    /// # use lock_core::{Error, ErrorKind};
    /// let error = Error::new(ErrorKind::Unavailable, "the server closed the connection");
    /// assert!(error.is_retryable()); // the server may come back
    /// ```
    pub fn is_retryable(&self) -> bool {
        self.0.retryable
    }

    /// Returns `true` if the server certainly did not execute the request. If `false`, the outcome is unknown.
    ///
    /// # Examples
    /// ```
    /// # use lock_core::{Error, ErrorKind};
    /// let error = Error::new(ErrorKind::Unavailable, "the server closed the connection");
    /// assert!(!error.is_not_executed()); // the answer may have been lost
    /// ```
    pub fn is_not_executed(&self) -> bool {
        self.0.not_executed
    }

    /// Returns `true` if the time was up while another holder had the lock.
    ///
    /// # Examples
    /// ```
    /// # use lock_core::{Error, ErrorKind};
    /// assert!(Error::new(ErrorKind::TimedOut, "not acquired within 1s").is_timed_out());
    /// ```
    pub fn is_timed_out(&self) -> bool {
        self.0.kind == ErrorKind::TimedOut
    }

    /// Returns `true` if the hold ended without being released.
    ///
    /// # Examples
    /// ```
    /// # use lock_core::{Error, ErrorKind};
    /// assert!(Error::new(ErrorKind::Lost, "the hold was lost").is_lost());
    /// ```
    pub fn is_lost(&self) -> bool {
        self.0.kind == ErrorKind::Lost
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(name) = &self.0.name {
            write!(f, "lock {name:?}: ")?;
        }
        f.write_str(&self.line())
    }
}

impl Error {
    /// The message and all causes, in one line. A cause that the text has already is left out.
    pub(crate) fn line(&self) -> String {
        let mut line = self.0.message.to_string();
        if let Some(holder) = &self.0.holder {
            line += &format!(" (held by {holder:?})");
        }
        let mut next = self.cause();
        while let Some(cause) = next {
            // Of an error of ours, its causes as well; the lock is named already.
            let ours = cause.downcast_ref::<Self>();
            let text = ours.map_or_else(|| cause.to_string(), Self::line);
            let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
            if !line.contains(&text) {
                line += &format!(": {text}");
            }
            next = cause.source();
        }
        line
    }
}

/// The kind, and what `Display` prints: a program whose `main` returns the error prints this.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {self}", self.0.kind)
    }
}

/// Without a source: `Display` prints all causes.
impl StdError for Error {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_one_pointer_wide() {
        assert_eq!(size_of::<Error>(), size_of::<usize>());
    }

    #[test]
    fn says_all_causes_in_one_line_and_none_twice() {
        #[derive(Debug, thiserror::Error)]
        #[error("cannot connect")]
        struct Outer(#[source] std::io::Error);
        let name = LockName::new("a").unwrap();
        let refused = Outer(std::io::Error::other("refused\nby the host"));
        let inner = Error::new(ErrorKind::Unavailable, "no session")
            .with_name(&name)
            .with_source(refused);
        let error = Error::new(ErrorKind::Unavailable, "not acquired within 1s")
            .with_name(&name)
            .with_source(inner);
        let line = r#"lock "a": not acquired within 1s: no session: cannot connect: refused by the host"#;
        assert_eq!(error.to_string(), line);
        assert!(error.source().is_none(), "a chain repeats nothing");
        let told = Error::new(ErrorKind::Unexpected, "the backend panicked: oh no").with_source("oh no");
        assert_eq!(told.to_string(), "the backend panicked: oh no");
        assert_eq!(format!("{told:?}"), "Unexpected: the backend panicked: oh no");
    }

    #[test]
    fn says_which_lock_and_who_has_it() {
        let error = Error::new(ErrorKind::TimedOut, "timed out after 5s")
            .with_name(&LockName::new("orders/42").unwrap())
            .with_holder("worker 3")
            .with_source(std::io::Error::other("deep down"));
        assert_eq!(
            error.to_string(),
            r#"lock "orders/42": timed out after 5s (held by "worker 3"): deep down"#
        );
    }
}
