//! Configurations that are rejected at the start.

use std::sync::Arc;
use std::time::Duration;

use lock_core::backend::request::{RequestOptions, Terms};
use lock_core::backend::{AcquireRequest, Attempt, Capabilities, DistributedLock, LockStatus, Mode, Permits};
use lock_core::{ErrorKind, LockName, Locker, MemoryBackend, Result};
use lock_quorum::{QuorumBackend, QuorumConfig};
use testbed::{Warnings, subscribe};

use crate::support::{Servers, TTL};

fn quorum(servers: &[&MemoryBackend]) -> QuorumBackend {
    let nodes = servers
        .iter()
        .map(|server| Arc::new((*server).clone()) as Arc<dyn DistributedLock>);
    QuorumBackend::new(nodes).unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_server_that_is_listed_twice_is_named() {
    let (one, other) = (MemoryBackend::new(), MemoryBackend::new());
    let error = quorum(&[&one, &other, &one]).connect().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Misconfigured);
    assert!(
        error.to_string().contains("nodes 1 and 3 are the same server"),
        "{error}"
    );
    quorum(&[&one, &other, &MemoryBackend::new()]).connect().await.unwrap();
}

/// Even if nobody connects before.
#[tokio::test(start_paused = true)]
async fn a_server_that_is_listed_twice_has_one_vote() {
    let (one, other) = (MemoryBackend::new(), MemoryBackend::new());
    other.set_available(false);
    let locks = Locker::new(quorum(&[&one, &one, &other])).with_ttl(TTL);
    assert!(!matches!(locks.lock("a").try_acquire().await, Ok(Some(_))));
}

#[tokio::test(start_paused = true)]
async fn a_majority_is_enough_to_connect_to() {
    let servers = Servers::new(3);
    let client = servers.client();
    client.links[1].cut();
    client.locks.connect().await.unwrap();
    client.links[2].cut();
    let error = client.locks.connect().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    let line = error.to_string();
    assert!(line.contains("node 2") && line.contains("node 3"), "{line}");
}

#[tokio::test(start_paused = true)]
async fn several_permits_are_refused_with_the_reason() {
    let servers = Servers::new(3);
    let client = servers.client();
    let error = client.locks.semaphore("a", 2).permits(1).acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    let mode = Mode::Permits(Permits::new(1, 2).unwrap());
    let (request, _control) = RequestOptions::new(LockName::new("a").unwrap(), Terms::new(TTL))
        .mode(mode)
        .start();
    let error = client.backend.acquire(&request).await.unwrap_err();
    assert!(error.to_string().contains("no node counts all"), "{error}");
    let one = client.locks.semaphore("a", 1).permits(1).acquire().await.unwrap();
    one.release().await.unwrap();
}

#[test]
fn an_even_number_of_nodes_is_warned_of_at_the_start() {
    let warnings = Warnings::default();
    let _subscribed = subscribe(warnings.clone());
    for nodes in 1..=6 {
        let servers: Vec<MemoryBackend> = (0..nodes).map(|_| MemoryBackend::new()).collect();
        drop(quorum(&servers.iter().collect::<Vec<_>>()));
        let warned = warnings.take();
        match nodes % 2 {
            0 => assert!(
                warned.len() == 1 && warned[0].contains("no more failures than one node less"),
                "{nodes} nodes: {warned:?}"
            ),
            _ => assert_eq!(warned, [""; 0], "{nodes} nodes"),
        }
    }
}

#[test]
fn nodes_without_the_restart_delay_are_warned_of_at_the_start() {
    let warnings = Warnings::default();
    let _subscribed = subscribe(warnings.clone());
    let start = |config: &QuorumConfig, longest_ttls: [Duration; 3]| {
        let nodes = longest_ttls.map(|longest_ttl| Arc::new(UpTo(longest_ttl)) as Arc<dyn DistributedLock>);
        drop(QuorumBackend::with_config(nodes, config).unwrap());
        warnings.take()
    };
    let (delay, longer) = (Duration::from_secs(60), Duration::from_secs(61));
    let with_delay = QuorumConfig::new().with_restart_delay(delay);
    assert_eq!(start(&with_delay, [delay; 3]), [""; 0]);
    assert_eq!(
        start(&QuorumConfig::new(), [longer; 3]),
        [""; 0],
        "nobody counts on a delay"
    );
    let warned = start(&with_delay, [delay, longer, longer]);
    assert_eq!(warned.len(), 2, "{warned:?}");
    for (warning, node) in warned.iter().zip(["node=2", "node=3"]) {
        assert!(
            warning.contains(node) && warning.contains("has no restart_delay"),
            "{warned:?}"
        );
    }
}

