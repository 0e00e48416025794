//! A library whose client is an actor: each call hands its work to a task and awaits the answer, which takes two polls.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use lock_core::backend::{Capabilities, DistributedLock, LockStatus};
use lock_core::{Error, ErrorKind, FencingToken, Release, Result};
use tokio::sync::oneshot;

use crate::case::Body;
use crate::cases;
use crate::harness::{BackendHarness, Data, Harness, NoServer, Route, ServerUse, Timing};
use crate::reference::ReferenceHarness;
use crate::run::execute;
use crate::subject::{Ask, Candidate, End, State, Subject, SubjectGuard, Task, WaitLimit};
use crate::verdict::Outcome;

#[derive(Debug)]
struct Actor {
    whole: Arc<dyn Subject>,
    least_polls: u32,
}

#[derive(Debug)]
struct ActorGuard(Box<dyn SubjectGuard>);

fn gone<T>(_: T) -> Error {
    Error::new(ErrorKind::Unexpected, "the task has ended without an answer")
}

#[async_trait]
impl Subject for Actor {
    fn capabilities(&self) -> Capabilities {
        self.whole.capabilities()
    }

    fn passes(&self) -> u32 {
        self.whole.passes()
    }

    fn least_polls(&self) -> u32 {
        self.least_polls
    }

    async fn acquire(&self, ask: &Ask) -> Result<Option<Box<dyn SubjectGuard>>> {
        let (mut answer, answered) = oneshot::channel();
        let (whole, ask) = (self.whole.clone(), ask.clone());
        tokio::spawn(async move {
            let acquired = tokio::select! {
                acquired = whole.acquire(&ask) => acquired,
                () = answer.closed() => return,
            };
            // A guard that nobody takes is dropped.
            answer.send(acquired).ok();
        });
        let guard = answered.await.map_err(gone)??;
        Ok(guard.map(|guard| Box::new(ActorGuard(guard)) as Box<dyn SubjectGuard>))
    }

    fn acquires_several(&self) -> bool {
        self.whole.acquires_several()
    }

    async fn acquire_all(&self, asks: &[Ask], wait: WaitLimit) -> Result<Option<Vec<Box<dyn SubjectGuard>>>> {
        self.whole.acquire_all(asks, wait).await
    }

    fn candidate(&self, name: &str, ttl: Duration, value: &str) -> Option<Arc<dyn Candidate>> {
        self.whole.candidate(name, ttl, value)
    }

    async fn status(&self, name: &str) -> Result<LockStatus> {
        self.whole.status(name).await
    }

    async fn shutdown(&self) -> Result<()> {
        self.whole.shutdown().await
    }
}

#[async_trait]
impl SubjectGuard for ActorGuard {
    fn token(&self) -> FencingToken {
        self.0.token()
    }

    fn state(&self) -> State {
        self.0.state()
    }

    fn valid_for(&self) -> Duration {
        self.0.valid_for()
    }

    async fn lost(&self) {
        self.0.lost().await;
    }

    fn watch(&self) -> Task<End> {
        self.0.watch()
    }

    async fn run(&self, work: Task<()>) -> bool {
        self.0.run(work).await
    }

    async fn extend(&self, ttl: Duration) -> Result<()> {
        self.0.extend(ttl).await
    }

    async fn downgrade(&mut self) -> Result<()> {
        self.0.downgrade().await
    }

    async fn upgrade(&mut self, limit: Option<Duration>) -> Result<()> {
        self.0.upgrade(limit).await
    }

    async fn release(self: Box<Self>) -> Result<Release> {
        // The task goes on if this is dropped.
        tokio::spawn(self.0.release()).await.map_err(gone)?
    }
}

#[derive(Debug)]
struct ActorHarness {
    whole: ReferenceHarness,
    least_polls: u32,
}

#[async_trait]
impl Harness for ActorHarness {
    async fn start(_server: ServerUse) -> std::result::Result<Self, NoServer> {
        unreachable!("no test of the macro's runs it")
    }

    fn attach(address: &str) -> Self {
        unreachable!("this server has no address, and yet {address:?} was found")
    }

    fn address(&self) -> Option<String> {
        None
    }

    fn timing(&self) -> Timing {
        self.whole.timing()
    }

    async fn subject(&self, namespace: &str, route: &Route) -> Arc<dyn Subject> {
        Arc::new(Actor {
            whole: self.whole.subject(namespace, route).await,
            least_polls: self.least_polls,
        })
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
impl BackendHarness for ActorHarness {
    async fn backend(&self, namespace: &str, route: &Route) -> Arc<dyn DistributedLock> {
        self.whole.backend(namespace, route).await
    }
}

fn outcome(name: &'static str, least_polls: u32) -> Outcome {
    let harness = ActorHarness {
        whole: ReferenceHarness::default(),
        least_polls,
    };
    execute(cases::named(name), Arc::new(harness), name)
}

#[test]
fn a_library_whose_calls_take_two_polls_passes() {
    let subject_cases = cases::all().iter().filter(|case| matches!(case.body, Body::Subject(_)));
    let failed: Vec<_> = subject_cases
        .map(|case| (case.name, outcome(case.name, 1)))
        .filter(|(_, outcome)| !matches!(outcome, Outcome::Passed | Outcome::Skipped(_)))
        .map(|(case, outcome)| format!("{case}: {outcome}"))
        .collect();
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

#[test]
fn fewer_polls_than_a_subject_takes_show_too_little() {
    for name in [
        "an_acquire_is_dropped_after_every_poll",
        "a_try_is_dropped_after_every_poll",
        "a_waiter_is_dropped_during_a_release",
        "a_release_is_dropped_before_a_waiter",
    ] {
        let outcome = outcome(name, 3);
        assert!(
            outcome.to_string().contains("too few to show anything"),
            "{name}: {outcome}"
        );
    }
}
