//! Nodes that never answer: what was asked of them ends when it can have left nothing there, and then nothing keeps the client.

use std::future::pending;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use async_trait::async_trait;
use lock_core::backend::request::{RequestControl, RequestOptions, Terms};
use lock_core::backend::{
    AcquireRequest, Attempt, Capabilities, DistributedLock, Hold, LockStatus, ReleaseOptions, ReleaseOutcome, Renewal,
};
use lock_core::{ErrorKind, FencingToken, LockName, Locker, MemoryBackend, Result};
use lock_quorum::QuorumBackend;
use tokio::time::{Instant, sleep, timeout};

use crate::support::{Servers, TTL};

/// By then everything has expired at every node: an acquire that was under way, and what it left.
const OVER: Duration = Duration::from_secs(5 * TTL.as_secs());

/// A client of three nodes, each of which can be made silent.
struct Client {
    backend: QuorumBackend,
    servers: Vec<MemoryBackend>,
    silent: Vec<Arc<AtomicBool>>,
    /// How many requests its nodes were asked to abandon.
    abandoned: Arc<AtomicUsize>,
    nodes: Nodes,
}

/// The nodes' backends, for as long as anything keeps them.
struct Nodes(Vec<Weak<dyn DistributedLock>>);

impl Client {
    fn new() -> Self {
        let servers: Vec<_> = (0..3).map(|_| MemoryBackend::new()).collect();
        let silent: Vec<_> = servers.iter().map(|_| Arc::new(AtomicBool::new(false))).collect();
        let abandoned = Arc::new(AtomicUsize::new(0));
        let nodes: Vec<Arc<dyn DistributedLock>> = servers
            .iter()
            .zip(&silent)
            .map(|(server, silent)| {
                let (server, silent, abandoned) = (server.clone(), Silent(silent.clone()), abandoned.clone());
                Arc::new(Node {
                    server,
                    silent,
                    abandoned,
                }) as Arc<dyn DistributedLock>
            })
            .collect();
        let weak = nodes.iter().map(Arc::downgrade).collect();
        Self {
            backend: QuorumBackend::new(nodes).unwrap(),
            servers,
            silent,
            abandoned,
            nodes: Nodes(weak),
        }
    }

    /// None of these nodes ever answers again.
    fn silence(&self, nodes: &[usize]) {
        for node in nodes {
            self.silent[*node].store(true, Ordering::SeqCst);
        }
    }

    /// They answer again, but not what they were asked meanwhile.
    fn hear(&self, nodes: &[usize]) {
        for node in nodes {
            self.silent[*node].store(false, Ordering::SeqCst);
        }
    }

    async fn acquire(&self) -> (AcquireRequest, RequestControl, Result<Attempt>) {
        let options = RequestOptions::new(LockName::new("a").unwrap(), Terms::new(TTL)).waits(false);
        let (request, control) = options.start();
        let attempt = self.backend.acquire(&request).await;
        (request, control, attempt)
    }

    async fn granted(&self) -> (AcquireRequest, RequestControl, Arc<dyn Hold>) {
        match self.acquire().await {
            (request, control, Ok(Attempt::Granted(hold, _armed))) => (request, control, hold),
            other => panic!("{other:?}"),
        }
    }

    /// The user drops the last handle.
    fn drop(self) -> Nodes {
        self.nodes
    }
}

impl Nodes {
    fn are_kept(&self) -> bool {
        self.0.iter().any(|node| node.upgrade().is_some())
    }

    /// Nothing keeps them after a while, but while a vote may live its undo goes on.
    async fn end(self) {
        sleep(TTL).await;
        assert!(self.are_kept(), "the vote may live, and nobody undoes it");
        sleep(OVER).await;
        assert!(!self.are_kept(), "a task keeps the client");
    }
}

#[tokio::test(start_paused = true)]
async fn a_release_without_an_answer_ends() {
    let client = Client::new();
    let (_request, _control, hold) = client.granted().await;
    client.silence(&[1]);
    let outcome = hold.release(ReleaseOptions::default()).await.unwrap();
    assert_eq!(outcome, ReleaseOutcome::Released);
    drop((_request, _control, hold));
    client.drop().end().await;
}

