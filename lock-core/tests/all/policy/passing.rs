//! A hold is passed on within the process without asking the server.

use std::time::Duration;

use lock_core::backend::DistributedLock;
use lock_core::{Ended, Guard, HoldState, Lock, Locker, LostCause, MemoryBackend, Release};
use tokio::task::{JoinHandle, yield_now};
use tokio::time::{advance, sleep};

use super::{TTL, scripted, seconds};
use crate::scripted::{Answer, Pass, Request, Scripted};

const MOMENT: Duration = Duration::from_millis(1);

fn passing() -> (Scripted, Locker) {
    let (backend, locks) = scripted();
    backend.pass(Pass::AsItIs);
    (backend, locks.with_label("ours"))
}

async fn settle() {
    for _ in 0..20 {
        yield_now().await;
    }
}

async fn waiting(lock: Lock) -> JoinHandle<Guard> {
    let waiting = tokio::spawn(async move { lock.acquire().await.unwrap() });
    settle().await;
    waiting
}

/// A hold, and one that waits behind it; the clock goes on.
async fn held(locks: &Locker) -> (Guard, JoinHandle<Guard>) {
    let guard = locks.lock("a").acquire().await.unwrap();
    let next = waiting(locks.lock("a")).await;
    advance(MOMENT).await;
    (guard, next)
}

#[tokio::test(start_paused = true)]
async fn the_next_waiter_has_the_hold_without_a_request() {
    let (backend, locks) = passing();
    let (first, next) = held(&locks).await;
    let last = waiting(locks.lock("a")).await;
    let (token, valid_for, watch) = (first.token(), first.valid_for(), first.watch());
    backend.sent();
    assert_eq!(first.release().await.unwrap(), Release::Released);
    let next = next.await.unwrap();
    assert_eq!(watch.ended().await, Ended::Released);
    assert_eq!(next.valid_for(), valid_for, "it has inherited the lease");
    let second = next.token();
    assert_eq!(second.as_u64(), token.as_u64() + 1);
    drop(next);
    let last = last.await.unwrap();
    assert_eq!(last.token().as_u64(), token.as_u64() + 2);
    assert_eq!(backend.sent(), []);
    let status = backend.status_of("a").await;
    assert_eq!(status.holders[0].token, Some(last.token()));
    assert_eq!(last.release().await.unwrap(), Release::Released);
    assert_eq!(backend.sent(), [Request::Release]);
    assert!(!backend.is_held("a").await);
    assert_eq!(backend.alive(), 0);
}

#[tokio::test(start_paused = true)]
async fn what_was_passed_on_is_renewed_when_the_lease_needs_it() {
    let (backend, locks) = passing();
    let (first, next) = held(&locks).await;
    first.release().await.unwrap();
    let next = next.await.unwrap();
    sleep(TTL / 3).await;
    settle().await;
    assert_eq!(backend.renewals(), [TTL / 3], "counted from the grant");
    sleep(TTL * 3).await;
    assert_eq!(next.state(), HoldState::Held);
}

#[tokio::test(start_paused = true)]
async fn waiters_elsewhere_come_after_so_many_passes() {
    let (backend, locks) = passing();
    let locks = locks.with_passes(2);
    let mut guard = locks.lock("a").acquire().await.unwrap();
    let elsewhere = Locker::new(backend.server().clone());
    let foreign = waiting(elsewhere.lock("a")).await;
    let mut ours = Vec::new();
    for _ in 0..4 {
        ours.push(waiting(locks.lock("a")).await);
    }
    backend.sent();
    let mut ours = ours.into_iter();
    for _ in 0..2 {
        advance(MOMENT).await;
        guard.release().await.unwrap();
        guard = ours.next().unwrap().await.unwrap();
        assert!(!foreign.is_finished());
    }
    let last = guard.token();
    guard.release().await.unwrap();
    let foreign = foreign.await.unwrap();
    assert!(foreign.token() > last, "above all tokens of the block");
    assert_eq!(
        backend.sent(),
        [Request::Release, Request::Acquire],
        "nobody of this process before the one elsewhere"
    );
    foreign.release().await.unwrap();
    assert!(ours.next().unwrap().await.unwrap().token() > last);
}

/// A grant reserves no more tokens.
#[tokio::test(start_paused = true)]
async fn more_than_sixteen_passes_count_as_sixteen() {
    let (backend, locks) = passing();
    let locks = locks.with_passes(40);
    let mut guard = locks.lock("a").acquire().await.unwrap();
    let mut next = Vec::new();
    for _ in 0..17 {
        next.push(waiting(locks.lock("a")).await);
    }
    backend.sent();
    let mut sent = Vec::new();
    for next in next {
        advance(MOMENT).await;
        guard.release().await.unwrap();
        guard = next.await.unwrap();
        sent.push(backend.sent().len());
    }
    assert_eq!(sent, [vec![0; 16], vec![2]].concat());
}

