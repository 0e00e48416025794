//! The suite on quorums: of memory backends on paused time, and of real servers.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use conformance_tests::{BackendHarness, Data, Harness, LockerSubject, NoServer, Route, ServerUse, Subject, Timing};
use lock_core::LockName;
use lock_core::backend::DistributedLock;
use lock_quorum::QuorumBackend;
use lock_redis::RedisBackend;
use tokio::time::{sleep, timeout};

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

impl<A: BackendHarness, B: BackendHarness, C: BackendHarness> QuorumHarness<A, B, C> {
    fn nodes(&self) -> [&dyn BackendHarness; 3] {
        [&self.0, &self.1, &self.2]
    }
}

#[async_trait]
impl<A: BackendHarness, B: BackendHarness, C: BackendHarness> Harness for QuorumHarness<A, B, C> {
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

    /// What suits all of them.
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
        Arc::new(LockerSubject::new(self.backend(namespace, route).await))
    }

    async fn take_away(&self, namespace: &str, name: &str) {
        for node in self.nodes() {
            let backend = node.backend(namespace, &Route::Direct).await;
            let lock = LockName::new(name).expect("a valid name");
            let has_voted = async {
                while !backend.status(&lock).await.is_ok_and(|status| status.is_held()) {
                    sleep(Duration::from_millis(10)).await;
                }
            };
            // A majority has, and one node may be later or dead.
            if timeout(Duration::from_millis(300), has_voted).await.is_ok() {
                node.take_away(namespace, name).await;
            }
        }
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
impl<A: BackendHarness, B: BackendHarness, C: BackendHarness> BackendHarness for QuorumHarness<A, B, C> {
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
