//! Harnesses that own a runtime, as one whose server is in this process does.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use lock_core::backend::DistributedLock;
use tokio::runtime::{Builder, Runtime};

use super::{execute, of_subject, one_permit};
use crate::case::Body;
use crate::cases;
use crate::child::{Child, run_as_child};
use crate::context::Cx;
use crate::harness::{BackendHarness, Data, Harness, NoServer, Route, ServerUse, Timing};
use crate::job::Job;
use crate::reference::ReferenceHarness;
use crate::subject::Subject;
use crate::verdict::Outcome;

#[derive(Debug)]
struct Owner {
    whole: ReferenceHarness,
    runtime: Option<Runtime>,
    /// The number of harnesses that were dropped whole.
    dropped: Arc<AtomicUsize>,
    and_then: fn(),
}

impl Owner {
    fn new(dropped: &Arc<AtomicUsize>) -> Self {
        let runtime = Builder::new_multi_thread().worker_threads(1).build();
        Self {
            whole: ReferenceHarness::default(),
            runtime: Some(runtime.expect("a runtime")),
            dropped: dropped.clone(),
            and_then: || {},
        }
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        // This panics within another runtime.
        drop(self.runtime.take());
        self.dropped.fetch_add(1, Ordering::SeqCst);
        (self.and_then)();
    }
}

#[async_trait]
impl Harness for Owner {
    async fn start(_server: ServerUse) -> Result<Self, NoServer> {
        Ok(Self::new(&Arc::default()))
    }

    /// A server of its own, which is enough for a child that nobody competes with.
    fn attach(_address: &str) -> Self {
        Self::new(&Arc::default())
    }

    fn address(&self) -> Option<String> {
        Some("nowhere".to_owned())
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

/// It calls no function that writes a report: this test is no result of a backend.
#[test]
fn is_dropped_outside_the_runtime_of_the_case() {
    let raw = cases::named("a_second_client_is_refused");
    let subject = cases::named("a_dropped_guard_releases");
    let (Body::Raw(raw_body), Body::Subject(subject_body)) = (&raw.body, &subject.body) else {
        unreachable!("a case of each layer");
    };
    let dropped: Arc<AtomicUsize> = Arc::default();
    let owner = || Arc::new(Owner::new(&dropped));
    for outcome in [
        execute(raw, owner(), raw.name),
        execute(subject, owner(), subject.name),
        one_permit(raw, *raw_body, owner(), raw.name),
        of_subject(*subject_body, owner(), subject.name),
    ] {
        assert!(matches!(outcome, Outcome::Passed), "{outcome}");
    }
    assert_eq!(dropped.load(Ordering::SeqCst), 4);
}

#[test]
fn fails_the_case_if_its_drop_panics() {
    let case = cases::named("a_second_client_is_refused");
    let mut owner = Owner::new(&Arc::default());
    owner.and_then = || panic!("as planned");
    let outcome = execute(case, Arc::new(owner), case.name);
    assert!(
        matches!(&outcome, Outcome::Panicked(text) if text.starts_with("as planned, while")),
        "{outcome}"
    );
}

/// The child process of the next test. In any other process it does nothing.
#[test]
fn is_attached_in_a_child() {
    run_as_child::<Owner>();
}

#[test]
fn is_not_dropped_within_the_runtime_of_a_child() {
    let owner = Arc::new(Owner::new(&Arc::default()));
    let test = "run::owned_runtime::is_attached_in_a_child".to_owned();
    let cx = Cx::new(owner, "mine".to_owned(), test);
    let job = Job::Hold {
        name: "a".to_owned(),
        ttl: cx.ttl(),
        minimum: None,
    };
    let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
    let released = runtime.block_on(async {
        let mut child = Child::start(&cx, &job)?;
        child.says(&cx, "held", cx.patience()).await?;
        child.tell("release")?;
        child.says(&cx, "released", cx.patience()).await
    });
    assert!(released.is_ok(), "{released:?}");
}
