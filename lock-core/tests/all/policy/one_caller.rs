//! One caller of a name: renewal, loss, retries, release.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use lock_core::{Ended, ErrorKind, HoldState, Locker, LostCause, MemoryBackend};
use static_assertions::assert_impl_all;
use tokio::time::Instant;

use super::{TTL, scripted, seconds};
use crate::scripted::{Answer, Request, Scripted};

assert_impl_all!(Locker: Send, Sync, Clone);
assert_impl_all!(lock_core::Lock: Send, Sync, Clone);
assert_impl_all!(lock_core::Guard: Send, Sync);
assert_impl_all!(lock_core::Watch: Send, Sync, Clone);

#[test]
fn the_acquire_future_is_send() {
    fn assert_send(_: impl Send) {}
    let locks = Locker::new(MemoryBackend::new());
    let lock = locks.lock("a");
    assert_send(lock.acquire());
    assert_send(lock.try_acquire());
    assert_send(lock.acquire_within(TTL));
}

#[tokio::test(start_paused = true)]
async fn renews_at_every_third_of_the_ttl() {
    let (backend, locks) = scripted();
    let guard = locks.lock("a").acquire().await.unwrap();
    tokio::time::sleep(seconds(10)).await;
    assert_eq!(backend.renewals(), [seconds(3), seconds(6), seconds(9)]);
    assert_eq!(guard.state(), HoldState::Held);
    guard.release().await.unwrap();
    tokio::time::sleep(seconds(30)).await;
    assert_eq!(backend.renewals().len(), 3, "none after the release");
}

#[tokio::test(start_paused = true)]
async fn a_fixed_lease_is_never_renewed_and_is_given_back_at_its_end() {
    let (backend, locks) = scripted();
    let started = Instant::now();
    let guard = locks.lock("a").fixed_lease().acquire().await.unwrap();
    assert_eq!(guard.extend(TTL).await.unwrap_err().kind(), ErrorKind::Unsupported);
    assert_eq!(guard.lost().await.cause(), LostCause::Expired);
    assert_eq!(started.elapsed(), Duration::from_millis(8100));
    let other = locks.lock("a").acquire().await.unwrap();
    assert_eq!(
        started.elapsed(),
        Duration::from_millis(8100),
        "given back before the server would have freed it"
    );
    assert!(backend.renewals().is_empty());
    assert!(other.token() > guard.token());
    assert!(guard.release().await.unwrap_err().is_lost());
    assert_eq!(other.state(), HoldState::Held);
}

#[tokio::test(start_paused = true)]
async fn a_failed_renewal_makes_it_suspect_until_the_next_success() {
    let (backend, locks) = scripted();
    let guard = locks.lock("a").acquire().await.unwrap();
    backend.next(Request::Renew, [Answer::Fail]);
    tokio::time::sleep(Duration::from_millis(3001)).await;
    assert_eq!(guard.state(), HoldState::Suspect);
    tokio::time::sleep(Duration::from_millis(750)).await;
    assert_eq!(guard.state(), HoldState::Held);
    assert_eq!(backend.renewals(), [seconds(3), Duration::from_millis(3750)]);
}

