//! From async to blocking and back.

use std::thread;
use std::time::Duration;

use lock_core::backend::{DistributedLock, Mode};
use lock_core::{HoldState, Locker, MemoryBackend, Release};
use tokio::runtime::{Builder, Runtime};

use super::{PATIENCE, two};
use crate::scripted::{Request, Scripted};

fn current_thread() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

#[test]
fn a_guard_that_turned_blocking_is_renewed_after_its_runtime_has_gone() {
    let backend = Scripted::new(MemoryBackend::new().capabilities(), 1);
    let locks = Locker::new(backend.clone()).with_ttl(Duration::from_secs(9));
    let runtime = current_thread();
    let guard = runtime.block_on(locks.lock("a").acquire()).unwrap();
    let guard = guard.into_blocking().unwrap();
    drop(runtime);
    while backend.count(Request::Renew) == 0 {
        guard.check().unwrap();
        thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(guard.release().unwrap(), Release::Released);
}

#[tokio::test]
async fn a_guard_goes_to_async_and_back() {
    let (locks, elsewhere) = two();
    let guard = locks.lock("a").acquire().unwrap();
    let (token, watch) = (guard.token(), guard.watch());
    let guard = guard.into_async();
    assert_eq!(guard.run(async { 7 }).await, Ok(7));
    let guard = guard.into_blocking().unwrap();
    assert_eq!((guard.token(), guard.state()), (token, HoldState::Held));
    guard.into_async().release().await.unwrap();
    assert_eq!(watch.state(), HoldState::Released);
    assert!(!elsewhere.status("a").unwrap().is_held());
}

#[tokio::test]
async fn async_and_blocking_callers_of_one_locker_share_its_queue() {
    let locks = Locker::new(MemoryBackend::new());
    let blocking = locks.blocking();
    let held = locks.lock("a").acquire().await.unwrap();
    assert!(blocking.lock("a").try_acquire().unwrap().is_none());
    let lock = blocking.lock("a");
    let waiting = tokio::task::spawn_blocking(move || lock.with_within(PATIENCE, |held| held.token()));
    let token = held.token();
    held.release().await.unwrap();
    assert!(waiting.await.unwrap().unwrap() > token);
    blocking.shutdown().unwrap();
    assert!(blocking.to_async().lock("a").acquire().await.is_err());
}

#[tokio::test]
async fn an_upgradable_guard_goes_both_ways() {
    let (locks, _) = two();
    let guard = locks.rw_lock("a").upgradable().acquire().unwrap();
    let mut guard = guard.into_async();
    guard.upgrade().await.unwrap();
    let mut guard = guard.into_blocking().unwrap();
    assert_eq!(guard.mode(), Mode::Exclusive);
    guard.downgrade().unwrap();
    assert_eq!(guard.mode(), Mode::Shared);
    guard.release().unwrap();
}
