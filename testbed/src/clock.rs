//! A wall clock that a server runs on and a test sets.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::Error;
use crate::preload::Preload;

/// A wall clock for servers, which runs like the real one until it is [set](Self::set) or
/// [runs differently](Self::run_faster). The monotonic clock is not touched. Clones are the same clock.
///
/// A small library is compiled with `cc` and loaded into the server before all others.
#[derive(Debug, Clone)]
pub struct Clock(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    preload: Preload,
    now: Mutex<Now>,
}

/// How it runs now.
#[derive(Debug, Clone, Copy, Default)]
struct Now {
    ahead: i64,
    faster: i64,
    since: i64,
    /// Which of the library's two settings that is.
    which: i64,
}

impl Clock {
    /// One that shows the real time.
    ///
    /// # Errors
    /// [`Error::Io`] where there is no C compiler `cc`, or it fails.
    pub fn new() -> Result<Self, Error> {
        Ok(Self(Arc::new(Inner {
            preload: Preload::new("clock", include_bytes!("clock.c"))?,
            now: Mutex::default(),
        })))
    }

    /// Moves it this many nanoseconds ahead of the real one, or behind, at once; it runs on as it did.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn set(&self, ahead: i64) -> Result<(), Error> {
        self.change(|now| now.ahead = ahead)
    }

    /// Moves it on by this many nanoseconds, or back, at once.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn step(&self, nanos: i64) -> Result<(), Error> {
        self.change(|now| now.ahead += nanos)
    }

    /// Lets it run faster than the real one by so many millionths, or slower; at -1,000,000 it stands still. It goes on
    /// from where it is.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn run_faster(&self, millionths: i64) -> Result<(), Error> {
        self.change(|now| now.faster = millionths)
    }

    fn change(&self, change: impl FnOnce(&mut Now)) -> Result<(), Error> {
        // Every step leaves it whole.
        let mut now = self.0.now.lock().unwrap_or_else(PoisonError::into_inner);
        let real = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let real = i64::try_from(real.as_nanos()).unwrap_or(i64::MAX);
        let gained = i128::from(real - now.since) * i128::from(now.faster) / 1_000_000;
        let mut next = Now {
            ahead: now.ahead + i64::try_from(gained).unwrap_or(0),
            since: real,
            which: 1 - now.which,
            ..*now
        };
        change(&mut next);
        let slot = u64::from(next.which == 1);
        self.0
            .preload
            .set(1 + 3 * slot, &[next.ahead, next.faster, next.since])?;
        self.0.preload.set(0, &[next.which])?;
        *now = next;
        Ok(())
    }

    /// What a server must find in its environment to run on it, beside the library.
    pub(crate) fn variable(&self) -> (&'static str, PathBuf) {
        ("POLYLOCK_CLOCK", self.0.preload.page())
    }

    pub(crate) fn library(&self) -> PathBuf {
        self.0.preload.library()
    }
}
