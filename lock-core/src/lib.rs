//! The contract of polylock's distributed locks, the policy that all backends share, and the memory backend.
//!
//! Applications use the `polylock` crate, which re-exports this crate together with the backends. To write a backend of
//! your own, start at [`backend`]. For code without async there is the module `blocking`, with the feature of that name.
//!
//! # What no lock service can promise
//! A process may be paused past the end of its lease: by a garbage collector, by a page fault, or because the machine is
//! suspended. A process that resumes late may act before it checks. Any time may pass between a check and the action that
//! follows. No lock service can prevent that, but the protected resource can: give it the guard's [`FencingToken`], and
//! have it reject any token lower than the highest it has seen. It must see the token *before the first read* on which a
//! later write depends: a fence on writes alone loses updates.
//!
//! # What is promised
//! These promises hold as long as the server keeps what it acknowledged, its clock is not stepped, clocks run within 5 %
//! of each other, and nobody else ends the hold:
//!
//! - **Exclusion.** At most one guard per name reports itself as held. The guard counts by the local monotonic clock, from
//!   before the request was sent, less a tenth of the TTL. Nothing shortens a hold at the server.
//! - **Fencing.** Each hold's token is larger than the tokens of all earlier holds of its name.
//! - **No deadlock.** If a process dies, its lock frees itself within the TTL, or within a longer minimum hold or extension.
//! - **Losses are reported.** [`Guard::state`], [`check`](Guard::check), [`valid_for`](Guard::valid_for),
//!   [`lost`](Guard::lost), [`run`](Guard::run) and [`Watch`] need no network. A lost hold stays lost. [`Lost`] says why.
//! - **Suspended time counts** on Linux and Android (`CLOCK_BOOTTIME`). Every read of a guard's state includes it at once.
//!   A task that waits for the loss learns of it about a second after the machine resumed. On other systems it counts only
//!   if the monotonic clock runs meanwhile; on macOS it stops. A virtual machine cannot detect that its host paused
//!   it. The time limit of an acquire does not include suspended time.
//! - **Only the holder releases.** Releasing a lock you no longer hold is an error and never affects the new holder.
//! - **Cancel and drop safety.** A dropped acquire is undone in the background, and a dropped guard releases its lock there;
//!   dropping never blocks and never panics. If the process ends before, the lock stays taken until the TTL ends:
//!   await [`Locker::shutdown`].
//! - **Errors say what is known.** After a timeout or a broken connection the outcome is unknown: the lock does not count as
//!   held, and the background work undoes what was sent. It is no error if the lock is taken.
//!
//! Outside those conditions (a Redis that lost data, a stepped clock, a killed connection under a row lock) only the
//! fencing token protects. Each backend's page says what can end a hold there, and how soon a guard learns of it.
//!
//! # Tracing and metrics
//! With `tracing`, under the target `polylock`:
//!
//! | span or event | level | fields |
//! |---|---|---|
//! | span `acquire` | `DEBUG` | `lock`, `label` |
//! | `lock is taken` | `DEBUG` | `lock`, `holder` |
//! | `acquire failed; trying again` | `DEBUG` | `lock`, `error` |
//! | `semaphore limits differ` | `WARN` | `lock`, `limit`, `other` |
//! | `lock acquired` | `DEBUG` | `lock`, `token` |
//! | `lock not acquired` | `DEBUG` | `lock`, `error` |
//! | span `abandon` | `DEBUG` | `lock` |
//! | `an acquire was not undone; what it left ends by itself` | `WARN` | `lock`, `error` |
//! | `too many cancelled acquires wait to be undone; what others left ends by itself` | `WARN` | `lock` |
//! | `lock upgraded` | `DEBUG` | `lock`, `token` |
//! | `lock downgraded` | `DEBUG` | `lock`, `token` |
//! | span `renew` | `DEBUG` | `lock`, `token` |
//! | `renewal failed` | `DEBUG` | `lock`, `error` |
//! | `renewal unanswered` | `DEBUG` | `lock` |
//! | `hold suspect` | `INFO` | `lock`, `error`, `confirmed_ms_ago`, `lease_ms_left` |
//! | `hold lost` | `WARN` | `lock`, `token`, `cause`, `error`, `confirmed_ms_ago`, `lease_ended_ms_ago` |
//! | span `release` | `DEBUG` | `lock`, `token` |
//! | `lock passed on` | `DEBUG` | `lock`, `token` |
//! | `lock released` | `DEBUG` | `lock`, `token` |
//! | `release unanswered; trying again` | `DEBUG` | `lock`, `error` |
//! | `a release in the background failed; the hold ends by itself` | `DEBUG` | `lock`, `error` |
//! | `hold revoked` | `WARN` | `lock`, `token`, `at_once` |
//! | `leader elected` | `INFO` | `lock`, `term` |
//! | `leader resigned` | `INFO` | `lock`, `term` |
//! | `leadership lost` | `WARN` | `lock`, `term`, `cause` |
//! | `the backend panicked in a renewal` | `ERROR` | `lock` |
//! | `the backend panicked in the background` | `ERROR` | |
//! | `a callback of a lost lock panicked` | `ERROR` | `lock` |
//! | `a callback of a lost lock was not called: no thread can be started` | `ERROR` | `lock` |
//!
//! With the feature `metrics`, through the `metrics` crate. Lock names are not labels, since there may be any number; only
//! `polylock_leader` has the name of its election, if [`Election::measured`] asks for it.
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
//! | `polylock_losses_total` | holds that were lost | `cause`: `expired`, `not_held`, `revoked`, `disconnected`, `read_only`, `maximum_hold` |
//! | `polylock_passes_total` | holds passed on within the process | |
//! | `polylock_undos_dropped_total` | cancelled acquires that were not undone, because 10,000 waited to be | |
//! | `polylock_leader` | gauge: elections in which this process leads, by name | `election` |
//! | `polylock_requests_total` | calls of the backend, one round trip each where it does not wait | `request`: `acquire`, `renew`, `release`, `downgrade`, `abandon`, `status`, `list`, `revoke` |
#![forbid(unsafe_code)]
#![deny(missing_docs)]
#![cfg_attr(docsrs, feature(doc_cfg))]

