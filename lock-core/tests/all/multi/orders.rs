//! Whatever the order in which callers give their locks, none of them waits for ever.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;
use std::time::Duration;

use futures_util::future::poll_fn;
use lock_core::backend::DistributedLock;
use lock_core::{Lock, Locker, MemoryBackend, acquire_all, try_acquire_all};
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use testbed_steady::assert_safe;
use tokio::task::yield_now;
use tokio::time::{sleep, timeout};

use super::TTL;
use crate::scripted::Scripted;

/// Acquires all, keeps them for a poll, and lets go.
async fn work(locks: Vec<Lock>) {
    let guard = acquire_all(locks).await.unwrap();
    yield_now().await;
    guard.release().await.unwrap();
}

async fn poll_once<F: Future>(future: Pin<&mut F>) -> Poll<F::Output> {
    let mut future = future;
    poll_fn(|context| Poll::Ready(future.as_mut().poll(context))).await
}

/// Two callers, one step of either at a time, in every order of their first steps.
#[tokio::test(start_paused = true)]
async fn opposite_orders_end_in_every_schedule() {
    for schedule in 0..1 << CHOICES {
        for is_one_locker in [true, false] {
            for is_crowded in [true, false] {
                ends(schedule, is_one_locker, is_crowded).await;
            }
        }
    }
}

const CHOICES: u32 = 8;

async fn ends(schedule: u32, is_one_locker: bool, is_crowded: bool) {
    let backend = Scripted::new(MemoryBackend::new().capabilities(), 1);
    let one = Locker::new(backend.clone()).with_ttl(TTL);
    let other = match is_one_locker {
        true => one.clone(),
        false => Locker::new(backend.clone()).with_ttl(TTL),
    };
    if is_crowded {
        // So that nobody tries all at once, but waits for one after the other.
        backend.server().hold_elsewhere("a", TTL).unwrap();
        for locks in [&one, &other] {
            assert!(try_acquire_all([locks.lock("a")]).await.unwrap().is_none());
        }
        backend.server().take_away("a").unwrap();
    }
    let mut callers = [
        Some(Box::pin(work(vec![one.lock("a"), one.lock("b")]))),
        Some(Box::pin(work(vec![other.lock("b"), other.lock("a")]))),
    ];
    for step in 0..200 {
        let choice = match step < CHOICES {
            true => schedule >> step & 1,
            false => step & 1,
        };
        let caller = &mut callers[choice as usize];
        if let Some(running) = caller
            && poll_once(running.as_mut()).await.is_ready()
        {
            *caller = None;
        }
        // The background goes on, but no time passes.
        yield_now().await;
    }
    assert!(callers.iter().all(Option::is_none), "schedule {schedule:b} stalls");
    assert!(!backend.is_held("a").await && !backend.is_held("b").await);
}

const NAMES: [&str; 5] = ["a", "b", "c", "d", "e"];

/// Crowds of callers with sets of two or three names each, in any order.
#[tokio::test(start_paused = true)]
async fn opposite_orders_end() {
    for seed in 0..40 {
        let server = MemoryBackend::new();
        let lockers: Vec<_> = (0..3).map(|_| Locker::new(server.clone()).with_ttl(TTL)).collect();
        let inside: Arc<[AtomicUsize; NAMES.len()]> = Arc::default();
        let callers: Vec<_> = (0..7)
            .map(|caller| {
                let (locks, inside) = (lockers[caller % 3].clone(), inside.clone());
                let mut random = StdRng::seed_from_u64(seed * 100 + caller as u64);
                tokio::spawn(async move {
                    for _ in 0..20 {
                        let mut all: Vec<_> = (0..NAMES.len()).collect();
                        all.shuffle(&mut random);
                        all.truncate(random.random_range(2..4));
                        let guard = acquire_all(all.iter().map(|name| locks.lock(NAMES[*name])))
                            .await
                            .unwrap();
                        for name in &all {
                            assert_safe!(inside[*name].fetch_add(1, Ordering::SeqCst) == 0, "two have {name}");
                        }
                        sleep(Duration::from_millis(random.random_range(0..50))).await;
                        for name in &all {
                            inside[*name].fetch_sub(1, Ordering::SeqCst);
                        }
                        match random.random_bool(0.5) {
                            true => guard.release().await.unwrap(),
                            false => drop(guard),
                        }
                        sleep(Duration::from_millis(random.random_range(0..50))).await;
                    }
                })
            })
            .collect();
        // 140 turns of 25 ms, if they all came one after the other; and time passes only while everybody waits.
        let all = async {
            for caller in callers {
                caller.await.unwrap();
            }
        };
        timeout(Duration::from_secs(10), pin!(all))
            .await
            .expect("nobody waits for ever");
    }
}
