//! `restart_delay`: a server that may have forgotten locks gives no new ones until all old holds have expired.

use std::sync::Arc;
use std::time::Duration;

use lock_core::backend::request::{RequestOptions, Terms};
use lock_core::backend::{Attempt, DistributedLock, Hold, Mode, Permits, Renewal};
use lock_core::{Ended, Error, ErrorKind, Guard, HoldState, Locker, LostCause};
use lock_redis::{Checks, Finding, RedisBackend};
use testbed::Redis;
use tokio::time::Instant;

use crate::support::proxy::Proxy;
use crate::support::{
    AT_MOST, Fixture, SECOND, busy, eventually, granted, in_some_run, in_the_end, in_the_end_granted,
    in_the_end_released, release, request, take, with_config,
};

mod changed;
mod late;
mod many;
mod promoted;
mod put_back;
mod released;
mod revoked;

/// Long enough for servers to be started again and replaced on a busy machine. No test waits until it is over.
const DELAY: Duration = Duration::from_secs(100);

/// Of holds that live through a restart.
const TTL: Duration = Duration::from_secs(90);

/// Of a test that waits until it is over.
const SHORT: Duration = Duration::from_secs(3);

fn delayed(fixture: &Fixture, delay: Duration) -> RedisBackend {
    with_config(fixture.config().with_restart_delay(delay))
}

fn mark(fixture: &Fixture) -> String {
    format!("{}}}member", fixture.prefix)
}

fn options(name: &str, mode: Mode) -> RequestOptions {
    RequestOptions::new(crate::support::name(name), Terms::new(TTL)).mode(mode)
}

/// Makes the mark so old that the delay is over.
pub(crate) async fn age_mark(fixture: &Fixture) {
    let value: String = fixture.raw(&["GET", &mark(fixture)]).await;
    let _: () = fixture.raw(&["SET", &mark(fixture), &aged(&value)]).await;
}

/// A mark from long ago.
pub(crate) fn aged(mark: &str) -> String {
    let (identity, _since) = mark.rsplit_once(' ').expect("a mark");
    format!("{identity} 0")
}

/// A backend on a server whose first delay is over.
async fn trusted(fixture: &Fixture) -> RedisBackend {
    delayed(fixture, DELAY).connect().await.expect("it is there");
    age_mark(fixture).await;
    let backend = delayed(fixture, DELAY);
    backend.connect().await.expect("it is there");
    backend
}

pub(crate) fn assert_delayed(error: &Error) {
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
    assert!(error.is_retryable() && error.is_not_executed(), "{error:?}");
    assert!(error.to_string().contains("(restart_delay)"), "{error}");
}

#[testbed::test]
async fn no_grant_is_fresh_until_the_delay_is_over_and_waiters_wait() {
    let Some(mut fixture) = Fixture::own().await else {
        return;
    };
    for round in ["a new server", "a server with its data", "a server without its data"] {
        let (backend, start) = (delayed(&fixture, SHORT), Instant::now());
        in_the_end(async || backend.connect().await).await;
        assert_too_early(&backend, start).await;
        let locks = Locker::new(backend.clone()).with_ttl(SHORT);
        match locks.lock("a").try_acquire().await {
            Err(error) => assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}"),
            Ok(_) => assert!(start.elapsed() >= SHORT, "it is too early"),
        }
        // Whoever comes later waits no longer.
        let later = delayed(&fixture, SHORT);
        assert_too_early(&later, start).await;

        let guard = locks.lock("a").acquire_within(AT_MOST).await.expect("a grant");
        let waited = start.elapsed();
        assert!(waited >= SHORT, "{round}: {waited:?}");
        assert!(waited < AT_MOST / 2, "{round}: {waited:?}");
        release_short(guard).await;
        pass_soon(&later, "b").await;
        let unhindered = delayed(&fixture, SHORT);
        pass_soon(&unhindered, "b").await;

        // They would connect to the next server before its round begins.
        drop((backend, locks, later, unhindered));
        match round {
            "a new server" => fixture.server.restart().await,
            _ => fixture.server.restart_without_data().await,
        }
        .expect("it starts again");
        fixture.reconnect().await;
    }
}

/// It is refused, unless the machine is so slow that the delay since `start` is over.
async fn assert_too_early(backend: &RedisBackend, start: Instant) {
    match backend.acquire(&request("a", SHORT).0).await {
        Err(error) if start.elapsed() < SHORT => assert_delayed(&error),
        // A grant whose answer took longer than its lease is none.
        Err(error) => assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}"),
        Ok(Attempt::Granted(hold, _armed)) => {
            assert!(start.elapsed() >= SHORT, "it is too early");
            in_the_end_released(&hold).await;
        }
        Ok(other) => panic!("{other:?}"),
    }
}

