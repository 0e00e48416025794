//! One runtime takes the background work over from another, which goes on at the worst of moments. All is on paused time:
//! each runtime has a thread and a clock of its own, and is driven when the test says so.

use std::sync::mpsc;

use tokio::runtime::Runtime;
use tokio::sync::Notify;

use super::support::*;

/// A runtime on a thread of its own.
#[derive(Clone)]
struct Driver(mpsc::Sender<Work>);

type Work = Box<dyn FnOnce(&Runtime) + Send>;

impl Driver {
    fn new() -> Self {
        let (sender, receiver) = mpsc::channel::<Work>();
        std::thread::spawn(move || {
            let mut runtime = tokio::runtime::Builder::new_current_thread();
            let runtime = runtime.enable_time().start_paused(true).build().unwrap();
            receiver.into_iter().for_each(|work| work(&runtime));
        });
        Self(sender)
    }

    /// Drives it until the work is done, which the receiver hears.
    fn start<T: Send + 'static>(&self, work: impl Future<Output = T> + Send + 'static) -> mpsc::Receiver<T> {
        let (sender, receiver) = mpsc::channel();
        let work = move |runtime: &Runtime| drop(sender.send(runtime.block_on(work)));
        self.0.send(Box::new(work)).expect("the thread lives as long as this");
        receiver
    }

    fn run<T: Send + 'static>(&self, work: impl Future<Output = T> + Send + 'static) -> T {
        receives("the end of the work: something blocks the runtime", &self.start(work))
    }

    fn pass(&self, time: Duration) {
        self.run(async move { sleep(time).await });
    }
}

/// Both are driven, and their clocks go together.
fn pass(time: Duration, drivers: [&Driver; 2]) {
    const STEP: Duration = Duration::from_millis(50);
    for _ in 0..time.div_duration_f64(STEP) as u32 {
        drivers.iter().for_each(|driver| driver.pass(STEP));
    }
}

fn failure() -> Error {
    Error::new(ErrorKind::Unavailable, "staged failure")
}

fn is_held(backend: &Scripted, name: &'static str, driver: &Driver) -> bool {
    let backend = backend.clone();
    driver.run(async move { backend.is_held(name).await })
}

fn staged() -> (Scripted, Locker, Driver, Driver) {
    let (backend, locks) = hostile();
    // Never closed: a test that fails in a deadlock must not wait for it.
    std::mem::forget(locks.clone());
    (backend, locks, Driver::new(), Driver::new())
}

fn acquire(locks: &Locker, name: &str, driver: &Driver) -> lock_core::Guard {
    let lock = locks.lock(name);
    driver.run(async move { lock.acquire().await }).unwrap()
}

/// Both have a runner, and that of the first one is in charge.
fn enlist(locks: &Locker, drivers: [&Driver; 2]) {
    for driver in drivers {
        let lock = locks.lock("other");
        driver
            .run(async move { lock.acquire().await?.release().await })
            .unwrap();
    }
}

/// Held until the end: a test that fails must not wait for its release.
fn keep(locks: &Locker, name: &str, driver: &Driver) {
    std::mem::forget(acquire(locks, name, driver));
}

/// More than the second one needs to see that the first one does nothing.
const SEES_IT: Duration = Duration::from_secs(3);

impl Driver {
    /// Goes on for so long, unless it comes to wait for the thread that calls this.
    fn try_pass(&self, time: Duration) {
        let passed = self.start(async move { sleep(time).await });
        let _ = passed.recv_timeout(seconds(1));
    }
}

#[test]
fn whoever_waits_behind_an_undo_does_not_wait_for_its_runtime() {
    let (backend, locks, idle, driven) = staged();
    backend.next(Request::Acquire, [Answer::DoThenHang]);
    let lock = locks.lock("a");
    idle.run(async move {
        drop_after(5, lock.acquire()).await;
        // The undoing begins here, and stands still.
        yield_now().await;
        yield_now().await;
    });
    let lock = locks.lock("a");
    let acquired = driven.run(async move { lock.acquire_within(SEES_IT).await });
    assert!(acquired.is_ok(), "{acquired:?}");
}

