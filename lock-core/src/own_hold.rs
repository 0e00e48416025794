//! A hold of this process, as [`Locker::holds`](crate::Locker::holds) lists it.

use std::time::Duration;

use crate::backend::Mode;
use crate::backend::lease::HoldState;
use crate::name::LockName;
use crate::sync::Arc;
use crate::token::FencingToken;

/// A hold of this process, as [`Locker::holds`](crate::Locker::holds) lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct OwnHold {
    /// The lock's name.
    pub name: LockName,
    /// The mode in which the lock is held.
    pub mode: Mode,
    /// The hold's fencing token.
    pub token: FencingToken,
    /// The label shown to anyone who asks who holds the lock.
    pub label: Option<Arc<str>>,
    /// Whether the hold is held, suspect or lost, by this process's clock.
    pub state: HoldState,
    /// The time for which it has been held.
    pub held_for: Duration,
    /// The time for which the hold lasts if nothing renews it. Zero if it was lost.
    pub valid_for: Duration,
    /// The number of guards that share the hold: readers that joined it, or guards of one
    /// [`ReentryKey`](crate::ReentryKey).
    pub guards: usize,
}
