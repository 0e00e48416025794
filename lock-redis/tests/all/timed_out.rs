//! What an acquire is told whose time is up while it waits: that the lock is taken, or that the server cannot be asked.

use std::time::Duration;

use lock_core::{Error, ErrorKind, Guard, Locker};
use lock_redis::{RedisBackend, RedisConfig};
use tokio::task::JoinHandle;

use crate::support::proxy::Proxy;
use crate::support::waiter::Waiter;
use crate::support::{AT_MOST, Fixture, Proxied, SECOND, TTL, eventually, in_some_run, shown};

/// Somebody else has the lock, and the locker waits for it over a proxy.
struct Waiting {
    fixture: Fixture,
    proxy: Proxy,
    backend: RedisBackend,
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
        let locks = Locker::new(backend.clone());
        locks.connect().await.expect("it is there");
        Self {
            fixture,
            proxy,
            backend,
            locks,
            _holder: holder.expect("a grant"),
        }
    }

    /// How an acquire ends that may take so long, once it waits at the server. On a busy machine its time may be up before
    /// that is seen: then nothing.
    async fn within(&self, limit: Duration) -> Option<JoinHandle<Error>> {
        let lock = self.locks.lock("a").ttl(TTL);
        let waiting = tokio::spawn(async move { lock.acquire_within(limit).await.map(drop).expect_err("it is taken") });
        eventually("it waits, or is done", async || {
            waiting.is_finished() || !self.fixture.queue("a").await.is_empty()
        })
        .await;
        (!waiting.is_finished()).then_some(waiting)
    }
}

/// The scenario's error, which a machine that stands still until the acquire's time is up may make another one. `scenario` returns
/// nothing if the acquire did not wait.
async fn becomes(mistake: &str, is_right: impl Fn(&Error) -> bool, mut scenario: impl AsyncFnMut() -> Option<Error>) {
    in_some_run(mistake, async || match scenario().await {
        Some(error) if is_right(&error) => Ok(()),
        Some(other) => Err(shown(&other)),
        None => Err("it did not wait".to_owned()),
    })
    .await;
}

fn is_unavailable(error: &Error, why: &str) -> bool {
    error.kind() == ErrorKind::Unavailable && shown(error).contains(why)
}

fn is_taken(error: &Error) -> bool {
    error.kind() == ErrorKind::TimedOut && error.holder() == Some("holder")
}

#[testbed::test]
async fn a_server_that_was_lost_meanwhile_is_unavailable_and_the_cause_is_reported() {
    let is_right = |error: &Error| is_unavailable(error, "Redis at");
    becomes("the loss is not reported", is_right, async || {
        let waiting = Waiting::new().await;
        let error = waiting.within(4 * SECOND).await?;
        waiting.proxy.lead_to("127.0.0.1:1");
        waiting.proxy.cut();
        let error = error.await.expect("no panic");

        let tried = waiting.locks.lock("b").try_acquire().await;
        let tried = tried.map(drop).expect_err("it is lost");
        assert_eq!(tried.kind(), ErrorKind::Unavailable);
        assert!(tried.cause().is_some(), "{tried:?}");
        Some(error)
    })
    .await;
}

#[testbed::test]
async fn a_server_that_fell_silent_meanwhile_is_unavailable() {
    let is_right = |error: &Error| is_unavailable(error, "does not answer");
    becomes("the silence is not reported", is_right, async || {
        let waiting = Waiting::new().await;
        let error = waiting.within(6 * SECOND).await?;
        waiting.proxy.hold_answers();
        let error = error.await.expect("no panic");
        assert_eq!(waiting.proxy.connections(), 1);
        Some(error)
    })
    .await;
}

#[testbed::test]
async fn a_server_that_answers_again_finds_the_lock_taken() {
    becomes("the answer is not noticed", is_taken, async || {
        let waiting = Waiting::new().await;
        let error = waiting.within(7 * SECOND).await?;
        // Waits over the same connection, and shows what is known of it.
        let beside = Waiter::queued(&waiting.fixture, &waiting.backend, "a", TTL).await;
        waiting.proxy.hold_answers();
        eventually("the silence is noticed", async || {
            beside.request.unreachable().is_some()
        })
        .await;
        if error.is_finished() {
            return None;
        }
        waiting.proxy.let_go();
        let error = error.await.expect("no panic");
        let guard = waiting.locks.lock("b").acquire_within(AT_MOST).await;
        guard.expect("it is there").release().await.expect("still ours");
        Some(error)
    })
    .await;
}

#[testbed::test]
async fn a_connection_that_came_back_finds_the_lock_taken() {
    becomes("the new connection is not used", is_taken, async || {
        let waiting = Waiting::new().await;
        let error = waiting.within(5 * SECOND).await?;
        waiting.proxy.cut();
        let error = error.await.expect("no panic");
        let connections = waiting.proxy.connections();
        assert!(connections <= 2, "{connections}");
        // If it ended before it was connected again, nothing is known.
        (connections == 2).then_some(error)
    })
    .await;
}
