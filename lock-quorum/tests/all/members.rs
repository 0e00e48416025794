//! Processes with other lists of nodes, or another restart delay, beside those that run.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use conformance_tests::{Link, Linked};
use lock_core::backend::{AcquireRequest, Attempt, Capabilities, DistributedLock, LockStatus};
use lock_core::{Error, ErrorKind, HoldState, LockName, Locker, MemoryBackend, Result};
use lock_quorum::{QuorumBackend, QuorumConfig};
use tokio::time::sleep;

use crate::support::TTL;

mod joining;
mod refusals;
mod runtimes;
mod seen;

/// Longer than a mark outlives its process.
const EXPIRED: Duration = Duration::from_secs(31);
/// Until a process has looked after its marks.
const A_LOOK: Duration = Duration::from_secs(11);

/// A server with an address.
#[derive(Debug)]
struct Addressed {
    linked: Linked,
    address: String,
    statuses: Arc<AtomicUsize>,
}

struct Servers(Vec<MemoryBackend>);

/// A process.
struct Process {
    backend: QuorumBackend,
    locks: Locker,
    links: Vec<Link>,
    /// The number of status requests that it has sent.
    statuses: Arc<AtomicUsize>,
}

impl Servers {
    fn new() -> Self {
        Self((0..6).map(|_| MemoryBackend::new()).collect())
    }

    /// A process that lists these of the servers, and has not connected yet.
    fn process(&self, list: &[usize]) -> Process {
        self.process_with(list, None, "server")
    }

    /// The same, 50 ms from each of them.
    fn far_process(&self, list: &[usize]) -> Process {
        let process = self.process(list);
        process
            .links
            .iter()
            .for_each(|link| link.delay(Duration::from_millis(50)));
        process
    }

    /// The same with this restart delay, and with other names for the servers.
    fn process_with(&self, list: &[usize], delay: Option<Duration>, called: &str) -> Process {
        let links: Vec<Link> = list.iter().map(|_| Link::new()).collect();
        let statuses: Arc<AtomicUsize> = Arc::default();
        let nodes = list.iter().zip(&links).map(|(server, link)| {
            let addressed = Addressed {
                linked: Linked::new(self.0[*server].clone(), link.clone()),
                address: format!("{called} {server}"),
                statuses: statuses.clone(),
            };
            Arc::new(addressed) as Arc<dyn DistributedLock>
        });
        let config = QuorumConfig::new().with_restart_delay(delay.unwrap_or_default());
        let backend = QuorumBackend::with_config(nodes, &config).unwrap();
        let locks = Locker::new(backend.clone()).with_ttl(TTL.min(delay.unwrap_or(TTL)));
        Process {
            backend,
            locks,
            links,
            statuses,
        }
    }

    async fn running(&self, list: &[usize]) -> Process {
        let process = self.process(list);
        process.backend.connect().await.unwrap();
        process
    }

    async fn refused(&self, list: &[usize]) -> Error {
        let error = self
            .process(list)
            .backend
            .connect()
            .await
            .expect_err("it is a stranger");
        assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error}");
        error
    }
}