/// Releases a hold of [`SHORT`], which ends before if the machine stands still for so long.
async fn release_short(guard: Guard) {
    let watch = guard.watch();
    if let Err(error) = guard.release().await {
        assert!(error.is_lost(), "{error:?}");
        match watch.ended().await {
            Ended::Lost(lost) => assert_eq!(lost.cause(), LostCause::Expired, "{lost}"),
            other => panic!("{other:?} after {error:?}"),
        }
    }
}

/// Takes a lock for [`SHORT`] and releases it, unless the machine stands still for so long.
async fn pass(backend: &RedisBackend, name: &str) -> lock_core::Result<()> {
    let asked = Instant::now();
    match backend.acquire(&request(name, SHORT).0).await? {
        Attempt::Granted(hold, _armed) => assert!(release(&hold).await || asked.elapsed() >= SHORT, "it was lost"),
        other => panic!("{other:?}"),
    }
    Ok(())
}

/// As soon as the delay is over for this client too: clients learn of it within a round trip of each other.
async fn pass_soon(backend: &RedisBackend, name: &str) {
    in_the_end(async || pass(backend, name).await).await;
}

/// With a TTL that the delay allows.
async fn take_for(backend: &RedisBackend, name: &str, ttl: Duration) -> Arc<dyn Hold> {
    granted(backend, &request(name, ttl).0).await
}

async fn refused_for(backend: &RedisBackend, name: &str) -> Error {
    let answer = backend.acquire(&request(name, TTL).0).await;
    answer.expect_err("it is too early")
}

#[testbed::test]
async fn a_hold_that_is_deleted_is_lost() {
    let fixture = Fixture::new().await;
    // An operator may end a hold, while nothing says that the server has forgotten any.
    let hold = take_for(&trusted(&fixture).await, "a", TTL).await;
    let _: u64 = fixture.raw(&["DEL", &fixture.lock_key("a")]).await;
    let renewed = hold.renew(TTL).await.expect("an answer");
    assert!(matches!(renewed, Renewal::Lost), "{renewed:?}");
    assert!(!fixture.exists("a").await);
}

#[testbed::test]
async fn without_the_delay_a_forgotten_hold_is_lost() {
    let Some(mut fixture) = Fixture::own().await else {
        return;
    };
    let backend = fixture.backend();
    let hold = take(&backend, "a").await;
    fixture.server.restart_without_data().await.expect("it starts again");
    fixture.reconnect().await;
    let renewed = in_the_end(async || hold.renew(TTL).await).await;
    assert!(matches!(renewed, Renewal::Lost), "{renewed:?}");
    assert!(fixture.keys().await.is_empty(), "no mark either");
}

#[testbed::test]
async fn a_restart_that_forgets_nothing_keeps_the_holds() {
    let Some(mut fixture) = Fixture::own().await else {
        return;
    };
    // Testbed's servers have `appendfsync always`.
    let backend = trusted(&fixture).await;
    let hold = take_for(&backend, "a", TTL).await;
    let value = fixture.value("a").await;
    fixture.server.restart().await.expect("it starts again");
    fixture.reconnect().await;
    assert_eq!(fixture.value("a").await, value);
    in_the_end(async || backend.connect().await).await;
    assert_delayed(&refused_for(&backend, "b").await);
    let renewed = in_the_end(async || hold.renew(TTL).await).await;
    assert!(matches!(renewed, Renewal::Renewed(_)), "{renewed:?}");
    assert!(release(&hold).await);
}

