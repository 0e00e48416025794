//! Harnesses that own a runtime, as one whose server is in this process does.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use lock_core::backend::DistributedLock;
use tokio::runtime::{Builder, Runtime};

use super::{execute, one_permit_test, subject_test, test};
use crate::cases;
use crate::harness::{BackendHarness, Data, Harness, NoServer, Route, ServerUse, Timing};
use crate::reference::ReferenceHarness;
use crate::subject::Subject;
use crate::verdict::Outcome;

/// The number of harnesses that were dropped whole.
static DROPPED: AtomicUsize = AtomicUsize::new(0);

#[derive(Debug)]
struct Owner {
    whole: ReferenceHarness,
    runtime: Option<Runtime>,
}

impl Owner {
    fn new() -> Self {
        let runtime = Builder::new_multi_thread().worker_threads(1).build();
        Self {
            whole: ReferenceHarness::default(),
            runtime: Some(runtime.expect("a runtime")),
        }
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        // This panics within another runtime.
        drop(self.runtime.take());
        DROPPED.fetch_add(1, Ordering::SeqCst);
    }
}

#[async_trait]
impl Harness for Owner {
    async fn start(_server: ServerUse) -> Result<Self, NoServer> {
        Ok(Self::new())
    }

    fn attach(_address: &str) -> Self {
        unreachable!("no other process reaches this server")
    }

    fn address(&self) -> Option<String> {
        None
    }

    fn timing(&self) -> Timing {
        self.whole.timing()
    }

    async fn subject(&self, namespace: &str, route: &Route) -> Arc<dyn Subject> {
        self.whole.subject(namespace, route).await
    }

    async fn take_away(&self, namespace: &str, name: &str) {
        self.whole.take_away(namespace, name).await;
    }

    async fn restart(&self, data: Data) {
        self.whole.restart(data).await;
    }

    fn auxiliary_names(&self, namespace: &str, name: &str) -> Vec<String> {
        self.whole.auxiliary_names(namespace, name)
    }
}

#[async_trait]
impl BackendHarness for Owner {
    async fn backend(&self, namespace: &str, route: &Route) -> Arc<dyn DistributedLock> {
        self.whole.backend(namespace, route).await
    }
}

#[test]
fn is_dropped_outside_the_runtime_of_the_case() {
    let (module, raw, subject) = ("suite::mine", "a_second_client_is_refused", "a_dropped_guard_releases");
    test::<Owner>(module, raw);
    one_permit_test::<Owner>(module, raw);
    test::<Owner>(module, subject);
    subject_test::<Owner>(module, subject);
    let outcome = execute(cases::named(raw), Arc::new(Owner::new()), raw);
    assert!(matches!(outcome, Outcome::Passed), "{outcome}");
    assert_eq!(DROPPED.load(Ordering::SeqCst), 5);
}
