//! What an acquire of several locks comes to, and what it leaves.

use std::pin::pin;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::poll_fn;
use lock_core::backend::DistributedLock;
use lock_core::{ErrorKind, Locker, MemoryBackend, acquire_all, acquire_all_within, try_acquire_all};
use std::task::Poll;
use tokio::task::yield_now;
use tokio::time::{Instant, sleep};

use super::{TTL, names, scripted, seconds, settle};
use crate::scripted::{Answer, Request, Scripted};

fn send<T: Send>(value: T) -> T {
    value
}

#[tokio::test(start_paused = true)]
async fn all_or_none() {
    let (backend, locks) = scripted();
    let all = send(acquire_all([locks.lock("b"), locks.lock("a"), locks.lock("c")]));
    let all = all.await.unwrap();
    assert_eq!(names(&all), ["b", "a", "c"], "in the order given");
    assert_eq!(backend.sent(), [Request::Acquire; 3]);
    all.release().await.unwrap();
    backend.server().hold_elsewhere("b", seconds(600)).unwrap();
    let error = acquire_all_within(["a", "b", "c"].map(|name| locks.lock(name)), seconds(5)).await;
    let error = error.unwrap_err();
    assert_eq!((error.kind(), error.holder()), (ErrorKind::TimedOut, Some("elsewhere")));
    assert_eq!(
        error.to_string(),
        r#"lock "b": not acquired within 5s, the limit for all 3 locks (held by "elsewhere")"#
    );
    settle().await;
    for name in ["a", "c"] {
        assert!(!backend.is_held(name).await);
    }
    assert_eq!(backend.waiting("b").await, 0);
}

