//! The one thread of a process that drives all blocking lockers.

use std::future::pending;
use std::io;
use std::sync::mpsc::sync_channel;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::thread::{self, ThreadId};

use tokio::runtime::{Builder, Handle};

use crate::error::{Error, ErrorKind, Result};
use crate::of_process::{OfProcess, PROCESSES};

static SLOTS: [OfProcess<Slot>; PROCESSES] = [const { OfProcess::new(Slot::new()) }; PROCESSES];

struct Slot {
    driver: OnceLock<Driver>,
    starting: Mutex<()>,
}

struct Driver {
    runtime: Handle,
    thread: ThreadId,
}

/// The runtime that polylock's thread drives. The first call in a process starts the thread.
///
/// # Errors
/// On that very thread, which would wait for itself; if the operating system starts no thread.
pub(super) fn runtime() -> Result<&'static Handle> {
    let driver = Slot::of_this_process()?.driver()?;
    if thread::current().id() == driver.thread {
        let message = "a blocking call on the thread `polylock` would wait for itself: await the async one there";
        return Err(Error::new(ErrorKind::Misconfigured, message).not_executed());
    }
    Ok(&driver.runtime)
}

impl Slot {
    const fn new() -> Self {
        Self {
            driver: OnceLock::new(),
            starting: Mutex::new(()),
        }
    }

    fn of_this_process() -> Result<&'static Self> {
        OfProcess::own(&SLOTS).ok_or_else(|| {
            let message = format!("polylock was used in {PROCESSES} processes, each forked by the one before it");
            Error::new(ErrorKind::Misconfigured, message).not_executed()
        })
    }

    fn driver(&self) -> Result<&Driver> {
        if let Some(driver) = self.driver.get() {
            return Ok(driver);
        }
        let _starting = self.starting.lock().unwrap_or_else(PoisonError::into_inner);
        match self.driver.get() {
            Some(driver) => Ok(driver),
            None => {
                let driver = Driver::start()?;
                Ok(self.driver.get_or_init(|| driver))
            }
        }
    }
}

impl Driver {
    fn start() -> Result<Self> {
        let failed = |error| {
            let message = "the thread `polylock` cannot be started";
            Error::new(ErrorKind::Unavailable, message)
                .with_source(error)
                .not_executed()
        };
        // Made on the thread itself: a runtime that is dropped inside async code, as it would be if the thread cannot be started,
        // panics.
        let (tell, told) = sync_channel(1);
        let drive = move || match Builder::new_current_thread().enable_all().build() {
            Err(error) => drop(tell.send(Err(error))),
            Ok(runtime) => {
                drop(tell.send(Ok(runtime.handle().clone())));
                runtime.block_on(pending::<()>());
            }
        };
        let thread = thread::Builder::new()
            .name("polylock".into())
            .spawn(drive)
            .map_err(failed)?;
        let made = told.recv().unwrap_or_else(|ended| Err(io::Error::other(ended)));
        Ok(Self {
            runtime: made.map_err(failed)?,
            thread: thread.thread().id(),
        })
    }
}
