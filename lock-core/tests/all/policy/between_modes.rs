//! Passes within a process that waits in other modes too.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use lock_core::Locker;
use tokio::task::yield_now;
use tokio::time::{advance, sleep};

use super::scripted;
use crate::scripted::Pass;

const MOMENT: Duration = Duration::from_millis(1);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wanted {
    Write,
    Read,
    Upgrade,
    Permit,
}

async fn settle() {
    for _ in 0..30 {
        yield_now().await;
    }
}

/// Has the lock for a moment, and notes that.
async fn take_turn(locks: Locker, wanted: Wanted, order: Arc<Mutex<Vec<Wanted>>>) {
    let note = async || {
        order.lock().unwrap().push(wanted);
        sleep(MOMENT).await;
    };
    match wanted {
        Wanted::Write => {
            let _guard = locks.lock("a").acquire().await.unwrap();
            note().await;
        }
        Wanted::Read => {
            let _guard = locks.rw_lock("a").read().acquire().await.unwrap();
            note().await;
        }
        Wanted::Upgrade => {
            let _guard = locks.rw_lock("a").upgradable().acquire().await.unwrap();
            note().await;
        }
        Wanted::Permit => {
            let _guard = locks.semaphore("a", 2).permits(1).acquire().await.unwrap();
            note().await;
        }
    }
}

/// The server's queue decides between the modes of one process: sixteen passes are not before a reader that waits there.
#[tokio::test(start_paused = true)]
async fn a_release_yields_to_the_processs_own_request_in_another_mode() {
    for pass in [Pass::AsItIs, Pass::Never] {
        for other in [Wanted::Read, Wanted::Upgrade, Wanted::Permit] {
            let (backend, locks) = scripted();
            backend.pass(pass);
            let guard = locks.lock("a").acquire().await.unwrap();
            let order = Arc::default();
            let mut tasks = Vec::new();
            for wanted in [Wanted::Write, Wanted::Write, other, Wanted::Write] {
                tasks.push(tokio::spawn(take_turn(locks.clone(), wanted, Arc::clone(&order))));
                settle().await;
            }
            sleep(MOMENT).await;
            guard.release().await.unwrap();
            for task in tasks {
                task.await.unwrap();
            }
            let order = order.lock().unwrap();
            assert_eq!(*order, [other, Wanted::Write, Wanted::Write, Wanted::Write], "{pass:?}");
        }
    }
}

/// A try in another mode waits for nothing, and stops no pass.
#[tokio::test(start_paused = true)]
async fn a_try_in_another_mode_stops_no_pass() {
    let (backend, locks) = scripted();
    backend.pass(Pass::AsItIs);
    let first = locks.lock("a").acquire().await.unwrap();
    let next = tokio::spawn({
        let lock = locks.lock("a");
        async move { lock.acquire().await.unwrap() }
    });
    settle().await;
    assert!(locks.rw_lock("a").read().try_acquire().await.unwrap().is_none());
    advance(MOMENT).await;
    backend.sent();
    first.release().await.unwrap();
    let _next = next.await.unwrap();
    assert_eq!(backend.sent(), []);
}
