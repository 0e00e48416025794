//! A hold that lasts for its maximum is lost, and its name is released.

use std::time::Duration;

use lock_core::{ErrorKind, HoldState, Lock, Locker, LostCause, ReentryKey, Release};
use tokio::time::{Instant, sleep};

use super::{TTL, scripted, seconds};
use crate::scripted::{Answer, Pass, Request};

const MAXIMUM: Duration = Duration::from_secs(20);

fn refusal(lock: &Lock) -> impl Future<Output = ErrorKind> {
    let acquire = lock.clone();
    async move { acquire.acquire().await.unwrap_err().kind() }
}

#[tokio::test(start_paused = true)]
async fn it_is_renewed_until_then_lost_then_and_released_at_once() {
    let (backend, locks) = scripted();
    let lock = locks.lock("a").hold_at_most(MAXIMUM);
    assert_eq!(lock.options().maximum_hold, Some(MAXIMUM));
    let started = Instant::now();
    let guard = lock.acquire().await.unwrap();
    assert_eq!(guard.options().maximum_hold, Some(MAXIMUM));
    let elsewhere = Locker::new(backend.server().clone());
    let waiting = tokio::spawn(async move { elsewhere.lock("a").acquire().await.unwrap() });
    let lost = guard.lost().await;
    assert_eq!((lost.cause(), started.elapsed()), (LostCause::MaximumHold, MAXIMUM));
    assert_eq!(
        (lost.lease_ended(), lost.last_confirmed()),
        (Some(Duration::ZERO), Some(seconds(2)))
    );
    assert!(lost.error().is_none());
    assert_eq!(backend.renewals().last(), Some(&seconds(18)));
    let next = waiting.await.unwrap();
    assert_eq!(started.elapsed(), MAXIMUM, "released, long before its ttl was over");
    assert!(next.token() > guard.token());
    sleep(3 * TTL).await;
    assert_eq!(backend.renewals().len(), 6, "none after the loss");
    assert_eq!(next.state(), HoldState::Held);
    assert!(guard.release().await.unwrap_err().is_lost());
    assert_eq!(next.state(), HoldState::Held);
}

#[tokio::test(start_paused = true)]
async fn shortly_before_it_is_believed_in_for_as_long_as_is_left() {
    let (_backend, locks) = scripted();
    let guard = locks.lock("a").hold_at_most(MAXIMUM).acquire().await.unwrap();
    assert_eq!(guard.valid_for(), Duration::from_millis(8100));
    sleep(seconds(19)).await;
    assert_eq!((guard.valid_for(), guard.state()), (seconds(1), HoldState::Held));
    guard.release().await.unwrap();
    assert!(locks.lock("a").try_acquire().await.unwrap().is_some());
}

/// The name is free within the ttl: nothing was renewed since.
#[tokio::test(start_paused = true)]
async fn a_server_that_does_not_answer_frees_it_by_itself() {
    let (backend, locks) = scripted();
    let started = Instant::now();
    let guard = locks.lock("a").hold_at_most(MAXIMUM).acquire().await.unwrap();
    backend.next(Request::Release, vec![Answer::Fail; 100]);
    assert_eq!(guard.lost().await.cause(), LostCause::MaximumHold);
    let elsewhere = Locker::new(backend.server().clone());
    let _next = elsewhere.lock("a").acquire().await.unwrap();
    assert_eq!(started.elapsed(), seconds(18) + TTL);
}

/// The end of the lease and of the maximum: the earlier one is why.
#[tokio::test(start_paused = true)]
async fn what_ends_it_first_is_the_cause() {
    let (backend, locks) = scripted();
    let guard = locks.lock("a").hold_at_most(seconds(60)).acquire().await.unwrap();
    backend.next(Request::Renew, vec![Answer::Fail; 100]);
    assert_eq!(guard.lost().await.cause(), LostCause::Expired);
    backend.clear();
    // Nobody looks until both are over.
    let lock = locks.lock("b").hold_at_most(seconds(5));
    let guard = lock.acquire().await.unwrap();
    tokio::time::advance(seconds(60)).await;
    assert_eq!(guard.check().unwrap_err().cause(), LostCause::MaximumHold);
    // A maximum below the ttl, of a lease that is renewed or fixed.
    for lock in [lock.clone(), lock.fixed_lease()] {
        let started = Instant::now();
        let guard = lock.acquire().await.unwrap();
        assert_eq!(guard.lost().await.cause(), LostCause::MaximumHold);
        assert_eq!(started.elapsed(), seconds(5));
    }
}

#[tokio::test(start_paused = true)]
async fn an_extension_stays_within_it() {
    let (_backend, locks) = scripted();
    let started = Instant::now();
    let guard = locks.lock("a").hold_at_most(MAXIMUM).acquire().await.unwrap();
    let error = guard.extend(seconds(21)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error}");
    assert!(
        error.to_string().contains("what is left of the maximum hold, 20s"),
        "{error}"
    );
    guard.extend(MAXIMUM).await.unwrap();
    assert_eq!(guard.lost().await.cause(), LostCause::MaximumHold);
    assert_eq!(started.elapsed(), MAXIMUM);
}

