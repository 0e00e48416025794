//! Elections on a backend whose leases end with their session.

use std::ops::ControlFlow;
use std::time::Duration;

use async_trait::async_trait;
use lock_core::backend::{AcquireRequest, Attempt, Capabilities, DistributedLock, LockStatus, SentAt};
use lock_core::{ErrorKind, LockName, Locker, Result};
use tokio::time::timeout;

use super::{TTL, seconds};
use crate::scripted::{Answer, Request, Scripted};

/// Shorter than the TTL.
const SESSION: Duration = Duration::from_secs(6);

/// Each lease is bound to a session that nothing renews.
#[derive(Debug)]
struct Sessions(Scripted);

#[async_trait]
impl DistributedLock for Sessions {
    fn capabilities(&self) -> Capabilities {
        self.0.capabilities()
    }

    async fn connect(&self) -> Result<()> {
        self.0.connect().await
    }

    async fn acquire(&self, request: &AcquireRequest) -> Result<Attempt> {
        request.lease().bind_to_session(SentAt::now(), SESSION);
        self.0.acquire(request).await
    }

    async fn abandon(&self, request: &AcquireRequest) -> Result<()> {
        self.0.abandon(request).await
    }

    async fn status(&self, name: &LockName) -> Result<LockStatus> {
        self.0.status(name).await
    }
}

fn sessions() -> (Scripted, Locker) {
    let backend = Scripted::default();
    (backend.clone(), Locker::new(Sessions(backend)).with_ttl(TTL))
}

#[tokio::test(start_paused = true)]
async fn a_margin_too_long_for_the_session_is_refused_and_the_name_is_free() {
    let (backend, locks) = sessions();
    // A third of the TTL, and half of the session.
    let election = locks.election("a").margin(seconds(3));
    let led = election.lead(|_| async { ControlFlow::Break(()) });
    let error = timeout(10 * TTL, led).await.expect("it ends by itself").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Misconfigured);
    for part in ["a session of 6s", "choose at most 2s", "a longer session timeout"] {
        assert!(error.to_string().contains(part), "{error}");
    }
    assert_eq!(error.name().map(LockName::as_str), Some("a"));
    assert!(!election.is_leader());
    assert!(!backend.is_held("a").await, "it was released before the error");
    let term = election.margin(seconds(2)).campaign().await.unwrap();
    assert_eq!(term.valid_for(), SESSION * 9 / 10);
    term.resign().await.unwrap();
}

/// Also if the campaign is dropped meanwhile.
#[tokio::test(start_paused = true)]
async fn a_refused_term_is_given_back() {
    let (backend, locks) = sessions();
    backend.next(Request::Release, [Answer::DoAfter(seconds(1))]);
    let election = locks.election("a").margin(seconds(3));
    assert!(timeout(seconds(1) / 2, election.campaign()).await.is_err());
    assert!(backend.is_held("a").await);
    locks.shutdown().await.unwrap();
    assert!(!backend.is_held("a").await);
}
