//! The state of a hold, as its process knows it.

use crate::lost::Lost;

/// The state of a hold, as its guard knows it at this moment, by its own clock and without any network.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum HoldState {
    /// Held, as far as anybody can know.
    Held,
    /// Still held, but a renewal failed, went unanswered, or the connection broke: the next success makes it
    /// [`Held`](Self::Held) again, and without one it will be lost.
    Suspect,
    /// Released, or being released.
    Released,
    /// Lost for good.
    Lost(Lost),
}

/// The end of a hold: released or lost.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Ended {
    /// It was released.
    Released,
    /// It was lost.
    Lost(Lost),
}
