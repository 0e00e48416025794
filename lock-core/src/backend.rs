//! For those who implement a backend, or test one: the contract between core, which is policy, and a backend, which
//! is mechanism.
//!
//! A backend implements [`DistributedLock`] and [`Hold`]. It owns its connections or session with their liveness, its
//! encoding of names, and its scripts or statements. Core decides when to renew, how long to wait, when to try again,
//! and what was lost; it never drops a future of [`acquire`](DistributedLock::acquire),
//! [`abandon`](DistributedLock::abandon), [`release`](Hold::release) or [`hand_over`](Hold::hand_over) half-way, as
//! long as the runtime on which it began is driven. If another runtime takes over, core drops the future and makes the
//! same call again: all four are idempotent. `MemoryBackend` is the reference; the `conformance-tests` crate
//! tells whether yours keeps the contract.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

pub use self::capabilities::Capabilities;
pub use self::holder::HolderId;
pub use self::lease::{Armed, Lease};
pub use self::request::{AcquireRequest, RequestControl, RequestOptions, Terms, Wait};
pub use self::sent_at::SentAt;
pub use self::status::{HolderStatus, LockStatus};
pub use crate::error::LostCause;

use crate::error::Result;
use crate::name::LockName;
use crate::token::FencingToken;

mod capabilities;
mod holder;
pub(crate) mod lease;
mod request;
pub mod rules;
mod sent_at;
mod status;

/// A lock server, seen from one process.
///
/// # Contract
/// - **Exclusion.** At most one holder id has a name at a time. No request ever shortens a hold at the server: expiry
///   moves only forward, so that late, repeated and reordered requests are harmless.
/// - **The lease counts from before sending.** Call [`AcquireRequest::sending`] just before each request that may grant
///   or leave a queue entry, with the connection at hand, and arm the lease with its result when the answer is there. After
///   waiting, send a fresh request and arm the lease from that one. Core does not abandon a request for which `sending`
///   was never called, if its acquire failed as [not executed](crate::Error::not_executed).
/// - **Tokens.** Every grant's token is larger than every earlier grant's of that name: also after expiry, release,
///   rollback and deletion of the name's state.
/// - **Unknown outcomes.** A timeout, a reset or a dropped connection may have taken effect: answer an error, never
///   [`Attempt::Busy`]. Core then repeats the request under the same holder id or abandons it. If the server certainly
///   did not execute the request, mark the error as [`not_executed`](crate::Error::not_executed): after any other error
///   of a release, core takes a later "not yours" for the doing of the earlier request.
/// - **Slow lines.** A hold survives any round trip below 0.4 ttl. Do not give up a request earlier than its caller
///   does; a late answer counts for the moment at which its request was sent.
/// - **Outages.** While an acquire waits at the server, report a connection that ended or fell silent by
///   [`AcquireRequest::note_unreachable`], so that the caller's error tells an outage from a lock that is taken.
/// - **Retired ids.** After [`abandon`](Self::abandon), a release or a hand-over (the giver's id) no request of that
///   holder id may take effect any more: send them over one connection, end the old one first, or leave a tombstone.
/// - **Secrets** never reach `Debug`, errors or traces.
#[async_trait]
pub trait DistributedLock: Debug + Send + Sync + 'static {
    /// What this backend promises beyond the minimum. Does no I/O, and answers the same every time.
    fn capabilities(&self) -> Capabilities;

    /// Reaches the server and checks that it can serve. A backend connects on demand as well: this is for those who
    /// want to know at start-up.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`](crate::ErrorKind::Unavailable) when the server was not reached within the
    /// backend's connect timeout; at once [`Denied`](crate::ErrorKind::Denied) for wrong credentials and
    /// [`Misconfigured`](crate::ErrorKind::Misconfigured) for a server that is not of the kind wanted.
    ///
    /// # Cancel safety
    /// May be dropped at any point.
    async fn connect(&self) -> Result<()>;

    /// Acquires, or says that the name is taken.
    ///
    /// With [`Wait::No`] it never waits and leaves no queue entry. Otherwise it waits at the server where the server can
    /// wake it, telling core of it by [`AcquireRequest::note_busy`]; where the server cannot, it answers
    /// [`Busy`] with the time after which to ask again, and its queue entry, if any, is kept. It is driven to its end
    /// even when nobody waits for it any more: then [`AcquireRequest::given_up`] fires, and it ends soon, with
    /// whatever answer. May be called again with the same request after an error or [`Busy`], or after an earlier call
    /// was dropped because another runtime took over; when the holder id has
    /// the name already, the answer is the same grant, with the full ttl armed (or, where the session renews, as much as the
    /// session is known to live).
    ///
    /// # Errors
    /// Whatever the server or the way to it says. Core repeats it while the error is
    /// [retryable](crate::Error::is_retryable) and somebody waits, once the server has ever answered.
    ///
    /// # Cancel safety
    /// Never dropped half-way while the runtime on which it began is driven; called again after that.
    async fn acquire(&self, request: &AcquireRequest) -> Result<Attempt>;

    /// Undoes whatever this request's holder id may have left at the server: a hold, a queue entry, a request under way.
    /// Idempotent. After it the id is dead.
    ///
    /// # Errors
    /// When it is not known to be undone; core calls it again until then, or until the hold has ended by itself.
    ///
    /// # Cancel safety
    /// Never dropped half-way while the runtime on which it began is driven; called again after that.
    async fn abandon(&self, request: &AcquireRequest) -> Result<()>;

    /// Who has the name, as the server sees it.
    ///
    /// # Errors
    /// When the server cannot be asked.
    ///
    /// # Cancel safety
    /// May be dropped at any point.
    async fn status(&self, name: &LockName) -> Result<LockStatus>;
}

