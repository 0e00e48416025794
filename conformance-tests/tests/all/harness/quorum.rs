//! The suite on quorums: of memory backends on paused time, and of real servers.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use conformance_tests::{BackendHarness, Data, Harness, LockerSubject, NoServer, Route, ServerUse, Subject, Timing};
use lock_core::LockName;
use lock_core::backend::DistributedLock;
use lock_quorum::QuorumBackend;
use lock_redis::RedisBackend;
use testbed::happens;
use tokio::time::sleep;

use super::memory::MemoryHarness;

/// Three memory servers.
#[derive(Debug, Default)]
pub(crate) struct QuorumOfMemory([MemoryHarness; 3]);

#[async_trait]
impl Harness for QuorumOfMemory {
    async fn start(_server: ServerUse) -> Result<Self, NoServer> {
        Ok(Self::default())
    }

    fn attach(address: &str) -> Self {
        unreachable!("these servers have no address, and yet {address:?} was found")
    }

    fn address(&self) -> Option<String> {
        None
    }

    fn timing(&self) -> Timing {
        Timing::paused()
    }

    async fn subject(&self, namespace: &str, route: &Route) -> Arc<dyn Subject> {
        Arc::new(LockerSubject::new(self.backend(namespace, route).await))
    }

    async fn take_away(&self, namespace: &str, name: &str) {
        for node in &self.0 {
            node.take_away(namespace, name).await;
        }
    }

    async fn restart(&self, data: Data) {
        for node in &self.0 {
            node.restart(data).await;
        }
    }

    fn auxiliary_names(&self, namespace: &str, name: &str) -> Vec<String> {
        self.0[0].auxiliary_names(namespace, name)
    }
}

#[async_trait]
impl BackendHarness for QuorumOfMemory {
    async fn backend(&self, namespace: &str, route: &Route) -> Arc<dyn DistributedLock> {
        let mut nodes = Vec::new();
        for node in &self.0 {
            nodes.push(node.backend(namespace, route).await);
        }
        Arc::new(QuorumBackend::new(nodes).expect("three nodes"))
    }
}

/// Three servers of any kind.
#[derive(Debug)]
pub(crate) struct QuorumHarness<A, B, C>(A, B, C);

/// A server whose hold may end by itself just before it is taken away: a holder that has lost a majority gives back the
/// rest.
#[async_trait]
pub(crate) trait Node: BackendHarness {
    /// Ends the hold of this name at the server. Returns whether there was one.
    async fn end_hold(&self, namespace: &str, name: &str) -> bool;
}

impl<A: Node, B: Node, C: Node> QuorumHarness<A, B, C> {
    fn nodes(&self) -> [&dyn Node; 3] {
        [&self.0, &self.1, &self.2]
    }
}

/// The number of the three nodes that have to vote.
const MAJORITY: usize = 2;
/// The additional time for a node that is late, or dead.
const GRACE: Duration = Duration::from_secs(1);
const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// Takes the vote of this node away when it has voted, and counts it. Once a majority is robbed, a node that has not voted
/// is left out.
async fn rob(node: &dyn Node, namespace: &str, name: &str, robbed: &AtomicUsize) {
    let lock = LockName::new(name).expect("a valid name");
    let backend = node.backend(namespace, &Route::Direct).await;
    let left_out = async {
        while robbed.load(Ordering::SeqCst) < MAJORITY {
            sleep(LOOK_AGAIN).await;
        }
        sleep(GRACE).await;
    };
    let mut left_out = pin!(happens("the votes of a majority", left_out));
    loop {
        let has_voted = async {
            while !backend.status(&lock).await.is_ok_and(|status| status.is_held()) {
                sleep(LOOK_AGAIN).await;
            }
        };
        tokio::select! {
            biased;
            () = has_voted => {}
            () = &mut left_out => return,
        }
        // Never dropped half-way: it would rob whoever holds the name later.
        if node.end_hold(namespace, name).await {
            robbed.fetch_add(1, Ordering::SeqCst);
            return;
        }
    }
}

