//! The lines of each mode, with cancels at every point and shutdowns.

use std::sync::atomic::AtomicU32;

use lock_core::backend::Mode;
use lock_core::{Lock, ReentryKey};

use super::support::*;

/// Who holds the name, as its holders see it.
#[derive(Default)]
struct Inside {
    writers: AtomicU32,
    readers: AtomicU32,
    permits: AtomicU32,
    /// Above all that writers and permits had, whose tokens grow.
    last: AtomicUsize,
}

const LIMIT: u32 = 3;

impl Inside {
    fn count(&self, mode: Mode) -> (&AtomicU32, u32) {
        match mode {
            Mode::Shared => (&self.readers, 1),
            Mode::Permits(permits) => (&self.permits, permits.take()),
            _ => (&self.writers, 1),
        }
    }

    fn enter(&self, mode: Mode) {
        let (count, by) = self.count(mode);
        count.fetch_add(by, Ordering::SeqCst);
        let count = |count: &AtomicU32| count.load(Ordering::SeqCst);
        let (writers, readers, permits) = (count(&self.writers), count(&self.readers), count(&self.permits));
        let kinds = [writers, readers, permits]
            .into_iter()
            .filter(|count| *count > 0)
            .count();
        assert_safe!(
            kinds == 1 && writers <= 1 && permits <= LIMIT,
            "{writers} writers, {readers} readers and {permits} permits"
        );
    }

    fn leave(&self, mode: Mode) {
        let (count, by) = self.count(mode);
        count.fetch_sub(by, Ordering::SeqCst);
    }
}

/// The lock of this task in this turn.
fn lock(locks: &Locker, number: usize) -> Lock {
    let (rw, semaphore) = (locks.rw_lock("a"), locks.semaphore("a", LIMIT));
    match number % 9 {
        0..=2 => rw.read(),
        3 => rw.read().label("another"),
        4 => rw.read().fixed_lease(),
        5 => rw.write(),
        6 => rw.read().reentrant(&ReentryKey::new()),
        7 => semaphore.permits(1),
        _ => semaphore.permits(1 + u32::try_from(number).unwrap() % LIMIT),
    }
}

