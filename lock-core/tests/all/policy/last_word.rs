//! What an acquire whose time is up says: that the lock is taken, or that the server cannot be asked.

use std::time::Duration;

use lock_core::backend::Busy;
use lock_core::{Error, ErrorKind, MemoryBackend, Result};
use tokio::time::{Instant, sleep};

use super::{scripted, seconds};
use crate::scripted::{Answer, Request};

fn kind<T>(result: &Result<T>) -> Option<ErrorKind> {
    result.as_ref().err().map(Error::kind)
}

#[tokio::test(start_paused = true)]
async fn a_limit_of_zero_is_one_try() {
    let (backend, locks) = scripted();
    let lock = locks.lock("a");
    let guard = lock.acquire_within(Duration::ZERO).await.unwrap();
    // Held by this process, and then elsewhere.
    let error = lock.acquire_within(Duration::ZERO).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    guard.release().await.unwrap();
    backend.server().hold_elsewhere("a", seconds(60)).unwrap();
    backend.sent();
    let error = lock.acquire_within(Duration::ZERO).await.unwrap_err();
    assert_eq!((error.kind(), error.holder()), (ErrorKind::TimedOut, Some("elsewhere")));
    assert_eq!(backend.sent(), [Request::Acquire]);
    // The server has the operation timeout to answer it.
    backend.next(Request::Acquire, [Answer::Hang]);
    let started = Instant::now();
    let error = lock.acquire_within(Duration::ZERO).await.unwrap_err();
    assert_eq!((error.kind(), started.elapsed()), (ErrorKind::Unavailable, seconds(5)));
}