#[testbed::test]
async fn a_promoted_replica_is_not_trusted() {
    let servers = Redis::new().start_replicated(1).await.expect("they start");
    let (first, second) = (
        Fixture::at(servers[0].clone()).await,
        Fixture::at(servers[1].clone()).await,
    );
    let address = Proxy::start(first.server.address()).await;
    let config = first.config_at(&address.address).with_restart_delay(DELAY);
    let _ = trusted(&first).await;
    let backend = with_config(config.clone());
    let kept = take_for(&backend, "kept", TTL).await;
    let known: i64 = first.raw(&["WAIT", "1", "60000"]).await;
    assert_eq!(known, 1);
    // The replica does not hear of this one.
    let _: () = second.raw(&["REPLICAOF", "127.0.0.1", "1"]).await;
    let forgotten = take_for(&backend, "forgotten", TTL).await;
    let value = first.value("forgotten").await;
    servers[0].kill().expect("it is ours");
    servers.promote(1).await.expect("it takes over");
    address.lead_to(second.server.address());

    let other = with_config(config);
    in_the_end(async || other.connect().await).await;
    let key = format!("{}kept", first.prefix);
    let known: bool = second.raw(&["EXISTS", &key]).await;
    assert!(known, "it was replicated");
    assert_delayed(&refused_for(&other, "forgotten").await);
    in_the_end(async || backend.connect().await).await;
    for hold in [&kept, &forgotten] {
        let renewed = in_the_end(async || hold.renew(TTL).await).await;
        assert!(matches!(renewed, Renewal::Renewed(_)), "{renewed:?}");
    }
    let back: String = second.raw(&["GET", &format!("{}forgotten", first.prefix)]).await;
    assert_eq!(back, value);
    assert!(release(&kept).await && release(&forgotten).await);

    // It is trusted after the delay, and after it was demoted and promoted again it is not.
    let connected = async |delay: Duration| {
        let config = first.config_at(second.server.address()).with_restart_delay(delay);
        let backend = with_config(config);
        in_the_end(async || backend.connect().await).await;
        backend
    };
    let fresh = connected(SHORT).await;
    let (asked, _control) = request("b", SHORT);
    in_the_end_released(&in_the_end_granted(&fresh, &asked).await).await;
    let value: String = second.raw(&["GET", &mark(&first)]).await;
    let _: () = second.raw(&["SET", &mark(&first), &aged(&value)]).await;
    assert!(release(&take_for(&connected(DELAY).await, "b", TTL).await).await);
    let _: () = second.raw(&["REPLICAOF", "127.0.0.1", "1"]).await;
    servers.promote(1).await.expect("it is a master again");
    assert_delayed(&refused_for(&connected(DELAY).await, "b").await);
}

#[testbed::test]
async fn a_request_that_reinstates_is_not_delayed() {
    let Some(fixture) = Fixture::own().await else {
        return;
    };
    let backend = delayed(&fixture, DELAY);
    backend.connect().await.expect("it is there");
    assert_delayed(&refused_for(&backend, "a").await);
    let options = RequestOptions::new(crate::support::name("a"), Terms::new(TTL)).waits(false);
    let (asked, _control) = options.reinstates().start();
    assert!(release(&granted(&backend, &asked).await).await);
}

#[testbed::test]
async fn a_ttl_beyond_the_delay_is_refused() {
    let fixture = Fixture::new().await;
    let locks = Locker::new(delayed(&fixture, DELAY));
    let error = locks
        .lock("a")
        .ttl(2 * DELAY)
        .acquire()
        .await
        .expect_err("it is too long");
    assert!(!error.is_retryable(), "{error:?}");
    assert!(error.to_string().contains("100s"), "{error}");
}

#[testbed::test]
async fn the_delay_is_recommended_where_a_restart_forgets_holds() {
    let server = Redis::new().setting("appendfsync", ["everysec"]);
    let Some(fixture) = Fixture::own_of(server).await else {
        return;
    };
    let backend = fixture.backend();
    backend.connect().await.expect("a warning is no refusal");
    let findings = backend.findings();
    let [finding @ Finding::DelayedFsync { .. }] = &findings[..] else {
        panic!("{findings:?}");
    };
    assert!(finding.to_string().contains("restart_delay=60s"), "{finding}");
    let config = fixture.config().with_restart_delay(DELAY);
    let strict = with_config(config.with_checks(Checks::Refuse));
    strict.connect().await.expect("the delay makes up for it");
    assert_eq!(strict.findings(), []);
}

#[testbed::test]
async fn a_mark_from_the_future_delays_once() {
    let fixture = Fixture::new().await;
    delayed(&fixture, SHORT).connect().await.expect("it is there");
    let value: String = fixture.raw(&["GET", &mark(&fixture)]).await;
    let (identity, since) = value.rsplit_once(' ').expect("a mark");
    let since: u64 = since.parse().expect("milliseconds");
    let future = format!("{identity} {}", since + 3_600_000);
    let _: () = fixture.raw(&["SET", &mark(&fixture), &future]).await;
    let (locks, start) = (Locker::new(delayed(&fixture, SHORT)).with_ttl(SHORT), Instant::now());
    let guard = locks.lock("a").acquire_within(AT_MOST).await.expect("a grant");
    assert!(start.elapsed() >= SHORT, "{:?}", start.elapsed());
    release_short(guard).await;
    let later = delayed(&fixture, SHORT);
    in_the_end(async || {
        let passed = pass(&later, "a").await;
        if let Err(error) = &passed {
            assert!(!error.to_string().contains("(restart_delay)"), "{error}");
        }
        passed
    })
    .await;
}
