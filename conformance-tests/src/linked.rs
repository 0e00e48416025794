//! A backend within the process, as if it were far away.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use lock_core::backend::{
    AcquireRequest, Attempt, Capabilities, Change, DistributedLock, Hold, HolderId, Lease, ListFrom, ListPage,
    LockStatus, ReleaseOptions, ReleaseOutcome, Renewal, Revoke, Revoked,
};
use lock_core::{Error, ErrorKind, FencingToken, Guarantee, LockName, Result, Verdict};
use tokio::task::yield_now;

use crate::link::{Broken, Connection, Direction, Link};

/// Puts a [`Link`] between a backend that does no I/O and its callers, so that every fault that a TCP proxy causes
/// befalls it too.
///
/// Its effects take place in tasks of their own, as they do at a server: they end even when the caller or the
/// connection has gone.
#[derive(Debug, Clone)]
pub struct Linked {
    backend: Arc<dyn DistributedLock>,
    link: Link,
    latest: Latest,
}

/// The number of each holder id's latest acquire.
#[derive(Debug, Clone, Default)]
struct Latest(Arc<Mutex<HashMap<HolderId, u64>>>);

/// The time after which a waiting request checks again whether its connection is silent.
const LISTEN_AGAIN: Duration = Duration::from_secs(1);

#[derive(Debug)]
struct LinkedHold {
    hold: Arc<dyn Hold>,
    link: Link,
}

impl Linked {
    /// This backend behind this link.
    pub fn new(backend: impl DistributedLock, link: Link) -> Self {
        Self {
            backend: Arc::new(backend),
            link,
            latest: Latest::default(),
        }
    }
}

/// One round trip over a link: the effect takes place when the request has arrived, and may take place without its
/// answer ever arriving.
///
/// # Errors
/// [`ErrorKind::Unavailable`] when the request or its answer got lost, and whatever the effect answers.
///
/// # Cancel safety
/// When it is dropped, the effect may take place all the same.
pub async fn round_trip<T, F>(link: &Link, effect: F) -> Result<T>
where
    T: Send + 'static,
    F: Future<Output = Result<T>> + Send + 'static,
{
    let connection = connected(link)?;
    round_trip_over(link, connection, effect).await
}

/// A connection to send a request over, or an error that states that nothing was sent.
pub(crate) fn connected(link: &Link) -> Result<Connection> {
    link.connect().map_err(|broken| lost(broken).not_executed())
}

/// The same as [`round_trip`] over a connection that is there.
pub(crate) async fn round_trip_over<T, F>(link: &Link, connection: Connection, effect: F) -> Result<T>
where
    T: Send + 'static,
    F: Future<Output = Result<T>> + Send + 'static,
{
    let travelling = tokio::spawn(travel(link.clone(), connection, effect));
    tokio::select! {
        answer = travelling => answer.map_err(|panic| Error::new(ErrorKind::Unexpected, panic.to_string()))?,
        () = link.broken(connection) => Err(lost(Broken)),
    }
}

async fn travel<T>(link: Link, connection: Connection, effect: impl Future<Output = Result<T>>) -> Result<T> {
    // No yield between the two: a connection keeps the order of what is sent over it.
    link.pass(connection, Direction::Request).await.map_err(lost)?;
    let answer = effect.await;
    yield_now().await;
    link.pass(connection, Direction::Reply).await.map_err(lost)?;
    answer
}

fn lost(broken: Broken) -> Error {
    Error::new(ErrorKind::Unavailable, "the connection to the server has ended").with_source(broken)
}

#[async_trait]
impl DistributedLock for Linked {
    fn capabilities(&self) -> Capabilities {
        self.backend.capabilities()
    }

    fn keeps(&self, guarantee: Guarantee) -> Verdict {
        self.backend.keeps(guarantee)
    }

    async fn connect(&self) -> Result<()> {
        let backend = self.backend.clone();
        // Any backend that does I/O limits the time of its first contact.
        let connecting = round_trip(&self.link, async move { backend.connect().await });
        match tokio::time::timeout(Duration::from_secs(5), connecting).await {
            Ok(answer) => answer,
            Err(_) => Err(Error::new(
                ErrorKind::Unavailable,
                "the server did not answer within 5s",
            )),
        }
    }

