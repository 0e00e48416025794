//! Tests of internals: calls whose caller has gone, and the order in which calls wait.

use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use testbed_steady::blocking::{eventually, receives};

use super::call::{Call, wait_for};
use super::guard::Guard;
use super::locker::Locker;
use crate::MemoryBackend;
use crate::error::{ErrorKind, Result};

/// The limit of a wait whose end the test needs.
const PATIENCE: Duration = testbed_steady::AT_MOST;

#[test]
fn a_call_whose_caller_unwinds_is_dropped_and_undone() {
    let server = MemoryBackend::new();
    let (locks, elsewhere) = (Locker::new(server.clone()), Locker::new(server));
    let held = elsewhere.lock("a").acquire().unwrap();
    let lock = locks.to_async().lock("a");
    let unwinding = thread::spawn(move || {
        let _call = Call::start(async move { lock.acquire().await }).unwrap();
        // So that the request is at the server.
        while elsewhere.status("a").unwrap().waiting != Some(1) {}
        std::panic::resume_unwind(Box::new(elsewhere));
    });
    let elsewhere = unwinding.join().unwrap_err().downcast::<Locker>().unwrap();
    eventually("nobody waits at the server", || {
        elsewhere.status("a").unwrap().waiting == Some(0)
    });
    held.release().unwrap();
    assert!(!elsewhere.status("a").unwrap().is_held());
}

#[test]
fn a_result_that_nobody_waits_for_is_given_back() {
    let server = MemoryBackend::new();
    let (locks, elsewhere) = (Locker::new(server.clone()), Locker::new(server));
    let lock = locks.to_async().lock("a");
    let (done, is_done) = channel();
    let call = Call::start(async move {
        let guard = lock.acquire().await;
        done.send(()).unwrap();
        guard
    });
    receives("the end of the call", &is_done);
    drop(call);
    elsewhere.lock("a").acquire_within(PATIENCE).unwrap().release().unwrap();
}

#[test]
fn a_call_that_panics_is_an_error_and_the_thread_lives_on() {
    let panicking = async { std::panic::resume_unwind(Box::new("as planned")) };
    let error = wait_for::<()>(panicking).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unexpected);
    assert!(error.to_string().contains("panicked"), "{error}");
    assert_eq!(wait_for(async { Ok(1) }).unwrap(), 1);
}

#[test]
fn a_call_on_the_thread_itself_is_refused() {
    let locks = Locker::new(MemoryBackend::new());
    let inner = locks.clone();
    let error = wait_for(async move { inner.lock("a").acquire() }).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Misconfigured);
    assert!(error.to_string().contains("await the async one"), "{error}");
    // Nothing is left of it.
    assert!(locks.lock("a").try_acquire().unwrap().is_some());
}

#[test]
fn a_thousand_threads_get_one_lock_in_the_order_of_their_calls_with_one_entry_at_the_server() {
    const THREADS: usize = 1_000;
    let server = MemoryBackend::new();
    let (locks, elsewhere) = (Locker::new(server.clone()), Locker::new(server));
    let held = elsewhere.lock("a").acquire().unwrap();
    let calls = Arc::new(Mutex::new(Vec::new()));
    let (had_it, order) = channel();
    let threads: Vec<_> = (0..THREADS)
        .map(|number| {
            let (lock, calls, had_it) = (locks.to_async().lock("a"), calls.clone(), had_it.clone());
            let work = move || -> Result<()> {
                let call: Call<Result<Guard>> = {
                    // Under one lock, so that the order of the calls is known.
                    let mut calls = calls.lock().unwrap();
                    calls.push(number);
                    Call::start(async move { Ok(Guard::new(lock.acquire().await?)) })?
                };
                let guard = call.wait()??;
                had_it.send(number).unwrap();
                guard.release().map(drop)
            };
            thread::Builder::new().stack_size(128 << 10).spawn(work).unwrap()
        })
        .collect();
    while calls.lock().unwrap().len() < THREADS {
        thread::yield_now();
    }
    // The thread `polylock` has begun all calls by the time when it has done this one.
    assert_eq!(elsewhere.status("a").unwrap().waiting, Some(1));
    held.release().unwrap();
    for thread in threads {
        thread.join().unwrap().unwrap();
    }
    assert_eq!(order.try_iter().collect::<Vec<_>>(), *calls.lock().unwrap());
}

mod callbacks;
