//! The moment when a request was sent, from which leases count.

use std::sync::atomic::AtomicU64;

use crate::sync::Ordering;
use crate::time::LeaseInstant;

/// The moment just before a request went out, from which the lease that its answer arms is counted.
#[derive(Clone, Copy, Debug)]
pub struct SentAt {
    pub(super) at: LeaseInstant,
    /// The number of suspicions so far. It orders events that share one reading of the clock.
    pub(super) suspicions: u64,
}

/// All suspicions of this process, so that one `SentAt` can arm every lease of a session.
static SUSPICIONS: AtomicU64 = AtomicU64::new(0);

impl SentAt {
    /// Takes the time just before a renewal or a session's heartbeat is sent. An acquire takes it by
    /// [`AcquireRequest::sending`](super::AcquireRequest::sending).
    pub fn now() -> Self {
        #[cfg(feature = "test-util")]
        paused::pause();
        Self {
            at: LeaseInstant::now_or_earlier(),
            suspicions: SUSPICIONS.load(Ordering::SeqCst),
        }
    }

    /// For tests of backends: from here on, all moments that this thread takes are taken after a call of `pause`. If a backend
    /// takes the moment after its request has taken effect, time that passes in `pause` makes its lease longer than the server's.
    #[cfg(feature = "test-util")]
    pub fn pause_before(pause: impl Fn() + 'static) {
        paused::set(pause);
    }

    /// The later one.
    pub(super) fn later(self, other: Self) -> Self {
        match self.key() < other.key() {
            true => other,
            false => self,
        }
    }

    /// A key that orders two moments.
    pub(super) fn key(&self) -> (u64, LeaseInstant) {
        (self.suspicions, self.at)
    }
}

/// Counts one more suspicion, and returns its number.
pub(super) fn next_suspicion() -> u64 {
    SUSPICIONS.fetch_add(1, Ordering::SeqCst) + 1
}

#[cfg(feature = "test-util")]
mod paused {
    use std::cell::RefCell;
    use std::rc::Rc;

    thread_local! {
        static PAUSE: RefCell<Option<Rc<dyn Fn()>>> = const { RefCell::new(None) };
    }

    pub(super) fn set(pause: impl Fn() + 'static) {
        PAUSE.with_borrow_mut(|set| *set = Some(Rc::new(pause)));
    }

    pub(super) fn pause() {
        let pause = PAUSE.with_borrow(Clone::clone);
        if let Some(pause) = pause {
            pause();
        }
    }
}
