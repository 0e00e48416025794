//! Observers of a server that loses its data, so that its tokens start again.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use lock_core::backend::{AcquireRequest, Attempt, Capabilities, Change, DistributedLock, LockStatus};
use lock_core::{FencingToken, LockName, Locker, MemoryBackend, Observer, Result};
use tokio::time::{Instant, sleep, timeout};

use super::{TTL, seconds};

/// A server that loses its data: then it is the second one.
#[derive(Clone, Debug)]
struct Forgetful {
    before: MemoryBackend,
    after: MemoryBackend,
    has_forgotten: Arc<AtomicBool>,
}

impl Forgetful {
    fn server(&self) -> &MemoryBackend {
        match self.has_forgotten.load(Ordering::SeqCst) {
            false => &self.before,
            true => &self.after,
        }
    }

    fn forgets(&self, has_forgotten: bool) {
        self.has_forgotten.store(has_forgotten, Ordering::SeqCst);
    }
}

#[async_trait]
impl DistributedLock for Forgetful {
    fn capabilities(&self) -> Capabilities {
        self.before.capabilities()
    }

    async fn connect(&self) -> Result<()> {
        self.server().connect().await
    }

    async fn acquire(&self, request: &AcquireRequest) -> Result<Attempt> {
        self.server().acquire(request).await
    }

    async fn abandon(&self, request: &AcquireRequest) -> Result<()> {
        self.server().abandon(request).await
    }

    async fn status(&self, name: &LockName) -> Result<LockStatus> {
        self.server().status(name).await
    }

    async fn follow(&self, name: &LockName) -> Result<(LockStatus, Change)> {
        Ok((self.status(name).await?, Change::never()))
    }
}

/// The server, and two processes. Tokens start at 1001, and at 1 after the loss of the data.
fn forgetful() -> (Forgetful, Locker, Locker) {
    let server = Forgetful {
        before: MemoryBackend::new(),
        after: MemoryBackend::new(),
        has_forgotten: Arc::default(),
    };
    let floor = FencingToken::new(1000).unwrap();
    let before = Locker::new(server.before.clone()).with_ttl(TTL).with_token_floor(floor);
    (server.clone(), before, Locker::new(server.after).with_ttl(TTL))
}

async fn next(seen: &mut Observer) -> FencingToken {
    timeout(3 * TTL, seen.changed()).await.expect("in time").unwrap().term()
}

#[tokio::test(start_paused = true)]
async fn a_smaller_term_is_seen_a_ttl_after_the_larger_one() {
    let (server, before, after) = forgetful();
    let mut seen = Locker::new(server.clone()).with_ttl(TTL).election("a").observe();
    let former = before.election("a").campaign().await.unwrap();
    let next_one = after.election("a").campaign().await.unwrap();
    assert!(next_one.token() < former.token());
    assert_eq!(next(&mut seen).await, former.token());
    // It is named again and again until the data is lost.
    assert!(timeout(2 * TTL, seen.changed()).await.is_err());
    server.forgets(true);
    let lost = Instant::now();
    assert_eq!(next(&mut seen).await, next_one.token());
    assert_eq!(seen.current().map(|leader| leader.term()), Some(next_one.token()));
    let after_loss = lost.elapsed();
    assert!((TTL * 2 / 3..=TTL * 4 / 3).contains(&after_loss), "{after_loss:?}");
    // Once, and the terms after it as ever.
    assert!(timeout(3 * TTL, seen.changed()).await.is_err());
    next_one.resign().await.unwrap();
    let third = after.election("a").campaign().await.unwrap();
    assert_eq!(next(&mut seen).await, third.token());
}

/// As of a replica that lags behind, which another question may reach.
#[tokio::test(start_paused = true)]
async fn a_smaller_term_is_not_seen_while_the_larger_one_is_named() {
    let (server, before, after) = forgetful();
    let mut seen = Locker::new(server.clone()).with_ttl(TTL).election("a").observe();
    let former = before.election("a").campaign().await.unwrap();
    let _other = after.election("a").campaign().await.unwrap();
    assert_eq!(next(&mut seen).await, former.token());
    for _ in 0..10 {
        for forgotten in [true, false] {
            server.forgets(forgotten);
            assert!(timeout(TTL * 2 / 5, seen.changed()).await.is_err());
        }
    }
}

/// The candidate that observes had the larger term itself: that is not seen again.
#[tokio::test(start_paused = true)]
async fn the_own_former_term_is_seen_once() {
    let (server, before, after) = forgetful();
    let floor = FencingToken::new(1000).unwrap();
    let election = Locker::new(server.clone())
        .with_ttl(TTL)
        .with_token_floor(floor)
        .election("a");
    let mut seen = election.observe();
    let own = election.campaign().await.unwrap();
    assert_eq!(next(&mut seen).await, own.token());
    own.resign().await.unwrap();
    server.forgets(true);
    let others = after.election("a").campaign().await.unwrap();
    assert!(others.token() < FencingToken::new(1000).unwrap());
    assert_eq!(next(&mut seen).await, others.token());
    assert!(timeout(3 * TTL, seen.changed()).await.is_err());
    drop(before);
}

/// If nobody asked for a long time, the first answer counts.
#[tokio::test(start_paused = true)]
async fn an_answer_counts_from_its_question() {
    let (server, before, after) = forgetful();
    let mut seen = Locker::new(server.clone()).with_ttl(TTL).election("a").observe();
    let former = before.election("a").campaign().await.unwrap();
    assert_eq!(next(&mut seen).await, former.token());
    sleep(2 * TTL).await;
    server.forgets(true);
    let leader = after.election("a").campaign().await.unwrap();
    let asks = Instant::now();
    assert_eq!(next(&mut seen).await, leader.token());
    assert!(asks.elapsed() < seconds(1));
}
