//! The memory backend, and the lock server that it runs on, which is plain data.
//!
//! [`LockServer`] is a whole server, and [`NameState`] its state of one name. They are public for tests that need a lock
//! server of their own, such as the reference of the conformance suite and the models of the protocols. They may change in any
//! version.

use std::collections::HashMap;
use std::fmt;
use std::sync::{LazyLock, Weak};
use std::time::Duration;

use async_trait::async_trait;

pub use self::lock_server::{LockServer, ServerName};
pub use self::name_state::{Decision, HoldRecord, NameState, QueueEntry, Wanted};
pub use self::records::{Acquire, Answer, Grant, Tombstones, Waiting};

use self::server::{Acquired, MemoryServer};
use crate::backend::{
    AcquireRequest, Attempt, Busy, Capabilities, Change, DistributedLock, Hold, HolderId, Lease, ListFrom, ListPage,
    LockStatus, ReleaseOptions, ReleaseOutcome, Renewal, Revoke, Revoked, SentAt,
};
use crate::error::Result;
use crate::guarantee::{Guarantee, Verdict};
use crate::name::LockName;
use crate::sync::time::{Instant, sleep_until};
use crate::sync::{Arc, Mutex, Notify};
use crate::token::FencingToken;

mod followers;
mod lock_server;
mod name_state;
mod records;
mod server;

/// A lock server in this process's memory. A clone is another client of the same server.
///
/// It keeps the whole contract within the process. Holds expire by Tokio's clock, so that tests on paused time are exact.
/// Nothing survives the process, and no other process sees it. As a test double it can do what servers do to their clients.
///
/// A waiter whose turn it is takes the lock when it is polled next: keep polling an acquire, or drop it.
///
/// # Examples
/// ```
/// # use std::time::Duration;
/// # use lock_core::{ErrorKind, Locker, MemoryBackend};
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
/// let server = MemoryBackend::new();
/// let locks = Locker::new(server.clone());
///
/// let guard = locks.lock("a").acquire().await?;
/// server.take_away("a")?; // an operator deletes the key
/// assert!(guard.check().is_err());
///
/// server.hold_elsewhere("b", Duration::from_secs(10))?; // another process was faster
/// assert!(locks.lock("b").try_acquire().await?.is_none());
///
/// server.set_available(false); // nobody answers
/// let error = locks.lock("c").try_acquire().await.unwrap_err();
/// assert_eq!(error.kind(), ErrorKind::Unavailable);
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct MemoryBackend(Arc<MemoryServer>);

static SHARED: LazyLock<Mutex<HashMap<String, Weak<MemoryServer>>>> = LazyLock::new(Mutex::default);

impl MemoryBackend {
    /// A server that only its clones share.
    pub fn new() -> Self {
        Self(Arc::new(MemoryServer::new()))
    }

    /// The server with this name: shared by name within the process, and dropped with its last user.
    pub fn shared(name: &str) -> Self {
        let mut servers = SHARED.lock();
        if let Some(server) = servers.get(name).and_then(Weak::upgrade) {
            return Self(server);
        }
        servers.retain(|_, server| server.strong_count() > 0);
        let server = Arc::new(MemoryServer::new());
        servers.insert(name.to_owned(), Arc::downgrade(&server));
        Self(server)
    }

    /// Ends the hold of this name, as an operator might. Its guard is lost at once. Returns whether anybody held it.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidName`](crate::ErrorKind::InvalidName).
    pub fn take_away(&self, name: impl AsRef<str>) -> Result<bool> {
        Ok(self.0.take_away(&LockName::new(name)?))
    }

    /// Takes the name for `ttl`, as another process would, even if it is held. The label of the new holder is `elsewhere`.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidName`](crate::ErrorKind::InvalidName), or [`ErrorKind::Unexpected`](crate::ErrorKind::Unexpected) if all
    /// tokens are used up.
    pub fn hold_elsewhere(&self, name: impl AsRef<str>, ttl: Duration) -> Result<FencingToken> {
        self.0.hold_elsewhere(&LockName::new(name)?, ttl)
    }

    /// With `false`, all requests fail as unavailable, waiting ones too. Holds still expire.
    pub fn set_available(&self, available: bool) {
        self.0.set_available(available);
    }
}

impl Default for MemoryBackend {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for MemoryBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryBackend").finish_non_exhaustive()
    }
}

#[async_trait]
impl DistributedLock for MemoryBackend {
    fn capabilities(&self) -> Capabilities {
        Capabilities::default()
            .extend()
            .fixed_lease()
            .fifo()
            .pass()
            .minimum_hold()
            .ordered()
            .any_floor()
            .follow()
            .shared()
            .upgradable()
            .downgrade()
            .list()
            .revoke()
            .revoke_now()
            .permits(u32::MAX)
    }

    async fn connect(&self) -> Result<()> {
        self.0.check_available()
    }

    fn keeps(&self, guarantee: Guarantee) -> Verdict {
        match guarantee {
            Guarantee::ClockStep | Guarantee::ConnectionLoss | Guarantee::NoEviction => Verdict::Yes,
            _ => Verdict::unknown(
                "the server is the memory of this process, and ends with it",
                "name a server in the URL",
            ),
        }
    }

