//! Requests that are asked for while another one of the connection is unanswered: one script call for many names, and an answer
//! for each.

use std::ops::Range;
use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::join_all;
use lock_core::backend::request::{RequestControl, RequestOptions, Terms};
use lock_core::backend::{AcquireRequest, Attempt, DistributedLock, Hold, Mode, ReleaseOptions, ReleaseOutcome};
use lock_core::{ErrorKind, Result};
use lock_redis::{RedisBackend, RedisConfig};
use tokio::task::coop::unconstrained;

use crate::support::waiter::Waiter;
use crate::support::{
    AT_MOST, Fixture, Proxied, SECOND, TTL, eventually, granted, in_the_end, in_the_end_granted, last_reserved, name,
    release, request, request_in, shown, take, with_config,
};

mod runtimes;

/// The most acquires or ends in one call.
const MOST: u64 = 32;

type Asked = (AcquireRequest, RequestControl);

fn requests(numbers: Range<usize>) -> Vec<Asked> {
    numbers.map(|number| request(&format!("order/{number}"), TTL)).collect()
}

async fn ask_all(backend: &RedisBackend, requests: &[Asked]) -> Vec<Result<Attempt>> {
    join_all(requests.iter().map(|(request, _)| backend.acquire(request))).await
}

fn holds(answers: Vec<Result<Attempt>>) -> Vec<Arc<dyn Hold>> {
    let hold = |answer: Result<Attempt>| match answer {
        Ok(Attempt::Granted(hold, _)) => hold,
        other => panic!("not granted: {other:?}"),
    };
    answers.into_iter().map(hold).collect()
}

async fn release_all(holds: &[Arc<dyn Hold>]) -> Vec<Result<ReleaseOutcome>> {
    join_all(holds.iter().map(|hold| hold.release(ReleaseOptions::default()))).await
}

fn is_released(answer: &Result<ReleaseOutcome>) -> bool {
    matches!(answer, Ok(ReleaseOutcome::Released))
}

async fn connected(fixture: &Fixture) -> RedisBackend {
    let backend = fixture.backend();
    backend.connect().await.expect("it is there");
    backend
}

#[testbed::test]
async fn many_go_out_in_calls_of_thirty_two_behind_the_first() {
    let fixture = Fixture::new().await;
    let backend = connected(&fixture).await;
    let requests = requests(0..100);
    let before = fixture.scripts_run().await;
    let holds = holds(ask_all(&backend, &requests).await);
    assert_eq!(fixture.scripts_run().await - before, 1 + 99_u64.div_ceil(MOST));
    for (hold, (request, _)) in holds.iter().zip(&requests) {
        let (of, token) = (request.name().as_str(), hold.token());
        let value = format!("{} {token} {}", request.holder(), TTL.as_millis());
        assert_eq!(fixture.value(of).await, value);
        assert_eq!(fixture.fence(of).await, last_reserved(token).to_string());
        assert!(fixture.rest(of).await <= TTL);
    }

    let before = fixture.scripts_run().await;
    let released = release_all(&holds).await;
    assert!(released.iter().all(is_released), "{released:?}");
    assert_eq!(fixture.scripts_run().await - before, 1 + 99_u64.div_ceil(MOST));
    let left = fixture.keys().await;
    assert!(left.iter().all(|key| key.contains("fence")), "{left:?}");
}

#[testbed::test]
async fn one_alone_is_sent_at_once() {
    let fixture = Fixture::new().await;
    let backend = connected(&fixture).await;
    let before = fixture.scripts_run().await;
    let hold = take(&backend, "a").await;
    assert!(release(&hold).await);
    assert_eq!(fixture.scripts_run().await - before, 2);
}

#[testbed::test]
async fn each_acquire_has_its_own_answer() {
    let fixture = Fixture::new().await;
    let backend = connected(&fixture).await;
    let labelled = Terms::new(TTL).label("worker 2");
    let mut all = requests(0..7);
    all[2] = RequestOptions::new(name("order/2"), labelled).start();
    let theirs = take(&fixture.backend(), "order/1").await;
    let ahead = u64::MAX / 2 - 1000;
    let _: () = fixture
        .raw(&["SET", &fixture.fence_key("order/3"), &ahead.to_string()])
        .await;
    let _: () = fixture.raw(&["LPUSH", &fixture.lock_key("order/4"), "another's"]).await;
    let _: () = fixture
        .raw(&["LPUSH", &fixture.fence_key("order/5"), "another's"])
        .await;
    // The same holder once more: its grant is repeated.
    let again = granted(&backend, &all[6].0).await;

    let mut answers = ask_all(&backend, &all).await;
    let kinds: Vec<_> = answers
        .iter()
        .map(|answer| match answer {
            Ok(Attempt::Granted(..)) => "granted".to_owned(),
            Ok(Attempt::Busy(_)) => "busy".to_owned(),
            Ok(other) => format!("{other:?}"),
            Err(error) => format!("{:?}", error.kind()),
        })
        .collect();
    let own = [
        "granted",
        "busy",
        "granted",
        "granted",
        "Misconfigured",
        "Misconfigured",
        "granted",
    ];
    assert_eq!(kinds, own, "{answers:?}");
    assert!(fixture.value("order/2").await.ends_with(" worker 2"));
    assert!(!fixture.exists("order/5").await, "no grant without a token");
    let Ok(Attempt::Granted(repeated, _)) = answers.remove(6) else {
        unreachable!("seen above");
    };
    assert_eq!(repeated.token(), again.token());
    let Ok(Attempt::Granted(above, _)) = answers.remove(3) else {
        unreachable!("seen above");
    };
    assert!(above.token().as_u64() > ahead);
    assert!(release(&theirs).await);
}