#[tokio::test(start_paused = true)]
async fn the_last_attempt_decides_between_taken_and_unavailable() {
    let (backend, locks) = scripted();
    locks.connect().await.unwrap();
    let lock = locks.lock("a");
    // It failed.
    backend.next(Request::Acquire, [Answer::Fail; 100]);
    let error = lock.acquire_within(seconds(3)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert_eq!(error.cause().unwrap().to_string(), r#"lock "a": scripted failure"#);
    backend.clear();
    // It is unanswered.
    backend.next(Request::Acquire, [Answer::Hang]);
    let error = lock.acquire_within(seconds(3)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    backend.let_go();
    // It was refused, after one that had failed.
    backend.server().hold_elsewhere("a", seconds(60)).unwrap();
    backend.next(Request::Acquire, [Answer::Fail]);
    let error = lock.acquire_within(seconds(3)).await.unwrap_err();
    assert_eq!((error.kind(), error.holder()), (ErrorKind::TimedOut, Some("elsewhere")));
}

/// The waiters of a process have one request at the server, and all are told the same.
#[tokio::test(start_paused = true)]
async fn those_who_wait_behind_another_know_what_it_knows() {
    let (backend, locks) = scripted();
    locks.connect().await.unwrap();
    let wait = |limit| {
        let lock = locks.lock("a");
        tokio::spawn(async move { lock.acquire_within(limit).await.map(drop) })
    };
    backend.next(Request::Acquire, [Answer::Fail; 100]);
    let (_first, second) = (wait(seconds(5)), wait(seconds(3)));
    let error = second.await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.cause().is_some());
    backend.clear();
    backend.server().hold_elsewhere("a", seconds(60)).unwrap();
    let second = wait(seconds(1));
    let error = second.await.unwrap().unwrap_err();
    assert_eq!((error.kind(), error.holder()), (ErrorKind::TimedOut, Some("elsewhere")));
}

#[tokio::test(start_paused = true)]
async fn a_waiter_behind_a_silent_server_is_not_told_that_it_is_taken() {
    let (backend, locks) = scripted();
    locks.connect().await.unwrap();
    backend.next(Request::Acquire, [Answer::Hang]);
    let lock = locks.lock("a");
    let (first, second) = tokio::join!(lock.acquire_within(seconds(2)), lock.acquire_within(seconds(1)));
    assert_eq!(kind(&first), Some(ErrorKind::Unavailable));
    assert_eq!(kind(&second), Some(ErrorKind::Unavailable));
}

#[tokio::test(start_paused = true)]
async fn a_lock_that_goes_round_in_the_process_is_taken() {
    let (_, locks) = scripted();
    let lock = locks.lock("a");
    let mut waiting = Vec::new();
    for _ in 0..10 {
        let lock = lock.clone();
        waiting.push(tokio::spawn(async move {
            let guard = lock.acquire().await.unwrap();
            sleep(seconds(1)).await;
            guard.release().await.unwrap();
        }));
    }
    tokio::task::yield_now().await;
    let error = lock.acquire_within(seconds(3)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut);
}

/// While it waits at the server, only the backend knows of its connection.
#[tokio::test(start_paused = true)]
async fn a_waiting_request_tells_of_its_connection() {
    let (backend, locks) = scripted();
    backend.server().hold_elsewhere("a", seconds(60)).unwrap();
    let lock = locks.lock("a");
    let wait = |limit| {
        let lock = lock.clone();
        tokio::spawn(async move { lock.acquire_within(limit).await.map(drop) })
    };
    let (first, second, third) = (wait(seconds(3)), wait(seconds(2)), wait(seconds(4)));
    sleep(seconds(1)).await;
    let request = backend.last_request();
    request.note_unreachable(Error::new(ErrorKind::Unavailable, "the line is cut"));
    for waiter in [second, first] {
        let error = waiter.await.unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        assert_eq!(error.cause().unwrap().to_string(), "the line is cut");
    }
    request.note_busy(Busy::new().with_holder("elsewhere"));
    let error = third.await.unwrap().unwrap_err();
    assert_eq!((error.kind(), error.holder()), (ErrorKind::TimedOut, Some("elsewhere")));
}

/// A try that overtook the release of its own process, because that had to be sent once more.
#[tokio::test(start_paused = true)]
async fn a_try_refused_during_a_release_asks_again_after_it() {
    let (backend, locks) = scripted();
    let lock = locks.lock("a");
    drop(lock.acquire().await.unwrap());
    backend.next(Request::Release, [Answer::DoAfter(seconds(2))]);
    tokio::task::yield_now().await;
    backend.sent();
    let started = Instant::now();
    let guard = lock.try_acquire().await.unwrap().expect("free after the release");
    assert_eq!(started.elapsed(), seconds(2));
    assert_eq!(backend.sent(), [Request::Acquire, Request::Acquire]);
    // Taken after all, and the release is not answered in time.
    drop(guard);
    backend.next(Request::Release, [Answer::DoAfter(seconds(20))]);
    tokio::task::yield_now().await;
    assert!(lock.try_acquire().await.unwrap().is_none());
}

#[tokio::test(start_paused = true)]
async fn a_try_refused_without_a_release_is_answered_at_once() {
    let server = MemoryBackend::new();
    let locks = lock_core::Locker::new(server.clone());
    server.hold_elsewhere("a", seconds(60)).unwrap();
    let started = Instant::now();
    assert!(locks.lock("a").try_acquire().await.unwrap().is_none());
    assert_eq!(started.elapsed(), Duration::ZERO);
}

/// The next waiter inherits a request that the server has refused. That its own time is up too is no news of the server.
#[tokio::test(start_paused = true)]
async fn waiters_with_one_limit_are_all_told_that_it_is_taken() {
    let (backend, locks) = scripted();
    backend.server().hold_elsewhere("a", seconds(60)).unwrap();
    for gap in [Duration::ZERO, Duration::from_millis(5)] {
        let mut waiting = Vec::new();
        for _ in 0..10 {
            let lock = locks.lock("a");
            waiting.push(tokio::spawn(
                async move { lock.acquire_within(seconds(1)).await.map(drop) },
            ));
            sleep(gap).await;
        }
        sleep(Duration::from_millis(500)).await;
        // What is asked from here on is given up before the server answers.
        backend.next(Request::Acquire, [Answer::GiveUp; 20]);
        for waiter in waiting {
            let error = waiter.await.unwrap().unwrap_err();
            assert_eq!(
                error.to_string(),
                r#"lock "a": not acquired within 1s (held by "elsewhere")"#
            );
            assert_eq!(error.kind(), ErrorKind::TimedOut);
        }
        backend.clear();
    }
}

/// The first caller's request is undone, since the others cannot go on with its terms. That their turn has not come yet says
/// nothing of the server.
#[tokio::test(start_paused = true)]
async fn waiters_behind_an_undo_are_told_what_was_known_before_it() {
    let (backend, locks) = scripted();
    backend.server().hold_elsewhere("a", seconds(60)).unwrap();
    let wait = |ttl, limit| {
        let lock = locks.lock("a").ttl(seconds(ttl));
        tokio::spawn(async move { lock.acquire_within(limit).await.map(drop) })
    };
    let first = wait(30, seconds(1));
    let (second, third) = (wait(10, seconds(1)), wait(10, Duration::from_millis(1_500)));
    let patient = wait(10, seconds(10));
    backend.next(Request::Abandon, [Answer::Hang]);
    for waiter in [first, second, third] {
        assert_eq!(kind(&waiter.await.unwrap()), Some(ErrorKind::TimedOut));
    }
    // For more than half of its time the server has said nothing.
    assert_eq!(kind(&patient.await.unwrap()), Some(ErrorKind::Unavailable));
}

/// A request that was given up keeps what failed before it, and says so itself if nothing did.
#[tokio::test(start_paused = true)]
async fn what_failed_before_a_request_was_given_up_is_told() {
    let (backend, locks) = scripted();
    locks.connect().await.unwrap();
    let lock = locks.lock("a");
    for (answers, cause) in [
        ([Answer::Fail, Answer::GiveUp], "scripted failure"),
        ([Answer::GiveUp, Answer::GiveUp], "given up before the answer"),
    ] {
        backend.next(Request::Acquire, answers);
        let error = lock.acquire_within(seconds(1)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        assert!(error.to_string().contains(cause), "{error}");
        backend.clear();
    }
}
