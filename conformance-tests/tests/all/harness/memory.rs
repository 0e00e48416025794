//! The suite on the memory backend, on paused time, behind a link that yields before and after every effect.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use conformance_tests::{
    BackendHarness, Data, Harness, Link, Linked, LockerSubject, NoServer, Route, ServerUse, Subject, Timing,
};
use lock_core::MemoryBackend;
use lock_core::backend::DistributedLock;

/// One memory server for each namespace.
#[derive(Debug, Default)]
pub(crate) struct MemoryHarness(Mutex<HashMap<String, MemoryBackend>>);

impl MemoryHarness {
    fn server(&self, namespace: &str) -> MemoryBackend {
        let mut servers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        servers.entry(namespace.to_owned()).or_default().clone()
    }
}

#[async_trait]
impl Harness for MemoryHarness {
    async fn start(_server: ServerUse) -> Result<Self, NoServer> {
        Ok(Self::default())
    }

    fn attach(address: &str) -> Self {
        unreachable!("this server has no address, and yet {address:?} was found")
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
        self.server(namespace).take_away(name).expect("a valid name");
    }

    /// Its state outlives the outage: there is no process to restart.
    async fn restart(&self, data: Data) {
        assert_eq!(
            data,
            Data::Kept,
            "a memory server declares no tokens that outlast its data"
        );
        let servers: Vec<_> = self
            .0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .values()
            .cloned()
            .collect();
        for server in &servers {
            server.set_available(false);
        }
        tokio::time::sleep(self.timing().ttl / 10).await;
        for server in &servers {
            server.set_available(true);
        }
    }

    fn auxiliary_names(&self, _namespace: &str, _name: &str) -> Vec<String> {
        // A map's key has nothing beside it.
        Vec::new()
    }
}

#[async_trait]
impl BackendHarness for MemoryHarness {
    async fn backend(&self, namespace: &str, route: &Route) -> Arc<dyn DistributedLock> {
        let server = self.server(namespace);
        match route {
            Route::Through(link) => Arc::new(Linked::new(server, link.clone())),
            Route::Nowhere => {
                let link = Link::new();
                link.cut();
                Arc::new(Linked::new(server, link))
            }
            _ => Arc::new(Linked::new(server, Link::new())),
        }
    }
}