#[testbed::test]
async fn each_release_has_its_own_answer_and_wakes_who_waits() {
    let fixture = Fixture::new().await;
    let backend = connected(&fixture).await;
    let held = holds(ask_all(&backend, &requests(0..5)).await);
    let waiter = Waiter::queued(&fixture, &fixture.backend(), "order/1", TTL).await;
    fixture.expire("order/2").await;
    let other = take(&backend, "order/2").await;
    let _: () = fixture.raw(&["DEL", &fixture.lock_key("order/3")]).await;
    let _: () = fixture.raw(&["LPUSH", &fixture.lock_key("order/3"), "another's"]).await;

    let released = release_all(&held).await;
    let outcomes: Vec<_> = released.iter().map(is_released).collect();
    assert_eq!(outcomes, [true, true, false, false, true], "{released:?}");
    assert!(released.iter().all(Result::is_ok), "{released:?}");
    let next = waiter.granted().await;
    assert!(next.token() > held[1].token());
    assert!(release(&next).await && release(&other).await);
    assert!(fixture.exists("order/3").await, "another's");
}

#[testbed::test]
async fn one_that_is_dropped_before_it_was_sent_leaves_nothing() {
    let fixture = Fixture::new().await;
    let backend = connected(&fixture).await;
    let all = requests(0..4);
    let mut first = Box::pin(backend.acquire(&all[0].0));
    assert!(first.as_mut().now_or_never().is_none());
    let mut dropped = Box::pin(backend.acquire(&all[1].0));
    assert!(
        dropped.as_mut().now_or_never().is_none(),
        "the connection's task sends it"
    );
    let mut others = Box::pin(ask_all(&backend, &all[2..]));
    assert!(others.as_mut().now_or_never().is_none());
    drop(dropped);
    holds(others.await);
    holds(vec![first.await]);
    assert!(!fixture.exists("order/1").await);
    assert!(fixture.exists("order/2").await);
    // Another connection: an acquire that was sent over the first one might come late.
    let killed: i64 = fixture.raw(&["CLIENT", "KILL", "TYPE", "pubsub"]).await;
    assert_eq!(killed, 1, "that is the backend's own connection");
    in_the_end(async || backend.abandon(&all[1].0).await).await;
    let left = fixture.keys().await;
    assert!(left.iter().all(|key| !key.contains("order/1")), "{left:?}");
}

#[testbed::test]
async fn dropped_ones_that_arrive_after_their_abandon_take_nothing() {
    let fixture = Fixture::new().await;
    let Proxied { proxy, backend } = Proxied::quick(&fixture).await;
    backend.connect().await.expect("it is there");
    let all = requests(0..4);
    proxy.hold_requests();
    for answer in ask_all(&backend, &all).await {
        let error = answer.expect_err("they never get there");
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{}", shown(&error));
    }
    for (late, _) in &all {
        in_the_end(async || backend.abandon(late).await).await;
        let tombstone = fixture.fence(late.name().as_str()).await;
        assert!(tombstone.starts_with(&format!("0 {}:", late.holder())), "{tombstone}");
    }
    proxy.drain_the_held().await;
    for (late, _) in &all {
        let of = late.name().as_str();
        assert!(!fixture.exists(of).await, "{of}: an ended holder id came back");
        in_the_end_granted(&backend, &request(of, TTL).0).await;
    }
}

#[testbed::test]
async fn ones_that_were_dropped_unanswered_are_undone_behind_their_call() {
    let fixture = Fixture::new().await;
    let patient = |config: RedisConfig| config.with_response_timeout(AT_MOST);
    let Proxied { proxy, backend } = Proxied::new(&fixture, patient).await;
    backend.connect().await.expect("it is there");
    let all = requests(0..3);
    proxy.hold_answers();
    {
        let mut asking = Box::pin(ask_all(&backend, &all));
        let executed = eventually("it was executed", async || fixture.exists("order/2").await);
        tokio::select! {
            answers = &mut asking => panic!("there are no answers: {answers:?}"),
            () = executed => {}
        }
    }
    proxy.let_go();
    for (dropped, _) in &all {
        in_the_end(async || backend.abandon(dropped).await).await;
        let of = dropped.name().as_str();
        assert!(!fixture.exists(of).await);
        let fence = fixture.fence(of).await;
        assert!(!fence.contains(':'), "its end came behind it: {fence}");
    }
}