#[tokio::test(start_paused = true)]
async fn an_abandon_without_an_answer_ends() {
    let client = Client::new();
    let (request, control, hold) = client.granted().await;
    client.silence(&[1]);
    control.give_up();
    client.backend.abandon(&request).await.unwrap();
    drop((request, control, hold));
    client.drop().end().await;
}

#[tokio::test(start_paused = true)]
async fn an_acquire_without_an_answer_ends_after_the_release() {
    let client = Client::new();
    client.silence(&[1]);
    let (_request, _control, hold) = client.granted().await;
    hold.release(ReleaseOptions::default()).await.unwrap();
    drop((_request, _control, hold));
    client.drop().end().await;
}

/// Nobody releases the hold: it expires.
#[tokio::test(start_paused = true)]
async fn an_acquire_without_an_answer_ends_after_the_lease() {
    let client = Client::new();
    client.silence(&[1]);
    drop(client.granted().await);
    client.drop().end().await;
}

#[tokio::test(start_paused = true)]
async fn an_acquire_without_an_answer_ends_after_a_refusal() {
    let client = Client::new();
    for node in [0, 2] {
        client.servers[node].hold_elsewhere("a", TTL).unwrap();
    }
    client.silence(&[1]);
    let (_, _, attempt) = client.acquire().await;
    assert!(matches!(attempt, Ok(Attempt::Busy(_))), "{attempt:?}");
    client.drop().end().await;
}

#[tokio::test(start_paused = true)]
async fn a_node_that_never_answers_one_acquire_is_asked_for_its_vote_again() {
    let client = Client::new();
    client.silence(&[1]);
    let (_request, _control, hold) = client.granted().await;
    client.hear(&[1]);
    for _ in 0..18 {
        sleep(TTL / 3).await;
        assert!(matches!(hold.renew(TTL).await, Ok(Renewal::Renewed(_))));
    }
    // Without its vote there is no majority.
    client.silence(&[2]);
    let renewed = timeout(TTL, hold.renew(TTL)).await;
    assert!(matches!(renewed, Ok(Ok(Renewal::Renewed(_)))), "{renewed:?}");
}

/// Its node might still grant it.
#[tokio::test(start_paused = true)]
async fn the_acquire_of_a_mark_that_is_given_up_is_abandoned() {
    /// Longer than a mark lives without renewals.
    const EXPIRED: Duration = Duration::from_secs(45);
    let client = Client::new();
    client.backend.connect().await.unwrap();
    client.silence(&[1]);
    // The mark is lost, and asked for anew.
    sleep(EXPIRED).await;
    client.hear(&[1]);
    let before = client.abandoned.load(Ordering::SeqCst);
    sleep(2 * EXPIRED).await;
    let abandoned = client.abandoned.load(Ordering::SeqCst) - before;
    assert_eq!(abandoned, 1, "the mark may still be taken");
}

/// The votes have the tokens 1, 2 and 3. The lowest is to be raised, and renewed.
#[tokio::test(start_paused = true)]
async fn a_renewal_without_an_answer_ends_after_the_lease() {
    let client = Client::new();
    for (node, server) in client.servers.iter().enumerate() {
        for _ in 0..node {
            server.hold_elsewhere("a", TTL).unwrap();
            server.take_away("a").unwrap();
        }
    }
    let (_request, _control, hold) = client.granted().await;
    client.silence(&[0]);
    assert!(matches!(hold.renew(TTL).await, Ok(Renewal::Renewed(_))));
    drop((_request, _control, hold));
    let nodes = client.drop();
    sleep(OVER).await;
    assert!(!nodes.are_kept(), "a task keeps the client");
}

/// Core releases the hold of a dropped guard.
#[tokio::test(start_paused = true)]
async fn a_guard_of_a_silent_majority_keeps_nothing() {
    let client = Client::new();
    let locks = Locker::new(client.backend.clone()).with_ttl(TTL);
    let guard = locks.lock("a").acquire().await.unwrap();
    client.silence(&[0, 1]);
    drop(guard);
    drop(locks);
    client.drop().end().await;
}

