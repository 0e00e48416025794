//! Core's policy on paused time: to the millisecond.

use std::time::Duration;

use lock_core::Locker;

use crate::scripted::Scripted;

mod between_modes;
mod cancelled;
mod last_word;
mod late_answers;
mod losses;
mod maximum;
mod one_caller;
mod own_holds;
mod passing;
mod permits;
mod readers;
mod refused;
mod required;
mod several_callers;
mod sharing;
mod silent_server;
mod slow_line;
mod together;
mod token_floor;
mod tries;

const TTL: Duration = Duration::from_secs(9);

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn scripted() -> (Scripted, Locker) {
    let backend = Scripted::default();
    let locks = Locker::new(backend.clone()).with_ttl(TTL);
    (backend, locks)
}
