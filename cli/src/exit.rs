//! Exit codes: those of sysexits.h where they fit.

use std::io;
use std::process::ExitCode;

use polylock::{Error, ErrorKind};
use rustix::process::Signal;

/// An exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Code(u8);

impl Code {
    pub(crate) const SUCCESS: Self = Self(0);
    /// `status`: the lock is free. `doctor`: there are warnings.
    pub(crate) const ONE: Self = Self(1);
    pub(crate) const USAGE: Self = Self(64);
    pub(crate) const UNAVAILABLE: Self = Self(69);
    pub(crate) const UNEXPECTED: Self = Self(70);
    pub(crate) const CANNOT_CREATE: Self = Self(73);
    pub(crate) const BUSY: Self = Self(75);
    pub(crate) const LOST: Self = Self(76);
    pub(crate) const DENIED: Self = Self(77);
    pub(crate) const MISCONFIGURED: Self = Self(78);
    pub(crate) const CANNOT_EXECUTE: Self = Self(126);
    pub(crate) const NOT_FOUND: Self = Self(127);

    pub(crate) const fn new(code: u8) -> Self {
        Self(code)
    }

    /// That of a process which a signal ended, as shells have it.
    pub(crate) fn of_signal(signal: Signal) -> Self {
        Self::of_raw_signal(signal.as_raw())
    }

    pub(crate) fn of_raw_signal(signal: i32) -> Self {
        Self(u8::try_from(signal.saturating_add(128)).unwrap_or(u8::MAX))
    }

    pub(crate) fn of_error(error: &Error) -> Self {
        match error.kind() {
            ErrorKind::InvalidName | ErrorKind::Unsupported => Self::USAGE,
            ErrorKind::Unavailable => Self::UNAVAILABLE,
            ErrorKind::TimedOut => Self::BUSY,
            ErrorKind::Lost => Self::LOST,
            ErrorKind::Denied => Self::DENIED,
            ErrorKind::Misconfigured => Self::MISCONFIGURED,
            _ => Self::UNEXPECTED,
        }
    }
}

impl From<Code> for ExitCode {
    fn from(code: Code) -> Self {
        code.0.into()
    }
}

/// Why polylock ends, and with which code.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) code: Code,
    pub(crate) message: String,
}

impl Failure {
    pub(crate) fn new(code: Code, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
        }
    }

    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::new(Code::USAGE, message)
    }

    /// A failure of the operating system that nobody expects.
    pub(crate) fn os(what: &str, error: &io::Error) -> Self {
        Self::new(Code::UNEXPECTED, format!("{what}: {error}"))
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::new(Code::of_error(&error), error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_error_has_its_code() {
        for (kind, code) in [
            (ErrorKind::InvalidName, 64),
            (ErrorKind::Unsupported, 64),
            (ErrorKind::Unavailable, 69),
            (ErrorKind::Unexpected, 70),
            (ErrorKind::ShutDown, 70),
            (ErrorKind::TimedOut, 75),
            (ErrorKind::Lost, 76),
            (ErrorKind::Denied, 77),
            (ErrorKind::Misconfigured, 78),
        ] {
            assert_eq!(Code::of_error(&Error::new(kind, "why")), Code(code), "{kind:?}");
        }
    }

    #[test]
    fn a_signal_is_128_and_its_number() {
        assert_eq!(Code::of_signal(Signal::INT), Code(130));
        assert_eq!(Code::of_signal(Signal::TERM), Code(143));
        assert_eq!(Code::of_signal(Signal::KILL), Code(137));
    }
}