/// A waiter's maximum begins with its own grant, however it gets the hold.
#[tokio::test(start_paused = true)]
async fn a_hold_that_is_passed_on_begins_anew() {
    for pass in [Pass::Never, Pass::AsItIs] {
        let (backend, locks) = scripted();
        backend.pass(pass);
        let first = locks.lock("a").hold_at_most(seconds(5)).acquire().await.unwrap();
        let lock = locks.lock("a").hold_at_most(MAXIMUM);
        let waiting = tokio::spawn(async move { lock.acquire().await.unwrap() });
        sleep(seconds(4)).await;
        first.release().await.unwrap();
        let next = waiting.await.unwrap();
        let started = Instant::now();
        let lost = next.lost().await;
        assert_eq!((lost.cause(), started.elapsed()), (LostCause::MaximumHold, MAXIMUM));
        // Lost, it goes on to the next waiter all the same, who has no maximum.
        let first = locks.lock("b").hold_at_most(seconds(5)).acquire().await.unwrap();
        let lock = locks.lock("b");
        let waiting = tokio::spawn(async move { lock.acquire().await.unwrap() });
        first.lost().await;
        let next = waiting.await.unwrap();
        assert!(next.token() > first.token());
        sleep(3 * MAXIMUM).await;
        assert_eq!(next.state(), HoldState::Held);
    }
}

#[tokio::test(start_paused = true)]
async fn guards_of_one_key_share_it() {
    let (_backend, locks) = scripted();
    let lock = locks.lock("a").reentrant(&ReentryKey::new());
    let limited = lock.clone().hold_at_most(MAXIMUM);
    let started = Instant::now();
    let outer = limited.acquire().await.unwrap();
    sleep(seconds(15)).await;
    let inner = limited.acquire().await.unwrap();
    assert_eq!(inner.valid_for(), seconds(5));
    let error = lock.acquire().await.unwrap_err();
    assert!(
        error
            .to_string()
            .contains("a maximum hold of None instead of Some(20s)"),
        "{error}"
    );
    assert_eq!(outer.release().await.unwrap(), Release::StillShared);
    assert_eq!(inner.lost().await.cause(), LostCause::MaximumHold);
    assert_eq!(started.elapsed(), MAXIMUM);
    let anew = limited.acquire().await.unwrap();
    assert_eq!((anew.state(), started.elapsed()), (HoldState::Held, MAXIMUM));
}

#[tokio::test(start_paused = true)]
async fn each_reader_and_each_permit_has_its_own() {
    let (_backend, locks) = scripted();
    let (catalog, api) = (locks.rw_lock("a"), locks.semaphore("s", 2));
    for (limited, plain) in [(catalog.read(), catalog.read()), (api.permits(1), api.permits(1))] {
        let limited = limited.hold_at_most(MAXIMUM);
        let beside = plain.acquire().await.unwrap();
        sleep(seconds(1)).await;
        let started = Instant::now();
        let guard = limited.acquire().await.unwrap();
        assert_ne!(guard.token(), beside.token(), "a hold of its own");
        assert_eq!(guard.lost().await.cause(), LostCause::MaximumHold);
        assert_eq!(started.elapsed(), MAXIMUM);
        assert_eq!(beside.state(), HoldState::Held);
        // Nor does one that has none join one that has.
        let guard = limited.acquire().await.unwrap();
        let joining = plain.try_acquire().await.unwrap();
        assert!(joining.is_none_or(|joining| joining.token() != guard.token()));
    }
}

#[tokio::test(start_paused = true)]
async fn an_upgrade_and_a_downgrade_do_not_begin_it_anew() {
    let (_backend, locks) = scripted();
    let started = Instant::now();
    let catalog = locks.rw_lock("a");
    let mut guard = catalog.upgradable().hold_at_most(MAXIMUM).acquire().await.unwrap();
    sleep(seconds(8)).await;
    guard.upgrade().await.unwrap();
    sleep(seconds(8)).await;
    guard.downgrade().await.unwrap();
    assert_eq!(guard.lost().await.cause(), LostCause::MaximumHold);
    assert_eq!(started.elapsed(), MAXIMUM);
    drop(catalog.write().acquire().await.unwrap());
    assert_eq!(started.elapsed(), MAXIMUM);
}

#[tokio::test(start_paused = true)]
async fn contradictions_are_refused_before_anything_is_sent() {
    let (backend, locks) = scripted();
    let lock = locks.lock("a").hold_at_most(MAXIMUM);
    for contradiction in [
        lock.clone().hold_at_most(Duration::ZERO),
        lock.clone().hold_at_least(seconds(21)),
        lock.clone().fixed_lease(),
    ] {
        assert_eq!(refusal(&contradiction).await, ErrorKind::Misconfigured);
    }
    assert_eq!(backend.sent(), []);
    // At least as long as at most.
    let started = Instant::now();
    let guard = lock.hold_at_least(MAXIMUM).acquire().await.unwrap();
    assert_eq!(guard.lost().await.cause(), LostCause::MaximumHold);
    drop(locks.lock("a").acquire().await.unwrap());
    assert_eq!(started.elapsed(), MAXIMUM);
}
