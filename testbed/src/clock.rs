//! A wall clock that a server runs on and a test sets.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;

use crate::watchdog::Watchdog;
use crate::{Error, data};

/// A wall clock for servers, which runs like the real one until it is [set](Self::set). The monotonic clock is not
/// touched. Clones are the same clock.
///
/// A small library is compiled with `cc` and loaded into the server before all others.
#[derive(Debug, Clone)]
pub struct Clock(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    /// What the library has mapped.
    ahead: File,
    watchdog: Watchdog,
}

impl Clock {
    /// One that shows the real time.
    ///
    /// # Errors
    /// [`Error::Io`] where there is no C compiler `cc`, or it fails.
    pub fn new() -> Result<Self, Error> {
        let watchdog = Watchdog::start(&data::base(), "clock")?;
        let library = watchdog.dir().join("clock.so");
        let compiling = || Error::io("compiling the clock with the C compiler `cc`");
        let mut cc = Command::new("cc")
            .args(["-shared", "-fPIC", "-O1", "-x", "c", "-", "-o"])
            .arg(&library)
            .stdin(Stdio::piped())
            .spawn()
            .map_err(compiling())?;
        let sent = cc
            .stdin
            .take()
            .expect("its stdin is piped")
            .write_all(include_bytes!("clock.c"));
        let status = cc.wait().map_err(compiling())?;
        sent.map_err(compiling())?;
        if !status.success() {
            return Err(compiling()(std::io::Error::other(status.to_string())));
        }
        let path = watchdog.dir().join("ahead");
        let ahead = File::create_new(&path).map_err(Error::io("creating a clock"))?;
        let clock = Self(Arc::new(Inner { ahead, watchdog }));
        clock.set(0)?;
        Ok(clock)
    }

    /// Moves it this many nanoseconds ahead of the real one, or behind, at once.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn set(&self, ahead: i64) -> Result<(), Error> {
        let bytes = ahead.to_ne_bytes();
        self.0
            .ahead
            .write_all_at(&bytes, 0)
            .map_err(Error::io("setting a clock"))
    }

    /// What a server must find in its environment to run on it.
    pub(crate) fn environment(&self) -> [(&'static str, PathBuf); 2] {
        let dir = self.0.watchdog.dir();
        [
            ("LD_PRELOAD", dir.join("clock.so")),
            ("POLYLOCK_CLOCK", dir.join("ahead")),
        ]
    }
}
