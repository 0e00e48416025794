//! The lock server of the memory backend with a client to it, whose every message crosses a link: what the mutants differ
//! from.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use lock_core::LockName;
use lock_core::backend::DistributedLock;

use crate::harness::{BackendHarness, Data, Harness, NoServer, Route, ServerUse, Timing};
use crate::link::Link;
use crate::mutant::Mutant;
use crate::subject::{LockerSubject, Subject};

use self::subject::MutantSubject;

pub use self::backend::ReferenceBackend;
pub use self::server::ReferenceServer;

mod acquire;
mod admission;
mod backend;
mod client;
mod election;
mod guard;
mod hold;
mod list;
mod reentry;
mod revoke;
mod server;
mod state;
mod subject;

/// The reference as a harness: whole, or with one mutant.
#[derive(Debug, Default)]
pub struct ReferenceHarness {
    mutant: Option<Mutant>,
    servers: Mutex<HashMap<String, Arc<ReferenceServer>>>,
}

impl ReferenceHarness {
    /// The reference with this bug.
    pub fn with_mutant(mutant: Mutant) -> Self {
        Self {
            mutant: Some(mutant),
            servers: Mutex::default(),
        }
    }

    fn server(&self, namespace: &str) -> Arc<ReferenceServer> {
        let mut servers = self.servers.lock().unwrap_or_else(PoisonError::into_inner);
        let server = servers.entry(namespace.to_owned());
        server
            .or_insert_with(|| Arc::new(ReferenceServer::new(self.mutant)))
            .clone()
    }
}

#[async_trait]
impl Harness for ReferenceHarness {
    async fn start(_server: ServerUse) -> Result<Self, NoServer> {
        Ok(Self::default())
    }

    fn attach(_address: &str) -> Self {
        Self::default()
    }

    fn address(&self) -> Option<String> {
        None
    }

    fn timing(&self) -> Timing {
        Timing::paused()
    }

    async fn subject(&self, namespace: &str, route: &Route) -> Arc<dyn Subject> {
        let backend = self.backend(namespace, route).await;
        match self.mutant {
            Some(mutant) => Arc::new(MutantSubject::new(backend, mutant)),
            None => Arc::new(LockerSubject::new(backend)),
        }
    }

    async fn take_away(&self, namespace: &str, name: &str) {
        if let Ok(name) = LockName::new(name) {
            self.server(namespace).take_away(&name);
        }
    }

    async fn restart(&self, data: Data) {
        if self.mutant == Some(Mutant::RestartDoesNothing) {
            return;
        }
        let servers: Vec<_> = self
            .servers
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .values()
            .cloned()
            .collect();
        for server in &servers {
            server.stop();
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
        for server in &servers {
            server.start(data);
        }
    }

    fn auxiliary_names(&self, _namespace: &str, _name: &str) -> Vec<String> {
        // A map's key has nothing beside it.
        Vec::new()
    }
}

#[async_trait]
impl BackendHarness for ReferenceHarness {
    async fn backend(&self, namespace: &str, route: &Route) -> Arc<dyn DistributedLock> {
        let link = match route {
            Route::Direct => Link::new(),
            Route::Through(link) => link.clone(),
            Route::Nowhere => {
                let link = Link::new();
                link.cut();
                link
            }
        };
        Arc::new(ReferenceBackend::new(self.server(namespace), link, self.mutant))
    }
}
