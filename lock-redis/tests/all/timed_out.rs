//! What an acquire is told whose time is up while it waits: that the lock is taken, or that the server cannot be asked.

use std::time::Duration;

use lock_core::{Error, ErrorKind, Guard, Locker};
use lock_redis::RedisConfig;
use tokio::task::JoinHandle;

use crate::support::proxy::Proxy;
use crate::support::{AT_MOST, Fixture, Proxied, SECOND, TTL, eventually, shown};

/// Somebody else has the lock, and the locker waits for it over a proxy.
struct Waiting {
    fixture: Fixture,
    proxy: Proxy,
    locks: Locker,
    _holder: Guard,
}

impl Waiting {
    async fn new() -> Self {
        let fixture = Fixture::new().await;
        let holder = Locker::new(fixture.backend())
            .lock("a")
            .label("holder")
            .ttl(TTL)
            .acquire()
            .await;
        // The connection outlasts a silence.
        let patient = |config: RedisConfig| config.with_response_timeout(AT_MOST);
        let Proxied { proxy, backend } = Proxied::new(&fixture, patient).await;
        let locks = Locker::new(backend);
        locks.connect().await.expect("it is there");
        Self {
            fixture,
            proxy,
            locks,
            _holder: holder.expect("a grant"),
        }
    }

    /// How an acquire ends that may take so long, once it waits at the server.
    async fn within(&self, limit: Duration) -> JoinHandle<Error> {
        let lock = self.locks.lock("a").ttl(TTL);
        let waiting = tokio::spawn(async move { lock.acquire_within(limit).await.map(drop).expect_err("it is taken") });
        eventually("it waits", async || !self.fixture.queue("a").await.is_empty()).await;
        waiting
    }
}

#[testbed::test]
async fn a_server_that_was_lost_meanwhile_is_unavailable_and_the_cause_is_reported() {
    let waiting = Waiting::new().await;
    let error = waiting.within(4 * SECOND).await;
    waiting.proxy.lead_to("127.0.0.1:1");
    waiting.proxy.cut();
    let error = error.await.expect("no panic");
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{}", shown(&error));
    assert!(shown(&error).contains("Redis at"), "{}", shown(&error));

    let error = waiting
        .locks
        .lock("b")
        .try_acquire()
        .await
        .map(drop)
        .expect_err("it is lost");
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.cause().is_some(), "{error:?}");
}

#[testbed::test]
async fn a_server_that_fell_silent_meanwhile_is_unavailable() {
    let waiting = Waiting::new().await;
    let error = waiting.within(6 * SECOND).await;
    waiting.proxy.hold_answers();
    let error = error.await.expect("no panic");
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{}", shown(&error));
    assert!(shown(&error).contains("does not answer"), "{}", shown(&error));
    assert_eq!(waiting.proxy.connections(), 1);
}

#[testbed::test]
async fn a_server_that_answers_again_finds_the_lock_taken() {
    let waiting = Waiting::new().await;
    let error = waiting.within(7 * SECOND).await;
    waiting.proxy.hold_answers();
    // It is known to be silent after two seconds.
    tokio::time::sleep(5 * SECOND / 2).await;
    waiting.proxy.let_go();
    let error = error.await.expect("no panic");
    assert_eq!(error.kind(), ErrorKind::TimedOut, "{}", shown(&error));
    assert_eq!(error.holder(), Some("holder"));
    let guard = waiting.locks.lock("b").acquire_within(AT_MOST).await;
    guard.expect("it is there").release().await.expect("still ours");
}

#[testbed::test]
async fn a_connection_that_came_back_finds_the_lock_taken() {
    let waiting = Waiting::new().await;
    let error = waiting.within(5 * SECOND).await;
    waiting.proxy.cut();
    let error = error.await.expect("no panic");
    assert_eq!(error.kind(), ErrorKind::TimedOut, "{}", shown(&error));
    assert_eq!(error.holder(), Some("holder"));
    assert_eq!(waiting.proxy.connections(), 2);
}