#[async_trait]
impl<A: Node, B: Node, C: Node> Harness for QuorumHarness<A, B, C> {
    async fn start(server: ServerUse) -> Result<Self, NoServer> {
        Ok(Self(
            A::start(server).await?,
            B::start(server).await?,
            C::start(server).await?,
        ))
    }

    fn attach(address: &str) -> Self {
        let mut addresses = address.split('|');
        let mut next = || addresses.next().expect("three addresses");
        Self(A::attach(next()), B::attach(next()), C::attach(next()))
    }

    fn address(&self) -> Option<String> {
        let addresses: Option<Vec<_>> = self.nodes().into_iter().map(|node| node.address()).collect();
        Some(addresses?.join("|"))
    }

    /// The times that suit all three nodes.
    fn timing(&self) -> Timing {
        let all = self.nodes().map(|node| node.timing());
        let slowest = |time: fn(&Timing) -> Duration| all.iter().map(time).max().unwrap_or_default();
        let percents = all.iter().map(|timing| timing.round_trip_percent);
        Timing::default()
            .with_ttl(slowest(|timing| timing.ttl))
            .with_tick(slowest(|timing| timing.tick))
            .with_patience(slowest(|timing| timing.patience))
            .with_round_trip_percent(percents.min().unwrap_or_default())
    }

    async fn subject(&self, namespace: &str, route: &Route) -> Arc<dyn Subject> {
        super::servers::subject(self.backend(namespace, route).await)
    }

    /// From all nodes at once: one that is robbed long before the others votes again meanwhile.
    async fn take_away(&self, namespace: &str, name: &str) {
        let robbed = AtomicUsize::new(0);
        let [first, second, third] = self.nodes().map(|node| rob(node, namespace, name, &robbed));
        tokio::join!(first, second, third);
    }

    async fn restart(&self, data: Data) {
        for node in self.nodes() {
            node.restart(data).await;
        }
    }

    fn auxiliary_names(&self, namespace: &str, name: &str) -> Vec<String> {
        let nodes = self.nodes();
        nodes
            .iter()
            .flat_map(|node| node.auxiliary_names(namespace, name))
            .collect()
    }
}

#[async_trait]
impl<A: Node, B: Node, C: Node> BackendHarness for QuorumHarness<A, B, C> {
    async fn backend(&self, namespace: &str, route: &Route) -> Arc<dyn DistributedLock> {
        let mut nodes = Vec::new();
        for node in self.nodes() {
            nodes.push(node.backend(namespace, route).await);
        }
        Arc::new(QuorumBackend::new(nodes).expect("three nodes"))
    }
}

/// A server that is down all the time.
#[derive(Debug)]
pub(crate) struct Dead;

#[async_trait]
impl Harness for Dead {
    async fn start(_server: ServerUse) -> Result<Self, NoServer> {
        Ok(Self)
    }

    fn attach(_address: &str) -> Self {
        Self
    }

    fn address(&self) -> Option<String> {
        Some(String::new())
    }

    fn timing(&self) -> Timing {
        Timing::default()
    }

    async fn subject(&self, namespace: &str, route: &Route) -> Arc<dyn Subject> {
        Arc::new(LockerSubject::new(self.backend(namespace, route).await))
    }

    async fn take_away(&self, _namespace: &str, _name: &str) {
        unreachable!("it never voted");
    }

    async fn restart(&self, _data: Data) {
        // It stays dead.
    }

    fn auxiliary_names(&self, _namespace: &str, _name: &str) -> Vec<String> {
        Vec::new()
    }
}

#[async_trait]
impl BackendHarness for Dead {
    async fn backend(&self, _namespace: &str, _route: &Route) -> Arc<dyn DistributedLock> {
        // Nobody listens on port 1 of this machine.
        Arc::new(RedisBackend::from_url("redis://127.0.0.1:1").expect("a valid URL"))
    }
}

#[async_trait]
impl Node for Dead {
    async fn end_hold(&self, _namespace: &str, _name: &str) -> bool {
        unreachable!("it never voted")
    }
}