    async fn acquire(&self, request: &AcquireRequest) -> Result<Attempt> {
        let mut queued: Option<QueuePlace> = None;
        loop {
            let taken = match self.0.acquire(request, queued.as_ref().map(|entry| &entry.wake))? {
                Acquired::Granted(token, armed) => {
                    let hold = MemoryHold::new(&self.0, request, token);
                    return Ok(Attempt::Granted(Arc::new(hold), armed));
                }
                Acquired::Taken(taken) => taken,
            };
            let busy = match taken.label {
                Some(label) => Busy::new().with_holder(label),
                None => Busy::new(),
            };
            if !request.waits() || request.is_given_up() {
                return Ok(Attempt::Busy(busy));
            }
            request.note_busy(busy);
            let Some(entry) = &queued else {
                // Asked once more with an entry for the queue, so that no release falls between the two.
                queued = Some(QueuePlace::new(self.0.clone(), request));
                continue;
            };
            tokio::select! {
                biased;
                () = entry.wake.notified() => {}
                () = until(taken.expires) => {}
                () = request.given_up() => {}
            }
        }
    }

    async fn abandon(&self, request: &AcquireRequest) -> Result<()> {
        self.0.abandon(request.name(), request.holder())
    }

    async fn status(&self, name: &LockName) -> Result<LockStatus> {
        self.0.status(name)
    }

    async fn follow(&self, name: &LockName) -> Result<(LockStatus, Change)> {
        let (status, changed) = self.0.follow(name)?;
        Ok((status, Change::new(async move { changed.notified().await })))
    }

    async fn list(&self, from: &ListFrom, at_most: usize) -> Result<ListPage> {
        self.0.list(from, at_most)
    }

    async fn revoke(&self, name: &LockName, token: FencingToken, how: Revoke) -> Result<Revoked> {
        self.0.revoke(name, token, how)
    }
}

async fn until(expires: Option<Instant>) {
    match expires {
        Some(expires) => sleep_until(expires).await,
        None => std::future::pending().await,
    }
}

/// A waiter's entry in the server's queue; leaves it when dropped.
struct QueuePlace {
    server: Arc<MemoryServer>,
    name: LockName,
    holder: HolderId,
    wake: Arc<Notify>,
}

impl QueuePlace {
    fn new(server: Arc<MemoryServer>, request: &AcquireRequest) -> Self {
        Self {
            server,
            name: request.name().clone(),
            holder: request.holder(),
            wake: Arc::default(),
        }
    }
}

impl Drop for QueuePlace {
    fn drop(&mut self) {
        self.server.leave(&self.name, self.holder);
    }
}

struct MemoryHold {
    server: Arc<MemoryServer>,
    name: LockName,
    holder: HolderId,
    token: FencingToken,
    /// The number of reserved tokens that are left, this one included.
    reserved: u32,
    lease: Lease,
}

impl MemoryHold {
    fn new(server: &Arc<MemoryServer>, request: &AcquireRequest, token: FencingToken) -> Self {
        Self {
            server: server.clone(),
            name: request.name().clone(),
            holder: request.holder(),
            token,
            reserved: request.reserve(),
            lease: request.lease().clone(),
        }
    }
}

#[async_trait]
impl Hold for MemoryHold {
    fn token(&self) -> FencingToken {
        self.token
    }

    async fn renew(&self, ttl: Duration) -> Result<Renewal> {
        let sent = SentAt::now();
        Ok(match self.server.renew(&self.name, self.holder, ttl)? {
            true => Renewal::Renewed(self.lease.arm(sent, ttl)?),
            false => Renewal::Lost,
        })
    }

    async fn raise_token(&self, token: FencingToken) -> Result<()> {
        self.server.raise(&self.name, self.holder, token)
    }

    async fn downgrade(&self, ttl: Duration) -> Result<Renewal> {
        let sent = SentAt::now();
        Ok(match self.server.downgrade(&self.name, self.holder, ttl)? {
            true => Renewal::Renewed(self.lease.arm(sent, ttl)?),
            false => Renewal::Lost,
        })
    }

    async fn release(&self, how: ReleaseOptions) -> Result<ReleaseOutcome> {
        Ok(match self.server.release(&self.name, self.holder, how.keep_for)? {
            true => ReleaseOutcome::Released,
            false => ReleaseOutcome::AlreadyLost,
        })
    }

    fn pass(&self, next: &Lease) -> Option<Arc<dyn Hold>> {
        let reserved = self.reserved.checked_sub(1).filter(|left| *left > 0)?;
        let token = self.token.next()?;
        self.server.pass(&self.name, self.holder, token, next).then(|| {
            Arc::new(Self {
                server: self.server.clone(),
                name: self.name.clone(),
                holder: self.holder,
                token,
                reserved,
                lease: next.clone(),
            }) as Arc<dyn Hold>
        })
    }
}

impl fmt::Debug for MemoryHold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryHold")
            .field("name", &self.name)
            .field("token", &self.token)
            .finish_non_exhaustive()
    }
}
