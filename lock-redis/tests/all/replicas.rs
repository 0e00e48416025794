//! `replicas=N`: a grant and a renewal count when so many replicas have them.

use std::time::Duration;

use lock_core::backend::{Attempt, DistributedLock};
use lock_core::{Error, ErrorKind, FencingToken, HoldState, Locker, Result};
use lock_redis::RedisBackend;
use testbed::{Redis, Replicated};

use crate::support::{
    AT_MOST, Fixture, SECOND, TTL, eventually, in_some_run, in_the_end, in_the_end_granted, release, request,
    with_config,
};

/// A master with replicas, and how it is seen from outside.
pub(crate) async fn master_with(replicas: usize) -> (Replicated, Fixture) {
    let servers = Redis::new().start_replicated(replicas).await.expect("they start");
    let fixture = Fixture::at(servers[0].clone()).await;
    (servers, fixture)
}

fn backend(fixture: &Fixture, replicas: u32) -> RedisBackend {
    with_config(fixture.config().with_replicas(replicas))
}

/// What succeeds in the end, and how often it was asked for: on a busy machine a replica may be late for the 200 ms that it has.
async fn counted<T>(mut work: impl AsyncFnMut() -> Result<T>) -> (T, u64) {
    let mut asked = 0;
    let done = in_the_end(async || {
        asked += 1;
        work().await
    })
    .await;
    (done, asked)
}

/// The same, but only for replicas that are late: every other error is a mistake.
pub(crate) async fn acknowledged<T>(mut work: impl AsyncFnMut() -> Result<T>) -> T {
    in_the_end(async || match work().await {
        Err(error) if !is_late(&error) => panic!("{error:?}"),
        answer => answer,
    })
    .await
}

/// Whether too few replicas had it in time.
pub(crate) fn is_late(error: &Error) -> bool {
    error.to_string().contains("acknowledged the write in time")
}

/// The error of what one replica alone acknowledges: on a busy machine, it may be late, too.
async fn acknowledged_by_one(mut ask: impl AsyncFnMut() -> Error) -> Error {
    let mut error = ask().await;
    for _ in 1..50 {
        if !error.to_string().contains("0 of 2 replicas") {
            break;
        }
        error = ask().await;
    }
    error
}

/// Of a request that too few replicas acknowledged.
fn assert_short(error: &Error, count: &str) {
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
    assert!(error.is_retryable() && !error.is_not_executed(), "{error:?}");
    assert!(error.to_string().contains(count), "{error}");
}

#[testbed::test]
async fn replicas_have_what_is_granted_and_renewed_for_one_request_more() {
    let (servers, fixture) = master_with(2).await;
    let backend = backend(&fixture, 2);
    let warm = in_the_end_granted(&backend, &request("warm", TTL).0).await;
    assert!(release(&warm).await);
    let key = fixture.lock_key("a");
    for round in 0..20_u64 {
        let before = (fixture.calls("wait").await, fixture.scripts_run().await);
        let (asked, _control) = request("a", TTL);
        let (attempt, times) = counted(async || backend.acquire(&asked).await).await;
        let Attempt::Granted(hold, _armed) = attempt else {
            panic!("{attempt:?}");
        };
        for replica in [1, 2] {
            let value = servers.call(replica, &["GET", &key]).await.expect("an answer");
            assert!(value.contains(&format!(" {} ", hold.token())), "{round}: {value:?}");
        }
        let granted = (fixture.calls("wait").await, fixture.scripts_run().await);
        // One with the lock's own, and one in front of each `WAIT`.
        assert_eq!(granted, (before.0 + times, before.1 + 2 * times), "one request more");
        let (_renewed, again) = counted(async || hold.renew(2 * TTL).await).await;
        for replica in [1, 2] {
            let left = servers.call(replica, &["PTTL", &key]).await.expect("an answer");
            assert!(
                left.parse::<u128>().expect("a number") > TTL.as_millis(),
                "{round}: {left}"
            );
        }
        assert!(release(&hold).await);
        let waits = fixture.calls("wait").await - before.0;
        assert_eq!(waits, times + again, "a release asks no replica");
    }
}

