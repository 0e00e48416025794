//! A caller in the local queue.

use super::pending::PendingAcquire;
use crate::error::{Error, Result};
use crate::hold::{ActiveHold, Share, Successor};
use crate::options::CheckedLock;
use crate::options::wait::WaitLimit;
use crate::queue::{Turn, Waiter};
use crate::reentry::ReentryKey;
use crate::sync::oneshot;
use crate::sync::time::Instant;
use crate::time::LeaseInstant;

/// Somebody who acquires, in the local queue.
#[derive(Debug)]
pub(crate) struct Caller {
    pub(crate) lock: CheckedLock,
    pub(crate) wait: WaitLimit,
    pub(crate) deadline: Option<Instant>,
    /// The beginning of its acquire.
    pub(crate) asked: LeaseInstant,
    pub(crate) wakeup: oneshot::Sender<Wakeup>,
}

/// A message to a caller in the queue.
#[derive(Debug)]
pub(crate) enum Wakeup {
    /// The caller has the turn.
    Turn(Turn<Caller>),
    /// The caller has the turn, and continues the request of a caller that has gone.
    Pending(Box<PendingAcquire>),
    /// The caller has a share in the hold.
    Share(Share<Caller>),
    /// The name is taken; for callers that do not wait.
    Busy,
    /// No caller gets the name: the error that the holder of the turn received.
    Failed(Error),
}

impl Waiter for Caller {
    type Hold = ActiveHold<Self>;

    fn is_patient(&self) -> bool {
        self.wait.is_patient()
    }

    fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    fn reentry(&self) -> Option<&ReentryKey> {
        self.lock.options.reentry_key.as_ref()
    }

    fn is_gone(&self) -> bool {
        self.wakeup.is_closed()
    }

    fn take_turn(self, turn: Turn<Self>) -> Result<(), Turn<Self>> {
        match self.wakeup.send(Wakeup::Turn(turn)) {
            Err(Wakeup::Turn(turn)) => Err(turn),
            _ => Ok(()),
        }
    }

    fn refuse(self) {
        // Nobody listens any more where it fails.
        let _ = self.wakeup.send(Wakeup::Busy);
    }

    fn fail(self, error: Error) {
        let _ = self.wakeup.send(Wakeup::Failed(error));
    }
}

impl Successor for Caller {
    fn asks_for(&self) -> &CheckedLock {
        &self.lock
    }

    fn asked(&self) -> LeaseInstant {
        self.asked
    }

    fn take_share(self, share: Share<Self>) -> Result<(), Share<Self>> {
        match self.wakeup.send(Wakeup::Share(share)) {
            Err(Wakeup::Share(share)) => Err(share),
            _ => Ok(()),
        }
    }
}
