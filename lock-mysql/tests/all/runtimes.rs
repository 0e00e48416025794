//! Runtimes that end, that nobody drives, and futures that are dropped with them.

use std::future::{Future, pending, poll_fn};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::task::Poll;
use std::time::Duration;

use futures_util::FutureExt;
use lock_core::backend::request::RequestControl;
use lock_core::backend::{AcquireRequest, Attempt, DistributedLock, Hold, ReleaseOptions, ReleaseOutcome};
use lock_mysql::RowLockBackend;
use tokio::runtime::{Builder, Runtime};
use tokio::task::coop;
use tokio::time::{Instant, timeout};

use crate::support::proxy::Proxy;
use crate::support::*;

fn current_thread() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

fn multi_thread() -> Runtime {
    Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap()
}

fn how() -> ReleaseOptions {
    ReleaseOptions::default()
}

/// Polls it for a moment, and keeps it.
fn begin<T>(runtime: &Runtime, future: &mut (impl Future<Output = T> + Unpin)) {
    runtime.block_on(async {
        let moment = timeout(Duration::from_millis(100), future).await;
        assert!(moment.is_err(), "it was to wait");
    });
}

#[testbed::test]
fn a_runtime_that_nobody_drives_blocks_nobody() {
    let (main, idle) = (multi_thread(), current_thread());
    let (fixture, proxy) = main.block_on(async {
        let fixture = Fixture::shared().await;
        let proxy = Proxy::of(&fixture).await;
        (fixture, proxy)
    });
    let (backend, other) = (proxy.patient(&fixture), fixture.backend());
    let mut observer = main.block_on(fixture.observer());
    let taken = main.block_on(grant(&other, "taken", secs(60)));

    // It leaves a hold, an idle connection, a wait, and a request half-way, all over its own connections.
    let held = idle.block_on(async {
        let held = grant(&backend, "held", secs(60)).await;
        grant(&backend, "spare", secs(60)).await.release().await;
        held
    });
    let (request, _control) = options("taken", secs(60)).start();
    let mut waiting = Box::pin(backend.acquire(&request));
    begin(&idle, &mut waiting);
    proxy.stall();
    let (known, unknown) = (name("held"), name("unknown"));
    let mut asking = Box::pin(backend.status(&known));
    let mut trying = Box::pin(backend.status(&unknown));
    begin(&idle, &mut asking);
    begin(&idle, &mut trying);
    proxy.heal();

    main.block_on(async {
        assert!(soon("answered", backend.status(&known)).await.unwrap().is_held());
        assert!(try_once(&backend, "held").await.is_err());
        soon("granted", try_once(&backend, "spare"))
            .await
            .expect("it is free")
            .release()
            .await;
        let released = soon("released", held.hold.release(how())).await.unwrap();
        assert_eq!(released, ReleaseOutcome::Released);
        assert!(!observer.is_locked("held").await);
        drop(waiting);
        let again = tokio::spawn({
            let (backend, request) = (backend.clone(), request.clone());
            async move { backend.acquire(&request).await.unwrap() }
        });
        taken.release().await;
        assert!(matches!(soon("granted", again).await.unwrap(), Attempt::Granted(..)));
        soon("undone", backend.abandon(&request)).await.unwrap();
        assert!(!observer.is_locked("taken").await);
    });
    drop((asking, trying));
}

#[testbed::test]
fn connections_stay_with_their_runtime() {
    let (main, runtimes) = (multi_thread(), [current_thread(), current_thread()]);
    let fixture = main.block_on(Fixture::shared());
    let mut observer = main.block_on(fixture.observer());
    let backend = fixture.backend();
    let mut used = [const { Vec::new() }; 2];
    for _ in 0..3 {
        for (runtime, used) in runtimes.iter().zip(&mut used) {
            let granted = runtime.block_on(grant(&backend, "a", secs(60)));
            used.push(main.block_on(observer.holder("a")).unwrap());
            assert_eq!(runtime.block_on(granted.release()), ReleaseOutcome::Released);
        }
    }
    for used in &mut used {
        used.dedup();
        assert_eq!(used.len(), 1, "{used:?}");
    }
}

