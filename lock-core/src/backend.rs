//! The contract between core, which is policy, and a backend, which is mechanism: for people who write or test a backend.
//!
//! A backend implements [`DistributedLock`] and [`Hold`]. It owns its connections or session and their liveness, its
//! encoding of names, and its scripts or statements. Core decides when to renew, how long to wait, when to retry, and what
//! was lost.
//!
//! Core never drops a future of [`acquire`](DistributedLock::acquire), [`abandon`](DistributedLock::abandon) or
//! [`release`](Hold::release) half-way, as long as the locker is used on one runtime alone, and that is driven. If another runtime
//! takes over, core drops the future and makes the same call again: all three are idempotent. It abandons an acquire for which nobody
//! waits any more instead. A runtime takes over from one that nobody drives, or that ends. It also takes over, from one that is driven,
//! a call that its caller has left, if the locker's background work is done on this runtime, or if the next waiter is here.
//!
//! Core does not limit the time of these calls: a backend limits its own requests. A [quorum](https://docs.rs/lock-quorum) drops a call to one of its nodes that has no answer after two
//! TTLs. It abandons an acquire after that, and makes no further call for a release.
//!
//! On a runtime that is shutting down, where each new task is dropped at once, a call returns. Core polls its background work without
//! Tokio's budget: a call that tries again without an end would keep the runtime from ending.
//!
//! `MemoryBackend` is the reference. The `conformance-tests` crate checks whether a backend keeps the contract.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

pub use self::answers::{Attempt, Busy, ReleaseOutcome, Renewal};
pub use self::capabilities::Capabilities;
pub use self::change::Change;
pub use self::holder::HolderId;
pub use self::lease::{Armed, Lease};
pub use self::list::{ListFrom, ListPage};
pub use self::mode::{Mode, Permits};
pub use self::request::AcquireRequest;
pub use self::revoke::{Revoke, Revoked};
pub use self::sent_at::SentAt;
pub use self::status::{HolderStatus, LockStatus, WaiterStatus, since_of_token};
pub use crate::duration::parse_duration;
pub use crate::lost::LostCause;
pub use crate::retry::until_answered;
pub use crate::runtime::UNDRIVEN_AFTER;

use crate::error::{Error, ErrorKind, Result};
use crate::guarantee::{Guarantee, Verdict};
use crate::name::LockName;
use crate::token::FencingToken;

mod answers;
mod capabilities;
mod change;
mod declared;
mod holder;
pub(crate) mod lease;
mod list;
mod mode;
pub(crate) mod options;
pub mod request;
mod revoke;
pub mod rules;
mod sent_at;
mod status;