/// A request and its answer take 100 ms each.
#[tokio::test(start_paused = true)]
async fn a_ttl_that_is_short_for_a_majority_is_warned_of() {
    let servers = Servers::new(3);
    let client = servers.client();
    client.links[..2]
        .iter()
        .for_each(|link| link.delay(Duration::from_millis(100)));
    let warnings = Warnings::default();
    let _subscribed = subscribe(warnings.clone());
    let connect = |ttl| {
        let locks = Locker::new(client.backend.clone()).with_ttl(ttl);
        async move { locks.connect().await.unwrap() }
    };
    connect(Duration::from_secs(2)).await;
    assert_eq!(warnings.take(), [""; 0]);
    connect(Duration::from_millis(1_900)).await;
    let warned = warnings.take();
    assert!(warned.len() == 1 && warned[0].contains("sensible=2s"), "{warned:?}");
    client.links[1].heal();
    connect(Duration::from_millis(1_900)).await;
    assert_eq!(warnings.take(), [""; 0], "a majority is near");
}

#[test]
fn what_cannot_be_a_quorum_is_refused() {
    assert_eq!(QuorumBackend::new([]).unwrap_err().kind(), ErrorKind::Misconfigured);
    let nodes: [Arc<dyn DistributedLock>; 2] = [Arc::new(MemoryBackend::new()), Arc::new(Plain)];
    let error = QuorumBackend::new(nodes).unwrap_err();
    assert!(error.to_string().contains("node 2 (Plain)"), "{error}");
    let node: Arc<dyn DistributedLock> = Arc::new(MemoryBackend::new());
    let config = QuorumConfig::new().with_patience(Duration::ZERO);
    assert_eq!(
        QuorumBackend::with_config([node], &config).unwrap_err().kind(),
        ErrorKind::Misconfigured
    );
}

#[test]
fn a_quorum_shows_the_kinds_of_its_nodes_and_no_addresses() {
    let (one, other) = (MemoryBackend::new(), MemoryBackend::new());
    let shown = format!("{:?}", quorum(&[&one, &other]));
    assert_eq!(shown, "QuorumBackend { nodes: [MemoryBackend, MemoryBackend], .. }");
}

/// A node that refuses longer TTLs, as one with a restart delay does.
#[derive(Debug)]
struct UpTo(Duration);

#[async_trait::async_trait]
impl DistributedLock for UpTo {
    fn capabilities(&self) -> Capabilities {
        let mut capabilities = MemoryBackend::new().capabilities();
        capabilities.longest_ttl = self.0;
        capabilities
    }

    async fn connect(&self) -> Result<()> {
        unreachable!("nobody connects")
    }

    async fn acquire(&self, _request: &AcquireRequest) -> Result<Attempt> {
        unreachable!("nobody connects")
    }

    async fn abandon(&self, _request: &AcquireRequest) -> Result<()> {
        unreachable!("nobody connects")
    }

    async fn status(&self, _name: &LockName) -> Result<LockStatus> {
        unreachable!("nobody connects")
    }
}

/// A backend whose tokens cannot be chosen.
#[derive(Debug)]
struct Plain;

#[async_trait::async_trait]
impl DistributedLock for Plain {
    fn capabilities(&self) -> Capabilities {
        Capabilities::default()
    }

    async fn connect(&self) -> Result<()> {
        Ok(())
    }

    async fn acquire(&self, _request: &AcquireRequest) -> Result<Attempt> {
        unreachable!("it is refused")
    }

    async fn abandon(&self, _request: &AcquireRequest) -> Result<()> {
        unreachable!("it is refused")
    }

    async fn status(&self, _name: &LockName) -> Result<LockStatus> {
        unreachable!("it is refused")
    }
}
