//! The one thread of a process that drives all blocking lockers.

use std::future::pending;
use std::io;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::sync_channel;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::thread::{self, ThreadId};

use tokio::runtime::{Builder, Handle};

use crate::error::{Error, ErrorKind, Result};

/// The most processes of one chain of forks that may have a thread.
const PROCESSES: usize = 64;

/// A forked child takes a slot of its own. It never touches that of its parent, whose locks may have been taken by a
/// thread that did not come along.
static SLOTS: [Slot; PROCESSES] = [const { Slot::new() }; PROCESSES];

struct Slot {
    /// The process whose slot it is, or [`NOBODY`].
    process: AtomicU32,
    driver: OnceLock<Driver>,
    starting: Mutex<()>,
}

const NOBODY: u32 = 0;

struct Driver {
    runtime: Handle,
    thread: ThreadId,
}

/// The runtime that polylock's thread drives. The first call in a process starts the thread.
///
/// # Errors
/// On that very thread, which would wait for itself; if the operating system starts no thread.
pub(super) fn runtime() -> Result<&'static Handle> {
    let driver = Slot::of(std::process::id())?.driver()?;
    if thread::current().id() == driver.thread {
        let message = "a blocking call on the thread `polylock` would wait for itself: await the async one there";
        return Err(Error::new(ErrorKind::Misconfigured, message).not_executed());
    }
    Ok(&driver.runtime)
}

impl Slot {
    const fn new() -> Self {
        Self {
            process: AtomicU32::new(NOBODY),
            driver: OnceLock::new(),
            starting: Mutex::new(()),
        }
    }

    fn of(process: u32) -> Result<&'static Self> {
        SLOTS.iter().find(|slot| slot.is_of(process)).ok_or_else(|| {
            let message = format!("polylock was used in {PROCESSES} processes, each forked by the one before it");
            Error::new(ErrorKind::Misconfigured, message).not_executed()
        })
    }

    /// Takes a free slot for this process. Returns whether the slot belongs to it.
    fn is_of(&self, process: u32) -> bool {
        let taken = self
            .process
            .compare_exchange(NOBODY, process, Ordering::AcqRel, Ordering::Acquire);
        taken.is_ok() || taken == Err(process)
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