#[tokio::test(start_paused = true)]
async fn unanswered_renewals_lose_it_at_nine_tenths() {
    let (backend, locks) = scripted();
    let started = Instant::now();
    let guard = locks.lock("a").acquire().await.unwrap();
    backend.next(Request::Renew, [Answer::Hang; 10]);
    tokio::time::sleep(Duration::from_millis(4501)).await;
    assert_eq!(guard.state(), HoldState::Suspect);
    let lost = guard.lost().await;
    assert_eq!(
        (lost.cause(), started.elapsed()),
        (LostCause::Expired, Duration::from_millis(8100))
    );
    assert!(guard.check().is_err());
    assert_eq!(guard.valid_for(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_says_no_loses_it_at_once() {
    let (backend, locks) = scripted();
    let guard = locks.lock("a").acquire().await.unwrap();
    let watch = guard.watch();
    backend.next(Request::Renew, [Answer::NotHeld]);
    let started = Instant::now();
    assert!(matches!(watch.ended().await, Ended::Lost(lost) if lost.cause() == LostCause::NotHeld));
    assert_eq!(started.elapsed(), seconds(3));
    assert!(guard.release().await.unwrap_err().is_lost());
}

#[tokio::test(start_paused = true)]
async fn release_does_not_wait_for_a_hung_renewal() {
    let (backend, locks) = scripted();
    let guard = locks.lock("a").acquire().await.unwrap();
    backend.next(Request::Renew, [Answer::Hang]);
    tokio::time::sleep(Duration::from_millis(3100)).await;
    let started = Instant::now();
    guard.release().await.unwrap();
    assert_eq!(started.elapsed(), Duration::ZERO);
    assert_eq!(backend.hung(), 0, "the renewal was dropped");
}

#[tokio::test(start_paused = true)]
async fn a_release_whose_answer_got_lost_counts_as_released() {
    let (backend, locks) = scripted();
    let guard = locks.lock("a").acquire().await.unwrap();
    let watch = guard.watch();
    backend.next(Request::Release, [Answer::DoThenFail]);
    guard.release().await.unwrap();
    assert_eq!(watch.ended().await, Ended::Released);
}

#[tokio::test(start_paused = true)]
async fn a_release_without_an_answer_goes_on_in_the_background() {
    let (backend, locks) = scripted();
    let guard = locks.lock("a").ttl(seconds(60)).acquire().await.unwrap();
    backend.next(Request::Release, [Answer::Fail; 12]);
    let started = Instant::now();
    let error = guard.release().await.unwrap_err();
    assert_eq!((error.kind(), started.elapsed()), (ErrorKind::Unavailable, seconds(5)));
    locks.lock("a").acquire().await.unwrap().release().await.unwrap();
    assert!(
        started.elapsed() < seconds(54),
        "given back before its ttl, after {:?}",
        started.elapsed()
    );
}

#[tokio::test(start_paused = true)]
async fn a_lock_lost_meanwhile_is_an_error_to_the_user() {
    let server = MemoryBackend::new();
    let locks = Locker::new(server.clone());
    let guard = locks.lock("a").acquire().await.unwrap();
    server.hold_elsewhere("a", seconds(60)).unwrap();
    assert!(guard.release().await.unwrap_err().is_lost());
    assert!(
        locks.status("a").await.unwrap().is_held(),
        "the successor is not touched"
    );
}

#[tokio::test(start_paused = true)]
async fn an_acquire_that_ends_without_a_grant_is_undone() {
    let (backend, locks) = scripted();
    backend.next(Request::Acquire, [Answer::DoThenHang]);
    let lock = locks.lock("a");
    let error = lock.acquire_within(seconds(2)).await.unwrap_err();
    assert_eq!(
        error.kind(),
        ErrorKind::Unavailable,
        "the server has never answered: {error}"
    );
    backend.let_go();
    let guard = lock.acquire_within(seconds(1)).await.unwrap();
    assert_eq!(backend.count(Request::Abandon), 1);
    guard.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn outages_are_outlasted_once_the_server_was_reached() {
    let server = MemoryBackend::new();
    let locks = Locker::new(server.clone());
    server.set_available(false);
    let error = locks.lock("a").acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "never reached");
    server.set_available(true);
    locks.connect().await.unwrap();
    server.set_available(false);
    let waiting = tokio::spawn({
        let lock = locks.lock("a");
        async move { lock.acquire_within(seconds(60)).await }
    });
    tokio::time::sleep(seconds(40)).await;
    server.set_available(true);
    let back = Instant::now();
    let guard = waiting.await.unwrap().unwrap();
    assert!(back.elapsed() <= Duration::from_millis(500), "{:?}", back.elapsed());
    guard.release().await.unwrap();

    server.set_available(false);
    let error = locks.lock("a").acquire_within(seconds(3)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "nobody knows whether it is taken");
    assert!(error.cause().unwrap().to_string().contains("unavailable"));
}

/// What the server is there for once, it is there for.
#[tokio::test(start_paused = true)]
async fn a_connection_cut_before_the_first_answer_is_outlasted() {
    let (backend, locks) = scripted();
    backend.next(Request::Acquire, [Answer::DoThenFail]);
    let guard = locks.lock("a").acquire_within(seconds(60)).await.unwrap();
    assert_eq!(backend.sent(), [Request::Acquire, Request::Acquire]);
    guard.release().await.unwrap();

    let (backend, locks) = scripted();
    backend.next(Request::Acquire, [Answer::DoThenFail]);
    let error = locks.lock("a").try_acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "it asks once");
}

#[tokio::test(start_paused = true)]
async fn one_failed_leader_fails_the_queue() {
    let (backend, locks) = scripted();
    backend.next(Request::Acquire, [Answer::FailAfter(seconds(5)); 1]);
    let started = Instant::now();
    let waiting: Vec<_> = (0..50)
        .map(|_| {
            let lock = locks.lock("a");
            tokio::spawn(async move { lock.acquire().await })
        })
        .collect();
    for waiting in waiting {
        assert_eq!(waiting.await.unwrap().unwrap_err().kind(), ErrorKind::Unavailable);
    }
    assert_eq!(started.elapsed(), seconds(5));
}

#[tokio::test(start_paused = true)]
async fn a_time_out_names_the_holder() {
    let server = MemoryBackend::new();
    let locks = Locker::new(server.clone()).with_label("here");
    server.hold_elsewhere("a", seconds(600)).unwrap();
    let error = locks.lock("a").acquire_within(seconds(1)).await.unwrap_err();
    assert_eq!((error.kind(), error.holder()), (ErrorKind::TimedOut, Some("elsewhere")));

    let _guard = locks.lock("b").acquire().await.unwrap();
    let error = locks.lock("b").acquire_within(seconds(1)).await.unwrap_err();
    assert_eq!((error.kind(), error.holder()), (ErrorKind::TimedOut, Some("here")));
}

#[tokio::test(start_paused = true)]
async fn a_try_right_after_a_drop_finds_it_free() {
    let locks = Locker::new(MemoryBackend::new());
    let guard = locks.lock("a").acquire().await.unwrap();
    assert!(locks.lock("a").try_acquire().await.unwrap().is_none());
    drop(guard);
    assert!(locks.lock("a").try_acquire().await.unwrap().is_some());
}

#[tokio::test(start_paused = true)]
async fn a_try_does_not_wait_behind_one_who_waits() {
    let server = MemoryBackend::new();
    let locks = Locker::new(server.clone());
    server.hold_elsewhere("a", seconds(600)).unwrap();
    let lock = locks.lock("a");
    let waiting = tokio::spawn(async move { lock.acquire().await });
    tokio::task::yield_now().await;
    let started = Instant::now();
    assert!(locks.lock("a").try_acquire().await.unwrap().is_none());
    assert_eq!(started.elapsed(), Duration::ZERO);
    waiting.abort();
}

#[tokio::test(start_paused = true)]
async fn run_stops_when_the_lock_is_lost_but_keeps_a_late_result() {
    let server = MemoryBackend::new();
    let locks = Locker::new(server.clone());
    let guard = locks.lock("a").acquire().await.unwrap();
    let polls = AtomicUsize::new(0);
    let work = std::future::poll_fn(|_| {
        polls.fetch_add(1, Ordering::SeqCst);
        server.take_away("a").unwrap();
        std::task::Poll::<()>::Pending
    });
    assert!(guard.run(work).await.is_err());
    assert_eq!(polls.load(Ordering::SeqCst), 1);

    let guard = locks.lock("b").acquire().await.unwrap();
    let late = guard.run(async { server.take_away("b").unwrap() }).await;
    assert_eq!(late, Ok(true));
}

#[tokio::test(start_paused = true)]
async fn shutdown_ends_waiters_and_drains_releases() {
    let server = MemoryBackend::new();
    let locks = Locker::new(server.clone());
    server.hold_elsewhere("busy", seconds(600)).unwrap();
    let lock = locks.lock("busy");
    let waiting = tokio::spawn(async move { lock.acquire().await });
    tokio::task::yield_now().await;
    drop(locks.lock("a").acquire().await.unwrap());
    let held = locks.lock("held").acquire().await.unwrap();
    locks.shutdown().await.unwrap();
    assert_eq!(waiting.await.unwrap().unwrap_err().kind(), ErrorKind::ShutDown);
    assert_eq!(locks.lock("a").acquire().await.unwrap_err().kind(), ErrorKind::ShutDown);
    let others = Locker::new(server);
    assert!(!others.status("a").await.unwrap().is_held());
    assert_eq!(others.status("busy").await.unwrap().waiting, Some(0));
    tokio::time::sleep(seconds(100)).await;
    held.release().await.unwrap();
}

#[test]
fn a_locker_outlives_its_runtime() {
    let runtime = || {
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap()
    };
    let server = MemoryBackend::new();
    let locks = Locker::new(server.clone());
    let first = runtime();
    let guard = first.block_on(locks.lock("a").acquire()).unwrap();
    let waiting = first.spawn({
        let lock = locks.lock("a");
        async move { lock.acquire().await.map(drop) }
    });
    drop(first);
    drop(waiting);
    drop(guard); // outside any runtime
    assert_eq!(
        futures_util::FutureExt::now_or_never(locks.lock("a").acquire())
            .unwrap()
            .unwrap_err()
            .kind(),
        ErrorKind::Misconfigured
    );
    let second = runtime();
    let guard = second.block_on(locks.lock("a").acquire_within(seconds(20))).unwrap();
    second.block_on(guard.release()).unwrap();
}

#[tokio::test]
async fn a_panic_while_holding_releases() {
    let locks = Locker::new(MemoryBackend::new());
    let lock = locks.lock("a");
    let panicking = tokio::spawn(async move {
        let _guard = lock.acquire().await.unwrap();
        panic!("planned");
    });
    assert!(panicking.await.unwrap_err().is_panic());
    assert!(locks.lock("a").try_acquire().await.unwrap().is_some());
}

#[tokio::test(start_paused = true)]
async fn connect_refuses_a_ttl_and_a_label_with_which_no_acquire_could_succeed() {
    let (backend, locks) = scripted();
    for (locks, hint) in [
        (locks.clone().with_ttl(Duration::ZERO), "choose a longer one"),
        (locks.clone().with_ttl(Duration::MAX), "choose at most"),
        (locks.clone().with_label("x".repeat(256)), "shorten it"),
    ] {
        let error = locks.connect().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error}");
        assert!(error.to_string().contains(hint), "{error}");
        let acquired = locks.lock("a").acquire().await.unwrap_err();
        assert_eq!(acquired.kind(), ErrorKind::Misconfigured, "{acquired}");
    }
    locks.without_label().connect().await.unwrap();
    assert_eq!(backend.sent(), []);
}

/// A locker that is connected may still be given a TTL that its server can keep.
#[tokio::test]
async fn a_ttl_may_be_chosen_after_connecting() {
    let (short, long) = (seconds(1), seconds(3));
    let capabilities = lock_core::backend::Capabilities::default().ttl_between(short, long);
    let locks = Locker::new(Scripted::new(capabilities, 0));
    locks.connect().await.unwrap();
    let error = locks.lock("a").acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Misconfigured);
    assert!(
        error.to_string().contains("choose at most 3s with `ttl` or `with_ttl`"),
        "{error}"
    );
    drop(locks.clone().with_ttl(long).lock("a").acquire().await.unwrap());
    // One that was chosen before shows at start-up.
    let error = locks.with_ttl(long * 2).connect().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Misconfigured);
}
