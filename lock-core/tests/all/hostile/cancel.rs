//! Requests, callers and workers that are cut off.

use super::support::*;

#[tokio::test(start_paused = true)]
async fn nothing_stays_behind_an_acquire_that_is_dropped_at_any_poll() {
    for taken in [false, true] {
        for kind in 0..3 {
            for polls in 0.. {
                let (backend, locks) = hostile();
                if taken {
                    backend.server().hold_elsewhere("a", seconds(600)).unwrap();
                }
                let lock = locks.lock("a");
                let done = match kind {
                    0 => drop_after(polls, lock.acquire()).await.is_some(),
                    1 => drop_after(polls, lock.acquire_within(seconds(5))).await.is_some(),
                    _ => drop_after(polls, lock.try_acquire()).await.is_some(),
                };
                locks.shutdown().await.unwrap();
                assert_eq!(backend.is_held("a").await, taken, "kind {kind}, {polls} polls");
                assert_eq!(backend.waiting("a").await, 0, "kind {kind}, {polls} polls");
                assert_eq!(backend.alive(), 0);
                assert_eq!(backend.cut(Request::Acquire), 0, "never half-way");
                assert_eq!(backend.cut(Request::Abandon), 0, "never half-way");
                if done || polls > 40 {
                    assert!(polls >= 3);
                    break;
                }
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn release_extend_run_and_the_others_may_be_dropped_at_any_poll() {
    for polls in 0..12 {
        let (backend, locks) = hostile();
        drop_after(polls, locks.connect()).await;
        drop_after(polls, locks.status("a")).await;
        let guard = locks.lock("a").acquire().await.unwrap();
        drop_after(polls, guard.extend(seconds(30))).await;
        drop_after(polls, guard.lost()).await;
        drop_after(polls, guard.run(std::future::pending::<()>())).await;
        assert_eq!(guard.state(), HoldState::Held);
        let watch = guard.watch();
        drop_after(polls, guard.release()).await;
        assert_eq!(watch.ended().await, Ended::Released);
        drop_after(polls, locks.shutdown()).await;
        locks.shutdown().await.unwrap();
        assert!(!backend.is_held("a").await);
        assert_eq!(backend.count(Request::Release), 1, "one release is enough");
        assert_eq!(backend.cut(Request::Release), 0);
        assert_eq!(backend.alive(), 0);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_workers_exclude_each_other_through_cuts_and_drops() {
    let (backend, locks) = hostile();
    let other = Locker::new(backend.clone()).with_ttl(TTL);
    let inside = Arc::new(AtomicUsize::new(0));
    let last = Arc::new(AtomicUsize::new(0));
    let tasks: Vec<_> = (0..8_usize)
        .map(|task| {
            let lock = [&locks, &other][task % 2].lock("a").ttl(LONG_TTL);
            let (inside, last) = (inside.clone(), last.clone());
            tokio::spawn(async move {
                for turn in 0..150 {
                    let Some(guard) = drop_after((turn * 7 + task * 3) % 23, lock.acquire()).await else {
                        continue;
                    };
                    let guard = guard.unwrap();
                    assert_safe!(inside.fetch_add(1, Ordering::SeqCst) == 0, "two have it");
                    let token = usize::try_from(guard.token().as_u64()).unwrap();
                    let before = last.swap(token, Ordering::SeqCst);
                    assert_safe!(before < token, "{before} was followed by {token}");
                    yield_now().await;
                    inside.fetch_sub(1, Ordering::SeqCst);
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
async fn a_panic_beside_an_acquire_does_not_cut_it_half_way() {
    let (backend, locks) = hostile();
    let lock = locks.lock("a");
    let both = tokio::spawn(async move {
        tokio::join!(lock.acquire(), async {
            yield_now().await;
            panic!("planned, and not the backend's")
        })
    });
    assert!(both.await.unwrap_err().is_panic());
    locks.shutdown().await.unwrap();
    assert!(!backend.is_held("a").await);
    assert_eq!(backend.cut(Request::Acquire), 0, "never dropped half-way");
}

#[tokio::test(start_paused = true)]
async fn a_panic_beside_a_release_does_not_make_it_a_loss() {
    let (backend, locks) = hostile();
    let guard = locks.lock("a").acquire().await.unwrap();
    let watch = guard.watch();
    backend.next(Request::Release, [Answer::DoThenHang]);
    let both = tokio::spawn(async move {
        tokio::join!(guard.release(), async {
            for _ in 0..5 {
                yield_now().await;
            }
            panic!("planned, and not the backend's")
        })
    });
    assert!(both.await.unwrap_err().is_panic());
    assert_eq!(watch.ended().await, Ended::Released, "releasing never fires lost");
}

#[tokio::test(start_paused = true)]
async fn a_release_that_panics_after_its_effect_is_no_loss() {
    let (backend, locks) = hostile();
    let guard = locks.lock("a").acquire().await.unwrap();
    let watch = guard.watch();
    backend.next(Request::Release, [Answer::DoThenPanic]);
    let release = tokio::spawn(guard.release());
    let _ = release.await; // that the caller panics with it would do, too
    assert_eq!(watch.ended().await, Ended::Released, "releasing never fires lost");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn losses_releases_and_renewals_race_without_a_hang() {
    let (backend, locks) = hostile();
    let locks = locks.with_ttl(Duration::from_millis(20));
    let stop = Arc::new(AtomicBool::new(false));
    let taking = std::thread::spawn({
        let (server, stop) = (backend.server().clone(), stop.clone());
        move || {
            while !stop.load(Ordering::SeqCst) {
                server.take_away("a").unwrap();
                std::thread::yield_now();
            }
        }
    });
    let tasks: Vec<_> = (0..4)
        .map(|task| {
            let lock = locks.lock("a");
            tokio::spawn(async move {
                for turn in 0..500 {
                    let guard = lock.acquire().await.unwrap();
                    let _ = guard.check();
                    match (turn + task) % 4 {
                        0 => drop(guard),
                        1 => drop(guard.release().await),
                        2 => drop(guard.extend(Duration::from_millis(40)).await),
                        _ => drop(timeout(Duration::from_millis(1), guard.lost()).await),
                    }
                }
            })
        })
        .collect();
    for task in tasks {
        happens("the end of all turns", task).await.unwrap();
    }
    stop.store(true, Ordering::SeqCst);
    taking.join().unwrap();
    locks.shutdown().await.unwrap();
    assert_eq!(backend.alive(), 0);
}
