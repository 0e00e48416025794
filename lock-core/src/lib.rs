//! The contract of polylock's distributed locks, the policy that keeps it, and the memory backend.
//!
//! Applications use the `polylock` crate, which shows all of this together with the backends. Whoever writes a backend
//! of their own starts at [`backend`].
//!
//! # What no lock service can promise
//! A process that is paused past its lease, by a garbage collector, a swapped-out page or a suspended machine, wakes up
//! believing that it holds the lock until it looks. Between a check and the act that follows it, any time may pass.
//! No lock service can prevent that. What can is the resource itself: give it the guard's [`FencingToken`], and let it
//! refuse a token smaller than one that it has seen. It has to see the token *before the first read* that the later
//! write depends on: a fence on writes alone lets an update get lost.
//!
//! # What is promised
//! As long as the server keeps what it acknowledged, its clock is not stepped, clocks run within 5 % of each other, and
//! nobody else ends the hold:
//!
//! - **Exclusion.** At most one guard of a name believes in its hold. Belief counts by the local monotonic clock from
//!   before the request was sent, less a tenth of the ttl; nothing ever shortens a hold at the server.
//! - **Fencing.** Every hold's token is larger than those of all earlier holds of its name.
//! - **No deadlock.** What a dead process held is free after its ttl.
//! - **Loss is told.** [`Guard::state`], [`check`](Guard::check), [`valid_for`](Guard::valid_for),
//!   [`lost`](Guard::lost), [`run`](Guard::run) and [`Watch`] need no network. Lost is final.
//! - **Suspended time counts**, where the system tells it (Linux and Android, `CLOCK_BOOTTIME`): a look at the guard
//!   knows of it at once, and who waits for the loss is told about a second after the machine's return. Elsewhere it
//!   counts only if the system's monotonic clock goes on meanwhile; on macOS it stands still. A virtual machine whose host
//!   paused it knows of nothing. How long an acquire may take is counted by the runtime's clock, without it.
//! - **Only the holder releases.** A hold that had ended before is an error to its holder, and its successor's is not
//!   touched.
//! - **Cancel and drop safety.** A dropped acquire leaves nothing behind; a dropped guard releases in the background,
//!   never blocks and never panics.
//! - **Honest errors.** A timeout or a broken connection is an unknown outcome: not held, and undone. Busy is no error.
//!
//! Outside those conditions (a Redis that forgot, a stepped clock, a killed connection under a row lock) only the fence
//! protects. Each backend's page says what can end a hold there, and how soon a guard learns of it.
//!
//! # Watching it
//! With `tracing`, under the target `polylock`:
//!
//! | span or event | level | fields |
//! |---|---|---|
//! | span `acquire` | `DEBUG` | `name`, `label` |
//! | `lock is taken` | `DEBUG` | `name`, `holder` |
//! | `acquire failed; trying again` | `DEBUG` | `name`, `error` |
//! | `lock acquired` | `DEBUG` | `name`, `token` |
//! | `lock not acquired` | `DEBUG` | `name`, `error` |
//! | span `abandon` | `DEBUG` | `name` |
//! | `an acquire was not undone; what it left ends by itself` | `WARN` | `name`, `error` |
//! | span `renew` | `DEBUG` | `name`, `token` |
//! | `renewal failed` | `DEBUG` | `name`, `error` |
//! | `renewal unanswered` | `DEBUG` | `name` |
//! | `hold suspect` | `INFO` | `name` |
//! | `hold lost` | `WARN` | `name`, `token`, `cause` |
//! | span `release` | `DEBUG` | `name`, `token` |
//! | `hand-over` | `DEBUG` | `name`, `outcome` |
//! | `hand-over unanswered; undoing it` | `DEBUG` | `name`, `error` |
//! | `lock released` | `DEBUG` | `name`, `token` |
//! | `release unanswered; trying again` | `DEBUG` | `name`, `error` |
//! | `a release in the background failed; the hold ends by itself` | `DEBUG` | `name`, `error` |
//! | `the backend panicked in a renewal` | `ERROR` | `name` |
//! | `the backend panicked in the background` | `ERROR` | |
//!
//! With the feature `metrics`, through the facade of that name. Lock names are no labels: there may be any number.
//!
//! | metric | kind | label |
//! |---|---|---|
//! | `polylock_wait_seconds` | histogram: an acquire, from its call to its end | `outcome`: `acquired`, `busy`, `timed_out`, `unavailable`, `failed`, `cancelled` |
//! | `polylock_hold_seconds` | histogram: a hold, from its grant to its end | `ended`: `released`, `lost` |
//! | `polylock_acquires` | gauge: acquires under way | |
//! | `polylock_holds` | gauge: locks held by this process | |
//! | `polylock_contended_total` | acquires that found the lock taken, by this process or at the server | `queue`: `process`, `server` |
//! | `polylock_renewals_total` | renewals | `outcome`: `renewed`, `lost`, `failed`, `unanswered` |
//! | `polylock_suspicions_total` | holds that became suspect | |
//! | `polylock_losses_total` | holds that were lost | `cause`: `expired`, `not_held`, `disconnected` |
//! | `polylock_hand_overs_total` | holds passed on within the process | `outcome`: `granted`, `yielded`, `lost`, `unknown` |
//! | `polylock_requests_total` | calls of the backend, one round trip each where it does not wait | `request`: `acquire`, `renew`, `release`, `hand_over`, `abandon`, `status` |
#![forbid(unsafe_code)]
#![deny(missing_docs)]

pub use backend::lease::{Ended, HoldState};
pub use error::{Error, ErrorKind, Lost, LostCause, Result};
pub use guard::{Guard, Release};
pub use lock::{Lock, LockOptions};
pub use locker::Locker;
pub use memory::MemoryBackend;
pub use name::LockName;
pub use reentry::ReentryKey;
pub use token::FencingToken;
pub use watch::Watch;

/// For the tests of races alone, which shuttle drives.
#[cfg(shuttle)]
#[doc(hidden)]
pub mod races {
    pub use crate::mutant::{Mutant, activate};
    pub use crate::sync::checked::on_runtime;
    pub use crate::sync::checked::time::{begin, pass};
}

mod acquire;
pub mod backend;
mod backend_state;
mod background;
mod error;
mod guard;
mod hold;
mod label;
mod lock;
mod locker;
mod memory;
mod mutant;
mod name;
mod observe;
mod queue;
mod reentry;
mod runtime;
mod sync;
mod time;
mod token;
mod watch;