#[tokio::test(start_paused = true)]
async fn where_nobody_waits_elsewhere_a_new_block_begins_at_once() {
    let (backend, locks) = passing();
    let locks = locks.with_passes(2);
    let mut guard = locks.lock("a").acquire().await.unwrap();
    let mut next = Vec::new();
    for _ in 0..6 {
        next.push(waiting(locks.lock("a")).await);
    }
    backend.sent();
    for next in next {
        advance(MOMENT).await;
        let token = guard.token();
        guard.release().await.unwrap();
        guard = next.await.unwrap();
        assert!(guard.token() > token);
    }
    assert_eq!(
        backend.sent(),
        [Request::Release, Request::Acquire, Request::Release, Request::Acquire]
    );
}

/// If the process dies, the name is free within the ttl that the next holder asked for.
#[tokio::test(start_paused = true)]
async fn an_extension_is_not_passed_on() {
    let (backend, locks) = passing();
    for answer in [Answer::DoAfter(MOMENT), Answer::DoThenHang, Answer::DoThenFail] {
        for is_dropped in [false, true] {
            let (guard, next) = held(&locks).await;
            backend.next(Request::Renew, [answer]);
            let extending = guard.extend(60 * TTL);
            match is_dropped {
                true => drop(tokio::time::timeout(MOMENT / 2, extending).await),
                false => drop(extending.await),
            }
            backend.sent();
            guard.release().await.unwrap();
            let next = next.await.unwrap();
            assert_eq!(
                backend.sent(),
                [Request::Release, Request::Acquire],
                "{answer:?}, dropped: {is_dropped}"
            );
            assert!(next.valid_for() <= TTL);
            let expires_in = backend.status_of("a").await.holders[0].expires_in.unwrap();
            assert!(expires_in <= TTL, "{expires_in:?}");
            backend.let_go();
            next.release().await.unwrap();
        }
    }
}

/// An extension for no more than the ttl changes nothing for the next holder.
#[tokio::test(start_paused = true)]
async fn a_short_extension_is_passed_on() {
    let (backend, locks) = passing();
    let (guard, next) = held(&locks).await;
    guard.extend(TTL).await.unwrap();
    backend.sent();
    guard.release().await.unwrap();
    assert!(next.await.unwrap().valid_for() <= TTL);
    assert_eq!(backend.sent(), []);
}

#[tokio::test(start_paused = true)]
async fn on_other_terms_it_is_released() {
    let (backend, locks) = passing();
    let others = [
        locks.lock("a").ttl(TTL * 2),
        locks.lock("a").label("other"),
        locks.lock("a").fixed_lease(),
        locks.lock("a").hold_at_least(MOMENT),
    ];
    for other in others {
        let guard = locks.lock("a").acquire().await.unwrap();
        let next = waiting(other).await;
        advance(MOMENT).await;
        backend.sent();
        guard.release().await.unwrap();
        let next = next.await.unwrap();
        assert_eq!(backend.sent(), [Request::Release, Request::Acquire], "{next:?}");
        advance(MOMENT).await;
        next.release().await.unwrap();
    }
}

/// Its observers read the term from the server.
#[tokio::test(start_paused = true)]
async fn a_hold_does_not_pass_to_a_term_whose_token_its_server_does_not_show() {
    let (backend, locks) = passing();
    let guard = locks.lock("a").acquire().await.unwrap();
    assert!(!backend.last_request().shows_token());
    let election = locks.election("a");
    let campaign = tokio::spawn(async move { election.campaign().await.unwrap() });
    settle().await;
    advance(MOMENT).await;
    backend.sent();
    guard.release().await.unwrap();
    let term = campaign.await.unwrap();
    assert_eq!(backend.sent(), [Request::Release, Request::Acquire]);
    assert!(backend.last_request().shows_token());
    let seen = locks.election("a").observe().changed().await.unwrap();
    assert_eq!(seen.term(), term.token());
}

#[tokio::test(start_paused = true)]
async fn half_of_the_lease_must_be_left() {
    for (age, releases) in [(TTL.mul_f64(0.45), 0), (TTL.mul_f64(0.45) + MOMENT, 1)] {
        let (backend, locks) = passing();
        // No renewal is answered.
        backend.next(Request::Renew, [Answer::Hang; 20]);
        let guard = locks.lock("a").ttl(TTL).acquire().await.unwrap();
        let next = waiting(locks.lock("a")).await;
        sleep(age).await;
        assert_eq!(guard.state(), HoldState::Held);
        guard.release().await.unwrap();
        drop(next.await.unwrap());
        assert_eq!(backend.count(Request::Release), releases, "at {age:?}");
    }
}

/// Its node or row may have been deleted before the acquire began: only the server knows.
#[tokio::test(start_paused = true)]
async fn a_dropped_hold_is_not_passed_on_to_an_acquire_that_comes_later() {
    let (backend, locks) = passing();
    let guard = locks.lock("a").acquire().await.unwrap();
    advance(MOMENT).await;
    backend.sent();
    drop(guard);
    // Before the background has sent the release.
    let next = locks.lock("a").acquire().await.unwrap();
    assert_eq!(backend.sent(), [Request::Release, Request::Acquire]);
    next.release().await.unwrap();
}

