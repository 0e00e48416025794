//! Releases with waiters behind them that go wrong.

use super::support::*;

fn waiting(lock: lock_core::Lock) -> tokio::task::JoinHandle<Result<lock_core::Guard>> {
    tokio::spawn(async move { lock.acquire().await })
}

#[tokio::test(start_paused = true)]
async fn a_name_goes_to_the_next_whatever_becomes_of_its_release() {
    for act in [Answer::Fail, Answer::DoThenFail, Answer::Panic, Answer::DoThenPanic] {
        for in_background in [false, true] {
            let (backend, locks) = hostile();
            let guard = locks.lock("a").acquire().await.unwrap();
            let first = guard.token();
            let next = waiting(locks.lock("a").ttl(seconds(600)));
            let after = waiting(locks.lock("a"));
            yield_now().await;
            backend.next(Request::Release, [act]);
            match in_background {
                true => drop(guard),
                false => drop(guard.release().await.unwrap()),
            }
            let second = timeout(seconds(1), next).await.expect("free at once").unwrap().unwrap();
            assert!(second.token() > first);
            second.release().await.unwrap();
            after.await.unwrap().unwrap().release().await.unwrap();
            locks.shutdown().await.unwrap();
            assert!(!backend.is_held("a").await, "{act:?}");
            assert_eq!(backend.alive(), 0, "{act:?}");
            assert_eq!(backend.cut(Request::Release), 0, "never half-way");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn shutdown_waits_for_a_release_that_its_caller_waits_for() {
    let (backend, locks) = hostile();
    let guard = locks.lock("a").acquire().await.unwrap();
    let next = waiting(locks.lock("a"));
    yield_now().await;
    backend.next(Request::Release, [Answer::DoThenWait(seconds(1))]);
    let (shut, released) = tokio::join!(
        async {
            yield_now().await;
            locks.shutdown().await
        },
        guard.release()
    );
    shut.unwrap();
    released.unwrap();
    assert_eq!(next.await.unwrap().unwrap_err().kind(), ErrorKind::ShutDown);
    assert!(
        !backend.is_held("a").await,
        "released and shut down, and the name is taken for the heir that left"
    );
}

#[test]
fn a_release_under_way_when_its_runtime_goes_is_made_on_the_next() {
    for act in [Answer::Hang, Answer::DoThenHang] {
        for in_background in [false, true] {
            let (backend, locks) = hostile();
            let (first, second) = (runtime(), runtime());
            let guard = first.block_on(locks.lock("a").acquire()).unwrap();
            let lock = locks.lock("a").ttl(seconds(600));
            let next = second.spawn(async move { lock.acquire().await });
            second.block_on(yield_now());
            backend.next(Request::Release, [act]);
            first.block_on(async {
                match in_background {
                    true => drop(guard),
                    false => drop(tokio::spawn(guard.release())),
                }
                while backend.count(Request::Release) == 0 {
                    yield_now().await;
                }
                for _ in 0..10 {
                    yield_now().await;
                }
            });
            drop(first);
            let what = format!("{act:?} {in_background}: somebody has it");
            let next = second.block_on(async { happens(&what, next).await }).unwrap().unwrap();
            second.block_on(next.release()).unwrap();
            second.block_on(locks.shutdown()).unwrap();
            assert!(!second.block_on(backend.is_held("a")));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn no_more_than_n_in_a_row_pass_a_waiter_elsewhere() {
    for at_most in [0, 1, 3] {
        let (backend, locks) = hostile();
        backend.pass(Pass::AsItIs);
        let locks = locks.with_passes(at_most);
        let guard = locks.lock("a").acquire().await.unwrap();
        let passed = Arc::new(AtomicUsize::new(0));
        let tasks: Vec<_> = (0..20)
            .map(|_| {
                let (lock, passed) = (locks.lock("a"), passed.clone());
                tokio::spawn(async move {
                    let guard = lock.acquire().await.unwrap();
                    passed.fetch_add(1, Ordering::SeqCst);
                    sleep(Duration::from_millis(1)).await;
                    guard.release().await.unwrap();
                })
            })
            .collect();
        let other = Locker::new(backend.clone());
        let elsewhere = waiting(other.lock("a"));
        sleep(Duration::from_millis(1)).await;
        guard.release().await.unwrap();
        let elsewhere = elsewhere.await.unwrap().unwrap();
        assert_eq!(passed.load(Ordering::SeqCst), at_most as usize);
        elsewhere.release().await.unwrap();
        for task in tasks {
            task.await.unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn releases_cuts_and_unknown_outcomes_race_without_loss() {
    let (backend, locks) = hostile();
    // Each repetition begins after a pause, and a release may be unlucky several times: on a busy machine that takes longer than the
    // default timeout.
    let locks = locks.with_operation_timeout(AT_MOST);
    let other = Locker::new(backend.clone())
        .with_ttl(TTL)
        .with_passes(2)
        .with_operation_timeout(AT_MOST);
    locks.connect().await.unwrap();
    other.connect().await.unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let last = Arc::new(AtomicUsize::new(0));
    let trouble = tokio::spawn({
        let (backend, stop, last) = (backend.clone(), stop.clone(), last.clone());
        async move {
            let answers = [Answer::Fail, Answer::DoThenFail, Answer::DoThenPanic, Answer::Panic];
            let (mut number, mut seen) = (0, 1);
            while !stop.load(Ordering::SeqCst) {
                sleep(Duration::from_millis(3)).await;
                // Only once it has gone on: retries must get somewhere.
                if last.load(Ordering::SeqCst) == seen {
                    continue;
                }
                seen = last.load(Ordering::SeqCst);
                number += 1;
                for (request, every, among) in [
                    (Request::Release, 1, 4),
                    (Request::Acquire, 9, 2),
                    (Request::Abandon, 3, 2),
                ] {
                    // No faster than they are used up.
                    if number % every == 0 && !backend.is_scripted(request) {
                        backend.next(request, [answers[number % among]]);
                    }
                }
            }
        }
    });
    let inside = Arc::new(AtomicUsize::new(0));
    let tasks: Vec<_> = (0..12_usize)
        .map(|task| {
            let lock = [&locks, &other][task % 2]
                .lock("a")
                .ttl(LONG_TTL + seconds(task as u64 % 3));
            let (inside, last) = (inside.clone(), last.clone());
            tokio::spawn(async move {
                for turn in 0..100 {
                    let guard = match (turn + task) % 3 {
                        0 => drop_after((turn * 7 + task * 3) % 23, lock.acquire()).await,
                        1 => Some(lock.acquire().await),
                        _ => timeout(Duration::from_millis(turn as u64 % 5), lock.acquire())
                            .await
                            .ok(),
                    };
                    let Some(guard) = guard else { continue };
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
                        _ => drop(drop_after(turn % 9, guard.release()).await),
                    }
                }
            })
        })
        .collect();
    // A busy machine may take minutes for all turns, and not for one.
    let have_ended = || tasks.iter().all(|task| task.is_finished());
    while !have_ended() {
        let before = last.load(Ordering::SeqCst);
        eventually("somebody's turn, or the end of all", async || {
            have_ended() || last.load(Ordering::SeqCst) != before
        })
        .await;
    }
    for task in tasks {
        task.await.unwrap();
    }
    stop.store(true, Ordering::SeqCst);
    trouble.await.unwrap();
    backend.clear();
    locks.shutdown().await.unwrap();
    other.shutdown().await.unwrap();
    assert!(!backend.is_held("a").await);
    assert_eq!(backend.waiting("a").await, 0);
    assert_eq!(backend.alive(), 0);
}
