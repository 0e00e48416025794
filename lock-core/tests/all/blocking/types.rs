//! The types that mirror the async ones, each beside others that hold the name.

use std::thread;
use std::time::Duration;

use lock_core::backend::Mode;
use lock_core::blocking::{
    Guard, Lock, Locker, MultiGuard, RwLock, Semaphore, UpgradableGuard, UpgradableLock, acquire_all,
    acquire_all_within, try_acquire_all,
};
use lock_core::{HoldState, MemoryBackend, ReentryKey, Release};
use static_assertions::assert_impl_all;

use super::{PATIENCE, two};

assert_impl_all!(Locker: Clone, Send, Sync);
assert_impl_all!(Lock: Clone, Send, Sync);
assert_impl_all!(RwLock: Clone, Send, Sync);
assert_impl_all!(UpgradableLock: Clone, Send, Sync);
assert_impl_all!(Semaphore: Clone, Send, Sync);
assert_impl_all!(Guard: Send, Sync);
assert_impl_all!(MultiGuard: Send, Sync);
assert_impl_all!(UpgradableGuard: Send, Sync);

#[test]
fn options_reach_the_server() {
    let locks = Locker::new(MemoryBackend::new())
        .with_ttl(Duration::from_secs(20))
        .with_label("the locker's");
    let (one, other) = (locks.lock("a"), locks.lock("b").label("its own").fixed_lease());
    let guards = (one.acquire().unwrap(), other.acquire().unwrap());
    let label = |name| locks.status(name).unwrap().holders[0].label.clone();
    assert_eq!(label("a").as_deref(), Some("the locker's"));
    assert_eq!(label("b").as_deref(), Some("its own"));
    assert_eq!(guards.0.options().ttl, Duration::from_secs(20));
    assert!(guards.1.options().fixed_lease && guards.1.extend(PATIENCE).is_err());
    assert_eq!(one.name(), Some(guards.0.name()));
    guards.1.release().unwrap();
    // Nobody else gets it for the minimum.
    locks.lock("b").hold_at_least(PATIENCE).with(|_| ()).unwrap();
    assert!(locks.lock("b").try_acquire().unwrap().is_none());
    let anonymous = locks.without_label();
    let _guard = anonymous.lock("c").acquire().unwrap();
    assert_eq!(anonymous.status("c").unwrap().holders[0].label, None);
}

#[test]
fn callers_with_one_key_share_a_hold() {
    let (locks, _) = two();
    let lock = locks.lock("a").reentrant(&ReentryKey::new());
    let outer = lock.acquire().unwrap();
    let inner = lock.acquire().unwrap();
    assert_eq!(inner.token(), outer.token());
    assert_eq!(inner.release().unwrap(), Release::StillShared);
    assert_eq!(outer.release().unwrap(), Release::Released);
}

#[test]
fn readers_enter_together_and_a_writer_goes_on_as_a_reader() {
    let (locks, elsewhere) = two();
    let (catalog, beside) = (locks.rw_lock("a"), elsewhere.rw_lock("a"));
    let readers = [catalog.read().acquire().unwrap(), beside.read().acquire().unwrap()];
    assert!(catalog.write().try_acquire().unwrap().is_none());
    assert_eq!(locks.status("a").unwrap().holders.len(), 2);
    for reader in readers {
        reader.release().unwrap();
    }
    let mut writer = catalog.write().acquire().unwrap();
    assert!(beside.read().try_acquire().unwrap().is_none());
    writer.downgrade().unwrap();
    assert_eq!(writer.mode(), Mode::Shared);
    assert!(beside.read().try_acquire().unwrap().is_some());
}

#[test]
fn a_reader_becomes_the_writer_when_the_others_have_left() {
    let (locks, elsewhere) = two();
    let (catalog, beside) = (locks.rw_lock("a").upgradable(), elsewhere.rw_lock("a"));
    let mut guard = catalog.ttl(PATIENCE).label("import").acquire_within(PATIENCE).unwrap();
    assert!(elsewhere.rw_lock("a").upgradable().try_acquire().unwrap().is_none());
    let reader = beside.read().acquire().unwrap();
    assert!(!guard.try_upgrade().unwrap());
    assert!(guard.upgrade_within(Duration::from_secs(1)).unwrap_err().is_timed_out());
    assert_eq!((guard.state(), guard.mode()), (HoldState::Held, Mode::Upgradable));
    let upgrading = thread::spawn(move || guard.upgrade().map(|()| guard));
    reader.release().unwrap();
    let guard = upgrading.join().unwrap().unwrap();
    assert_eq!(guard.mode(), Mode::Exclusive);
    assert_eq!(guard.release().unwrap(), Release::Released);
}

#[test]
fn a_semaphore_admits_as_many_as_it_has_permits() {
    let (locks, elsewhere) = two();
    let (api, beside) = (locks.semaphore("a", 3), elsewhere.semaphore("a", 3));
    let two = api.permits(2).acquire().unwrap();
    let one = beside.permits(1).acquire().unwrap();
    assert!(api.permits(1).try_acquire().unwrap().is_none());
    assert!(
        api.permits(1)
            .acquire_within(Duration::from_secs(1))
            .unwrap_err()
            .is_timed_out()
    );
    assert_eq!(locks.status("a").unwrap().holders.len(), 2);
    two.release().unwrap();
    assert!(api.permits(2).try_acquire().unwrap().is_some());
    one.release().unwrap();
}

#[test]
fn several_locks_are_held_together_or_not_at_all() {
    let server = MemoryBackend::new();
    let (locks, elsewhere) = (Locker::new(server.clone()), Locker::new(server.clone()));
    let both = || [locks.lock("b"), locks.lock("a")];
    let taken = elsewhere.lock("a").acquire().unwrap();
    assert!(try_acquire_all(both()).unwrap().is_none());
    assert!(
        acquire_all_within(both(), Duration::from_secs(1))
            .unwrap_err()
            .is_timed_out()
    );
    assert!(!elsewhere.status("b").unwrap().is_held());
    taken.release().unwrap();
    let guard = acquire_all(both()).unwrap();
    assert_eq!(guard.guards()[0].name().as_str(), "b");
    assert_eq!(guard.tokens().next(), Some(guard.guards()[0].token()));
    assert!(guard.valid_for() > Duration::ZERO && guard.state() == HoldState::Held);
    guard.check().unwrap();
    assert!(guard.wait_lost(Duration::from_millis(1)).unwrap().is_none());
    server.take_away("a").unwrap();
    let lost = guard.wait_lost(PATIENCE).unwrap().expect("it was taken away");
    assert_eq!(lost.name().as_str(), "a");
    assert!(matches!(guard.state(), HoldState::Lost(_)) && guard.check().is_err());
    assert!(guard.into_async().into_guards().len() == 2);
    locks.shutdown().unwrap();
    assert!(!elsewhere.status("b").unwrap().is_held());
    assert!(acquire_all([]).is_err());
}
