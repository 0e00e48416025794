//! The queue's view of its waiters.

use std::fmt;

use super::Turn;
use crate::error::{Error, Result};
use crate::reentry::ReentryKey;
use crate::sync::time::Instant;

/// A caller in the queue.
pub(crate) trait Waiter: fmt::Debug + Send + Sized + 'static {
    /// A hold of the process that waiters may share.
    type Hold: fmt::Debug + Send + Sync;

    /// True if it waits for a name that is taken. A waiter that does not is refused as soon as the name is known to be
    /// taken.
    fn is_patient(&self) -> bool;

    /// The end of its wait; `None` for ever.
    fn deadline(&self) -> Option<Instant>;

    fn reentry(&self) -> Option<&ReentryKey>;

    /// True if its caller has gone.
    fn is_gone(&self) -> bool;

    /// Gives the waiter the turn. Returns the turn if the caller has gone.
    fn take_turn(self, turn: Turn<Self>) -> Result<(), Turn<Self>>;

    /// Reports that the name is taken.
    fn refuse(self);

    /// Reports an error that concerns all waiters, found by the holder of the turn.
    fn fail(self, error: Error);
}
