//! Backends that hang or panic.

use super::support::*;

#[tokio::test(start_paused = true)]
async fn a_release_without_any_answer_does_not_keep_the_name_from_this_process() {
    let (backend, locks) = hostile();
    let guard = locks.lock("a").acquire().await.unwrap();
    backend.next(Request::Release, [Answer::Hang]);
    assert_eq!(guard.release().await.unwrap_err().kind(), ErrorKind::Unavailable);
    let other = Locker::new(backend.clone()).with_ttl(TTL);
    let elsewhere = other.lock("a").acquire_within(seconds(10)).await.unwrap();
    elsewhere.release().await.unwrap();
    let here = locks.lock("a").acquire_within(seconds(60)).await;
    assert!(here.is_ok(), "free for everybody else: {here:?}");
}

/// Where the next acquire waits for the answer. The caller of the release leaves it before the lease has ended, or after
/// that, or does not wait at all.
#[tokio::test(start_paused = true)]
async fn an_unanswered_release_passes_the_name_on_when_the_lease_has_ended_whenever_its_caller_leaves() {
    for (ttl, left_after) in [(60, None), (3, None), (60, Some(2)), (3, Some(2))] {
        let mut capabilities = MemoryBackend::new().capabilities();
        capabilities.ordered = false;
        let backend = Scripted::new(capabilities, 1);
        let locks = Locker::new(backend.clone());
        let lock = locks.lock("a").ttl(seconds(ttl));
        let guard = lock.acquire().await.unwrap();
        let acquired = Instant::now();
        backend.next(Request::Release, [Answer::Hang]);
        let waiting = tokio::spawn({
            let lock = lock.clone();
            async move { lock.acquire().await.map(|_guard| acquired.elapsed()) }
        });
        let released = guard.release();
        match left_after {
            Some(polls) => assert!(drop_after(polls, released).await.is_none()),
            None => assert_eq!(released.await.unwrap_err().kind(), ErrorKind::Unavailable),
        }
        let waited = timeout(seconds(600), waiting)
            .await
            .expect("it is passed on")
            .unwrap()
            .unwrap();
        // A tenth after the lease, which ends a tenth early, and what the decorator takes.
        assert!(
            waited >= seconds(ttl) && waited < seconds(ttl) + seconds(1),
            "{ttl} s, left after {left_after:?}: {waited:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_lost_hold_is_not_busy() {
    let (backend, locks) = hostile();
    let guard = locks.lock("a").acquire().await.unwrap();
    backend.next(Request::Release, [Answer::Hang]);
    backend.server().take_away("a").unwrap();
    assert!(guard.check().is_err());
    sleep(seconds(1)).await;
    let tried = locks.lock("a").try_acquire().await;
    assert!(
        !matches!(tried, Ok(None)),
        "this process does not hold it, and no server said that it is taken"
    );
}

#[tokio::test(start_paused = true)]
async fn an_abandon_that_panics_is_tried_again() {
    let (backend, locks) = hostile();
    backend.next(Request::Acquire, [Answer::DoThenWait(seconds(1))]);
    backend.next(Request::Abandon, [Answer::Panic]);
    assert!(
        timeout(Duration::from_millis(500), locks.lock("a").acquire())
            .await
            .is_err()
    );
    sleep(seconds(3)).await;
    assert!(!backend.is_held("a").await, "undone, and not left to its ttl");
}

#[tokio::test(start_paused = true)]
async fn a_release_that_panics_in_the_background_is_tried_again() {
    let (backend, locks) = hostile();
    backend.next(Request::Release, [Answer::Panic]);
    drop(locks.lock("a").acquire().await.unwrap());
    sleep(seconds(3)).await;
    assert!(!backend.is_held("a").await, "released, and not left to its ttl");
}

#[tokio::test(start_paused = true)]
async fn a_renewal_that_panics_makes_it_suspect_until_the_next_one() {
    let (backend, locks) = hostile();
    backend.next(Request::Renew, [Answer::Panic]);
    let guard = locks.lock("a").acquire().await.unwrap();
    sleep(Duration::from_millis(3001)).await;
    assert_eq!(guard.state(), HoldState::Suspect);
    sleep(Duration::from_millis(3001)).await;
    assert_eq!(guard.state(), HoldState::Held);
    guard.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_acquire_that_panics_is_undone() {
    for act in [Answer::Panic, Answer::DoThenPanic] {
        let (backend, locks) = hostile();
        backend.next(Request::Acquire, [act]);
        let lock = locks.lock("a");
        let acquire = tokio::spawn(async move { lock.acquire().await });
        assert!(acquire.await.unwrap_err().is_panic());
        assert!(locks.lock("a").try_acquire().await.unwrap().is_some());
    }
}

#[tokio::test(start_paused = true)]
async fn a_grant_that_failed_and_expired_is_asked_for_anew() {
    let (backend, locks) = hostile();
    locks.connect().await.unwrap();
    // Granted and armed, then the backend's next step fails; when it is asked again the lease is over.
    backend.next(Request::Acquire, [Answer::DoThenFailAfter(TTL)]);
    let guard = locks.lock("a").acquire_within(seconds(60)).await;
    assert!(
        guard.is_ok(),
        "an acquire that was never answered cannot be lost: {guard:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_grant_with_the_proof_of_another_lease_is_refused_and_undone() {
    let (backend, locks) = hostile();
    backend.next(Request::Acquire, [Answer::ArmsAnotherLease]);
    let error = locks.lock("a").acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unexpected, "{error}");
    let guard = locks.lock("a").acquire().await.unwrap();
    guard.release().await.unwrap();
    locks.shutdown().await.unwrap();
    assert_eq!((backend.is_held("a").await, backend.alive()), (false, 0));
}

#[test]
fn a_lease_that_had_ended_is_lost_even_when_its_guard_is_dropped_first() {
    let server = MemoryBackend::new();
    let locks = Locker::new(server).with_ttl(Duration::from_millis(50));
    let runtime = runtime();
    runtime.block_on(async {
        let guard = locks.lock("a").acquire().await.unwrap();
        let watch = guard.watch();
        std::thread::sleep(Duration::from_millis(60)); // the process is paused: nothing of it runs
        drop(guard);
        assert!(
            matches!(watch.state(), HoldState::Lost(_)),
            "it was over for 15 ms: {:?}",
            watch.state()
        );
    });
}

#[tokio::test(start_paused = true)]
async fn an_endless_ttl_is_undone_like_any_other() {
    let longest = Duration::from_secs(i64::MAX as u64 - 1_000_000_000);
    let any_ttl = Capabilities::default().ttl_between(Duration::from_millis(1), Duration::MAX);
    let backend = Scripted::new(any_ttl, 1);
    let locks = Locker::new(backend.clone()).with_ttl(longest);
    drop_after(3, locks.lock("a").acquire()).await;
    locks.shutdown().await.unwrap();
    assert!(!backend.is_held("a").await, "dropped acquire");
    let guard = locks_again(&backend, longest).lock("a").acquire().await.unwrap();
    drop(guard);
    sleep(seconds(1)).await;
    assert!(!backend.is_held("a").await, "dropped guard");
}

fn locks_again(backend: &Scripted, ttl: Duration) -> Locker {
    Locker::new(backend.clone()).with_ttl(ttl)
}

#[tokio::test(start_paused = true)]
async fn nothing_grows_with_acquires_and_releases() {
    let (backend, locks) = hostile();
    for round in 0..10_000 {
        let guard = locks.lock("a").acquire().await.unwrap();
        match round % 3 {
            0 => drop(guard.release().await.unwrap()),
            1 => drop(guard),
            _ => drop(drop_after(1, guard.release()).await),
        }
        assert!(backend.alive() <= 2);
    }
    locks.shutdown().await.unwrap();
    assert_eq!(backend.alive(), 0);
}
