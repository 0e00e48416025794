//! How holds end, and what waits for it.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use lock_core::blocking::Locker;
use lock_core::{Error, ErrorKind, LostCause, MemoryBackend};

use testbed_steady::blocking::{eventually, receives};

use super::{PATIENCE, two};

#[test]
fn with_releases_before_it_returns() {
    let (locks, elsewhere) = two();
    let token = locks.lock("a").with(|held| held.token()).unwrap();
    let next = elsewhere.lock("a").try_acquire().unwrap().expect("it is free");
    assert!(next.token() > token);
    let error = locks.lock("a").with_within(Duration::ZERO, |_| ()).unwrap_err();
    assert!(error.is_timed_out(), "{error}");
}

#[test]
fn with_returns_what_its_work_says_and_reports_a_loss() {
    let server = MemoryBackend::new();
    let locks = Locker::new(server.clone());
    let failed = locks.lock("a").with(|_| Err::<(), _>("as planned"));
    assert_eq!(failed.unwrap(), Err("as planned"));
    let was_run = Cell::new(false);
    let lost = locks.lock("a").with(|held| {
        server.take_away("a").unwrap();
        was_run.set(true);
        held.check().is_err()
    });
    assert!(lost.unwrap_err().is_lost());
    assert!(was_run.get());
}

#[test]
fn with_posts_the_release_if_its_work_panics() {
    let (locks, elsewhere) = two();
    let lock = locks.lock("a");
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        lock.with(|_| resume_unwind(Box::new("as planned")))
    }));
    assert!(panicked.is_err());
    elsewhere.lock("a").acquire_within(PATIENCE).unwrap().release().unwrap();
}

/// The server goes away during the work, and nothing but the release fails.
#[test]
fn with_returns_the_result_of_work_whose_release_fails() {
    let server = MemoryBackend::new();
    let locks = Locker::new(server.clone()).with_operation_timeout(Duration::from_millis(20));
    let worked = locks.lock("a").with(|_| server.set_available(false));
    worked.unwrap();
    server.set_available(true);
    locks.shutdown().unwrap();
}

/// The server goes away during the work, and comes back once the lease has ended. The hold lasted through all the work, unless the
/// process stood still at its end.
#[test]
fn with_returns_the_result_of_work_whose_hold_ends_during_its_release() {
    let ttl = Duration::from_secs(1);
    eventually("the result", || {
        let server = MemoryBackend::new();
        let locks = Locker::new(server.clone()).with_operation_timeout(PATIENCE);
        let (tell, told) = channel();
        let returning = thread::spawn({
            let server = server.clone();
            move || {
                receives("the end of the work", &told);
                thread::sleep(ttl);
                server.set_available(true);
            }
        });
        let worked = locks.lock("a").ttl(ttl).with(|_| {
            server.set_available(false);
            tell.send(()).unwrap();
            7
        });
        returning.join().unwrap();
        worked
    });
}

#[test]
fn a_shutdown_waits_for_dropped_guards() {
    let (locks, elsewhere) = two();
    for _ in 0..100 {
        drop(locks.lock("a").acquire().unwrap());
    }
    locks.shutdown().unwrap();
    assert!(!elsewhere.status("a").unwrap().is_held());
    assert_eq!(locks.lock("a").acquire().unwrap_err().kind(), ErrorKind::ShutDown);
}

#[test]
fn a_scope_waits_for_dropped_guards_also_after_a_panic() {
    let (locks, elsewhere) = two();
    let result = locks.scope(|locks| {
        let _guard = locks.lock("a").acquire()?;
        Ok::<_, Error>(7)
    });
    assert_eq!(result.unwrap().unwrap(), 7);
    assert!(!elsewhere.status("a").unwrap().is_held());

    let (locks, elsewhere) = two();
    let lock = locks.lock("a");
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        locks.scope(|locks| {
            let _guard = locks.lock("a").acquire().unwrap();
            resume_unwind(Box::new("as planned"));
        })
    }));
    assert!(panicked.is_err());
    assert!(!elsewhere.status("a").unwrap().is_held());
    assert_eq!(lock.acquire().unwrap_err().kind(), ErrorKind::ShutDown);
}

#[test]
fn a_shutdown_ends_waiting_calls() {
    let (locks, elsewhere) = two();
    let _held = elsewhere.lock("a").acquire().unwrap();
    let lock = locks.lock("a");
    let waiting = thread::spawn(move || lock.acquire());
    while elsewhere.status("a").unwrap().waiting != Some(1) {}
    locks.shutdown().unwrap();
    assert_eq!(waiting.join().unwrap().unwrap_err().kind(), ErrorKind::ShutDown);
}

#[test]
fn a_loss_ends_the_wait_for_it() {
    let server = MemoryBackend::new();
    let locks = Locker::new(server.clone());
    let guard = locks.lock("a").acquire().unwrap();
    assert!(guard.wait_lost(Duration::ZERO).unwrap().is_none());
    let (begun, has_begun) = channel();
    let waiting = thread::spawn(move || {
        begun.send(()).unwrap();
        let lost = guard.wait_lost(Duration::MAX);
        (lost, guard.wait_lost(Duration::ZERO), guard.release())
    });
    receives("the beginning", &has_begun);
    server.take_away("a").unwrap();
    let (lost, again, released) = waiting.join().unwrap();
    let lost = lost.unwrap().expect("it was taken away");
    assert_eq!(lost.cause(), LostCause::NotHeld);
    assert_eq!(again.unwrap(), Some(lost));
    assert!(released.unwrap_err().is_lost());
}

#[test]
fn a_hold_that_lasts_too_long_goes_to_the_next_one() {
    let (locks, elsewhere) = two();
    let (calls, called) = channel();
    let short = Duration::from_millis(20);
    let guard = locks.lock("a").hold_at_most(short).acquire().unwrap();
    guard.on_lost(move |lost| calls.send(lost.cause()).unwrap()).unwrap();
    let next = elsewhere.lock("a").acquire_within(PATIENCE).unwrap();
    assert!(next.token() > guard.token());
    assert_eq!(receives("the loss", &called), LostCause::MaximumHold);
    let reader = locks.rw_lock("b").upgradable().hold_at_most(short).acquire().unwrap();
    let lost = reader.wait_lost(PATIENCE).unwrap().expect("it is over");
    assert_eq!(lost.cause(), LostCause::MaximumHold);
}