/// What is left of the limit for a later lock may be too short for an answer. No error states that rest.
#[tokio::test(start_paused = true)]
async fn acquires_with_one_limit_are_all_told_that_a_lock_is_taken() {
    let (backend, locks) = scripted();
    backend.server().hold_elsewhere("b", seconds(600)).unwrap();
    let mut waiting = Vec::new();
    for _ in 0..5 {
        let both = ["a", "b"].map(|name| locks.lock(name));
        waiting.push(tokio::spawn(async {
            acquire_all_within(both, seconds(1)).await.map(drop)
        }));
        sleep(Duration::from_millis(5)).await;
    }
    sleep(Duration::from_millis(500)).await;
    backend.next(Request::Abandon, [Answer::DoAfter(Duration::from_millis(12)); 5]);
    backend.next(Request::Acquire, [Answer::GiveUp; 20]);
    for waiter in waiting {
        let error = waiter.await.unwrap().unwrap_err();
        assert!(error.is_timed_out(), "{error}");
        let text = error.to_string();
        assert!(
            text.contains("not acquired within 1s, the limit for all 2 locks"),
            "{text}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn modes_and_servers_may_be_mixed() {
    let (backend, locks) = scripted();
    let (other, others) = scripted();
    let mixed = || {
        let semaphore = others.semaphore("b", 3);
        [locks.lock("c"), semaphore.permits(2), locks.rw_lock("a").read()]
    };
    let first = acquire_all(mixed()).await.unwrap();
    assert!(other.is_held("b").await && !backend.is_held("b").await);
    assert!(try_acquire_all(mixed()).await.unwrap().is_none());
    let elsewhere = Locker::new(backend.server().clone());
    assert!(elsewhere.rw_lock("a").read().try_acquire().await.unwrap().is_some());
    first.release().await.unwrap();
    drop(try_acquire_all(mixed()).await.unwrap().expect("all are free"));
    drop(
        try_acquire_all(mixed())
            .await
            .unwrap()
            .expect("what was dropped is given back first"),
    );
    let twice = [locks.rw_lock("a").read(), locks.rw_lock("a").write()];
    assert_eq!(acquire_all(twice).await.unwrap_err().kind(), ErrorKind::Misconfigured);
}

#[tokio::test(start_paused = true)]
async fn one_lock_alone_is_tried_once() {
    let (backend, locks) = scripted();
    let guard = acquire_all([locks.lock("a")]).await.unwrap();
    assert_eq!(backend.sent(), [Request::Acquire]);
    let error = acquire_all_within([locks.lock("a")], seconds(1)).await.unwrap_err();
    assert!(
        error
            .to_string()
            .starts_with(r#"lock "a": not acquired within 1s (held by"#),
        "{error}"
    );
    guard.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_refused_try_leaves_nothing() {
    let (backend, locks) = scripted();
    backend.server().hold_elsewhere("b", seconds(600)).unwrap();
    let all = || ["c", "b", "a"].map(|name| locks.lock(name));
    assert!(try_acquire_all(all()).await.unwrap().is_none());
    for name in ["a", "c"] {
        assert!(!backend.is_held(name).await, "it waited for the releases");
    }
    let error = acquire_all_within(all(), Duration::ZERO).await.unwrap_err();
    assert!(error.is_timed_out());
    assert_eq!(
        (error.name().unwrap().as_str(), error.holder()),
        ("b", Some("elsewhere"))
    );
    for name in ["a", "c"] {
        assert!(!backend.is_held(name).await, "it waited for the releases");
    }
    backend.server().take_away("b").unwrap();
    assert!(try_acquire_all(all()).await.unwrap().is_some());
}

#[tokio::test(start_paused = true)]
async fn what_comes_after_the_first_refusal_is_given_back_while_it_waits() {
    let (backend, locks) = scripted();
    backend.server().hold_elsewhere("b", seconds(600)).unwrap();
    let lock = |name| locks.lock(name);
    let all = tokio::spawn(acquire_all([lock("a"), lock("b"), lock("c")]));
    settle().await;
    assert!(backend.is_held("a").await);
    assert_eq!(backend.waiting("b").await, 1);
    assert!(!backend.is_held("c").await);
    backend.server().take_away("b").unwrap();
    let all = all.await.unwrap().unwrap();
    assert_eq!(names(&all), ["a", "b", "c"]);
    // a, b, c tried; b and c waited for.
    assert_eq!(backend.count(Request::Acquire), 5);
}

#[tokio::test(start_paused = true)]
async fn a_crowded_name_is_not_tried_again_for_a_second() {
    let (backend, locks) = scripted();
    backend.server().hold_elsewhere("b", seconds(600)).unwrap();
    let all = || ["a", "b", "c"].map(|name| locks.lock(name));
    for (pause, tries) in [(0, 3), (0, 0), (999, 0), (2, 3)] {
        sleep(Duration::from_millis(pause)).await;
        backend.sent();
        {
            let mut waiting = pin!(acquire_all(all()));
            for _ in 0..10 {
                assert!(
                    poll_fn(|context| Poll::Ready(waiting.poll_unpin(context)))
                        .await
                        .is_pending()
                );
                yield_now().await;
            }
        }
        settle().await;
        let sent = backend.sent();
        let acquires = sent.iter().filter(|request| **request == Request::Acquire).count();
        // Of the tries a is kept, else it is waited for; b always is.
        let expected = if tries > 0 { tries + 1 } else { 2 };
        assert_eq!(acquires, expected, "after {pause} ms: {sent:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn one_deadline_for_all() {
    let (backend, locks) = scripted();
    for (name, ttl) in [("a", 3), ("b", 6), ("c", 9)] {
        backend.server().hold_elsewhere(name, seconds(ttl)).unwrap();
    }
    let all = || ["a", "b", "c"].map(|name| locks.lock(name));
    let began = Instant::now();
    let error = acquire_all_within(all(), seconds(8)).await.unwrap_err();
    assert_eq!(began.elapsed(), seconds(8));
    assert_eq!(error.name().unwrap().as_str(), "c");
    assert!(error.is_timed_out());
    settle().await;
    assert!(!backend.is_held("a").await && !backend.is_held("b").await);
    let guard = acquire_all_within(all(), seconds(8)).await.unwrap();
    assert_eq!(began.elapsed(), seconds(9));
    guard.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_name_twice_is_misconfigured() {
    let (backend, locks) = scripted();
    let error = acquire_all([
        locks.lock("a"),
        locks.lock("b"),
        locks.clone().with_ttl(TTL * 2).lock("a"),
    ])
    .await;
    let error = error.unwrap_err();
    assert_eq!(
        (error.kind(), error.name().unwrap().as_str()),
        (ErrorKind::Misconfigured, "a")
    );
    assert_eq!(acquire_all([]).await.unwrap_err().kind(), ErrorKind::Misconfigured);
    assert_eq!(try_acquire_all([]).await.unwrap_err().kind(), ErrorKind::Misconfigured);
    for limited in [locks.lock("b").hold_at_least(TTL), locks.lock("b").hold_at_most(TTL)] {
        let error = acquire_all([locks.lock("a"), limited]).await.unwrap_err();
        assert_eq!(error.name().unwrap().as_str(), "b");
    }
    assert_eq!(backend.sent(), [], "nothing was asked");
    let elsewhere = Locker::new(MemoryBackend::new());
    drop(acquire_all([locks.lock("a"), elsewhere.lock("a")]).await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_ends_it() {
    let (backend, locks) = scripted();
    backend.server().hold_elsewhere("b", seconds(600)).unwrap();
    let all = tokio::spawn(acquire_all([locks.lock("a"), locks.lock("b")]));
    settle().await;
    locks.shutdown().await.unwrap();
    assert_eq!(all.await.unwrap().unwrap_err().kind(), ErrorKind::ShutDown);
    assert!(!backend.is_held("a").await);
}

/// Polls it so often, then drops it; whether it was ready by then.
async fn drop_after<F: Future>(polls: usize, future: F) -> bool {
    let mut future = pin!(future);
    for _ in 0..polls {
        if poll_fn(|context| Poll::Ready(future.as_mut().poll(context)))
            .await
            .is_ready()
        {
            return true;
        }
        yield_now().await;
    }
    false
}

#[tokio::test(start_paused = true)]
async fn dropping_it_leaves_nothing() {
    for taken in ["", "a", "b", "c"] {
        for kind in 0..4 {
            for polls in 0.. {
                let backend = Scripted::new(MemoryBackend::new().capabilities(), 1);
                let locks = Locker::new(backend.clone()).with_ttl(TTL);
                if !taken.is_empty() {
                    backend.server().hold_elsewhere(taken, seconds(600)).unwrap();
                }
                let all = ["b", "a", "c"].map(|name| locks.lock(name));
                let done = match kind {
                    0 => drop_after(polls, acquire_all(all)).await,
                    1 => drop_after(polls, acquire_all_within(all, seconds(5))).await,
                    2 => drop_after(polls, acquire_all_within(all, Duration::ZERO)).await,
                    _ => drop_after(polls, try_acquire_all(all)).await,
                };
                locks.shutdown().await.unwrap();
                for name in ["a", "b", "c"] {
                    let is_held = backend.is_held(name).await;
                    assert_eq!(is_held, taken == name, "{name}, kind {kind}, {polls} polls");
                    assert_eq!(backend.waiting(name).await, 0, "{name}, kind {kind}, {polls} polls");
                }
                assert_eq!(backend.alive(), 0);
                assert_eq!(backend.cut(Request::Acquire), 0, "never half-way");
                if done || polls > 40 {
                    assert!(polls >= 3);
                    break;
                }
            }
        }
    }
}