#[testbed::test]
async fn wait_short_is_no_grant() {
    let (servers, fixture) = master_with(2).await;
    let (both, one) = (backend(&fixture, 2), backend(&fixture, 1));
    both.connect().await.expect("it is there");
    servers[2].pause().expect("it runs");
    let (asked, _control) = request("a", TTL);
    let acquire = async || both.acquire(&asked).await.expect_err("one has not acknowledged it");
    let error = acknowledged_by_one(acquire).await;
    assert_short(&error, "1 of 2 replicas");
    assert_eq!(asked.lease().valid_for(), Duration::ZERO, "nothing is armed");
    both.abandon(&asked).await.expect("an answer");
    assert!(!fixture.exists("a").await, "it is undone");

    // As core does it.
    let locks = Locker::new(both.clone());
    let error = acknowledged_by_one(async || {
        let tried = locks.lock("a").try_acquire().await;
        tried.map(drop).expect_err("one has not acknowledged it")
    })
    .await;
    assert_short(&error, "1 of 2 replicas");
    eventually("it is undone", async || !fixture.exists("a").await).await;

    // One of two is enough for who asks for one.
    let hold = in_the_end_granted(&one, &request("a", TTL).0).await;
    assert!(release(&hold).await);
    servers[2].resume().expect("it is paused");
    let (again, _control) = request("a", TTL);
    let hold = in_the_end_granted(&both, &again).await;
    assert!(release(&hold).await);
}

#[testbed::test]
async fn a_waiter_waits_until_there_are_enough() {
    let (servers, fixture) = master_with(1).await;
    let locks = Locker::new(backend(&fixture, 1));
    locks.connect().await.expect("it is there");
    servers[1].pause().expect("it runs");
    let lock = locks.lock("a");
    let waiting = tokio::spawn(async move { lock.acquire_within(AT_MOST).await });
    eventually("it has asked twice", async || fixture.calls("wait").await >= 2).await;
    assert!(!waiting.is_finished(), "nobody has acknowledged it");
    servers[1].resume().expect("it is paused");
    let guard = waiting.await.expect("no panic").expect("a grant");
    guard.release().await.expect("an answer");
}

#[testbed::test]
async fn a_renewal_with_too_few_makes_the_hold_suspect() {
    let (servers, fixture) = master_with(1).await;
    let backend = backend(&fixture, 1);
    let (asked, _control) = request("a", TTL);
    let hold = in_the_end_granted(&backend, &asked).await;
    servers[1].pause().expect("it runs");
    let error = hold.renew(2 * TTL).await.expect_err("nobody has acknowledged it");
    assert_short(&error, "0 of 1 replicas");
    assert!(asked.lease().valid_for() <= TTL, "the renewal does not count");
    servers[1].resume().expect("it is paused");
    assert!(release(&hold).await);

    let locks = Locker::new(backend);
    // If the machine stands still for the TTL, the lease ends.
    in_some_run("it is not suspect, and then held again", async || {
        let guard = in_the_end(async || locks.lock("b").ttl(6 * SECOND).acquire().await).await;
        servers[1].pause().expect("it runs");
        eventually("it is suspect", async || guard.state() != HoldState::Held).await;
        let before = guard.state();
        servers[1].resume().expect("it is paused");
        eventually("it is held", async || guard.state() != HoldState::Suspect).await;
        let after = guard.state();
        let released = guard.release().await;
        if (&before, &after) != (&HoldState::Suspect, &HoldState::Held) {
            return Err((before, after));
        }
        released.expect("an answer");
        Ok(())
    })
    .await;
}

/// How many clients wait for replicas.
async fn blocked(fixture: &Fixture) -> u64 {
    let info: String = fixture.raw(&["INFO", "clients"]).await;
    let line = info.lines().find_map(|line| line.strip_prefix("blocked_clients:"));
    line.expect("a number").trim().parse().expect("a number")
}