#[testbed::test]
async fn a_connection_that_ends_makes_all_of_them_unavailable_and_the_next_ones_work() {
    let fixture = Fixture::new().await;
    let Proxied { proxy, backend } = Proxied::new(&fixture, |config| config).await;
    backend.connect().await.expect("it is there");
    let all = Arc::new(requests(0..4));
    proxy.hold_answers();
    let asking = tokio::spawn({
        let (backend, all) = (backend.clone(), all.clone());
        async move { ask_all(&backend, &all).await }
    });
    eventually("they were executed", async || fixture.exists("order/3").await).await;
    proxy.cut();
    for answer in asking.await.expect("no panic") {
        let error = answer.expect_err("no answer came");
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{}", shown(&error));
    }
    proxy.let_go();
    for (request, _) in &*all {
        let hold = in_the_end_granted(&backend, request).await;
        assert!(in_the_end(async || hold.release(ReleaseOptions::default()).await).await == ReleaseOutcome::Released);
        assert!(!fixture.exists(request.name().as_str()).await);
    }
}

#[testbed::test]
async fn a_server_that_has_forgotten_the_scripts_is_given_them() {
    let fixture = Fixture::new().await;
    let backend = connected(&fixture).await;
    let _: () = fixture.raw(&["SCRIPT", "FLUSH"]).await;
    let held = holds(ask_all(&backend, &requests(0..5)).await);
    let _: () = fixture.raw(&["SCRIPT", "FLUSH"]).await;
    let released = release_all(&held).await;
    assert!(released.iter().all(is_released), "{released:?}");
}

#[testbed::test]
async fn what_is_refused_together_is_asked_one_by_one() {
    let Some(fixture) = Fixture::own().await else { return };
    let backend = connected(&fixture).await;
    // The user may not use the keys of one of them.
    let keys = ["order/0", "order/1", "order/3", "inbox"].map(|name| format!("~*{}*", fixture.lock_key(name)));
    let rules = [
        "ACL",
        "SETUSER",
        "default",
        "resetkeys",
        &keys[0],
        &keys[1],
        &keys[2],
        &keys[3],
    ];
    let _: () = fixture.raw(&rules).await;
    let mut answers = ask_all(&backend, &requests(0..4)).await;
    let error = answers.remove(2).expect_err("not permitted");
    assert_eq!(error.kind(), ErrorKind::Denied, "{}", shown(&error));
    assert_eq!(error.name(), Some(&name("order/2")));
    let released = release_all(&holds(answers)).await;
    assert!(released.iter().all(is_released), "{released:?}");
}

#[testbed::test]
async fn a_full_memory_refuses_each_and_leaves_nothing() {
    let Some(fixture) = Fixture::own().await else { return };
    let backend = connected(&fixture).await;
    let held = holds(ask_all(&backend, &requests(0..3)).await);
    let _: () = fixture.raw(&["CONFIG", "SET", "maxmemory", "1"]).await;
    for answer in ask_all(&backend, &requests(10..13)).await {
        let error = answer.expect_err("the memory is full");
        assert!(error.is_retryable(), "{}", shown(&error));
    }
    assert!(!fixture.exists("order/11").await);
    let released = release_all(&held).await;
    assert!(released.iter().all(is_released), "{released:?}");
}

#[testbed::test]
async fn a_promoted_server_is_found_out_by_the_first_call() {
    let Some(fixture) = Fixture::own().await else { return };
    let delay = 2 * SECOND;
    let config = fixture
        .config()
        .with_restart_delay(delay)
        .with_response_timeout(AT_MOST);
    let backend = with_config(config);
    in_the_end_granted(&backend, &request("first", delay).0).await;
    // Another id of the data, as after a promotion.
    let _: () = fixture.raw(&["REPLICAOF", "127.0.0.1", "1"]).await;
    let _: () = fixture.raw(&["REPLICAOF", "NO", "ONE"]).await;
    let all: Vec<_> = (0..4)
        .map(|number| request(&format!("order/{number}"), delay))
        .collect();
    for answer in ask_all(&backend, &all).await {
        let error = answer.expect_err("it may have forgotten holds");
        assert!(error.is_retryable(), "{}", shown(&error));
    }
    assert!(!fixture.exists("order/3").await);
    in_the_end_granted(&backend, &all[3].0).await;
}

#[testbed::test]
async fn what_goes_alone_does_not_overtake_a_release_that_is_queued() {
    let fixture = Fixture::new().await;
    let backend = connected(&fixture).await;
    for round in 0..10 {
        let first = take(&backend, "a").await;
        let (other, _control) = request(&format!("other/{round}"), TTL);
        let mut unanswered = Box::pin(backend.acquire(&other));
        assert!(unanswered.as_mut().now_or_never().is_none());
        let mut releasing = Box::pin(unconstrained(first.release(ReleaseOptions::default())));
        assert!(
            releasing.as_mut().now_or_never().is_none(),
            "the connection's task sends it"
        );
        // It asks at once, before that task has its turn.
        let reader = request_in(Mode::Shared, "a");
        let next = granted(&backend, &reader.0).await;
        assert_eq!(releasing.await.expect("it had the lock"), ReleaseOutcome::Released);
        assert!(release(&next).await);
        holds(vec![unanswered.await]);
    }
}
