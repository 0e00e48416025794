//! Processes with other lists of nodes, or another restart delay, beside those that run.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use conformance_tests::{Link, Linked};
use futures_util::future::join_all;
use lock_core::backend::{AcquireRequest, Attempt, Capabilities, DistributedLock, LockStatus};
use lock_core::{Error, ErrorKind, HoldState, LockName, Locker, MemoryBackend, Result};
use lock_quorum::{QuorumBackend, QuorumConfig};
use tokio::time::{Instant, sleep, timeout};

use crate::support::TTL;

mod refusals;
mod runtimes;

/// Longer than a mark outlives its process.
const EXPIRED: Duration = Duration::from_secs(31);
/// Until a process has looked after its marks.
const A_LOOK: Duration = Duration::from_secs(11);
/// The status requests of a process that joins at three nodes: it looks twice at the eight names.
const STATUSES: usize = 2 * 3 * 8;

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
async fn a_process_is_seen_for_as_long_as_it_runs() {
    let servers = Servers::new();
    let running = servers.running(&[0, 1, 2]).await;
    sleep(Duration::from_secs(3600)).await;
    servers.refused(&[0, 1, 3]).await;
    // It is dropped without a word.
    drop(running);
    sleep(Duration::from_secs(1)).await;
    servers.running(&[0, 1, 3]).await;
}

#[tokio::test(start_paused = true)]
async fn a_process_that_crashed_is_forgotten_when_its_marks_expire() {
    let servers = Servers::new();
    let crashed = servers.running(&[0, 1, 2]).await;
    crashed.links.iter().for_each(Link::cut);
    servers.refused(&[0, 1, 3]).await;
    sleep(EXPIRED).await;
    servers.running(&[0, 1, 3]).await;
}

#[tokio::test(start_paused = true)]
async fn a_process_that_begins_anew_is_seen_again() {
    let servers = Servers::new();
    let running = servers.running(&[0, 1, 2]).await;
    running.backend.close().await.unwrap();
    servers.running(&[0, 1, 3]).await.backend.close().await.unwrap();
    running.backend.connect().await.unwrap();
    sleep(EXPIRED).await;
    servers.refused(&[0, 1, 3]).await;
    // It may connect as often as it likes.
    running.backend.connect().await.unwrap();
}

/// Its holds and those of other lockers go on.
#[tokio::test(start_paused = true)]
async fn a_process_is_seen_as_long_as_it_holds_a_lock() {
    let servers = Servers::new();
    let running = servers.running(&[0, 1, 2]).await;
    let guard = running.locks.lock("a").acquire().await.unwrap();
    running.locks.shutdown().await.unwrap();
    sleep(EXPIRED).await;
    servers.refused(&[0, 1, 3]).await;
    guard.release().await.unwrap();
    running.backend.close().await.unwrap();
    servers.running(&[0, 1, 3]).await;
}

/// Its vote there cannot be undone before it expires.
#[tokio::test(start_paused = true)]
async fn a_process_that_released_its_locks_is_not_seen_although_a_node_does_not_answer() {
    let servers = Servers::new();
    let running = servers.running(&[0, 1, 2]).await;
    let guard = running.locks.lock("a").acquire().await.unwrap();
    running.links[2].cut();
    guard.release().await.unwrap();
    running.locks.shutdown().await.unwrap();
    servers.running(&[0, 1, 3]).await;
}

/// The node that decides refuses, and the answers of the far ones are given back when they arrive.
#[tokio::test(start_paused = true)]
async fn a_process_whose_try_was_refused_is_not_seen_after_its_end() {
    for near in 0..3 {
        let servers = Servers::new();
        let running = servers.running(&[0, 1, 2]).await;
        for node in (0..3).filter(|node| *node != near) {
            running.links[node].delay(Duration::from_millis(50));
        }
        for server in &servers.0[..3] {
            server.hold_elsewhere("a", TTL).unwrap();
        }
        assert!(running.locks.lock("a").try_acquire().await.unwrap().is_none());
        running.locks.shutdown().await.unwrap();
        servers.running(&[0, 1, 3]).await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_acquire_after_the_end_is_seen_again() {
    let servers = Servers::new();
    let running = servers.running(&[0, 1, 2]).await;
    running.backend.close().await.unwrap();
    let stranger = servers.running(&[0, 1, 3]).await;
    let lock = running.locks.lock("a");
    let error = lock.acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error}");
    // Until a second is over it asks no node again.
    running.statuses.store(0, Ordering::SeqCst);
    for _ in 0..100 {
        assert!(lock.acquire().await.is_err());
    }
    assert_eq!(running.statuses.load(Ordering::SeqCst), 0);
    stranger.locks.shutdown().await.unwrap();
    sleep(Duration::from_secs(1)).await;
    let _guard = lock.acquire().await.unwrap();
    servers.refused(&[0, 1, 3]).await;
}

/// For as long as the first one joins, no acquire waits for the silent node for longer than the patience.
#[tokio::test(start_paused = true)]
async fn a_silent_node_delays_an_acquire_after_the_end_by_a_patience() {
    let servers = Servers::new();
    let running = servers.running(&[0, 1, 2]).await;
    running.backend.close().await.unwrap();
    running.links[2].stall();
    for name in ["a", "b"] {
        let began = Instant::now();
        let lock = running.locks.lock(name);
        let _guard = lock.acquire_within(Duration::from_secs(1)).await.unwrap();
        assert!(began.elapsed() <= Duration::from_secs(1), "{:?}", began.elapsed());
    }
    servers.refused(&[0, 1, 3]).await;
}

#[tokio::test(start_paused = true)]
async fn an_acquire_after_the_end_sees_a_stranger_beside_a_silent_node() {
    let servers = Servers::new();
    let running = servers.running(&[0, 1, 2]).await;
    running.backend.close().await.unwrap();
    let _stranger = servers.running(&[0, 3, 4]).await;
    running.links[2].stall();
    let acquired = running.locks.lock("a").acquire_within(Duration::from_secs(1)).await;
    let error = acquired.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error}");
}

