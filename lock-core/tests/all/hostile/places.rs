//! Places that waiters share.

use super::support::*;

fn waiting(lock: lock_core::Lock) -> tokio::task::JoinHandle<Result<lock_core::Guard>> {
    tokio::spawn(async move { lock.acquire().await })
}

async fn settle() {
    for _ in 0..20 {
        yield_now().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_panic_in_the_first_waiter_s_acquire_does_not_leave_the_others_waiting() {
    for act in [Answer::Panic, Answer::DoThenPanic] {
        let (backend, locks) = hostile();
        backend.next(Request::Acquire, [act]);
        let first = waiting(locks.lock("a"));
        let second = waiting(locks.lock("a"));
        assert!(first.await.unwrap_err().is_panic());
        let second = timeout(seconds(60), second).await;
        assert!(second.is_ok(), "{act:?}: the name is free");
    }
}

#[test]
fn a_place_outlives_the_runtime_of_its_first_waiter() {
    let (backend, locks) = hostile();
    backend.server().hold_elsewhere("a", seconds(2)).unwrap();
    let (first, second) = (runtime(), runtime());
    first.block_on(async {
        let place = waiting(locks.lock("a"));
        while backend.waiting("a").await == 0 {
            assert!(!place.is_finished(), "it was held for two seconds");
            yield_now().await;
        }
    });
    let lock = locks.lock("a");
    let next = second.spawn(async move { lock.acquire().await });
    second.block_on(settle());
    drop(first);
    // It expires after two seconds.
    let next = second.block_on(async { happens("the grant", next).await });
    let guard = next.expect("no panic of another runtime's").unwrap();
    second.block_on(guard.release()).unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_minimum_hold_begins_with_the_hold_and_not_with_the_terms_of_one_who_left() {
    let (backend, locks) = hostile();
    backend.next(Request::Acquire, [Answer::DoThenWait(seconds(1))]);
    let first = waiting(locks.lock("a"));
    settle().await;
    let second = waiting(locks.lock("a").hold_at_least(seconds(600)));
    settle().await;
    first.abort();
    let guard = timeout(seconds(60), second).await;
    assert!(guard.is_ok(), "granted already; nobody has ever held it");
}

#[tokio::test(start_paused = true)]
async fn a_change_of_terms_keeps_the_position() {
    let (backend, locks) = hostile();
    let locks = locks.with_passes(0);
    backend.next(Request::Acquire, [Answer::DoThenWait(seconds(1))]);
    let first = waiting(locks.lock("a"));
    settle().await;
    let second = waiting(locks.lock("a").ttl(seconds(20)));
    settle().await;
    let other = Locker::new(backend.clone());
    let elsewhere = waiting(other.lock("a"));
    settle().await;
    first.abort();
    let guard = timeout(seconds(2), second).await;
    assert!(guard.is_ok(), "it was before the one elsewhere");
    assert!(!elsewhere.is_finished());
}

/// Gives up in mid-connect with an error, as the real backends do, and reads the terms at each send.
#[derive(Clone, Debug)]
struct SlowToConnect(MemoryBackend, Instant);

#[async_trait]
impl DistributedLock for SlowToConnect {
    fn capabilities(&self) -> Capabilities {
        self.0.capabilities()
    }
    async fn connect(&self) -> Result<()> {
        Ok(())
    }
    async fn acquire(&self, request: &AcquireRequest) -> Result<Attempt> {
        tokio::select! {
            () = tokio::time::sleep_until(self.1) => {}
            () = request.given_up() => return Err(Error::new(ErrorKind::Unavailable, "given up while connecting")),
        }
        self.0.acquire(request).await
    }
    async fn abandon(&self, request: &AcquireRequest) -> Result<()> {
        self.0.abandon(request).await
    }
    async fn status(&self, name: &LockName) -> Result<LockStatus> {
        self.0.status(name).await
    }
}

#[tokio::test(start_paused = true)]
async fn the_first_one_s_short_deadline_while_connecting_is_not_the_others() {
    let backend = SlowToConnect(MemoryBackend::new(), Instant::now() + seconds(3));
    let locks = Locker::new(backend);
    let lock = locks.lock("a");
    let short = tokio::spawn(async move { lock.acquire_within(seconds(1)).await });
    settle().await;
    let long = waiting(locks.lock("a"));
    assert!(short.await.unwrap().is_err());
    let long = long.await.unwrap();
    assert!(long.is_ok(), "it waits for ever, and connecting takes 3 s: {long:?}");
}

#[tokio::test(start_paused = true)]
async fn a_try_whose_time_is_up_while_connecting_does_not_fail_those_who_wait() {
    let backend = SlowToConnect(MemoryBackend::new(), Instant::now() + seconds(3));
    let locks = Locker::new(backend).with_operation_timeout(seconds(1));
    let lock = locks.lock("a");
    let short = tokio::spawn(async move { lock.try_acquire().await });
    settle().await;
    let long = waiting(locks.lock("a"));
    assert!(short.await.unwrap().is_err());
    let long = long.await.unwrap();
    assert!(long.is_ok(), "it waits for ever, and connecting takes 3 s: {long:?}");
}

#[tokio::test(start_paused = true)]
async fn the_terms_of_one_who_left_do_not_stay_with_a_hold_whose_grant_got_lost() {
    let (backend, locks) = hostile();
    locks.connect().await.unwrap();
    backend.next(Request::Acquire, [Answer::DoThenFail]);
    let first = waiting(locks.lock("a").ttl(seconds(3600)).label("first"));
    let second = waiting(locks.lock("a").ttl(seconds(9)).label("second"));
    while !backend.is_held("a").await {
        yield_now().await;
    }
    first.abort();
    let _guard = second.await.unwrap().unwrap();
    let status = locks.status("a").await.unwrap();
    let holder = &status.holders[0];
    assert_eq!(holder.label.as_deref(), Some("second"));
    assert!(holder.expires_in <= Some(seconds(9)), "{:?}", holder.expires_in);
}

#[tokio::test(start_paused = true)]
async fn an_acquire_is_undone_for_as_long_as_any_terms_of_it_may_live() {
    let (backend, locks) = hostile();
    locks.connect().await.unwrap();
    backend.next(Request::Acquire, [Answer::DoThenWait(seconds(1))]);
    let first = waiting(locks.lock("a").ttl(seconds(3600)));
    settle().await;
    let second = waiting(locks.lock("a").ttl(seconds(2)));
    settle().await;
    first.abort();
    settle().await;
    second.abort();
    settle().await;
    backend.server().set_available(false);
    sleep(seconds(20)).await;
    backend.server().set_available(true);
    sleep(seconds(5)).await;
    assert!(!backend.is_held("a").await, "left for an hour");
}

#[tokio::test(start_paused = true)]
async fn twenty_thousand_waiters_leave_and_cost_one_place() {
    let (backend, locks) = hostile();
    backend.server().hold_elsewhere("a", seconds(600)).unwrap();
    let lock = locks.lock("a");
    for dropped_in_order in [true, false] {
        let mut waiters: VecDeque<_> = (0..20_000).map(|_| Box::pin(lock.acquire())).collect();
        for waiter in &mut waiters {
            assert!(waiter.as_mut().now_or_never().is_none());
        }
        for _ in 0..10 {
            let _ = waiters[0].as_mut().now_or_never();
            yield_now().await;
        }
        assert_eq!(backend.waiting("a").await, 1);
        while let Some(waiter) = match dropped_in_order {
            true => waiters.pop_front(),
            false => waiters.pop_back(),
        } {
            drop(waiter);
        }
        sleep(seconds(1)).await;
        assert_eq!(backend.waiting("a").await, 0);
    }
    // All at once, by their deadline.
    let waiters = (0..20_000).map(|_| lock.acquire_within(seconds(1)));
    for answer in futures_util::future::join_all(waiters).await {
        assert_eq!(answer.unwrap_err().kind(), ErrorKind::TimedOut);
    }
    locks.shutdown().await.unwrap();
    assert_eq!(backend.waiting("a").await, 0);
}

/// How long this thread has worked, whatever else the machine does.
#[cfg(any(target_os = "linux", target_os = "android"))]
fn worked() -> Duration {
    use rustix::time::{ClockId, clock_gettime};
    clock_gettime(ClockId::ThreadCPUTime).try_into().unwrap()
}

/// Elsewhere the time that has passed has to do.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn worked() -> Duration {
    static START: std::sync::LazyLock<std::time::Instant> = std::sync::LazyLock::new(std::time::Instant::now);
    START.elapsed()
}

#[tokio::test(start_paused = true)]
async fn time_for_a_waiter_does_not_grow_with_their_number() {
    // Others that use the processor's caches make many waiters dearer than few.
    in_some_run("many waiters are dearer than few", async || {
        let times = times_for_a_waiter().await;
        if times[1] < times[0] * 6 { Ok(()) } else { Err(times) }
    })
    .await;
}

/// The time for one of few waiters, and for one of many.
async fn times_for_a_waiter() -> Vec<Duration> {
    let mut times = Vec::new();
    for number in [4_000, 64_000] {
        let locks = Locker::new(MemoryBackend::new());
        let lock = locks.lock("a");
        let first = lock.acquire().await.unwrap();
        let waiters: Vec<_> = (0..number)
            .map(|_| {
                let lock = lock.clone();
                tokio::spawn(async move { lock.acquire().await.unwrap().release().await.unwrap() })
            })
            .collect();
        settle().await;
        let started = worked();
        first.release().await.unwrap();
        for waiter in waiters {
            waiter.await.unwrap();
        }
        times.push((worked() - started) / number);
    }
    eprintln!("per waiter: {times:?}");
    times
}

/// A waker that is the last to keep its task, with all that the task has.
struct Owner(#[expect(dead_code, reason = "only its drop counts")] Mutex<Option<lock_core::Guard>>);

impl std::task::Wake for Owner {
    fn wake(self: Arc<Self>) {}
}

#[test]
fn a_waker_may_be_the_last_that_keeps_a_guard() {
    let (done, finished) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        runtime().block_on(async {
            let locks = Locker::new(MemoryBackend::new());
            let guard = locks.lock("a").acquire().await.unwrap();
            let other = locks.lock("b").acquire().await.unwrap();
            let waker = std::task::Waker::from(Arc::new(Owner(Mutex::new(Some(other)))));
            let lock = locks.lock("a");
            let mut waiter = Box::pin(lock.acquire());
            assert!(
                waiter
                    .as_mut()
                    .poll(&mut std::task::Context::from_waker(&waker))
                    .is_pending()
            );
            drop(waiter);
            drop(waker);
            guard.release().await.unwrap();
        });
        done.send(()).unwrap();
    });
    receives("that no guard is dropped under the queues' lock", &finished);
}