async fn cancel_at_every_point(kinds: &'static [usize]) {
    let (backend, locks) = hostile();
    let other = Locker::new(backend.clone()).with_ttl(TTL).with_passes(1);
    let inside = Arc::new(Inside::default());
    let tasks: Vec<_> = (0..10_usize)
        .map(|task| {
            let locks = [&locks, &other][task % 2].clone();
            let inside = inside.clone();
            tokio::spawn(async move {
                for turn in 0..200 {
                    let lock = lock(&locks, kinds[(turn + task / 2) % kinds.len()]);
                    let mode = lock.options().mode;
                    let guard = match turn % 5 {
                        0 => drop_after(turn % 7, lock.try_acquire())
                            .await
                            .and_then(Result::transpose),
                        _ => drop_after((turn * 7 + task * 3) % 29, lock.acquire()).await,
                    };
                    let Some(guard) = guard else { continue };
                    let guard = guard.unwrap();
                    inside.enter(mode);
                    let token = usize::try_from(guard.token().as_u64()).unwrap();
                    if mode != Mode::Shared {
                        inside.last.fetch_max(token, Ordering::SeqCst);
                    } else {
                        let last = inside.last.load(Ordering::SeqCst);
                        assert_safe!(last < token, "{last} was followed by {token}");
                    }
                    for _ in 0..turn % 4 {
                        yield_now().await;
                    }
                    assert_eq!(guard.state(), HoldState::Held);
                    inside.leave(mode);
                    match turn % 3 {
                        0 => drop(guard),
                        1 => drop(guard.release().await.unwrap()),
                        _ => drop(drop_after(turn % 4, guard.release()).await),
                    }
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    locks.shutdown().await.unwrap();
    other.shutdown().await.unwrap();
    assert!(!backend.is_held("a").await);
    assert_eq!(backend.waiting("a").await, 0);
    assert_eq!(backend.alive(), 0);
}

#[tokio::test(start_paused = true)]
async fn acquires_that_are_cancelled_at_every_point_leave_nothing_in_any_mode() {
    // Readers alone, permits alone, each with writers, and all of them.
    for kinds in [
        &[0, 1, 3, 4, 6][..],
        &[7, 8, 9 + 8, 18 + 8],
        &[0, 5, 1, 2],
        &[7, 5, 8, 17],
        &[0, 1, 3, 4, 5, 6, 7, 8, 17, 26],
    ] {
        cancel_at_every_point(kinds).await;
    }
}

#[tokio::test(start_paused = true)]
async fn one_cancel_at_each_point_of_each_mode() {
    for held in [0, 5, 8 + 18] {
        for number in [0, 3, 4, 5, 6, 7, 17, 26] {
            for polls in 0..25 {
                let (backend, locks) = hostile();
                let elsewhere = Locker::new(backend.clone()).with_ttl(TTL);
                let taken = lock(&elsewhere, held).acquire().await.unwrap();
                let cancelled = lock(&locks, number);
                let cancelled = tokio::spawn(async move { drop_after(polls, cancelled.acquire()).await.is_some() });
                yield_now().await;
                let behind: Vec<_> = [number, 0, 7, 5]
                    .into_iter()
                    .map(|number| {
                        let lock = lock(&locks, number);
                        tokio::spawn(async move { lock.acquire().await.map(drop) })
                    })
                    .collect();
                for _ in 0..polls / 2 {
                    yield_now().await;
                }
                taken.release().await.unwrap();
                cancelled.await.unwrap();
                for behind in behind {
                    timeout(seconds(5), behind)
                        .await
                        .expect("nobody is forgotten")
                        .unwrap()
                        .unwrap();
                }
                locks.shutdown().await.unwrap();
                elsewhere.shutdown().await.unwrap();
                assert!(!backend.is_held("a").await);
                assert_eq!((backend.waiting("a").await, backend.alive()), (0, 0));
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_ends_the_waiters_of_each_line() {
    let (backend, locks) = hostile();
    let elsewhere = Locker::new(backend.clone()).with_ttl(TTL);
    let _taken = elsewhere.lock("a").acquire().await.unwrap();
    let mut waiting = Vec::new();
    for number in [0, 0, 3, 5, 5, 6, 7, 7, 26] {
        let lock = lock(&locks, number);
        waiting.push(tokio::spawn(async move { lock.acquire().await.map(drop) }));
    }
    sleep(seconds(1)).await;
    assert_eq!(
        backend.waiting("a").await,
        3 + 2,
        "one of each line; the permits asked at once"
    );
    locks.shutdown().await.unwrap();
    for waiting in waiting {
        assert_eq!(waiting.await.unwrap().unwrap_err().kind(), ErrorKind::ShutDown);
    }
    assert_eq!(backend.waiting("a").await, 0);
    let error = locks.rw_lock("a").read().acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ShutDown);
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_leaves_joined_guards_as_they_are() {
    let (backend, locks) = hostile();
    let read = locks.rw_lock("a").read();
    let (one, other) = (read.acquire().await.unwrap(), read.acquire().await.unwrap());
    locks.shutdown().await.unwrap();
    sleep(TTL * 2).await;
    assert_eq!(other.state(), HoldState::Held);
    drop(one);
    other.release().await.unwrap();
    assert!(!backend.is_held("a").await);
}

#[tokio::test(start_paused = true)]
async fn nothing_grows_with_readers_and_permits() {
    let (backend, locks) = hostile();
    for round in 0..3_000 {
        let lock = lock(&locks, round);
        let guard = lock.acquire().await.unwrap();
        match round % 3 {
            0 => drop(guard.release().await.unwrap()),
            1 => drop(guard),
            _ => drop(drop_after(1, guard.release()).await),
        }
        assert!(backend.alive() <= 3);
    }
    locks.shutdown().await.unwrap();
    assert_eq!(backend.alive(), 0);
}