/// No node answers, so that nothing is known when the patience is over.
#[tokio::test(start_paused = true)]
async fn an_acquire_that_is_given_up_does_not_wait_until_the_process_has_joined() {
    let servers = Servers::new();
    let running = servers.running(&[0, 1, 2]).await;
    running.backend.close().await.unwrap();
    running.links.iter().for_each(Link::stall);
    let began = Instant::now();
    let lock = running.locks.lock("a");
    lock.acquire_within(Duration::from_millis(100)).await.unwrap_err();
    assert!(began.elapsed() < Duration::from_millis(200), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn acquires_at_once_after_the_end_join_once() {
    let servers = Servers::new();
    let running = servers.running(&[0, 1, 2]).await;
    running.backend.close().await.unwrap();
    running.statuses.store(0, Ordering::SeqCst);
    let acquires = (0..100).map(|number| {
        let lock = running.locks.lock(format!("lock {number}"));
        async move { lock.acquire().await }
    });
    let guards = join_all(acquires).await;
    assert!(guards.iter().all(Result::is_ok), "{guards:?}");
    assert_eq!(running.statuses.load(Ordering::SeqCst), STATUSES);
}

/// Whatever the process is doing then.
#[tokio::test(start_paused = true)]
async fn an_acquire_beside_the_first_connect_does_not_join_again() {
    for millis in (0..1500).step_by(50) {
        let servers = Servers::new();
        let process = servers.far_process(&[0, 1, 2]);
        let acquired = async {
            sleep(Duration::from_millis(millis)).await;
            process.locks.lock("a").acquire().await
        };
        let (connected, acquired) = tokio::join!(process.backend.connect(), acquired);
        connected.unwrap();
        let _guard = acquired.unwrap();
        assert_eq!(process.statuses.load(Ordering::SeqCst), STATUSES, "after {millis} ms");
        servers.refused(&[0, 1, 3]).await;
    }
}

/// Another locker ends at any moment of it.
#[tokio::test(start_paused = true)]
async fn a_process_that_was_closed_while_it_connected_is_seen_when_it_acquires() {
    for millis in (0..1500).step_by(50) {
        let servers = Servers::new();
        let process = servers.far_process(&[0, 1, 2]);
        let other = Locker::new(process.backend.clone());
        let ended = async {
            sleep(Duration::from_millis(millis)).await;
            other.shutdown().await
        };
        let (connected, ended) = tokio::join!(process.backend.connect(), ended);
        connected.unwrap();
        ended.unwrap();
        let _guard = process.locks.lock("a").acquire().await.unwrap();
        let stranger = servers.process(&[0, 1, 3]).backend.connect().await;
        assert!(stranger.is_err(), "after {millis} ms");
        sleep(EXPIRED).await;
        servers.refused(&[0, 1, 3]).await;
    }
}

/// A caller leaves at any moment of it.
#[tokio::test(start_paused = true)]
async fn a_process_whose_connect_was_dropped_leaves_no_mark_for_long() {
    for millis in (0..1500).step_by(50) {
        let servers = Servers::new();
        let process = servers.far_process(&[0, 1, 2]);
        let _ = timeout(Duration::from_millis(millis), process.backend.connect()).await;
        drop(process);
        sleep(Duration::from_secs(2)).await;
        servers.running(&[0, 1, 3]).await;
    }
}

/// A stranger that is started again and again leaves nothing that others could take for a process.
#[tokio::test(start_paused = true)]
async fn a_refused_process_leaves_no_mark() {
    let servers = Servers::new();
    let running = servers.running(&[0, 1, 2]).await;
    for _ in 0..10 {
        servers.refused(&[0, 1, 3]).await;
    }
    running.locks.shutdown().await.unwrap();
    servers.running(&[2, 1, 0]).await;
}

/// More processes than there are marks.
#[tokio::test(start_paused = true)]
async fn many_processes_with_one_list_go_on_side_by_side() {
    let servers = Servers::new();
    let mut running = Vec::new();
    for _ in 0..20 {
        running.push(servers.running(&[0, 1, 2]).await);
    }
    servers.refused(&[0, 1, 3]).await;
    // Those that have the marks end first, and others take them.
    for process in running.drain(..15) {
        process.locks.shutdown().await.unwrap();
    }
    sleep(A_LOOK).await;
    servers.refused(&[0, 1, 3]).await;
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