#[tokio::test(start_paused = true)]
async fn a_release_that_a_majority_never_answers_is_an_error_at_last() {
    let client = Client::new();
    let (_request, _control, hold) = client.granted().await;
    client.silence(&[0, 1]);
    let began = Instant::now();
    let error = timeout(OVER, hold.release(ReleaseOptions::default()));
    let error = error.await.expect("it ends").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(error.to_string().contains("node 2"), "{error}");
    assert!(began.elapsed() > TTL, "the votes may live");
}

/// The marks of a process are taken at each node, also at one that was silent when it was asked for them.
#[tokio::test(start_paused = true)]
async fn a_mark_without_an_answer_keeps_nothing() {
    for silent in [true, false] {
        let client = Client::new();
        if silent {
            client.silence(&[1]);
        }
        client.backend.connect().await.unwrap();
        client.silence(&[1]);
        sleep(TTL).await;
        let nodes = client.drop();
        sleep(OVER).await;
        assert!(!nodes.are_kept(), "a task keeps the nodes");
    }
}

#[tokio::test(start_paused = true)]
async fn a_minority_that_never_closes_does_not_stop_a_shutdown() {
    let client = Client::new();
    client.silence(&[1]);
    let closed = timeout(OVER, client.backend.close()).await;
    closed.expect("it does not wait for the node").unwrap();
}

/// The vote was prolonged beyond the TTL that its acquire asked for.
#[tokio::test(start_paused = true)]
async fn the_vote_of_an_extended_hold_is_undone_for_as_long_as_it_may_live() {
    let servers = Servers::new(3);
    let client = servers.client();
    let guard = client.locks.lock("a").acquire().await.unwrap();
    guard.extend(20 * TTL).await.unwrap();
    client.links[1].cut();
    guard.release().await.unwrap();
    sleep(10 * TTL).await;
    assert!(servers.holder(1, "a").await.is_some(), "it was extended");
    client.links[1].heal();
    servers.until_free("a").await;
}

/// A node that answers nothing once it is silent.
#[derive(Debug)]
struct Node {
    server: MemoryBackend,
    silent: Silent,
    abandoned: Arc<AtomicUsize>,
}

#[derive(Debug)]
struct NodeHold {
    hold: Arc<dyn Hold>,
    silent: Silent,
}

#[derive(Clone, Debug)]
struct Silent(Arc<AtomicBool>);

impl Silent {
    async fn pass(&self) {
        if self.0.load(Ordering::SeqCst) {
            pending().await
        }
    }
}

#[async_trait]
impl DistributedLock for Node {
    fn capabilities(&self) -> Capabilities {
        self.server.capabilities()
    }

    async fn connect(&self) -> Result<()> {
        self.silent.pass().await;
        self.server.connect().await
    }

    async fn close(&self) -> Result<()> {
        self.silent.pass().await;
        self.server.close().await
    }

    async fn acquire(&self, request: &AcquireRequest) -> Result<Attempt> {
        let _sent = request.sending();
        self.silent.pass().await;
        Ok(match self.server.acquire(request).await? {
            Attempt::Granted(hold, armed) => {
                let silent = self.silent.clone();
                Attempt::Granted(Arc::new(NodeHold { hold, silent }), armed)
            }
            other => other,
        })
    }

    async fn abandon(&self, request: &AcquireRequest) -> Result<()> {
        self.silent.pass().await;
        self.abandoned.fetch_add(1, Ordering::SeqCst);
        self.server.abandon(request).await
    }

    async fn status(&self, name: &LockName) -> Result<LockStatus> {
        self.silent.pass().await;
        self.server.status(name).await
    }
}

#[async_trait]
impl Hold for NodeHold {
    fn token(&self) -> FencingToken {
        self.hold.token()
    }

    async fn renew(&self, ttl: Duration) -> Result<Renewal> {
        self.silent.pass().await;
        self.hold.renew(ttl).await
    }

    async fn raise_token(&self, token: FencingToken) -> Result<()> {
        self.silent.pass().await;
        self.hold.raise_token(token).await
    }

    async fn release(&self, how: ReleaseOptions) -> Result<ReleaseOutcome> {
        self.silent.pass().await;
        self.hold.release(how).await
    }
}
