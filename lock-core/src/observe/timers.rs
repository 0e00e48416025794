//! Measures how long acquires and holds last, and records how they end.

use std::sync::atomic::{AtomicBool, Ordering};
#[cfg(feature = "metrics")]
use std::time::Duration;

use super::{millis, shielded};
use crate::error::{Error, ErrorKind, Result};
use crate::lost::Lost;
#[cfg(feature = "metrics")]
use crate::lost::LostCause;
use crate::name::LockName;
use crate::token::FencingToken;

/// Measures the duration of an acquire, and records its outcome.
pub(crate) struct AcquireTimer {
    #[cfg(feature = "metrics")]
    since: std::time::Instant,
    outcome: &'static str,
}

impl AcquireTimer {
    pub(crate) fn begin() -> Self {
        shielded(|| {
            #[cfg(feature = "metrics")]
            metrics::gauge!("polylock_acquires").increment(1);
        });
        Self {
            #[cfg(feature = "metrics")]
            since: std::time::Instant::now(),
            outcome: "cancelled",
        }
    }

    /// With the token; `None` where the lock is taken and that is no error.
    pub(crate) fn ended(&mut self, name: &LockName, result: Result<Option<FencingToken>, &Error>) {
        self.outcome = match result {
            Ok(Some(token)) => {
                shielded(|| {
                    tracing::debug!(target: "polylock", lock = name.as_str(), token = token.as_u64(), "lock acquired");
                });
                "acquired"
            }
            Ok(None) => "busy",
            Err(error) => {
                shielded(|| {
                    tracing::debug!(target: "polylock", lock = name.as_str(), %error, "lock not acquired");
                });
                match error.kind() {
                    ErrorKind::TimedOut => "timed_out",
                    ErrorKind::Unavailable => "unavailable",
                    _ => "failed",
                }
            }
        };
    }
}

impl Drop for AcquireTimer {
    fn drop(&mut self) {
        #[cfg(feature = "metrics")]
        shielded(|| {
            metrics::histogram!("polylock_wait_seconds", "outcome" => self.outcome).record(self.since.elapsed());
            metrics::gauge!("polylock_acquires").decrement(1);
        });
        let _ = self.outcome;
    }
}

/// Measures the duration of a hold, and records its end, once.
#[derive(Debug)]
pub(crate) struct HoldTimer {
    /// Whether its end was recorded.
    is_over: AtomicBool,
    #[cfg(feature = "metrics")]
    since: std::time::Instant,
    /// For how long it was held, once its last guard has let go. Then only the release can show whether it was lost before.
    #[cfg(feature = "metrics")]
    held_for: std::sync::OnceLock<Duration>,
}

impl HoldTimer {
    pub(crate) fn begin() -> Self {
        shielded(|| {
            #[cfg(feature = "metrics")]
            metrics::gauge!("polylock_holds").increment(1);
        });
        Self {
            is_over: AtomicBool::new(false),
            #[cfg(feature = "metrics")]
            since: std::time::Instant::now(),
            #[cfg(feature = "metrics")]
            held_for: std::sync::OnceLock::new(),
        }
    }

    /// Its last guard has let go of a hold that is not known to be lost.
    pub(crate) fn let_go(&self) {
        #[cfg(feature = "metrics")]
        if self.held_for.set(self.since.elapsed()).is_ok() {
            shielded(|| metrics::gauge!("polylock_holds").decrement(1));
        }
    }

    /// Its release is over, answered or not. Says nothing of a hold whose loss was reported.
    pub(crate) fn released(&self) {
        if !self.is_over.swap(true, Ordering::Relaxed) {
            self.ended("released");
        }
    }

    /// Reports the loss, unless the end was recorded before.
    pub(crate) fn lost(&self, lost: &Lost, token: FencingToken) {
        if self.is_over.swap(true, Ordering::Relaxed) {
            return;
        }
        let cause = lost.cause();
        shielded(|| {
            tracing::warn!(target: "polylock", lock = lost.name().as_str(), token = token.as_u64(), %cause,
                error = lost.error().map(tracing::field::display), confirmed_ms_ago = lost.last_confirmed().map(millis),
                lease_ended_ms_ago = lost.lease_ended().map(millis), "hold lost");
        });
        #[cfg(feature = "metrics")]
        shielded(|| {
            let cause = match cause {
                LostCause::Expired => "expired",
                LostCause::NotHeld => "not_held",
                LostCause::Revoked => "revoked",
                LostCause::Disconnected => "disconnected",
                LostCause::ReadOnly => "read_only",
                LostCause::MaximumHold => "maximum_hold",
                // Not reported: to the parent, the hold is not lost.
                LostCause::Forked => "forked",
            };
            metrics::counter!("polylock_losses_total", "cause" => cause).increment(1);
        });
        self.let_go();
        self.ended("lost");
    }

    fn ended(&self, how: &'static str) {
        #[cfg(feature = "metrics")]
        if let Some(held_for) = self.held_for.get() {
            shielded(|| metrics::histogram!("polylock_hold_seconds", "ended" => how).record(*held_for));
        }
        let _ = how;
    }
}

impl Drop for HoldTimer {
    /// Of a release that its runtime did not end or begin.
    fn drop(&mut self) {
        self.let_go();
        self.released();
    }
}
