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
//! of each other, nobody else ends the hold, and no former master, primary or leader goes on serving beside its successor (the
//! guarantee [`Partition`](Guarantee::Partition)). Where a hold is a connection (row locks in MySQL, sessions of PostgreSQL), that
//! connection must not break either:
//!
//! - **Exclusion.** At most one guard per name reports itself as held. The guard counts by the local monotonic clock, from
//!   before the request was sent, less a tenth of the TTL. Nothing shortens a hold at the server.
//! - **Fencing.** Each hold's token is larger than the tokens of all earlier holds of its name. The page of each backend
//!   says whether that is so after the server has lost its data.
//! - **No deadlock.** If a process dies, its lock frees itself within the TTL, or within a longer minimum hold or extension.
//! - **Losses are reported.** [`Guard::state`], [`check`](Guard::check), [`valid_for`](Guard::valid_for),
//!   [`lost`](Guard::lost), [`run`](Guard::run) and [`Watch`] need no network. A guard that was lost stays lost. [`Lost`]
//!   says why.
//! - **Renewal.** A hold is renewed every third of the TTL, or with the backend's session. It survives any round trip below
//!   0.4 of the TTL, unless the page of its backend states a lower limit.
//! - **Waiting.** After the first answer of the server, a waiting acquire continues through outages until its time limit.
//!   Tasks of one process that wait for the same name share one queue entry at the server.
//! - **Only the holder releases.** Releasing a lock you no longer hold is an error and never affects the new holder.
//! - **Cancel and drop safety.** A dropped acquire is undone in the background, and a dropped guard is released there.
//!   Neither blocks or panics. If the process ends before, the lock stays taken until the TTL ends. So await
//!   [`Locker::shutdown`] at the end of `main`, also after an error.
//! - **Errors say what is known.** After a timeout or a broken connection the outcome is unknown: the lock does not count as
//!   held, and the background work undoes what was sent. It is no error if the lock is taken.
//! - **Stopping work.** [`Guard::run`] drops its future when the lock is lost. It does not stop tasks, threads or requests
//!   that the future started.
//! - **Hung work.** A lock is renewed as long as its process lives. [`Lock::hold_at_most`] ends a hold that lasts too long, and
//!   frees its name; [`Lock::fixed_lease`] is never renewed. Work that hangs in a thread may continue later: only fencing
//!   rejects its writes.
//! - **Minimum hold.** [`Lock::hold_at_least`] keeps a name taken for a minimum time, on backends that
//!   [can](backend::Capabilities::minimum_hold). Cron jobs on hosts whose clocks differ need it. If the host dies during
//!   the job, nobody repeats it.
//! - **Requirements.** [`Locker::require`] refuses a server that does not keep a [`Guarantee`] that the program needs.
//! - **Suspended time counts** on Linux and Android (`CLOCK_BOOTTIME`). Every read of a guard's state includes it at once.
//!   A task that waits for the loss learns of it about a second after the machine resumed. On other systems it counts only
//!   if the monotonic clock runs meanwhile; on macOS it stops. A virtual machine cannot detect that its host paused
//!   it. The time limit of an acquire does not include suspended time.
//!
//! Outside those conditions (a Redis that lost data, a stepped clock, a broken connection under a row lock) only the
//! fencing token protects. Each backend's page says what can end a hold there, and how soon a guard learns of it.
//!
#![doc = include_str!("events.md")]
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
mod duration;
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
mod of_process;
mod options;
mod own_hold;
mod queue;
mod reentry;
mod retry;
mod run;
mod runtime;
mod rw_lock;
mod semaphore;
mod stale;
mod sync;
mod time;
mod token;
mod watch;
