//! Static values of which each process has its own, also after a fork.

use std::sync::atomic::{AtomicU32, Ordering};

/// The most processes of one chain of forks that have a value.
pub(crate) const PROCESSES: usize = 64;

/// A slot for the value of one process. A forked child takes a slot of its own. It never touches that of its parent, whose locks may
/// have been taken by a thread that did not come along.
pub(crate) struct OfProcess<T> {
    /// The process whose slot it is, or [`NOBODY`].
    process: AtomicU32,
    value: T,
}

const NOBODY: u32 = 0;

impl<T> OfProcess<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self {
            process: AtomicU32::new(NOBODY),
            value,
        }
    }

    /// The value of this process. `None` if other processes have all slots.
    pub(crate) fn own(slots: &[Self; PROCESSES]) -> Option<&T> {
        let process = std::process::id();
        let slot = slots.iter().find(|slot| slot.is_of(process))?;
        Some(&slot.value)
    }

    /// Takes a free slot for this process. Returns whether the slot belongs to it.
    fn is_of(&self, process: u32) -> bool {
        let taken = self
            .process
            .compare_exchange(NOBODY, process, Ordering::AcqRel, Ordering::Acquire);
        taken.is_ok() || taken == Err(process)
    }
}
