//! Runtimes that go.

use crate::support::*;

#[test]
fn a_renewal_under_way_when_its_runtime_goes_is_made_on_the_next() {
    let (backend, locks) = hostile();
    let locks = locks.with_ttl(seconds(18));
    let first = runtime();
    backend.0.renew.next([Act::Hang]);
    let guard = first.block_on(async {
        let guard = locks.lock("a").acquire().await.unwrap();
        while backend.0.renew.asked.load(Ordering::SeqCst) == 0 {
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
    let ttl = seconds(4);
    let locks = locks.with_ttl(ttl);
    let (first, second) = (runtime(), runtime());
    first.block_on(locks.lock("a").acquire()).map(drop).unwrap();
    second.block_on(async {
        let guard = locks.lock("b").acquire().await.unwrap();
        tokio::task::spawn_blocking(move || drop(first)).await.unwrap();
        let lost = timeout(2 * ttl, guard.lost()).await;
        assert!(lost.is_err(), "its own runtime lives: {lost:?}");
    });
}

#[test]
fn an_acquire_while_another_runtime_goes_has_a_keeper() {
    let server = MemoryBackend::new();
    let locks = Locker::new(server.clone());
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
            let ended = timeout(seconds(5), watch.ended()).await;
            assert!(ended.is_ok(), "nobody released it in round {round}");
        });
        going.join().unwrap();
    }
}

#[test]
fn a_release_that_was_trying_when_its_runtime_went_is_made_on_the_next() {
    let (backend, locks) = hostile();
    let locks = locks.with_ttl(seconds(60));
    let first = runtime();
    backend.0.release.next([Act::Fail; 4]);
    first.block_on(async {
        let guard = locks.lock("a").acquire().await.unwrap();
        let release = tokio::spawn(guard.release());
        while backend.0.release.asked.load(Ordering::SeqCst) < 2 {
            sleep(Duration::from_millis(1)).await;
        }
        drop(release);
    });
    drop(first);
    runtime().block_on(async {
        locks.lock("b").acquire().await.unwrap().release().await.unwrap();
        let freed = async {
            while backend.is_held("a").await {
                sleep(Duration::from_millis(5)).await;
            }
        };
        assert!(timeout(seconds(5), freed).await.is_ok(), "left to its ttl of a minute");
    });
}

#[test]
fn a_background_release_that_took_effect_before_its_runtime_went_is_no_loss() {
    let (backend, locks) = hostile();
    let first = runtime();
    backend.0.release.next([Act::DoThenHang]);
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
    backend.0.release.next([Act::Fail]);
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
    std::thread::spawn(move || GUARD.with(|slot| *slot.borrow_mut() = Some(guard)))
        .join()
        .unwrap();
    let again = runtime.block_on(locks.lock("a").try_acquire()).unwrap();
    assert!(again.is_some());
}
