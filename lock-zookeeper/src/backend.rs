//! The backend: what core asks, brought to the task that works on it.

use std::future::{Future, pending};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use lock_core::backend::{AcquireRequest, Attempt, Capabilities, DistributedLock, HolderStatus, LockStatus, Wait};
use lock_core::{Error, ErrorKind, FencingToken, LockName, Result};
use tokio::time::{Instant, sleep, timeout};
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
    pub(crate) supervisor: Supervisor,
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
            .within_limit(&session, async {
                let connection = session.connected().await?;
                session.sync(&connection).await.map_err(error::from_driver)
            })
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
            self.shared
                .within_limit(&session, self.shared.status(&session, name))
                .await
        };
        status.await.map_err(|error| error.with_name(name))
    }
}

/// Between two reports to a request of why there is no session.
const REPORT: Duration = Duration::from_millis(100);

enum Answer {
    Attempt(Attempt),
    SessionEnded(Error),
}

impl Shared {
    async fn acquire(self: &Arc<Self>, request: &AcquireRequest) -> Result<Attempt> {
        let began = Instant::now();
        // Core repeats only those that wait.
        let may_repeat = || request.wait() == Wait::No && began.elapsed() < self.config.connect_timeout();
        loop {
            match self.ask(request).await? {
                Answer::Attempt(attempt) => return Ok(attempt),
                Answer::SessionEnded(_) if may_repeat() && !request.is_given_up() => {}
                Answer::SessionEnded(error) => return Err(error),
            }
        }
    }

    async fn ask(self: &Arc<Self>, request: &AcquireRequest) -> Result<Answer> {
        let holder = request.holder();
        if self.claims.is_retired(holder) {
            return Err(retired());
        }
        if let Some(claim) = self.claims.get(holder)
            && let Stage::Held(held) = claim.stage()
        {
            return self.grant_again(&claim, held).await.map(Answer::Attempt);
        }
        // Before there is a session, nothing of the request stays in memory.
        let session = self.reach(request).await?;
        let directory = || name::directory(self.config.root(), request.name());
        let claim = self.claims.open(request, directory).ok_or_else(retired)?;
        worker::start(&self.claims, &claim, &session, &self.config);
        let session = claim.session().unwrap_or(session);
        let limit = self.config.connect_timeout();
        let stage = tokio::select! {
            biased;
            stage = claim.answer(limit) => stage,
            () = self.supervisor.forsaken(&session) => {
                claim.forsake(&session);
                Some(claim.stage())
            }
        };
        let attempt = match stage {
            Some(Stage::Held(held)) => {
                let hold = ZooKeeperHold::new(self.clone(), claim.clone(), held);
                let armed = hold.arm()?;
                Attempt::Granted(Arc::new(hold), armed)
            }
            Some(Stage::Over(Outcome::Busy(busy))) => Attempt::Busy(busy),
            Some(Stage::Over(Outcome::Failed(error))) => return Err(error),
            Some(Stage::Over(Outcome::Released | Outcome::Undone | Outcome::NotOurs)) => return Err(retired()),
            Some(Stage::Over(Outcome::SessionEnded) | Stage::Idle | Stage::Asking | Stage::Queued) => {
                return Ok(Answer::SessionEnded(error::session_ended(session.outage())));
            }
            None => return Err(error::no_answer(limit, session.outage())),
        };
        Ok(Answer::Attempt(attempt))
    }

    /// A session to send the request over. The request learns meanwhile why there is none.
    async fn reach(&self, request: &AcquireRequest) -> Result<Arc<Session>> {
        let reporting = async {
            loop {
                if let Some(why) = self.supervisor.why() {
                    request.note_unreachable(why);
                }
                sleep(REPORT).await;
            }
        };
        let reached = tokio::select! {
            biased;
            session = self.supervisor.session() => session,
            () = request.given_up() => Err(error::given_up(self.supervisor.why())),
            never = reporting => never,
        };
        reached.map_err(|error| match self.claims.get(request.holder()) {
            // An earlier call may have sent it.
            Some(claim) if claim.has_residue() => error,
            _ => error.not_executed(),
        })
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
        self.outcome(&claim).await?;
        if claim.has_residue() {
            // Its session has ended: another one looks for what is left.
            let session = self.supervisor.session().await?;
            worker::start(&self.claims, &claim, &session, &self.config);
            match self.outcome(&claim).await? {
                Outcome::Failed(error) if claim.has_residue() => return Err(error),
                _ if claim.has_residue() => return Err(error::session_ended(session.outage())),
                _ => {}
            }
        }
        self.claims.retire(holder);
        Ok(())
    }

    /// How the task that works on a claim ends.
    pub(crate) async fn outcome(&self, claim: &Claim) -> Result<Outcome> {
        let limit = self.config.connect_timeout();
        let session = claim.session();
        let forsaken = async {
            match &session {
                Some(session) => {
                    self.supervisor.forsaken(session).await;
                    claim.forsake(session);
                }
                // It has ended.
                None => pending().await,
            }
        };
        tokio::select! {
            biased;
            outcome = claim.outcome(limit) => outcome.ok_or_else(|| {
                error::no_answer(limit, session.as_ref().and_then(|session| session.outage()))
            }),
            () = forsaken => Ok(Outcome::SessionEnded),
        }
    }

    async fn status(&self, session: &Session, name: &LockName) -> Result<LockStatus> {
        let directory = name::directory(self.config.root(), name);
        loop {
            let connection = session.connected().await?;
            let sync = session.sync(&connection);
            let list = connection.client.get_children(&directory);
            let (children, stat) = match tokio::join!(sync, list) {
                (Ok(()), Ok(listed)) => listed,
                (Ok(()), Err(Driver::NoNode)) => return Ok(LockStatus::free()),
                (Err(error), _) | (_, Err(error)) => return Err(error::from_driver(error)),
            };
            let Some((first, waiting)) = queue::holder(&children) else {
                return Ok(LockStatus::free());
            };
            let (data, node) = match connection.client.get_data(&format!("{directory}/{first}")).await {
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

    async fn within_limit<T>(&self, session: &Session, ask: impl Future<Output = Result<T>>) -> Result<T> {
        let limit = self.config.connect_timeout();
        timeout(limit, ask)
            .await
            .unwrap_or_else(|_| Err(error::no_answer(limit, session.outage())))
    }
}

fn retired() -> Error {
    Error::new(
        ErrorKind::Unexpected,
        "this holder id was released or abandoned: start a new request",
    )
}

#[cfg(test)]
mod tests {
    use futures_util::future::join_all;
    use lock_core::backend::{RequestOptions, Terms};

    use super::*;

    /// However long an outage is, and however many ask meanwhile.
    #[tokio::test]
    async fn requests_that_never_had_a_session_leave_nothing_in_memory() {
        const TRIES: usize = 2000;
        let nobody = std::net::TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap();
        let config = ZooKeeperConfig::new([nobody.to_string()]).unwrap();
        let backend = ZooKeeperBackend::new(config.with_connect_timeout(Duration::from_millis(300)).unwrap());
        let name = LockName::new("a").unwrap();
        let failed = join_all((0..TRIES).map(async |_| {
            let terms = Terms::new(Duration::from_secs(10));
            let (request, _control) = RequestOptions::new(name.clone(), terms).wait(Wait::No).start();
            backend.acquire(&request).await.unwrap_err()
        }));
        for error in failed.await {
            assert!(error.is_not_executed(), "{error}");
        }
        assert!(backend.shared.claims.is_empty());
    }
}