/// A lock server, as one process sees it.
///
/// # Contract
/// - **Exclusion.** All who hold a name at a time [fit](rules::fits) together: one exclusive holder alone, or readers, or
///   permits within their limit. No request ever shortens a hold at the server: its expiry only moves forward, so that late,
///   repeated and reordered requests are harmless.
/// - **The lease counts from before sending.** With the connection at hand, call [`AcquireRequest::sending`] just before
///   each request that may grant or leave a queue entry. Arm the lease with its result when the answer arrives. After
///   waiting, send a fresh request and arm the lease from that one. If the acquire failed as
///   [not executed](crate::Error::not_executed) and `sending` was never called, core does not abandon the request.
/// - **Tokens.** Each grant's token is larger than the tokens of all earlier grants of that name, also after expiry, release,
///   rollback and deletion of the name's state.
/// - **Unknown outcomes.** After a timeout, a reset or a dropped connection, the request may have taken effect. Return an
///   error, never [`Attempt::Busy`]. Core then repeats the request under the same holder id or abandons it. If the server
///   certainly did not execute the request, mark the error as [`not_executed`](crate::Error::not_executed). After any
///   other error of a release, core takes a later "not yours" as the effect of the earlier request.
/// - **Slow lines.** A hold survives any round trip below 0.4 TTL. Do not give up a request earlier than its caller does. A
///   late answer arms the lease from the moment at which its request was sent.
/// - **Outages.** If the connection ends or falls silent while an acquire waits at the server, report it by
///   [`AcquireRequest::note_unreachable`]. So the caller's error distinguishes an outage from a lock that is taken.
/// - **Retired ids.** After [`abandon`](Self::abandon) or a release, no request of that holder id may take effect. Send all of them over one connection, or end the old connection first, or leave a tombstone.
/// - **Secrets** never appear in `Debug`, errors or traces.
///
/// # Modes
/// A backend keeps [`Mode::Exclusive`], and the other modes only if its [`Capabilities`] declare them. Core refuses any
/// other mode before it calls the backend. For all modes of a name there is one queue and one sequence of tokens:
///
/// - **Admission.** The queue is admitted in order. A request is [granted](rules::admits) if it fits with all who hold the
///   name and all live queue entries before it, each of which must fit in turn. So waiting readers enter together, and neither
///   readers, writers nor requests for many permits starve. An entry stops counting when it expires.
/// - **Expiry.** Each holder expires by itself. A renewal prolongs the hold of its own holder id and no other.
/// - **Tokens.** The grants of readers and permits have tokens too, each larger than all earlier tokens of the name.
/// - **Permits.** A request for several permits is one hold: it gets all of them or none. The server stores no limit. A request
///   is admitted when all permits together, its own included, are at most [its own limit](Permits::of).
/// - **Upgrades.** An exclusive request may [replace](AcquireRequest::replaces) a hold in [`Mode::Upgradable`]. It goes before
///   all queue entries, and is granted when the hold that it replaces is the only one. The grant ends that hold in the same
///   step. If that hold has ended before, the acquire fails as [`Lost`](crate::ErrorKind::Lost), and nothing is left behind.
///   To [`abandon`](Self::abandon) an upgrade that was granted gives the hold that it replaced back, in one step: nobody else
///   writes in between. So an upgrade may be cancelled at any time, and its holder reads on.
/// - **Passes and minimum holds** are for exclusive holds alone.
#[async_trait]
pub trait DistributedLock: Debug + Send + Sync + 'static {
    /// Returns what this backend can do beyond the minimum. Does no I/O. The result never changes.
    fn capabilities(&self) -> Capabilities;

    /// Returns the server's address: host, port and database or path, without credentials. Clients with the same
    /// address return the same text. A [quorum](https://docs.rs/lock-quorum) sorts its nodes by it, so that the order
    /// of its list does not matter. Does no I/O. Defaults to `None`.
    fn address(&self) -> Option<String> {
        None
    }

    /// Returns an id that is unique to the answering server, whatever its address, database or prefix. A quorum refuses
    /// two nodes with the same id. Defaults to `None`: the id is not known.
    ///
    /// # Errors
    /// If the server cannot be asked.
    ///
    /// # Cancel safety
    /// May be dropped at any point.
    async fn server_id(&self) -> Result<Option<String>> {
        Ok(None)
    }

    /// Connects to the server and checks that it can keep locks. A backend also connects on demand.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`] if no connection was made within the backend's connect
    /// timeout. At once: [`Denied`](crate::ErrorKind::Denied) for wrong credentials, and
    /// [`Misconfigured`](crate::ErrorKind::Misconfigured) for a server of another kind.
    ///
    /// # Cancel safety
    /// May be dropped at any point.
    async fn connect(&self) -> Result<()>;

    /// Closes the connections and sessions that carry no hold and no queue entry, and waits for the server's answer.
    /// [`Locker::shutdown`](crate::Locker::shutdown) calls it when all its work is done. Other lockers may share the
    /// backend: their holds stay, and a later request connects again. Defaults to `Ok`, for servers that notice the end
    /// of a connection by themselves.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`] if the server has not answered; the sessions then end with their timeout.
    ///
    /// # Cancel safety
    /// May be dropped at any point. The sessions are closed in the background.
    async fn close(&self) -> Result<()> {
        Ok(())
    }

    /// Checks a TTL by the limits that the server granted when the backend connected. Does no I/O. Core first checks
    /// the TTL by the [capabilities](Self::capabilities), and calls this after [`connect`](Self::connect), so that an
    /// unusable default TTL is reported at start. Defaults to `Ok`: the capabilities suffice.
    ///
    /// # Errors
    /// [`Misconfigured`](crate::ErrorKind::Misconfigured) with what to do: an acquire with this TTL would fail in the same way.
    fn check_ttl(&self, ttl: Duration) -> Result<()> {
        let _ = ttl;
        Ok(())
    }

    /// Returns whether the server keeps a guarantee that depends on it, such as that a hold survives a crash. The
    /// verdict follows from the backend's configuration and from the server settings that it read when it last
    /// connected. Does no I/O. For all other guarantees, core reads the [capabilities](Self::capabilities). If a required guarantee is
    /// missed, core calls [`connect`](Self::connect) again before it refuses an acquire: read the settings there, too.
    ///
    /// A backend answers [`Verdict::Yes`] only if it passes the conformance cases of the guarantee's id. If the settings were not
    /// read, it answers [`Verdict::Unknown`], which is the default.
    fn keeps(&self, guarantee: Guarantee) -> Verdict {
        let _ = guarantee;
        Verdict::unknown("this backend does not say", "choose another backend")
    }

    /// Acquires the name, or returns that it is taken.
    ///
    /// If the request does not [wait](AcquireRequest::waits), it leaves no queue entry. Otherwise, if the server can wake it, it waits
    /// at the server and reports that by [`AcquireRequest::note_busy`]. If the server cannot, it returns [`Busy`] with the time
    /// after which to ask again, and keeps its queue entry, if it has one.
    ///
    /// Core polls it to its end even if the caller has left: then [`AcquireRequest::given_up`] completes, and the acquire
    /// ends soon, with any result. For a request that does not wait, return [`Busy`] only if the server answered so. Core may
    /// call it again with the same request after an error or [`Busy`], or after another runtime took over. If the holder id has
    /// the name already, it returns the same grant and arms the full TTL (or, where the session renews, the time for which the
    /// session is known to live).
    ///
    /// # Errors
    /// The error of the server or of the connection. While it is [retryable](crate::Error::is_retryable), somebody waits,
    /// and the server has ever answered, core repeats the call.
    ///
    /// # Cancel safety
    /// Core drops it half-way only if another runtime takes over, and then calls it again, or abandons the request. A quorum may
    /// drop it: see [the module](self).
    async fn acquire(&self, request: &AcquireRequest) -> Result<Attempt>;

    /// Undoes all that this request's holder id may have left at the server: a hold, a queue entry, a request under way.
    /// Idempotent. Afterwards the id is retired.
    ///
    /// Core asks for at most 256 of these at a time, not counting those that are unanswered for 100 ms, so that acquires need
    /// not wait behind them. It asks for them from one task: a backend may gather those of one turn. If 10,000 wait to be
    /// undone, core leaves further ones to their TTL.
    ///
    /// # Errors
    /// If it is not known to be undone. Core calls it again, until it succeeds or the hold has expired.
    ///
    /// # Cancel safety
    /// Core drops it half-way only if another runtime takes over, and then calls it again. A quorum may drop it: see
    /// [the module](self).
    async fn abandon(&self, request: &AcquireRequest) -> Result<()>;

    /// Returns the holders of the name, as the server sees them.
    ///
    /// # Errors
    /// If the server cannot be asked.
    ///
    /// # Cancel safety
    /// May be dropped at any point.
    async fn status(&self, name: &LockName) -> Result<LockStatus>;

    /// Returns the [`status`](Self::status), and a [`Change`] that completes when the name may have changed hands since
    /// this answer. Observers of an election use it. The change completes once, so core calls this method again after
    /// it.
    ///
    /// It costs nothing for names that nobody follows. A change that is missed does no harm: core asks now and then. But the
    /// change completes if the connection ends over which it would be heard. A backend that can do this declares
    /// [`Capabilities::follow`]. Defaults to the status, and a change that never completes.
    ///
    /// # Errors
    /// If the server cannot be asked.
    ///
    /// # Cancel safety
    /// May be dropped at any point, as may the change.
    async fn follow(&self, name: &LockName) -> Result<(LockStatus, Change)> {
        Ok((self.status(name).await?, Change::never()))
    }

    /// A page of about `at_most` names, at least 1, that somebody holds or waits for. If the server reads several names at a time, a page
    /// may have a few more.
    ///
    /// A name that is held during all pages is in one of them at least, whatever else changes meanwhile. A restart of the server, or a
    /// failover, is no exception. If servers move names among themselves, the backend's page says which may be missing. Names that are
    /// taken or freed meanwhile may be listed or not, and a name may be listed twice. Never lists a name that nobody held or waited for while
    /// the page was read. A page may be short or empty with more to come, so that the server is not asked for too much at a time.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] by default. Otherwise if the server cannot be asked.
    ///
    /// # Cancel safety
    /// May be dropped at any point.
    async fn list(&self, from: &ListFrom, at_most: usize) -> Result<ListPage> {
        let _ = (from, at_most);
        Err(Error::new(ErrorKind::Unsupported, "this backend cannot list names"))
    }

    /// Ends the hold of this name with this token, whoever has it, and no other hold. Core calls it only in the ways
    /// that the [capabilities](Self::capabilities) declare.
    ///
    /// - **The token.** A hold has the token of its grant, and those that the grant [reserved](AcquireRequest::reserve)
    ///   for passes. If no hold of the name has this token, nothing is changed. The comparison and the change are one
    ///   step, so that a release or a grant in the meantime is not affected.
    /// - **The holder id is retired**, as by a release: no renewal, release or downgrade of it takes effect any more.
    /// - [`Revoke::AtLeaseEnd`] leaves the hold without a holder. It ends when it would end without further renewals,
    ///   and not before. It still has its token: a repeated call finds it, and so does one with [`Revoke::Now`].
    /// - [`Revoke::Now`] frees the name and admits waiters, as a release does.
    /// - **Sharers.** If several hold the name together, only the one with this token is affected.
    ///
    /// If the server can tell a revoke from other losses, the former holder's backend calls [`Lease::lose`] with
    /// [`LostCause::Revoked`] when it learns of it, at the next renewal at the latest.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] by default. Otherwise if the outcome is unknown; the call may be repeated.
    ///
    /// # Cancel safety
    /// May be dropped at any point: the hold is then revoked or not.
    async fn revoke(&self, name: &LockName, token: FencingToken, how: Revoke) -> Result<Revoked> {
        let _ = (name, token, how);
        Err(Error::new(ErrorKind::Unsupported, "this backend cannot revoke a hold"))
    }
}