/// Of a hold that may have ended at the server without anybody's noticing.
#[tokio::test(start_paused = true)]
async fn an_unconfirmed_hold_is_released() {
    const WITHIN: Duration = Duration::from_millis(50);
    let capabilities = MemoryBackend::new().capabilities().pass_if_confirmed_within(WITHIN);
    for (came_after, released_after, releases) in [
        (Duration::ZERO, WITHIN - MOMENT, 0),
        // It may have ended before this one came.
        (MOMENT, WITHIN - MOMENT, 1),
        // Too long ago.
        (Duration::ZERO, WITHIN, 1),
    ] {
        let backend = Scripted::new(capabilities, 0);
        backend.pass(Pass::AsItIs);
        let locks = Locker::new(backend.clone()).with_ttl(TTL).with_label("ours");
        let guard = locks.lock("a").acquire().await.unwrap();
        advance(came_after).await;
        let next = waiting(locks.lock("a")).await;
        let behind = waiting(locks.lock("a")).await;
        advance(released_after - came_after).await;
        backend.sent();
        guard.release().await.unwrap();
        let next = next.await.unwrap();
        assert_eq!(
            backend.count(Request::Release),
            releases,
            "{came_after:?} {released_after:?}"
        );
        // What was granted is confirmed for all who waited by then.
        advance(MOMENT).await;
        next.release().await.unwrap();
        drop(behind.await.unwrap());
        assert_eq!(backend.count(Request::Release), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_suspect_is_not_passed_on() {
    let (backend, locks) = passing();
    backend.next(Request::Renew, [Answer::Fail; 20]);
    let (guard, next) = held(&locks).await;
    sleep(TTL / 3).await;
    assert_eq!(guard.state(), HoldState::Suspect);
    backend.sent();
    guard.release().await.unwrap();
    let next = next.await.unwrap();
    assert_eq!(backend.sent(), [Request::Release, Request::Acquire]);
    assert_eq!(next.state(), HoldState::Held);
}

/// The renewal of the one before is answered when the next one has the hold.
#[tokio::test(start_paused = true)]
async fn a_late_answer_to_an_older_renewal_arms_nothing() {
    let (backend, locks) = passing();
    let (first, next) = held(&locks).await;
    backend.next(Request::Renew, [Answer::DoThenHold]);
    sleep(TTL / 3).await;
    assert_eq!(backend.hung(), 1);
    let valid_for = first.valid_for();
    backend.next(Request::Renew, [Answer::Hang; 20]);
    first.release().await.unwrap();
    let next = next.await.unwrap();
    backend.let_go();
    settle().await;
    assert!(next.valid_for() <= valid_for);
}

#[tokio::test(start_paused = true)]
async fn a_loss_reaches_the_guard_of_the_moment() {
    let (backend, locks) = passing();
    let (first, next) = held(&locks).await;
    let watch = first.watch();
    first.release().await.unwrap();
    let next = next.await.unwrap();
    backend.server().take_away("a").unwrap();
    assert_eq!(next.lost().await.cause(), LostCause::NotHeld);
    assert_eq!(watch.ended().await, Ended::Released);
    drop(next);
    let other = locks.lock("a").acquire().await.unwrap();
    assert_eq!(other.state(), HoldState::Held);
}

#[tokio::test(start_paused = true)]
async fn one_who_has_gone_is_passed_over() {
    let (backend, locks) = passing();
    let (first, gone) = held(&locks).await;
    let next = waiting(locks.lock("a")).await;
    backend.sent();
    gone.abort();
    first.release().await.unwrap();
    let _next = next.await.unwrap();
    assert_eq!(backend.sent(), []);
}

#[tokio::test(start_paused = true)]
async fn a_panic_in_a_pass_is_a_release() {
    let (backend, locks) = passing();
    backend.pass(Pass::Panic);
    let (first, next) = held(&locks).await;
    backend.sent();
    first.release().await.unwrap();
    assert_eq!(next.await.unwrap().state(), HoldState::Held);
    assert_eq!(backend.sent(), [Request::Release, Request::Acquire]);
}

/// A token is never larger than a clock that counts microseconds and granted the first one of its block.
#[tokio::test(start_paused = true)]
async fn tokens_do_not_run_ahead_of_a_clock() {
    let (backend, locks) = passing();
    let first = locks.lock("a").acquire().await.unwrap();
    let next = waiting(locks.lock("a")).await;
    backend.sent();
    advance(Duration::from_micros(1)).await;
    first.release().await.unwrap();
    next.await.unwrap().release().await.unwrap();
    assert_eq!(backend.sent(), [Request::Release, Request::Acquire, Request::Release]);
    assert_eq!(
        locks.lock("a").try_acquire().await.unwrap().unwrap().valid_for(),
        TTL.mul_f64(0.9)
    );
    sleep(seconds(1)).await;
}
