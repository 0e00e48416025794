//! Runtimes that go, and runtimes that nobody drives.

use super::support::*;

#[test]
fn a_renewal_under_way_when_its_runtime_goes_is_made_on_the_next() {
    let (backend, locks) = hostile();
    let locks = locks.with_ttl(seconds(18));
    let first = runtime();
    backend.next(Request::Renew, [Answer::Hang]);
    let guard = first.block_on(async {
        let guard = locks.lock("a").acquire().await.unwrap();
        while backend.count(Request::Renew) == 0 {
            sleep(Duration::from_millis(5)).await;
        }
        guard
    });
    drop(first);
    runtime().block_on(async {
        locks.lock("b").acquire().await.unwrap().release().await.unwrap();
        // Ten seconds and more of the lease are left.
        let renewed = async {
            let (mut before, mut left) = (Duration::MAX, guard.valid_for());
            while left <= before {
                sleep(Duration::from_millis(5)).await;
                (before, left) = (left, guard.valid_for());
            }
        };
        tokio::select! {
            () = renewed => {}
            lost = guard.lost() => panic!("the server answers all the time: {lost:?}"),
        }
    });
}

#[test]
fn a_runtime_that_goes_takes_no_renewals_of_another_along() {
    let (_, locks) = hostile();
    let ttl = seconds(7);
    let locks = locks.with_ttl(ttl);
    let (first, second) = (runtime(), runtime());
    first.block_on(locks.lock("a").acquire()).map(drop).unwrap();
    second.block_on(async {
        let guard = locks.lock("b").acquire().await.unwrap();
        tokio::task::spawn_blocking(move || drop(first)).await.unwrap();
        let lost = timeout(ttl + seconds(1), guard.lost()).await;
        assert!(lost.is_err(), "its own runtime lives: {lost:?}");
    });
}

#[test]
fn an_acquire_while_another_runtime_goes_has_a_keeper() {
    let locks = Locker::new(MemoryBackend::new()).with_ttl(LONG_TTL);
    let second = runtime();
    for round in 0..500 {
        let first = runtime();
        first.block_on(locks.lock("a").acquire()).map(drop).unwrap();
        let going = std::thread::spawn(move || drop(first));
        second.block_on(async {
            let guard = locks.lock("b").acquire().await.unwrap();
            while !going.is_finished() {
                yield_now().await;
            }
            let watch = guard.watch();
            drop(guard);
            let ended = happens(&format!("the release in round {round}"), watch.ended()).await;
            assert!(!matches!(ended, Ended::Lost(_)), "in round {round}: {ended:?}");
        });
        going.join().unwrap();
    }
}

#[test]
fn a_release_that_was_trying_when_its_runtime_went_is_made_on_the_next() {
    let (backend, locks) = hostile();
    let locks = locks.with_ttl(LONG_TTL);
    let first = runtime();
    backend.next(Request::Release, [Answer::Fail; 4]);
    first.block_on(async {
        let guard = locks.lock("a").acquire().await.unwrap();
        let release = tokio::spawn(guard.release());
        while backend.count(Request::Release) < 2 {
            sleep(Duration::from_millis(1)).await;
        }
        drop(release);
    });
    drop(first);
    runtime().block_on(async {
        locks.lock("b").acquire().await.unwrap().release().await.unwrap();
        eventually("it is released, and not left to its ttl", async || {
            !backend.is_held("a").await
        })
        .await;
    });
}

#[test]
fn a_background_release_that_took_effect_before_its_runtime_went_is_no_loss() {
    let (backend, locks) = hostile();
    let first = runtime();
    backend.next(Request::Release, [Answer::DoThenHang]);
    let watch = first.block_on(async {
        let guard = locks.lock("a").acquire().await.unwrap();
        let watch = guard.watch();
        drop(guard);
        while backend.is_held("a").await {
            yield_now().await;
        }
        watch
    });
    drop(first);
    runtime().block_on(async {
        locks.lock("b").acquire().await.unwrap().release().await.unwrap();
        assert_eq!(watch.ended().await, Ended::Released, "releasing never fires lost");
    });
}

#[test]
fn a_release_outside_any_runtime_is_an_error_and_no_panic() {
    let (backend, locks) = hostile();
    let guard = runtime().block_on(locks.lock("a").acquire()).unwrap();
    backend.next(Request::Release, [Answer::Fail]);
    let release = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let mut release = Box::pin(guard.release());
        for _ in 0..10 {
            if let Some(answer) = release.as_mut().now_or_never() {
                return Some(answer);
            }
        }
        None
    }));
    assert!(release.is_ok(), "acquire says Misconfigured here; release panics");
}

#[test]
fn a_guard_in_a_thread_local_is_released() {
    thread_local! {
        static GUARD: std::cell::RefCell<Option<lock_core::Guard>> = const { std::cell::RefCell::new(None) };
    }
    let locks = Locker::new(MemoryBackend::new());
    let runtime = runtime();
    let guard = runtime.block_on(locks.lock("a").acquire()).unwrap();
    // From then on tokio asks its own clock, in every thread.
    let paused = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build();
    drop(paused.unwrap());
    let ended = std::thread::spawn(move || {
        // Made before tokio's own, and so destroyed after them.
        GUARD.with(|_| {});
        assert!(Handle::try_current().is_err());
        GUARD.with(|slot| *slot.borrow_mut() = Some(guard));
    });
    ended.join().unwrap();
    let again = runtime.block_on(locks.lock("a").try_acquire()).unwrap();
    assert!(again.is_some());
}