/// The process acquires a lock, and releases it.
async fn acquires(process: &Process) {
    let guard = process.locks.lock("a").acquire().await.unwrap();
    guard.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn from_three_to_five_at_once_is_refused() {
    let servers = Servers::new();
    for (old, new) in [(&[0, 1, 2][..], &[0, 1, 2, 3, 4][..]), (&[0, 1, 2, 3, 4], &[2, 1, 0])] {
        let running = servers.running(old).await;
        let line = servers.refused(new).await.to_string();
        assert!(line.contains("add or remove one node at a time"), "{line}");
        assert!(
            line.contains(&format!("a list of {} nodes, 3 of which", old.len())),
            "{line}"
        );
        // Whoever was there goes on.
        acquires(&running).await;
        running.locks.shutdown().await.unwrap();
        servers.running(new).await.locks.shutdown().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn another_node_in_place_of_one_is_refused() {
    let servers = Servers::new();
    let _running = servers.running(&[0, 1, 2]).await;
    servers.refused(&[0, 1, 3]).await;
    servers.refused(&[3, 4, 2]).await;
    servers.running(&[2, 0, 1]).await;
}

#[tokio::test(start_paused = true)]
async fn a_node_is_replaced_by_adding_and_removing_one_at_a_time() {
    let servers = Servers::new();
    let of_three = servers.running(&[0, 1, 2]).await;
    let guard = of_three.locks.lock("a").acquire().await.unwrap();
    let of_four = servers.running(&[0, 1, 2, 3]).await;
    assert!(of_four.locks.lock("a").try_acquire().await.unwrap().is_none());
    servers.refused(&[0, 1, 3]).await;
    guard.release().await.unwrap();
    of_three.locks.shutdown().await.unwrap();
    let replaced = servers.running(&[0, 1, 3]).await;
    let guard = replaced.locks.lock("a").acquire().await.unwrap();
    assert!(of_four.locks.lock("a").try_acquire().await.unwrap().is_none());
    servers.refused(&[0, 1, 2]).await;
    guard.release().await.unwrap();
}

/// A node that died is removed, or another one is added, while it is down for all.
#[tokio::test(start_paused = true)]
async fn a_node_that_is_down_stops_no_start() {
    let servers = Servers::new();
    servers.0[2].set_available(false);
    let _running = servers.running(&[0, 1, 2]).await;
    servers.running(&[0, 1, 2]).await;
    servers.running(&[0, 1, 2, 3]).await;
    servers.refused(&[0, 1, 3]).await;
    servers.0[2].set_available(true);
    sleep(A_LOOK).await;
    servers.running(&[0, 1, 2, 3]).await;
}

#[tokio::test(start_paused = true)]
async fn servers_with_other_names_are_the_same_list() {
    let servers = Servers::new();
    let _running = servers.running(&[0, 1, 2]).await;
    let elsewhere = |list| servers.process_with(list, None, "another name");
    elsewhere(&[0, 1, 2]).backend.connect().await.unwrap();
    let error = elsewhere(&[0, 1, 2, 3, 4]).backend.connect().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_stranger_that_nobody_saw_at_first_is_refused_when_it_is_seen() {
    let servers = Servers::new();
    let first = servers.process(&[0, 1, 2]);
    first.links[2].cut();
    first.backend.connect().await.unwrap();
    let other = servers.running(&[2, 3, 4]).await;
    first.links[2].heal();
    sleep(A_LOOK).await;
    let error = first.locks.lock("a").acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error}");
    acquires(&other).await;
    other.locks.shutdown().await.unwrap();
    sleep(A_LOOK).await;
    acquires(&first).await;
}

#[tokio::test(start_paused = true)]
async fn a_strangers_delay_is_refused_and_a_longer_one_limits_the_ttl() {
    const MINUTE: Duration = Duration::from_secs(60);
    let servers = Servers::new();
    let of = |delay| servers.process_with(&[0, 1, 2], delay, "server");
    let minute = of(Some(MINUTE));
    minute.backend.connect().await.unwrap();
    for delay in [None, Some(MINUTE / 2)] {
        let error = of(delay).backend.connect().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error}");
        assert!(
            error.to_string().contains("use the same delay in all processes"),
            "{error}"
        );
    }
    let longer = of(Some(2 * MINUTE));
    longer.backend.connect().await.unwrap();
    let lock = longer.locks.lock("a");
    lock.acquire().await.unwrap().release().await.unwrap();
    let long = lock.ttl(2 * MINUTE);
    let error = long.acquire().await.unwrap_err();
    assert!(error.to_string().contains("choose at most 60s"), "{error}");
    minute.locks.shutdown().await.unwrap();
    sleep(A_LOOK).await;
    long.acquire().await.unwrap().release().await.unwrap();
}

/// A node that forgot the hold may vote for somebody else after the shorter delay.
#[tokio::test(start_paused = true)]
async fn no_hold_is_extended_beyond_the_shorter_delay() {
    const MINUTE: Duration = Duration::from_secs(60);
    let servers = Servers::new();
    let of = |delay| servers.process_with(&[0, 1, 2], Some(delay), "server");
    let minute = of(MINUTE);
    minute.backend.connect().await.unwrap();
    let longer = of(2 * MINUTE);
    longer.backend.connect().await.unwrap();
    let guard = longer.locks.lock("a").acquire().await.unwrap();
    guard.extend(MINUTE).await.unwrap();
    let error = guard.extend(2 * MINUTE).await.unwrap_err();
    assert!(error.to_string().contains("choose at most 60s"), "{error}");
    assert!(
        matches!(guard.state(), HoldState::Held),
        "nothing was sent: {:?}",
        guard.state()
    );
    assert!(guard.valid_for() <= MINUTE, "{:?}", guard.valid_for());
    sleep(2 * MINUTE).await;
    assert!(guard.check().is_ok(), "{:?}", guard.state());
}

/// It began to wait when nobody knew of the stranger.
#[tokio::test(start_paused = true)]
async fn a_waiter_is_granted_nothing_once_a_stranger_was_seen() {
    let servers = Servers::new();
    let first = servers.process(&[0, 1, 2]);
    first.links[2].cut();
    first.backend.connect().await.unwrap();
    let _other = servers.running(&[2, 3, 4]).await;
    first.links[2].heal();
    for server in &servers.0[..3] {
        server.hold_elsewhere("a", TTL).unwrap();
    }
    let lock = first.locks.lock("a");
    let waiting = tokio::spawn(async move { lock.acquire().await });
    sleep(A_LOOK).await;
    assert!(!waiting.is_finished(), "the name is taken");
    for server in &servers.0[..3] {
        server.take_away("a").unwrap();
    }
    let error = waiting.await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error}");
    // What the nodes have granted is given back.
    sleep(Duration::from_secs(1)).await;
    for server in &servers.0[..3] {
        let status = server.status(&LockName::new("a").unwrap()).await.unwrap();
        assert!(!status.is_held(), "{status:?}");
    }
}

#[async_trait]
impl DistributedLock for Addressed {
    fn capabilities(&self) -> Capabilities {
        self.linked.capabilities()
    }

    fn address(&self) -> Option<String> {
        Some(self.address.clone())
    }

    async fn connect(&self) -> Result<()> {
        self.linked.connect().await
    }

    async fn acquire(&self, request: &AcquireRequest) -> Result<Attempt> {
        self.linked.acquire(request).await
    }

    async fn abandon(&self, request: &AcquireRequest) -> Result<()> {
        self.linked.abandon(request).await
    }

    async fn status(&self, name: &LockName) -> Result<LockStatus> {
        self.statuses.fetch_add(1, Ordering::SeqCst);
        self.linked.status(name).await
    }
}
