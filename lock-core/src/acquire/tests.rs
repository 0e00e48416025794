//! Upgradable holds in the lines of their name, and what an acquire costs.

use std::time::Duration;

use crate::backend::Mode;
use crate::background::keeper::LOOKS;
use crate::error::ErrorKind;
use crate::{Guarantee, Lock, Locker, MemoryBackend, ReentryKey, Release};

fn upgradable(locks: &Locker) -> Lock {
    locks.lock("a").with_mode(Ok(Mode::Upgradable))
}

#[tokio::test(start_paused = true)]
async fn an_upgradable_hold_keeps_its_turn_and_is_not_handed_over() {
    let locks = Locker::new(MemoryBackend::new());
    let first = upgradable(&locks).acquire().await.unwrap();
    assert!(upgradable(&locks).try_acquire().await.unwrap().is_none());
    let second = tokio::spawn({
        let lock = upgradable(&locks);
        async move { lock.acquire().await }
    });
    tokio::time::sleep(Duration::from_secs(1)).await;
    let waiting = locks.status("a").await.unwrap().waiting;
    assert_eq!(waiting, Some(0), "behind the process's own hold");
    let reading = locks.rw_lock("a").read().acquire().await.unwrap();
    assert_ne!(reading.token(), first.token());
    first.release().await.unwrap();
    let second = second.await.unwrap().unwrap();
    assert!(second.token() > reading.token());
    drop(second);
    let third = upgradable(&locks).try_acquire().await.unwrap();
    assert!(third.is_some(), "a try after a drop");
}

#[tokio::test(start_paused = true)]
async fn an_upgradable_hold_serves_the_readers_of_its_key() {
    let locks = Locker::new(MemoryBackend::new());
    let key = ReentryKey::new();
    let with_key = |mode| locks.lock("a").with_mode(Ok(mode)).reentrant(&key);
    let outer = with_key(Mode::Upgradable).acquire().await.unwrap();
    for mode in [Mode::Shared, Mode::Upgradable] {
        let inner = with_key(mode).acquire().await.unwrap();
        assert_eq!(inner.token(), outer.token());
        assert_eq!(inner.release().await.unwrap(), Release::StillShared);
    }
    let error = with_key(Mode::Exclusive).acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Misconfigured);
    outer.release().await.unwrap();
    let reading = with_key(Mode::Shared).acquire().await.unwrap();
    let error = with_key(Mode::Upgradable).acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Misconfigured);
    reading.release().await.unwrap();
    let _writing = with_key(Mode::Exclusive).acquire().await.unwrap();
    let error = with_key(Mode::Upgradable).acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Misconfigured);
}

/// Each look is a system call.
#[tokio::test]
async fn an_acquire_looks_once_in_which_process_it_is() {
    let plain = Locker::new(MemoryBackend::new());
    for locks in [plain.clone(), plain.require([Guarantee::Fifo])] {
        let before = LOOKS.get();
        let guard = locks.lock("a").acquire().await.unwrap();
        assert_eq!(LOOKS.get() - before, 1);
        guard.release().await.unwrap();
    }
}
