//! The outcomes of a case.

use std::fmt;
use std::panic::Location;

use lock_core::backend::Capabilities;
use lock_core::{Error, Guarantee};

/// The result of a case's function.
pub type Verdict = Result<(), Stop>;

/// Why a case did not come to its end.
#[derive(Clone, Debug)]
pub enum Stop {
    /// The contract is broken.
    Failed(Failure),
    /// The case does not apply.
    Skipped(Skip),
}

/// A promise that was not kept.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The description of the failure.
    pub message: String,
    /// Whether an assertion of the case found it, or an operation failed on the way there.
    pub asserted: bool,
    /// Whether the failure breaks exclusion or the order of tokens: two holders at a time, or a token that went back.
    /// No slow machine explains that.
    pub safety: bool,
    /// Whether `safety` was concluded from the first holder's ttl alone, and not from what it believes.
    pub(crate) by_ttl: bool,
    /// Whether a machine that stood still explains it: a hold was over that only renewals keep, or a request was late. It explains
    /// such a failure once, but not each time.
    pub(crate) explained: bool,
    /// Where.
    pub at: &'static Location<'static>,
}

/// The only reasons for which a case may be left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Skip {
    /// The backend does not declare it, and, where an option asks for it, has refused the option.
    Undeclared(Capability),
    /// The backend declares permits, and a limit below this one, which the case needs.
    FewerPermits(u32),
    /// The backend does not say that the server [keeps](lock_core::backend::DistributedLock::keeps) this.
    NotKept(Guarantee),
    /// The server lives in one process: [`Harness::address`](crate::Harness::address) has no address to give.
    OneProcess,
    /// This system cannot pause a process.
    NoSignals,
    /// The case is about passes, minimum holds or [following](Capabilities::follow), and this run asks for permits.
    ExclusiveAlone,
    /// [`Subject::acquires_several`](crate::Subject::acquires_several) says no.
    OneAtATime,
    /// The subject has no elections.
    NoElections,
}

/// The capabilities that a backend may do without.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Capability {
    /// [`Capabilities::extend`].
    Extend,
    /// [`Capabilities::fixed_lease`].
    FixedLease,
    /// [`Capabilities::fifo`].
    Fifo,
    /// [`Capabilities::pass`].
    Pass,
    /// [`Capabilities::minimum_hold`].
    MinimumHold,
    /// [`Capabilities::ordered`].
    Ordered,
    /// [`Capabilities::durable_tokens`].
    DurableTokens,
    /// [`Capabilities::any_floor`].
    AnyFloor,
    /// [`Capabilities::follow`].
    Follow,
    /// [`Capabilities::shared`].
    Shared,
    /// [`Capabilities::upgradable`].
    Upgradable,
    /// [`Capabilities::downgrade`].
    Downgrade,
    /// [`Capabilities::list`].
    List,
    /// [`Capabilities::revoke`].
    Revoke,
    /// [`Capabilities::revoke_now`].
    RevokeNow,
    /// [`Capabilities::permits`] of more than one: a semaphore of one permit is an exclusive lock. Cases ask for no higher limit than
    /// the backend declares: see [`Skip::FewerPermits`].
    Permits,
}

impl Capability {
    /// Whether the capability is declared.
    pub fn is_in(self, capabilities: Capabilities) -> bool {
        match self {
            Self::Extend => capabilities.extend,
            Self::FixedLease => capabilities.fixed_lease,
            Self::Fifo => capabilities.fifo,
            Self::Pass => capabilities.pass,
            Self::MinimumHold => capabilities.minimum_hold,
            Self::Ordered => capabilities.ordered,
            Self::DurableTokens => capabilities.durable_tokens,
            Self::AnyFloor => capabilities.any_floor,
            Self::Follow => capabilities.follow,
            Self::Shared => capabilities.shared,
            Self::Upgradable => capabilities.upgradable,
            Self::Downgrade => capabilities.downgrade,
            Self::List => capabilities.list,
            Self::Revoke => capabilities.revoke,
            Self::RevokeNow => capabilities.revoke_now,
            Self::Permits => capabilities.permits > 1,
        }
    }

    /// Skips the case where it is not declared.
    ///
    /// # Errors
    /// [`Stop::Skipped`].
    pub fn or_skip(self, capabilities: Capabilities) -> Verdict {
        match self.is_in(capabilities) {
            true => Ok(()),
            false => Err(Stop::Skipped(Skip::Undeclared(self))),
        }
    }
}

impl Stop {
    /// An assertion did not hold.
    #[track_caller]
    pub fn assertion(message: impl Into<String>) -> Self {
        Self::failed(message.into(), true)
    }

    /// Two held a name at a time, or a token went back.
    #[track_caller]
    pub fn safety(message: impl Into<String>) -> Self {
        Self::second(true, message.into())
    }

    /// An assertion did not hold, which a machine that stood still explains.
    #[track_caller]
    pub(crate) fn explained(message: impl Into<String>) -> Self {
        Self::assertion(message).explained_if(true)
    }

    /// The same failure, which a machine that stood still explains if this is so.
    pub(crate) fn explained_if(mut self, is_explained: bool) -> Self {
        if let Self::Failed(failure) = &mut self {
            failure.explained |= is_explained;
        }
        self
    }