/// Of a process's two waiters, the first had its runtime to itself.
#[test]
fn a_place_goes_on_without_the_runtime_that_it_began_on() {
    for first_runtime_lives in [true, false] {
        let (backend, locks) = hostile();
        let (first_runtime, main) = (runtime(), driven());
        main.block_on(locks.lock("warm").acquire()).map(drop).unwrap();
        backend.server().hold_elsewhere("a", LONG_TTL).unwrap();
        let lock = locks.lock("a");
        let first = first_runtime.spawn({
            let lock = lock.clone();
            async move { lock.acquire_within(seconds(1)).await.map(drop) }
        });
        first_runtime.block_on(async {
            while backend.waiting("a").await == 0 {
                assert!(!first.is_finished(), "it waits for a second");
                yield_now().await;
            }
        });
        let (waits, is_waiting) = tokio::sync::oneshot::channel();
        let second = main.spawn(async move {
            let mut acquire = pin!(lock.acquire());
            assert!(acquire.as_mut().now_or_never().is_none());
            waits.send(()).unwrap();
            acquire.await.map(|guard| guard.token())
        });
        main.block_on(is_waiting).unwrap();
        // Left alone, or dropped with its waiter.
        let idle = first_runtime_lives.then(|| {
            first_runtime.block_on(first).unwrap().unwrap_err();
            first_runtime
        });
        backend.server().take_away("a").unwrap();
        main.block_on(async { happens("the grant of the free name", second).await })
            .unwrap()
            .unwrap();
        assert_eq!(backend.moved(), 0, "no request goes on where it did not begin");
        drop(idle);
    }
}

#[test]
fn renewals_go_on_wherever_a_runtime_is_driven() {
    let (backend, locks) = hostile();
    let ttl = seconds(9);
    let locks = locks.with_ttl(ttl);
    let acquire = |runtime: &tokio::runtime::Runtime, name| runtime.block_on(locks.lock(name).acquire()).unwrap();
    let (first, mine, third, idle) = (runtime(), driven(), runtime(), runtime());
    drop(acquire(&first, "first"));
    let guard = acquire(&mine, "mine");
    drop((acquire(&third, "third"), acquire(&idle, "idle")));
    drop((first, third));
    let lost = mine.block_on(async { timeout(ttl + seconds(3), guard.lost()).await });
    assert!(lost.is_err(), "its own runtime is driven: {lost:?}");
    assert_eq!(backend.moved(), 0);
}

#[test]
fn an_idle_runtime_keeps_nobody_waiting() {
    let (backend, locks) = hostile();
    let ttl = seconds(12);
    let locks = locks.with_ttl(ttl);
    let (idle, mine) = (runtime(), runtime());
    // The idle one has something to do that it does not do.
    let kept = idle.block_on(locks.lock("kept").acquire()).unwrap();
    idle.block_on(locks.lock("dropped").acquire()).map(drop).unwrap();
    mine.block_on(async {
        let lock = locks.lock("mine");
        drop(lock.acquire().await.unwrap());
        let again = timeout(seconds(10), lock.acquire()).await;
        assert!(
            again.is_ok(),
            "the release before it waits for another thread's runtime"
        );
        let freed = async {
            while backend.is_held("dropped").await {
                sleep(Duration::from_millis(5)).await;
            }
        };
        assert!(timeout(seconds(10), freed).await.is_ok());
        let lost = timeout(ttl + seconds(2), kept.lost()).await;
        assert!(lost.is_err(), "renewed wherever it was acquired: {lost:?}");
    });
    // It goes on where it was, and finds that all is done.
    idle.block_on(async {
        locks.lock("again").acquire().await.unwrap().release().await.unwrap();
        locks.shutdown().await.unwrap();
    });
    assert_eq!(backend.moved(), 0);
}

#[test]
fn a_runtime_that_shuts_down_is_refused_by_name() {
    struct AcquireWhenDropped(Locker, Arc<Mutex<Option<Result<lock_core::Guard>>>>);
    impl Drop for AcquireWhenDropped {
        fn drop(&mut self) {
            let answer = self.0.lock("a").acquire().now_or_never();
            *self.1.lock().unwrap() = answer;
        }
    }
    let (_, locks) = hostile();
    let answer = Arc::default();
    let last = AcquireWhenDropped(locks, Arc::clone(&answer));
    let runtime = runtime();
    runtime.spawn(async move {
        let _last = last;
        std::future::pending::<()>().await;
    });
    runtime.block_on(yield_now());
    drop(runtime);
    let answer = answer.lock().unwrap().take().expect("answered at once");
    assert_eq!(answer.unwrap_err().kind(), ErrorKind::Unavailable);
}
