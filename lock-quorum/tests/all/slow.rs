//! A node that answers after all others have gone.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use lock_core::backend::request::{RequestOptions, Terms};
use lock_core::backend::{AcquireRequest, Attempt, Capabilities, DistributedLock, LockStatus};
use lock_core::{Error, ErrorKind, LockName, Locker, MemoryBackend, Result};
use lock_quorum::QuorumBackend;
use tokio::time::{Instant, sleep};

use crate::support::{Servers, TTL};

/// The time that an acquire takes there, also if it is given up.
const LONG: Duration = Duration::from_secs(45);

/// A request that is dropped half-way may take effect later, when nobody knows of it. One that takes longer than a vote may live is
/// abandoned first, so that its vote is refused.
#[tokio::test(start_paused = true)]
async fn the_acquire_of_a_vote_leaves_nothing_however_long_it_takes() {
    for (takes, token, what) in [
        (LONG, 2, "it has voted, and the vote was given back"),
        (3 * TTL, 1, "it was not allowed to vote any more"),
    ] {
        let servers = Servers::new(3);
        let nodes = servers.servers.iter().enumerate().map(|(node, server)| match node {
            1 => Arc::new(Slow(server.clone(), takes)) as Arc<dyn DistributedLock>,
            _ => Arc::new(server.clone()),
        });
        let locks = Locker::new(QuorumBackend::new(nodes).unwrap()).with_ttl(TTL);
        locks.lock("a").acquire().await.unwrap().release().await.unwrap();
        sleep(takes + Duration::from_secs(1)).await;
        assert_eq!(servers.holder(1, "a").await, None, "{what}");
        let direct = Locker::new(servers.servers[1].clone());
        let next = direct.lock("a").acquire().await.unwrap();
        assert_eq!(next.token().as_u64(), token, "{what}");
    }
}

/// It was reached, and then answers nothing for long.
#[tokio::test(start_paused = true)]
async fn one_slow_node_delays_no_start_by_more_than_its_patience() {
    for slow in 0..3 {
        let servers = Servers::new(3);
        let nodes = servers.servers.iter().enumerate().map(|(node, server)| match node {
            node if node == slow => Arc::new(Slow(server.clone(), LONG)) as Arc<dyn DistributedLock>,
            _ => Arc::new(server.clone()),
        });
        let locks = Locker::new(QuorumBackend::new(nodes).unwrap()).with_ttl(TTL);
        let begin = Instant::now();
        locks.connect().await.unwrap();
        // For its vote, and for its mark.
        assert_eq!(begin.elapsed().as_secs(), 4, "node {slow}");
    }
}

/// They look for a connection for a while after nobody waits any more.
#[tokio::test(start_paused = true)]
async fn what_no_node_was_sent_needs_no_abandon() {
    let nodes = [(); 3].map(|()| Arc::new(Unconnected(MemoryBackend::new())) as Arc<dyn DistributedLock>);
    let backend = QuorumBackend::new(nodes).unwrap();
    for waits in [false, true] {
        let terms = Terms::new(TTL).time_left(Duration::from_secs(2));
        let (request, _control) = RequestOptions::new(LockName::new("a").unwrap(), terms)
            .waits(waits)
            .start();
        let error = backend.acquire(&request).await.unwrap_err();
        assert!(request.was_certainly_not_sent(&error), "{waits}: {error}");
    }
}

/// Its server cannot be reached.
#[derive(Debug)]
struct Unconnected(MemoryBackend);

#[async_trait]
impl DistributedLock for Unconnected {
    fn capabilities(&self) -> Capabilities {
        self.0.capabilities()
    }

    async fn connect(&self) -> Result<()> {
        Err(unreachable_server())
    }

    async fn acquire(&self, request: &AcquireRequest) -> Result<Attempt> {
        request.given_up().await;
        sleep(Duration::from_secs(1)).await;
        Err(unreachable_server())
    }

    async fn abandon(&self, _request: &AcquireRequest) -> Result<()> {
        panic!("nothing was sent")
    }

    async fn status(&self, _name: &LockName) -> Result<LockStatus> {
        Err(unreachable_server())
    }
}

fn unreachable_server() -> Error {
    Error::new(ErrorKind::Unavailable, "no connection").not_executed()
}

/// Its server gets each acquire so late.
#[derive(Debug)]
struct Slow(MemoryBackend, Duration);

#[async_trait]
impl DistributedLock for Slow {
    fn capabilities(&self) -> Capabilities {
        self.0.capabilities()
    }

    async fn connect(&self) -> Result<()> {
        self.0.connect().await
    }

    async fn acquire(&self, request: &AcquireRequest) -> Result<Attempt> {
        let (server, takes, request) = (self.0.clone(), self.1, request.clone());
        // On its way, whoever waits for it.
        let asking = tokio::spawn(async move {
            let _sent = request.sending();
            sleep(takes).await;
            server.acquire(&request).await
        });
        asking
            .await
            .unwrap_or_else(|_| Err(Error::new(ErrorKind::Unavailable, "the runtime has ended")))
    }

    async fn abandon(&self, request: &AcquireRequest) -> Result<()> {
        self.0.abandon(request).await
    }

    async fn status(&self, name: &LockName) -> Result<LockStatus> {
        self.0.status(name).await
    }
}