/// The control connection of a runtime ends while it monitors nothing, and another runtime makes one.
#[testbed::test]
fn an_idle_connection_is_monitored_after_its_control_connection_has_ended() {
    let (main, [used, other]) = (multi_thread(), [current_thread(), current_thread()]);
    let (fixture, proxy) = main.block_on(async {
        let fixture = Fixture::own().await;
        let proxy = Proxy::of(&fixture).await;
        (fixture, proxy)
    });
    // It waits for one answer until that time is over, and for all others for less.
    let backend = proxy.impatient(&fixture, secs(6));
    let mut observer = main.block_on(fixture.observer());
    let idle = used.block_on(async {
        let granted = grant(&backend, "a", secs(600)).await;
        let idle = observer.holder("a").await;
        granted.release().await;
        // A question without an answer ends the control connection.
        proxy.stall();
        assert!(backend.status(&name("a")).await.is_err());
        proxy.heal();
        let others = "SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE USER='app' AND ID<>CONNECTION_ID()";
        until("ended", async || observer.number(others).await == 1).await;
        idle
    });
    other.block_on(async { grant(&backend, "b", secs(600)).await.release().await });
    used.block_on(async {
        let granted = grant(&backend, "a", secs(600)).await;
        assert_eq!(observer.holder("a").await, idle, "it is the same connection");
        observer.kill_holder("a").await;
        // Sooner than the connection asks by itself.
        let lost = timeout(secs(15), granted.request.lease().ended()).await;
        assert!(lost.is_ok(), "nobody notices the loss");
    });
}

#[testbed::test]
fn idle_connections_of_other_runtimes_make_room() {
    let (main, runtimes) = (multi_thread(), [current_thread(), current_thread()]);
    let fixture = main.block_on(Fixture::shared());
    let backend = RowLockBackend::new(fixture.config().with_max_connections(1)).unwrap();
    for _ in 0..3 {
        for runtime in &runtimes {
            runtime.block_on(async { grant(&backend, "a", secs(60)).await.release().await });
        }
    }
}

#[testbed::test]
fn runtimes_that_come_and_go_fail_nobody() {
    let main = multi_thread();
    let fixture = main.block_on(Fixture::shared());
    let backend = fixture.backend();
    let (stop, gone) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let others = std::thread::spawn({
        let (backend, stop, gone) = (backend.clone(), stop.clone(), gone.clone());
        move || {
            for number in 0.. {
                if stop.load(Ordering::Relaxed) {
                    return;
                }
                let runtime = current_thread();
                let kept = runtime.block_on(async {
                    let name = format!("other {number}");
                    grant(&backend, &name, secs(60)).await.release().await;
                    grant(&backend, &name, secs(60)).await
                });
                drop(runtime);
                drop(kept);
                gone.fetch_add(1, Ordering::Relaxed);
            }
        }
    });
    main.block_on(async {
        let start = Instant::now();
        // On a busy machine until some have gone.
        while start.elapsed() < secs(3) || gone.load(Ordering::Relaxed) < 2 && start.elapsed() < PATIENCE {
            grant(&backend, "mine", secs(60)).await.release().await;
        }
    });
    stop.store(true, Ordering::Relaxed);
    others.join().unwrap();
    assert!(gone.load(Ordering::Relaxed) > 1);
}

/// What is asked of a runtime while it shuts down: when it drops this.
struct LastWords {
    backend: RowLockBackend,
    unused: RowLockBackend,
    hold: Arc<dyn Hold>,
    waiting: (AcquireRequest, RequestControl),
    tell: mpsc::Sender<String>,
}

impl Drop for LastWords {
    fn drop(&mut self) {
        polled("release", self.hold.release(how()));
        polled("abandon", self.backend.abandon(&self.waiting.0));
        polled("acquire again", self.backend.acquire(&self.waiting.0));
        let (request, _control) = options("another", secs(60)).start();
        polled("acquire", self.backend.acquire(&request));
        let (request, _control) = options("unused", secs(60)).start();
        let refused = polled("first acquire", self.unused.acquire(&request)).expect("an answer at once");
        let error = refused.unwrap_err();
        assert!(error.is_not_executed() && error.is_retryable());
        self.tell.send(error.to_string()).unwrap();
    }
}

