//! The backend: what core asks, brought to the task that works on it.

use std::future::Future;
use std::sync::Arc;

use async_trait::async_trait;
use lock_core::backend::{AcquireRequest, Attempt, Capabilities, DistributedLock, HolderStatus, LockStatus};
use lock_core::{Error, ErrorKind, FencingToken, LockName, Result};
use tokio::time::timeout;
use zookeeper_client::Error as Driver;

use crate::claim::{Claim, Claims, Held, Outcome, Stage};
use crate::config::ZooKeeperConfig;
use crate::error;
use crate::hold::ZooKeeperHold;
use crate::name;
use crate::queue;
use crate::session::Session;
use crate::supervisor::Supervisor;
use crate::worker;

/// Locks in ZooKeeper: ephemeral sequential nodes of one session per backend.
///
/// See the [crate's documentation](crate) for what it guarantees. Clones share the session.
///
/// It makes its own sessions and takes no existing `zookeeper_client::Client`: a client is one session, and cannot be
/// renewed when that has expired.
#[derive(Clone, Debug)]
pub struct ZooKeeperBackend {
    shared: Arc<Shared>,
}

#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) config: Arc<ZooKeeperConfig>,
    pub(crate) claims: Arc<Claims>,
    supervisor: Supervisor,
}

impl ZooKeeperBackend {
    /// A backend that connects at its first use. Does no I/O.
    pub fn new(config: ZooKeeperConfig) -> Self {
        let config = Arc::new(config);
        let shared = Shared {
            supervisor: Supervisor::new(config.clone()),
            claims: Arc::default(),
            config,
        };
        Self {
            shared: Arc::new(shared),
        }
    }

    /// The same from a [URL](ZooKeeperConfig::from_url).
    ///
    /// # Errors
    /// [`ErrorKind::Misconfigured`], saying which part is wrong and what it may be.
    pub fn from_url(url: &str) -> Result<Self> {
        ZooKeeperConfig::from_url(url).map(Self::new)
    }
}

#[async_trait]
impl DistributedLock for ZooKeeperBackend {
    fn capabilities(&self) -> Capabilities {
        let capabilities = Capabilities::default().fixed_lease().fifo().ordered().session_renewal();
        let longest = capabilities.longest_ttl;
        capabilities.ttl_between(self.shared.config.session_timeout(), longest)
    }

    async fn connect(&self) -> Result<()> {
        let session = self.shared.supervisor.session().await?;
        self.shared
            .within_limit(async { session.sync().await.map_err(error::from_driver) })
            .await
    }

    async fn acquire(&self, request: &AcquireRequest) -> Result<Attempt> {
        self.shared
            .acquire(request)
            .await
            .map_err(|error| error.with_name(request.name()))
    }

    async fn abandon(&self, request: &AcquireRequest) -> Result<()> {
        self.shared
            .abandon(request)
            .await
            .map_err(|error| error.with_name(request.name()))
    }

    async fn status(&self, name: &LockName) -> Result<LockStatus> {
        let status = async {
            let session = self.shared.supervisor.session().await?;
            self.shared.within_limit(self.shared.status(&session, name)).await
        };
        status.await.map_err(|error| error.with_name(name))
    }
}

impl Shared {
    async fn acquire(self: &Arc<Self>, request: &AcquireRequest) -> Result<Attempt> {
        let directory = || name::directory(self.config.root(), request.name());
        let claim = self.claims.open(request, directory).ok_or_else(retired)?;
        let again = match &*claim.stage.borrow() {
            Stage::Held(held) => Some(held.clone()),
            _ => None,
        };
        if let Some(held) = again {
            return self.grant_again(&claim, held).await;
        }
        let session = tokio::select! {
            session = self.supervisor.session() => session?,
            () = request.given_up() => {
                return Err(Error::new(ErrorKind::Unavailable, "given up before ZooKeeper was reached"));
            }
        };
        worker::start(&self.claims, &claim, &session, &self.config);
        let limit = self.config.connect_timeout();
        match claim.answer(limit).await {
            Some(Stage::Held(held)) => {
                let hold = ZooKeeperHold::new(self.clone(), claim.clone(), held);
                let armed = hold.arm()?;
                Ok(Attempt::Granted(Arc::new(hold), armed))
            }
            Some(Stage::Over(Outcome::Busy(busy))) => Ok(Attempt::Busy(busy)),
            Some(Stage::Over(Outcome::Failed(error))) => Err(error),
            Some(Stage::Over(Outcome::SessionEnded)) => Err(error::session_ended()),
            Some(_) => Err(retired()),
            None => Err(error::no_answer(limit)),
        }
    }

    async fn grant_again(self: &Arc<Self>, claim: &Arc<Claim>, held: Arc<Held>) -> Result<Attempt> {
        let hold = ZooKeeperHold::new(self.clone(), claim.clone(), held);
        match hold.confirm().await? {
            Some(armed) => Ok(Attempt::Granted(Arc::new(hold), armed)),
            None => Err(Error::new(ErrorKind::Lost, "the hold was lost")),
        }
    }

    async fn abandon(&self, request: &AcquireRequest) -> Result<()> {
        let holder = request.holder();
        let Some(claim) = self.claims.get(holder) else {
            self.claims.retire(holder);
            return Ok(());
        };
        claim.undo.send_replace(true);
        let limit = self.config.connect_timeout();
        claim.outcome(limit).await.ok_or_else(|| error::no_answer(limit))?;
        if claim.has_residue() {
            // Its session has ended: another one looks for what is left.
            let session = self.supervisor.session().await?;
            worker::start(&self.claims, &claim, &session, &self.config);
            match claim.outcome(limit).await {
                None => return Err(error::no_answer(limit)),
                Some(Outcome::Failed(error)) if claim.has_residue() => return Err(error),
                Some(_) if claim.has_residue() => return Err(error::session_ended()),
                Some(_) => {}
            }
        }
        self.claims.retire(holder);
        Ok(())
    }

    async fn status(&self, session: &Session, name: &LockName) -> Result<LockStatus> {
        let directory = name::directory(self.config.root(), name);
        loop {
            let sync = session.sync();
            let list = session.client.get_children(&directory);
            let (children, stat) = match tokio::join!(sync, list) {
                (Ok(()), Ok(listed)) => listed,
                (Ok(()), Err(Driver::NoNode)) => return Ok(LockStatus::free()),
                (Err(error), _) | (_, Err(error)) => return Err(error::from_driver(error)),
            };
            let Some((first, waiting)) = queue::holder(&children) else {
                return Ok(LockStatus::free());
            };
            let (data, node) = match session.client.get_data(&format!("{directory}/{first}")).await {
                Ok(found) => found,
                Err(Driver::NoNode) => continue,
                Err(error) => return Err(error::from_driver(error)),
            };
            let mut holder = HolderStatus::new();
            if !data.is_empty() {
                holder = holder.with_label(String::from_utf8_lossy(&data));
            }
            // A directory that was written after the node was created gave the token.
            if let Some(token) = FencingToken::new(node.czxid.max(stat.mzxid).cast_unsigned()) {
                holder = holder.with_token(token);
            }
            return Ok(LockStatus::held(holder).with_waiting(waiting));
        }
    }

    async fn within_limit<T>(&self, ask: impl Future<Output = Result<T>>) -> Result<T> {
        let limit = self.config.connect_timeout();
        timeout(limit, ask)
            .await
            .unwrap_or_else(|_| Err(error::no_answer(limit)))
    }
}

fn retired() -> Error {
    Error::new(
        ErrorKind::Unexpected,
        "this holder id was released or abandoned: start a new request",
    )
}
