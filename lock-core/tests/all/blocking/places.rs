//! Calls from places where other libraries panic or hang.

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Sender, channel};
use std::thread;

use lock_core::Error;
use lock_core::blocking::{Guard, Locker};
use tokio::runtime::Builder;
use tokio::task::spawn_blocking;

use testbed_steady::blocking::receives;
use testbed_steady::happens;

use super::{PATIENCE, two};

/// What a thread may do with a locker.
fn use_it(locks: &Locker, elsewhere: &Locker) -> Result<(), Error> {
    locks.connect()?;
    let lock = locks.lock("a");
    let guard = lock.acquire_within(PATIENCE)?;
    assert!(guard.wait_lost(std::time::Duration::from_millis(1))?.is_none());
    guard.on_lost(|lost| panic!("{lost:?}"))?;
    guard.extend(PATIENCE)?;
    assert!(lock.try_acquire()?.is_none());
    drop(guard);
    // Waits for the release.
    elsewhere.lock("a").with_within(PATIENCE, |held| held.check())??;
    assert!(!locks.status("a")?.is_held());
    Ok(())
}

#[tokio::test]
async fn inside_a_task_of_a_current_thread_runtime() {
    let (locks, elsewhere) = two();
    use_it(&locks, &elsewhere).unwrap();
    tokio::spawn(async move { use_it(&locks, &elsewhere) })
        .await
        .unwrap()
        .unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn inside_a_task_of_a_multi_thread_runtime() {
    let (locks, elsewhere) = two();
    use_it(&locks, &elsewhere).unwrap();
    tokio::spawn(async move { use_it(&locks, &elsewhere) })
        .await
        .unwrap()
        .unwrap();
}

#[tokio::test]
async fn in_spawn_blocking() {
    let (locks, elsewhere) = two();
    spawn_blocking(move || use_it(&locks, &elsewhere))
        .await
        .unwrap()
        .unwrap();
}

/// A task whose budget is spent gets no answer from Tokio's channels and timers.
#[tokio::test]
async fn in_a_task_whose_budget_is_spent() {
    let (locks, elsewhere) = two();
    let spent = async {
        while tokio::task::coop::has_budget_remaining() {
            futures_util::future::poll_fn(|context| {
                tokio::task::coop::poll_proceed(context).map(|it| it.made_progress())
            })
            .await;
        }
        use_it(&locks, &elsewhere)
    };
    happens("the end of the calls", spent).await.unwrap();
}

/// Locks something in its drop.
struct LocksInDrop {
    lockers: Option<(Locker, Locker)>,
    tell: Sender<Result<(), String>>,
}

impl LocksInDrop {
    fn new(locks: Locker, elsewhere: Locker, tell: Sender<Result<(), String>>) -> Self {
        let lockers = Some((locks, elsewhere));
        Self { lockers, tell }
    }
}

impl Drop for LocksInDrop {
    fn drop(&mut self) {
        // A panic in the destructor of a thread-local would end the process, and say nothing.
        let lockers = self.lockers.take();
        let used = catch_unwind(AssertUnwindSafe(|| {
            let (locks, elsewhere) = lockers.expect("dropped once");
            use_it(&locks, &elsewhere).map_err(|error| error.to_string())
        }));
        let used = used.unwrap_or_else(|panic| {
            let text = panic.downcast_ref::<String>().cloned();
            Err(text.unwrap_or_else(|| format!("{:?}", panic.downcast_ref::<&str>())))
        });
        // The test has failed where nobody listens.
        let _ = self.tell.send(used);
    }
}

#[test]
fn a_guard_that_is_dropped_in_a_panic_is_released() {
    let (locks, elsewhere) = two();
    let lock = locks.lock("a");
    let panicking = thread::spawn(move || {
        let _guard = lock.acquire().unwrap();
        std::panic::resume_unwind(Box::new("as planned"));
    });
    assert!(panicking.join().is_err());
    elsewhere.lock("a").acquire_within(PATIENCE).unwrap().release().unwrap();
}

#[test]
fn calls_in_a_drop_in_a_panic() {
    let (locks, elsewhere) = two();
    let (tell, told) = channel();
    let panicking = thread::spawn(move || {
        let _locks = LocksInDrop::new(locks, elsewhere, tell);
        std::panic::resume_unwind(Box::new("as planned"));
    });
    assert!(panicking.join().is_err());
    receives("the end of the call", &told).unwrap();
}

thread_local! {
    static IN_DROP: RefCell<Option<LocksInDrop>> = const { RefCell::new(None) };
    static HELD: RefCell<Option<Guard>> = const { RefCell::new(None) };
}

#[test]
fn calls_in_a_destructor_of_a_thread_local() {
    // Destructors run in the reverse order of the first uses, so Tokio's own thread-locals have gone, or are still there.
    for tokio_comes_first in [false, true] {
        let (locks, elsewhere) = two();
        let (tell, told) = channel();
        let use_tokio = || {
            let runtime = Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {});
            // Its own drop is not what is tested.
            std::mem::forget(runtime);
        };
        let ending = thread::spawn(move || {
            if tokio_comes_first {
                use_tokio();
            }
            IN_DROP.set(Some(LocksInDrop::new(locks, elsewhere, tell)));
            if !tokio_comes_first {
                use_tokio();
            }
        });
        match receives("the next event", &told) {
            // The clock of Tokio's feature test-util, which only tests have, lives in one of its thread-locals.
            Err(error) if !tokio_comes_first && error.contains("thread-local variable has been destroyed") => {}
            used => used.unwrap(),
        }
        ending.join().unwrap();
    }
}

#[test]
fn a_guard_in_a_thread_local_is_released_when_its_thread_ends() {
    let (locks, elsewhere) = two();
    let lock = locks.lock("a");
    let ending = thread::spawn(move || HELD.set(Some(lock.acquire().unwrap())));
    ending.join().unwrap();
    elsewhere.lock("a").acquire_within(PATIENCE).unwrap().release().unwrap();
}