    async fn acquire(&self, request: &AcquireRequest) -> Result<Attempt> {
        let (backend, asked) = (self.backend.clone(), request.clone());
        let connection = connected(&self.link)?;
        // It may take effect however late it arrives, and whoever asked may have gone by then.
        let _marked = request.sending();
        let gone = self.latest.gone(self.link.clone(), connection, request);
        let at_server = async move {
            tokio::select! {
                biased;
                attempt = backend.acquire(&asked) => attempt,
                () = gone => Err(lost(Broken)),
            }
        };
        let asking = round_trip_over(&self.link, connection, at_server);
        let attempt = tokio::select! {
            attempt = asking => attempt?,
            never = listen(&self.link, request) => match never {},
            // A hung acquire ends soon when nobody waits for it any more; it was asked, so the outcome is unknown.
            () = ended_by_nobody(request) => {
                return Err(Error::new(ErrorKind::Unavailable, "given up before the server answered"));
            }
        };
        Ok(match attempt {
            Attempt::Granted(hold, armed) => Attempt::Granted(
                Arc::new(LinkedHold {
                    hold,
                    link: self.link.clone(),
                }),
                armed,
            ),
            other => other,
        })
    }

    async fn abandon(&self, request: &AcquireRequest) -> Result<()> {
        let (backend, request) = (self.backend.clone(), request.clone());
        round_trip(&self.link, async move { backend.abandon(&request).await }).await
    }

    async fn status(&self, name: &LockName) -> Result<LockStatus> {
        let (backend, name) = (self.backend.clone(), name.clone());
        round_trip(&self.link, async move { backend.status(&name).await }).await
    }

    async fn follow(&self, name: &LockName) -> Result<(LockStatus, Change)> {
        let (backend, name) = (self.backend.clone(), name.clone());
        round_trip(&self.link, async move { backend.follow(&name).await }).await
    }

    async fn list(&self, from: &ListFrom, at_most: usize) -> Result<ListPage> {
        let (backend, from) = (self.backend.clone(), from.clone());
        round_trip(&self.link, async move { backend.list(&from, at_most).await }).await
    }

    async fn revoke(&self, name: &LockName, token: FencingToken, how: Revoke) -> Result<Revoked> {
        let (backend, name) = (self.backend.clone(), name.clone());
        round_trip(&self.link, async move { backend.revoke(&name, token, how).await }).await
    }
}

impl Latest {
    /// Completes when the server drops the queue entry of this acquire: its connection has ended, and for a TTL its holder
    /// id has not asked again.
    fn gone(&self, link: Link, connection: Connection, request: &AcquireRequest) -> impl Future<Output = ()> + use<> {
        let (latest, holder, ttl) = (self.0.clone(), request.holder(), request.ttl());
        let latest_of = move || {
            latest
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .get(&holder)
                .copied()
        };
        let number = latest_of().unwrap_or(0) + 1;
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(holder, number);
        async move {
            link.broken(connection).await;
            tokio::time::sleep(ttl).await;
            if latest_of() != Some(number) {
                std::future::pending().await
            }
        }
    }
}

/// Reports while a request waits at the server whether its connection is silent.
async fn listen(link: &Link, request: &AcquireRequest) -> Infallible {
    let mut was_silent = false;
    loop {
        tokio::time::sleep(LISTEN_AGAIN).await;
        let is_silent = link.is_stalled();
        if is_silent {
            request.note_unreachable(Error::new(ErrorKind::Unavailable, "the server is silent"));
        } else if let Some(busy) = request.last_busy().filter(|_| was_silent) {
            request.note_busy(busy);
        }
        was_silent = is_silent;
    }
}

/// Leaves the backend some time to answer after the request was given up.
async fn ended_by_nobody(request: &AcquireRequest) {
    request.given_up().await;
    tokio::time::sleep(Duration::from_millis(100)).await;
}

#[async_trait]
impl Hold for LinkedHold {
    fn token(&self) -> FencingToken {
        self.hold.token()
    }

    async fn renew(&self, ttl: Duration) -> Result<Renewal> {
        let hold = self.hold.clone();
        round_trip(&self.link, async move { hold.renew(ttl).await }).await
    }

    async fn release(&self, how: ReleaseOptions) -> Result<ReleaseOutcome> {
        let hold = self.hold.clone();
        round_trip(&self.link, async move { hold.release(how).await }).await
    }

    async fn downgrade(&self, ttl: Duration) -> Result<Renewal> {
        let hold = self.hold.clone();
        round_trip(&self.link, async move { hold.downgrade(ttl).await }).await
    }

    async fn raise_token(&self, token: FencingToken) -> Result<()> {
        let hold = self.hold.clone();
        round_trip(&self.link, async move { hold.raise_token(token).await }).await
    }

    fn pass(&self, next: &Lease) -> Option<Arc<dyn Hold>> {
        let (hold, link) = (self.hold.pass(next)?, self.link.clone());
        Some(Arc::new(Self { hold, link }))
    }
}
