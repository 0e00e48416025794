//! The modes of a hold: exclusive, shared, upgradable, or permits.

use std::fmt;
use std::num::NonZeroU32;

use crate::error::{Error, ErrorKind, Result};

/// The mode in which a name is held. [`rules::fits`](super::rules::fits) decides which holds go together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Mode {
    /// By one holder alone.
    #[default]
    Exclusive,
    /// By any number of readers.
    Shared,
    /// By a reader beside others that may become the exclusive holder. At most one of this mode at a time.
    Upgradable,
    /// By any number of holders whose permits together are within the limit.
    Permits(Permits),
}

/// The number of permits that a request takes, and the semaphore's limit.
///
/// # Examples
/// ```
/// # use lock_core::backend::Permits;
/// # fn main() -> Result<(), lock_core::Error> {
/// let permits = Permits::new(2, 5)?;
/// assert_eq!((permits.take(), permits.of()), (2, 5));
/// assert!(Permits::new(6, 5).is_err() && Permits::new(0, 5).is_err());
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Permits {
    take: NonZeroU32,
    of: NonZeroU32,
}

impl Permits {
    /// `take` permits where there are `of`.
    ///
    /// # Errors
    /// [`ErrorKind::Misconfigured`] if `take` is 0 or more than `of`.
    pub fn new(take: u32, of: u32) -> Result<Self> {
        let message = match (NonZeroU32::new(take), NonZeroU32::new(of)) {
            (Some(take), Some(of)) if take <= of => return Ok(Self { take, of }),
            (_, None) => "a semaphore of 0 permits admits nobody: give it at least 1".to_owned(),
            (None, _) => "0 permits hold nothing: take at least 1".to_owned(),
            _ => format!("{take} permits are more than the {of} of the semaphore: take fewer, or raise its limit"),
        };
        Err(Error::new(ErrorKind::Misconfigured, message))
    }

    /// Returns the number of permits that the request takes.
    pub fn take(self) -> u32 {
        self.take.get()
    }

    /// The limit that the request states: all permits together are at most that many when it is granted.
    pub fn of(self) -> u32 {
        self.of.get()
    }
}

impl fmt::Debug for Permits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {}", self.take, self.of)
    }
}
