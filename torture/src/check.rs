//! The checks of a history.

use std::fmt;

use clap::ValueEnum;

use crate::names::name_of;

/// A check of a history.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(crate) enum Check {
    /// Inside the failure model believed intervals never overlap.
    Overlap,
    /// No fenced update is lost.
    FencedUpdates,
    /// Nobody behind the fence reads what somebody else has half written, or writes meanwhile.
    TornReads,
    /// Tokens are unique, and increase in real time.
    Tokens,
    /// A name is granted to nobody else before its minimum hold is over.
    MinimumHold,
    /// Whoever holds gets the same hold again with its re-entry key, and keeps it as long as one guard is there.
    Reentry,
    /// A loss is told at most 150 ms of running time after the lease.
    LateLoss,
    /// No hold is lost while every process runs, and whatever breaks ends none.
    LostHold,
    /// Everyone acquires soon after the last fault was healed.
    Recovery,
    /// Nothing is left on the server but documented fence state.
    Leftovers,
    /// Open files, connections and memory stay flat.
    Leaks,
    /// Failures are of a kind that the contract has for them.
    Errors,
}

impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&name_of(self))
    }
}
