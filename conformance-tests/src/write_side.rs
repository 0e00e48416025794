//! The write side of reader-writer locks, as the lock under test.

use std::sync::Arc;

use async_trait::async_trait;

use crate::harness::{BackendHarness, Data, Harness, NoServer, Route, ServerUse, Timing};
use crate::subject::{LockerSubject, Subject};

/// A [`Harness`] whose subject locks the write side of reader-writer locks: `conformance!(subject redis_write,
/// WriteSide<RedisHarness>);` runs the cases of exclusive locks on it.
#[derive(Debug)]
pub struct WriteSide<H>(H);

#[async_trait]
impl<H: BackendHarness> Harness for WriteSide<H> {
    async fn start(server: ServerUse) -> Result<Self, NoServer> {
        H::start(server).await.map(Self)
    }

    fn attach(address: &str) -> Self {
        Self(H::attach(address))
    }

    fn address(&self) -> Option<String> {
        self.0.address()
    }

    fn timing(&self) -> Timing {
        self.0.timing()
    }

    async fn subject(&self, namespace: &str, route: &Route) -> Arc<dyn Subject> {
        let backend = self.0.backend(namespace, route).await;
        Arc::new(LockerSubject::new(backend).writing())
    }

    async fn take_away(&self, namespace: &str, name: &str) {
        self.0.take_away(namespace, name).await;
    }

    async fn restart(&self, data: Data) {
        self.0.restart(data).await;
    }

    fn auxiliary_names(&self, namespace: &str, name: &str) -> Vec<String> {
        self.0.auxiliary_names(namespace, name)
    }
}