/// A hold at the server. Every method takes `&self`, so that a release never waits for a hung renewal.
///
/// Dropping it without a release leaves the hold to end by itself.
#[async_trait]
pub trait Hold: Debug + Send + Sync + 'static {
    /// The hold's fencing token.
    fn token(&self) -> FencingToken;

    /// Keeps the hold for at least `ttl` from now, never shorter than it is kept already. Where the backend's session
    /// renews, core calls it only to [extend](crate::Guard::extend). While a renewal is unanswered, core sends the next one
    /// every sixth of the ttl and goes on waiting for the earlier ones: several calls may be under way.
    ///
    /// # Errors
    /// When the outcome is unknown. Core tries again until the lease has ended.
    ///
    /// # Cancel safety
    /// May be dropped at any point, and is dropped when the release begins.
    async fn renew(&self, ttl: Duration) -> Result<Renewal>;

    /// Ends the hold, if it is still this holder's. Idempotent: when the answer to an earlier call got lost,
    /// [`ReleaseOutcome::AlreadyLost`] may be that call's doing, and core knows.
    ///
    /// With [`ReleaseOptions::keep_for`] the holder id is retired as well, so that no late renewal finds it, but the
    /// name stays taken for that long from now and no longer; whoever waits first has it then.
    ///
    /// # Errors
    /// When the outcome is unknown. Core tries again until the lease has been over for a ttl.
    ///
    /// # Cancel safety
    /// Never dropped half-way while the runtime on which it began is driven; called again after that.
    async fn release(&self, how: ReleaseOptions) -> Result<ReleaseOutcome>;

    /// Passes the hold to the next waiter of this process in one step, on that one's terms, with a fresh token and its
    /// own lease, for at least its ttl from now. Nobody who waits elsewhere gets the name in between. Idempotent per
    /// request: a repetition finds the next one holding, and answers the same grant. Defaults to a release, after which
    /// the next one acquires by itself; a backend that passes on declares [`Capabilities::hand_over`].
    ///
    /// The next one's id must be dead for ever once *this* hold's release was answered and the next request was
    /// abandoned after that, in this order.
    ///
    /// # Errors
    /// When the outcome is unknown: core undoes both ids, the giver's first.
    ///
    /// # Cancel safety
    /// Never dropped half-way while the runtime on which it began is driven; called again after that.
    async fn hand_over(&self, next: &AcquireRequest) -> Result<HandOver> {
        let _ = next;
        Ok(match self.release(ReleaseOptions::default()).await? {
            ReleaseOutcome::Released => HandOver::Yielded,
            ReleaseOutcome::AlreadyLost => HandOver::AlreadyLost,
        })
    }
}

/// The answer to an acquire.
#[derive(Debug)]
#[non_exhaustive]
pub enum Attempt {
    /// The name is ours.
    Granted(Arc<dyn Hold>, Armed),
    /// Somebody else has it.
    Busy(Busy),
}

/// Somebody else has the name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Busy {
    /// What the holder calls itself, where the server knows.
    pub holder: Option<Arc<str>>,
    /// When to ask again, where the server cannot wake us. Core asks no later than that; without it, it backs off.
    pub ask_again: Option<Duration>,
}

impl Busy {
    /// Busy, and nothing else is known.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds what the holder calls itself.
    #[must_use]
    pub fn with_holder(mut self, label: impl Into<Arc<str>>) -> Self {
        self.holder = Some(label.into());
        self
    }

    /// Adds when to ask again.
    #[must_use]
    pub fn with_ask_again(mut self, after: Duration) -> Self {
        self.ask_again = Some(after);
        self
    }
}

/// The answer to a renewal.
#[derive(Debug)]
#[non_exhaustive]
pub enum Renewal {
    /// The hold goes on.
    Renewed(Armed),
    /// The server says that the hold is not ours any more.
    Lost,
}

/// How to release. The default: the name is free at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReleaseOptions {
    /// How long from now the name is to stay taken all the same: what is left of a minimum hold. Core asks for it only
    /// where [`Capabilities::minimum_hold`] is declared.
    pub keep_for: Option<Duration>,
}

impl ReleaseOptions {
    /// Keeps the name taken for so long from now.
    #[must_use]
    pub fn keep_for(mut self, time: Duration) -> Self {
        self.keep_for = Some(time);
        self
    }
}

/// The answer to a release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReleaseOutcome {
    /// The hold was ours and has ended.
    Released,
    /// The hold was not ours any more; nothing was touched.
    AlreadyLost,
}

/// The answer to a hand-over.
#[derive(Debug)]
#[non_exhaustive]
pub enum HandOver {
    /// The next one has it.
    Granted(Arc<dyn Hold>, Armed),
    /// Released; the next one has nothing and acquires by itself.
    Yielded,
    /// The hold was not ours any more; nothing was touched.
    AlreadyLost,
}

/// In which way a name is held.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Mode {
    /// By one holder alone.
    #[default]
    Exclusive,
}
