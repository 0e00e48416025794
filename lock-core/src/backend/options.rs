//! The options of a lock, from [`Lock`](crate::Lock) down to the request that a backend sees.

use std::time::Duration;

use super::Mode;
use crate::reentry::ReentryKey;
use crate::sync::Arc;
use crate::token::FencingToken;

const DEFAULT_TTL: Duration = Duration::from_secs(30);

/// The options of a [`Lock`](crate::Lock), or those that a [`Guard`](crate::Guard)'s hold runs with.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LockOptions {
    /// The time for which the lock stays taken after its process died. Defaults to 30 s.
    pub ttl: Duration,
    /// The label shown to anyone who asks who holds the lock. A [`Locker`](crate::Locker) has a default for its locks.
    pub label: Option<Arc<str>>,
    /// The mode. Defaults to [`Mode::Exclusive`].
    pub mode: Mode,
    /// Whether the hold is never renewed. Defaults to `false`.
    pub fixed_lease: bool,
    /// The shortest time for which the name stays taken. Defaults to `None`.
    pub minimum_hold: Option<Duration>,
    /// The longest time for which a guard keeps the lock. Defaults to `None`.
    pub maximum_hold: Option<Duration>,
    /// The number that the token is above. Defaults to `None`.
    pub token_floor: Option<FencingToken>,
    /// Whether anyone can read the hold's token from the server, as observers of an election do. Defaults to `false`.
    pub shows_token: bool,
    /// Callers with the same key share one hold. Defaults to `None`.
    pub reentry_key: Option<ReentryKey>,
}

impl Default for LockOptions {
    fn default() -> Self {
        Self {
            ttl: DEFAULT_TTL,
            label: None,
            mode: Mode::Exclusive,
            fixed_lease: false,
            minimum_hold: None,
            maximum_hold: None,
            token_floor: None,
            shows_token: false,
            reentry_key: None,
        }
    }
}
