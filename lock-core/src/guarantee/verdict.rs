//! Verdicts on guarantees.

use std::borrow::Cow;
use std::fmt;

/// A verdict whether a server keeps a [`Guarantee`](super::Guarantee), as far as its settings say.
///
/// # Examples
/// ```
/// use lock_core::Verdict;
///
/// let verdict = Verdict::no("appendonly is no", "set it to yes");
/// assert_eq!(verdict.to_string(), "no: appendonly is no; set it to yes");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Verdict {
    /// It is kept.
    Yes,
    /// It is not kept.
    No {
        /// Why not.
        because: Cow<'static, str>,
        /// The setting or the alternative that helps.
        instead: Cow<'static, str>,
    },
    /// The server cannot be asked. An application that requires the guarantee is refused, unless an operator
    /// [vouches](crate::Locker::trusting) for it.
    Unknown {
        /// Why it is not known.
        because: Cow<'static, str>,
        /// The remedy.
        instead: Cow<'static, str>,
    },
}

impl Verdict {
    /// It is not kept: why, and what to set or to use instead.
    pub fn no(because: impl Into<Cow<'static, str>>, instead: impl Into<Cow<'static, str>>) -> Self {
        Self::No {
            because: because.into(),
            instead: instead.into(),
        }
    }

    /// The server cannot be asked: why, and what to do.
    pub fn unknown(because: impl Into<Cow<'static, str>>, instead: impl Into<Cow<'static, str>>) -> Self {
        Self::Unknown {
            because: because.into(),
            instead: instead.into(),
        }
    }

    /// Returns `true` if the guarantee is kept.
    pub fn is_yes(&self) -> bool {
        *self == Self::Yes
    }

    /// Of two servers that both have to keep it: the worse one.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        match (&self, &other) {
            (Self::No { .. }, _) => self,
            (_, Self::No { .. }) | (Self::Yes, _) => other,
            (Self::Unknown { .. }, _) => self,
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Yes => f.write_str("yes"),
            Self::No { because, instead } => write!(f, "no: {because}; {instead}"),
            Self::Unknown { because, instead } => write!(f, "unknown: {because}; {instead}"),
        }
    }
}
