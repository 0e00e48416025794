//! A name that a limited number may hold at a time.

use crate::backend::{Mode, Permits};
use crate::lock::Lock;

/// A counting semaphore: its permits are held by any number of holders, as long as all permits together are within the limit.
/// Owned and cheap to clone; made by [`Locker::semaphore`](crate::Locker::semaphore).
///
/// **A semaphore limits, it does not protect**: no resource can tell by its fencing token whether a holder of one of several
/// permits is still one.
#[derive(Clone, Debug)]
pub struct Semaphore {
    lock: Lock,
    limit: u32,
}

impl Semaphore {
    pub(crate) fn new(lock: Lock, limit: u32) -> Self {
        Self { lock, limit }
    }

    /// A lock whose holder has this many permits at once.
    #[must_use]
    pub fn permits(&self, take: u32) -> Lock {
        let mode = Permits::new(take, self.limit).map(Mode::Permits);
        self.lock.clone().with_mode(mode)
    }
}