#[test]
fn a_runner_that_was_replaced_takes_no_more_work() {
    let (backend, locks, first, second) = staged();
    enlist(&locks, [&first, &second]);
    let slow = acquire(&locks, "slow", &first);
    let left = acquire(&locks, "left", &second);
    let has_taken_over = Arc::new(AtomicBool::new(false));
    backend.before(Request::Release, "slow", {
        let (backend, second, has_taken_over) = (backend.clone(), second.clone(), has_taken_over.clone());
        // Nothing else goes on on its runtime meanwhile.
        |_| async move {
            second.pass(SEES_IT);
            has_taken_over.store(!is_held(&backend, "slow", &second), Ordering::SeqCst);
            // Its new runner does not come to it at once.
            second.run(async move { drop(left) });
            Ok(())
        }
    });
    first.run(async move { drop(slow) });
    pass(seconds(1), [&first, &second]);
    assert!(has_taken_over.load(Ordering::SeqCst));
    assert!(!is_held(&backend, "left", &second), "somebody releases it");
    second.run(async move { locks.shutdown().await }).unwrap();
}

#[test]
fn a_hold_may_be_lost_in_a_renewal_while_another_runner_takes_over() {
    let (backend, locks, first, second) = staged();
    enlist(&locks, [&first, &second]);
    keep(&locks, "slow", &first);
    backend.before(Request::Renew, "slow", {
        let second = second.clone();
        |lease| async move {
            second.try_pass(SEES_IT);
            lease.lose(LostCause::NotHeld);
            Err(failure())
        }
    });
    pass(TTL / 3 + seconds(1), [&first, &second]);
    drop(acquire(&locks, "other", &second));
}

#[test]
fn a_renewal_that_was_not_begun_is_the_next_runners() {
    let (backend, locks, first, second) = staged();
    enlist(&locks, [&first, &second]);
    keep(&locks, "earlier", &first);
    pass(seconds(1), [&first, &second]);
    keep(&locks, "slow", &first);
    let late = acquire(&locks, "late", &first);
    // Then the two are due at once.
    backend.before(Request::Renew, "earlier", |_| async {
        tokio::time::advance(TTL / 6).await;
        Err(failure())
    });
    backend.before(Request::Renew, "slow", {
        let second = second.clone();
        |_| async move {
            second.try_pass(TTL / 3);
            Err(failure())
        }
    });
    pass(TTL / 3 - seconds(1), [&first, &second]);
    first.pass(seconds(1) + TTL / 6);
    let left = second.run(async move { late.valid_for() });
    assert!(left > TTL / 2, "renewed by now: {left:?}");
}

#[test]
fn a_runner_that_was_replaced_polls_no_renewal_of_the_next_one() {
    let (backend, locks, first, second) = staged();
    enlist(&locks, [&first, &second]);
    keep(&locks, "renewed twice", &first);
    pass(seconds(1), [&first, &second]);
    keep(&locks, "slow", &first);
    let wake = Arc::new(Notify::new());
    backend.before(Request::Renew, "renewed twice", {
        let wake = wake.clone();
        |_| async move {
            wake.notified().await;
            Err(failure())
        }
    });
    backend.before(Request::Renew, "slow", {
        let (backend, second) = (backend.clone(), second.clone());
        |_| async move {
            wake.notify_waiters();
            backend.next(Request::Renew, [Answer::Hang]);
            second.try_pass(SEES_IT);
            std::future::pending().await
        }
    });
    pass(TTL / 3 + seconds(1), [&first, &second]);
    assert!(backend.count(Request::Renew) > 0, "the second one took over");
    assert_eq!(backend.moved(), 0);
}

/// Whenever the second one looks, and whenever the first one has to.
#[test]
fn a_runner_whose_runtime_is_driven_stays_in_charge() {
    const STEP: Duration = Duration::from_millis(50);
    for steps in 1..=15 {
        let (backend, locks, first, second) = staged();
        enlist(&locks, [&first, &second]);
        for held in [steps, 18] {
            let guard = acquire(&locks, "a", &second);
            pass(held * STEP, [&first, &second]);
            drop(guard);
            pass(STEP, [&first, &second]);
        }
        let released_on = backend.released_on();
        let first = first.run(async { Handle::current().id() });
        assert_eq!(released_on[2..], [first; 2], "after {steps} steps");
    }
}