/// A hold at the server. Every method takes `&self`, so that a release never waits for a hung renewal.
///
/// If it is dropped without a release, the hold expires.
#[async_trait]
pub trait Hold: Debug + Send + Sync + 'static {
    /// The hold's fencing token.
    fn token(&self) -> FencingToken;

    /// Keeps the hold for at least `ttl` from now. Never shortens it. Where the backend's session renews, core calls it only
    /// to [extend](crate::Guard::extend). While a renewal is unanswered, core sends the next one every sixth of the TTL and
    /// still accepts answers to the earlier ones: several calls may be under way.
    ///
    /// # Errors
    /// If the outcome is unknown. Core retries until the lease has ended. The loss then carries the last error
    /// ([`Lost::error`](crate::Lost::error)), so return what failed, with its cause, instead of retrying in silence. Where the
    /// session renews, report it by [`Lease::suspect_because`] or [`Lease::lose_because`].
    ///
    /// # Cancel safety
    /// May be dropped at any point. Core drops it when the release begins.
    async fn renew(&self, ttl: Duration) -> Result<Renewal>;

    /// Ends the hold, if it is still this holder's. Idempotent: if the answer to an earlier call was lost,
    /// [`ReleaseOutcome::AlreadyLost`] may be the effect of that call, and core takes it so.
    ///
    /// With [`ReleaseOptions::keep_for`], the holder id is retired as well, so that no late renewal finds it. The name stays
    /// taken for that long from now and no longer; then the first waiter gets it.
    ///
    /// # Errors
    /// If the outcome is unknown. Core retries until the lease has been over for a TTL.
    ///
    /// # Cancel safety
    /// Core drops it half-way only if another runtime takes over, and then calls it again. A quorum may drop it: see
    /// [the module](self).
    async fn release(&self, how: ReleaseOptions) -> Result<ReleaseOutcome>;

    /// Makes this exclusive hold one in [`Mode::Shared`], in one step: under the same holder id and token, for at least `ttl`
    /// from now. Nobody else holds the name exclusively in between. Waiting readers that fit are admitted. Idempotent. A
    /// backend that can do this declares [`Capabilities::downgrade`].
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] by default. Otherwise if the outcome is unknown: then the hold is exclusive or shared.
    ///
    /// # Cancel safety
    /// May be dropped at any point: the hold is then exclusive or shared. Both end with its release.
    async fn downgrade(&self, ttl: Duration) -> Result<Renewal> {
        let _ = ttl;
        let message = "this backend cannot downgrade a hold: release it, and acquire it in the other mode";
        Err(Error::new(ErrorKind::Unsupported, message))
    }

    /// Makes the server count this hold's token as at least `token`: every later grant of the name gets a larger one. A
    /// [pass](Self::pass) continues from the hold's own token. Other holds of a shared name, and the result of
    /// [`token`](Self::token), stay as they are. Idempotent; one request. A backend that can do this declares
    /// [`Capabilities::any_floor`]. If the status shows the token, [followers](DistributedLock::follow) of the name are
    /// notified.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] by default. [`ErrorKind::Lost`] if the hold has ended: then nothing was raised. Otherwise if the
    /// outcome is unknown.
    ///
    /// # Cancel safety
    /// May be dropped at any point: the token is then raised or not.
    async fn raise_token(&self, token: FencingToken) -> Result<()> {
        let _ = token;
        Err(Error::new(ErrorKind::Unsupported, "this backend cannot raise a token"))
    }

    /// Passes the hold on to the next waiter of this process without asking the server. The new hold has the same
    /// holder id, the next token that the grant [reserved](AcquireRequest::reserve), and the lease `next`, which
    /// inherits the rest of this hold's lease. From here on the backend reports losses to `next`. Returns `None` if no
    /// token is left, or if the backend cannot pass holds on, which is the default. A backend that can declares
    /// [`Capabilities::pass`].
    ///
    /// Core uses the new hold in place of this one, which it drops without releasing it.
    fn pass(&self, next: &Lease) -> Option<Arc<dyn Hold>> {
        let _ = next;
        None
    }
}

/// Options of a release. By default the name is free at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReleaseOptions {
    /// The name stays taken for this long from now: the rest of a minimum hold. Core sets it only if the backend
    /// declares [`Capabilities::minimum_hold`], and never for a hold whose [downgrade](Hold::downgrade) it has begun.
    pub keep_for: Option<Duration>,
}

impl ReleaseOptions {
    /// Keeps the name taken for `time` from now.
    #[must_use]
    pub fn keep_for(mut self, time: Duration) -> Self {
        self.keep_for = Some(time);
        self
    }
}
