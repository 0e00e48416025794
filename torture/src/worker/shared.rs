//! The state that the actors of a process share.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use lock_core::{Locker, Watch};
use rustix::process::{Signal, getpid, kill_process};

use crate::config::ENOUGH_HOLDS;
use crate::record::Writer;

use super::job::{Job, RECOVERED, say};

/// The state that the actors of a process share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) job: Job,
    pub(super) locker: Locker,
    pub(super) history: Writer,
    pub(super) calm: AtomicBool,
    pub(super) finishing: AtomicBool,
    pub(super) gap: AtomicBool,
    /// The number of holds since the faults.
    pub(super) calm_holds: AtomicUsize,
    pub(super) last_op: AtomicU64,
    pub(super) watched: Mutex<Vec<Watched>>,
}

/// A hold that a session renews: nobody tells of it, so it is looked at.
#[derive(Debug)]
pub(super) struct Watched {
    pub(super) watch: Watch,
    pub(super) lock: usize,
    pub(super) end: u64,
}

/// More operations than a process has in its life: the next one in its place begins with other numbers.
const OPERATIONS: u64 = 1_000_000_000;

impl Shared {
    pub(super) fn new(job: Job, locker: Locker, history: Writer) -> Self {
        let last_op = OPERATIONS * u64::from(job.incarnation);
        Self {
            job,
            locker,
            history,
            calm: AtomicBool::new(false),
            finishing: AtomicBool::new(false),
            gap: AtomicBool::new(false),
            calm_holds: AtomicUsize::new(0),
            last_op: AtomicU64::new(last_op),
            watched: Mutex::default(),
        }
    }

    pub(super) fn is_calm(&self) -> bool {
        self.calm.load(Ordering::Relaxed)
    }

    /// Counts the holds since the faults, and says when they are enough.
    pub(super) fn note_acquired(&self) {
        if self.is_calm() && self.calm_holds.fetch_add(1, Ordering::Relaxed) + 1 == ENOUGH_HOLDS {
            say(RECOVERED);
        }
    }

    /// Where a pause does most harm: after the check, before the write.
    pub(super) fn pass_the_gap(&self) {
        if self.gap.swap(false, Ordering::Relaxed) {
            // Our own process can always be signalled.
            let _ = kill_process(getpid(), Signal::STOP);
        }
    }

    pub(super) fn watch(&self, watch: Watch, lock: usize, end: u64) {
        if self.locker.capabilities().session_renewal {
            let mut watched = self.watched.lock().unwrap_or_else(PoisonError::into_inner);
            watched.push(Watched { watch, lock, end });
        }
    }
}