    /// A name was granted to a second one. If the first one still has it, there are two holders; else a machine that stood still
    /// explains it.
    #[track_caller]
    pub(crate) fn second(is_first_held: bool, message: String) -> Self {
        Self::Failed(Failure {
            safety: is_first_held,
            explained: !is_first_held,
            ..Failure::new(message, true)
        })
    }

    /// A name was granted to a second one before the ttl of the first one was over. These are two holders, but not where a session
    /// renews: a hold ends with its session there, which may be long before its ttl.
    #[track_caller]
    pub(crate) fn by_ttl(message: impl Into<String>) -> Self {
        Self::Failed(Failure {
            safety: true,
            by_ttl: true,
            ..Failure::new(message.into(), true)
        })
    }

    /// An operation failed that was to succeed.
    #[track_caller]
    pub fn error(doing: &str, error: &dyn std::error::Error) -> Self {
        let mut message = format!("{doing}: {error}");
        let mut source = error.source();
        while let Some(cause) = source {
            message.push_str(&format!(": {cause}"));
            source = cause.source();
        }
        Self::failed(message, false)
    }

    #[track_caller]
    fn failed(message: String, asserted: bool) -> Self {
        Self::Failed(Failure::new(message, asserted))
    }
}

impl Failure {
    #[track_caller]
    fn new(message: String, asserted: bool) -> Self {
        Self {
            message,
            asserted,
            safety: false,
            by_ttl: false,
            explained: false,
            at: Location::caller(),
        }
    }
}

/// Turns an operation's error into a case's failure.
pub trait OrFail<T> {
    /// Fails the case, saying what it was doing.
    ///
    /// # Errors
    /// [`Stop::Failed`] for any error.
    fn or_fail(self, doing: &str) -> Result<T, Stop>;
}

impl<T> OrFail<T> for Result<T, Error> {
    #[track_caller]
    fn or_fail(self, doing: &str) -> Result<T, Stop> {
        match self {
            Ok(value) => Ok(value),
            Err(error) => Err(Stop::error(doing, &error)),
        }
    }
}

impl<T> OrFail<T> for std::io::Result<T> {
    #[track_caller]
    fn or_fail(self, doing: &str) -> Result<T, Stop> {
        match self {
            Ok(value) => Ok(value),
            Err(error) => Err(Stop::error(doing, &error)),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = if self.safety { "SAFETY: " } else { "" };
        write!(f, "{}:{}: {what}{}", self.at.file(), self.at.line(), self.message)
    }
}

impl fmt::Display for Skip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Undeclared(capability) => write!(f, "the backend does not declare {capability:?}"),
            Self::FewerPermits(limit) => write!(f, "the backend does not declare a limit of {limit} permits"),
            Self::NotKept(guarantee) => write!(f, "the server does not keep {guarantee}"),
            Self::OneProcess => f.write_str("its locks live in one process"),
            Self::NoSignals => f.write_str("this system cannot pause a process"),
            Self::OneAtATime => f.write_str("it acquires one lock at a time"),
            Self::NoElections => f.write_str("it has no elections"),
            Self::ExclusiveAlone => f.write_str("it is about exclusive holds alone"),
        }
    }
}

/// Fails the case unless the condition holds.
macro_rules! ensure {
    ($condition:expr, $($message:tt)+) => {
        if !$condition {
            return Err($crate::verdict::Stop::assertion(format!($($message)+)));
        }
    };
}
pub(crate) use ensure;

/// The same where a machine that stood still explains the failure.
macro_rules! ensure_or_explained {
    ($condition:expr, $($message:tt)+) => {
        if !$condition {
            return Err($crate::verdict::Stop::explained(format!($($message)+)));
        }
    };
}
pub(crate) use ensure_or_explained;

/// The same for exclusion and the order of tokens.
macro_rules! ensure_safe {
    ($condition:expr, $($message:tt)+) => {
        if !$condition {
            return Err($crate::verdict::Stop::safety(format!($($message)+)));
        }
    };
}
pub(crate) use ensure_safe;

/// The same where the ttl of the first holder alone says that there are two.
macro_rules! ensure_safe_by_ttl {
    ($condition:expr, $($message:tt)+) => {
        if !$condition {
            return Err($crate::verdict::Stop::by_ttl(format!($($message)+)));
        }
    };
}
pub(crate) use ensure_safe_by_ttl;

/// The outcome of a case.
#[derive(Clone, Debug)]
pub enum Outcome {
    /// The promise was kept.
    Passed,
    /// It does not apply.
    Skipped(Skip),
    /// The promise was broken.
    Failed(Failure),
    /// Something panicked.
    Panicked(String),
    /// It did not come to an end.
    Hung,
}

impl Outcome {
    /// The case did not begin, for want of a server.
    pub(crate) fn no_server(reason: &str) -> Self {
        Self::Failed(Failure::new(format!("no server: {reason}"), false))
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Passed => f.write_str("passed"),
            Self::Skipped(skip) => write!(f, "skipped: {skip}"),
            Self::Failed(failure) => failure.fmt(f),
            Self::Panicked(text) => write!(f, "panicked: {text}"),
            Self::Hung => f.write_str(
                "did not end in the time of a case (see `Timing::patience`), or the drop of its harness in 30 s",
            ),
        }
    }
}