/// Its answer, if it has one at once.
fn polled<T>(what: &str, future: impl Future<Output = T>) -> Option<T> {
    println!("{what}");
    let mut future = pin!(coop::unconstrained(future));
    (0..100).find_map(|_| future.as_mut().now_or_never())
}

#[testbed::test]
fn a_runtime_that_shuts_down_refuses_at_once() {
    let main = multi_thread();
    let fixture = main.block_on(Fixture::shared());
    let taken = main.block_on(grant(&fixture.backend(), "taken", secs(60)));
    for (kind, new) in [current_thread, multi_thread].into_iter().enumerate() {
        for round in 0..5 {
            let runtime = new();
            let (backend, unused) = (fixture.backend(), fixture.backend());
            let (tell, told) = mpsc::channel();
            runtime.block_on(async {
                // The server may take a moment to notice that the hold of the last round has ended.
                let hold = grant(&backend, &format!("held {kind} {round}"), secs(60)).await.hold;
                grant(&backend, "spare", secs(60)).await.release().await;
                let waiting = options("taken", secs(60)).start();
                let asking = tokio::spawn({
                    let (backend, request) = (backend.clone(), waiting.0.clone());
                    async move { backend.acquire(&request).await }
                });
                until("told", || async { waiting.0.last_busy().is_some() }).await;
                let last_words = LastWords {
                    backend,
                    unused,
                    hold,
                    waiting,
                    tell,
                };
                tokio::spawn(async move {
                    let _last_words = last_words;
                    pending::<()>().await;
                });
                tokio::task::yield_now().await;
                drop(asking);
            });
            // In a thread of its own: one that spins would never end.
            let ending = std::thread::spawn(move || drop(runtime));
            let said = told.recv_timeout(PATIENCE).expect("no end of the runtime");
            assert!(said.contains("shutting down"), "{said}");
            ending.join().unwrap();
        }
    }
    main.block_on(taken.release());
}

/// Polls it so many times; `None` if it was dropped then.
async fn for_polls<T>(polls: u32, future: impl Future<Output = T>) -> Option<T> {
    let (mut future, mut polled) = (pin!(future), 0);
    poll_fn(|context| match future.as_mut().poll(context) {
        Poll::Ready(answer) => Poll::Ready(Some(answer)),
        Poll::Pending => {
            polled += 1;
            if polled == polls {
                Poll::Ready(None)
            } else {
                Poll::Pending
            }
        }
    })
    .await
}

#[testbed::test]
async fn what_was_dropped_half_way_can_be_called_again() {
    let fixture = Fixture::shared().await;
    let (other, mut observer) = (fixture.backend(), fixture.observer().await);
    let used = fixture.backend();
    for polls in 1..=12 {
        for backend in [fixture.backend(), used.clone()] {
            let (request, _control) = options("a", secs(60)).waits(false).start();
            let attempt = match for_polls(polls, backend.acquire(&request)).await {
                Some(attempt) => attempt,
                None => backend.acquire(&request).await,
            };
            let Attempt::Granted(hold, _) = attempt.unwrap() else {
                panic!("it is free");
            };
            let released = match for_polls(polls, hold.release(how())).await {
                Some(released) => released,
                None => hold.release(how()).await,
            };
            assert_eq!(released.unwrap(), ReleaseOutcome::Released, "{polls} polls");
            assert!(!observer.is_locked("a").await);
        }
        // A place and its undoing.
        let taken = grant(&other, "a", secs(60)).await;
        let (request, _control) = options("a", secs(60)).start();
        for _ in 0..3 {
            // Nothing polls one that waits.
            let polled = timeout(Duration::from_millis(50), for_polls(polls, used.acquire(&request))).await;
            assert!(polled.ok().flatten().is_none());
        }
        let waiting = tokio::spawn({
            let (used, request) = (used.clone(), request.clone());
            async move { used.acquire(&request).await.unwrap() }
        });
        taken.release().await;
        assert!(matches!(soon("granted", waiting).await.unwrap(), Attempt::Granted(..)));
        for_polls(polls, used.abandon(&request)).await;
        used.abandon(&request).await.unwrap();
        assert!(!observer.is_locked("a").await);
        assert_eq!(observer.waiters().await, 0);
    }
}
