//! What a lock asks for, for programs that show it.

use std::time::Duration;

use crate::backend::Mode;
use crate::sync::Arc;
use crate::token::FencingToken;

/// The options of a [`Lock`](crate::Lock), or those that a [`Guard`](crate::Guard)'s hold runs with.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LockOptions {
    /// How long the lock stays taken after its process died.
    pub ttl: Duration,
    /// The label shown to anyone who asks who holds the lock.
    pub label: Option<Arc<str>>,
    /// Whether it is held by one holder alone.
    pub mode: Mode,
    /// Whether the hold is never renewed.
    pub fixed_lease: bool,
    /// How long the name stays taken at least.
    pub minimum_hold: Option<Duration>,
    /// How long a guard keeps the lock at most.
    pub maximum_hold: Option<Duration>,
    /// The number that the token is above.
    pub token_floor: Option<FencingToken>,
}