#[testbed::test]
async fn wait_does_not_delay_renewals() {
    let (servers, fixture) = master_with(1).await;
    let backend = backend(&fixture, 1);
    let hold = in_the_end_granted(&backend, &request("held", TTL).0).await;
    servers[1].pause().expect("it runs");
    // Of 200 ms, in which a busy machine may be late.
    for attempt in 1_u32.. {
        assert!(
            attempt < 50,
            "no renewal reaches the server while it waits for a replica"
        );
        let asking = tokio::spawn({
            let backend = backend.clone();
            // The earlier ones are still there.
            async move { backend.acquire(&request(&format!("a{attempt}"), TTL).0).await }
        });
        eventually("it waits for the replica, or has waited", async || {
            asking.is_finished() || blocked(&fixture).await == 1
        })
        .await;
        let ttl = TTL + attempt * SECOND;
        let renewing = tokio::spawn({
            let hold = hold.clone();
            async move { hold.renew(ttl).await }
        });
        eventually("it is renewed", async || fixture.rest("held").await > ttl - SECOND).await;
        // Both still wait: the renewal has overtaken the answer to the other.
        let overtook = !asking.is_finished() && blocked(&fixture).await == 1;
        asking.await.expect("no panic").expect_err("nobody has acknowledged it");
        renewing
            .await
            .expect("no panic")
            .expect_err("nobody has acknowledged it");
        if overtook {
            break;
        }
    }
}

#[testbed::test]
async fn one_wait_acknowledges_many() {
    let (servers, fixture) = master_with(1).await;
    let backend = backend(&fixture, 1);
    backend.connect().await.expect("it is there");
    servers[1].pause().expect("it runs");
    let before = fixture.calls("wait").await;
    let asking: Vec<_> = (0..50)
        .map(|number| {
            let backend = backend.clone();
            tokio::spawn(async move { backend.acquire(&request(&format!("a{number}"), TTL).0).await })
        })
        .collect();
    for asking in asking {
        let error = asking.await.expect("no panic").expect_err("nobody has acknowledged it");
        assert_short(&error, "0 of 1 replicas");
    }
    let waits = fixture.calls("wait").await - before;
    assert!((1..25).contains(&waits), "{waits}");
}

#[testbed::test]
async fn the_second_connection_is_made_again() {
    let (_servers, fixture) = master_with(1).await;
    let backend = backend(&fixture, 1);
    let hold = in_the_end_granted(&backend, &request("a", TTL).0).await;
    assert!(release(&hold).await);
    // The one that waited last.
    let clients: String = fixture.raw(&["CLIENT", "LIST"]).await;
    let second = clients
        .lines()
        .find(|line| line.contains(" cmd=wait "))
        .expect("it waits");
    let id = second.split([' ', '=']).nth(1).expect("a number");
    let killed: u64 = fixture.raw(&["CLIENT", "KILL", "ID", id]).await;
    assert_eq!(killed, 1);
    let before = fixture.calls("wait").await;
    let (asked, _control) = request("a", TTL);
    let hold = in_the_end_granted(&backend, &asked).await;
    assert!(release(&hold).await);
    assert!(fixture.calls("wait").await > before, "a replica acknowledged it, too");
}

#[testbed::test]
async fn a_server_without_replicas_grants_nothing() {
    let fixture = Fixture::new().await;
    let backend = backend(&fixture, 1);
    let (asked, _control) = request("a", Duration::from_millis(600));
    let error = backend.acquire(&asked).await.expect_err("there is none");
    assert_short(&error, "0 of 1 replicas");
    backend.abandon(&asked).await.expect("an answer");
}

#[testbed::test]
async fn a_raised_token_counts_when_replicas_have_it() {
    let (servers, fixture) = master_with(1).await;
    let hold = in_the_end_granted(&backend(&fixture, 1), &request("a", TTL).0).await;
    servers[1].pause().expect("it runs");
    let raised = FencingToken::new(5_000_000_000_000_000).expect("a token");
    let error = hold.raise_token(raised).await.expect_err("nobody has acknowledged it");
    assert_short(&error, "0 of 1 replicas");
    servers[1].resume().expect("it is paused");
    in_the_end(async || hold.raise_token(raised).await).await;
    let fence = servers.call(1, &["GET", &fixture.fence_key("a")]).await;
    assert_eq!(fence.expect("an answer"), raised.to_string());
    assert!(release(&hold).await);
}