pub use backend::lease::{Ended, HoldState};
pub use backend::options::LockOptions;
pub use credentials::{CredentialSource, Credentials};
pub use election::observer::{Leader, Observer};
pub use election::term::Term;
pub use election::{Election, ElectionState};
pub use error::{Error, ErrorKind, Result};
pub use guarantee::{Guarantee, Verdict};
pub use guard::{Guard, Release};
pub use lock::Lock;
pub use locker::Locker;
pub use lost::{Lost, LostCause};
pub use memory::MemoryBackend;
pub use multi::guard::MultiGuard;
pub use multi::{acquire_all, acquire_all_within, try_acquire_all};
pub use name::LockName;
pub use own_hold::OwnHold;
pub use reentry::ReentryKey;
pub use rw_lock::RwLock;
pub use rw_lock::upgradable::{UpgradableGuard, UpgradableLock};
pub use semaphore::Semaphore;
pub use stale::Stale;
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
#[cfg(all(feature = "blocking", not(shuttle)))]
#[cfg_attr(docsrs, doc(cfg(feature = "blocking")))]
pub mod blocking;
mod credentials;
mod election;
mod error;
mod guarantee;
mod guard;
mod hold;
mod label;
mod lock;
mod locker;
mod lost;
pub mod memory;
mod multi;
mod mutant;
mod name;
mod observe;
mod options;
mod own_hold;
mod queue;
mod reentry;
mod run;
mod runtime;
mod rw_lock;
mod semaphore;
mod stale;
mod sync;
mod time;
mod token;
mod watch;
