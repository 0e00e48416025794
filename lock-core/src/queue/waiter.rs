//! What the queue has to know of those who wait in it.

use std::fmt;

use super::Turn;
use crate::error::{Error, Result};
use crate::reentry::ReentryKey;
use crate::sync::time::Instant;

/// A caller in the queue.
pub(crate) trait Waiter: fmt::Debug + Send + Sized + 'static {
    /// What the process holds, in which a waiter may share.
    type Hold: fmt::Debug + Send + Sync;

    /// Whether it waits for a name that is taken. One that does not is told as soon as that is known.
    fn is_patient(&self) -> bool;

    /// Until when it waits; `None` for ever.
    fn deadline(&self) -> Option<Instant>;

    fn reentry(&self) -> Option<&ReentryKey>;

    /// Whether nobody listens any more.
    fn is_gone(&self) -> bool;

    /// Gives it the turn, which comes back where nobody listens any more.
    fn take_turn(self, turn: Turn<Self>) -> Result<(), Turn<Self>>;

    /// The name is taken.
    fn refuse(self);

    /// Nobody gets it, as whoever had the turn found out for everybody.
    fn fail(self, error: Error);
}
