use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;
use std::time::Duration;

use lock_core::ErrorKind;
use lock_core::races::{Mutant, pass};
use shuttle::future::{spawn, yield_now};

use crate::explore::{goes_well, is_found, soon};
use crate::server::Server;

const WAITERS: usize = 3;

/// The time of all who wait is up at the same moment. The server has said that the name is taken, and each of them is told so,
/// also one whose process's request is undone before it looks.
async fn race() {
    let server = Server::default();
    let (locks, elsewhere) = (server.locker(), server.locker());
    let guard = elsewhere.lock("a").acquire().await.unwrap();
    let in_line = Arc::new(AtomicUsize::new(0));
    let wait = || {
        let (lock, in_line) = (locks.lock("a"), in_line.clone());
        spawn(async move {
            let mut acquiring = pin!(lock.acquire_within(Duration::from_secs(1)));
            let early = poll_fn(|context| Poll::Ready(acquiring.as_mut().poll(context))).await;
            assert!(early.is_pending());
            in_line.fetch_add(1, Ordering::SeqCst);
            acquiring.await.map(drop)
        })
    };
    let waiting: Vec<_> = (0..WAITERS).map(|_| wait()).collect();
    while in_line.load(Ordering::SeqCst) < WAITERS || elsewhere.status("a").await.unwrap().waiting != Some(1) {
        yield_now().await;
    }
    let time = spawn(async { pass(Duration::from_secs(1)) });
    for waiter in waiting {
        let error = soon(waiter).await.unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}");
    }
    time.await.unwrap();
    guard.release().await.unwrap();
    locks.shutdown().await.unwrap();
    elsewhere.shutdown().await.unwrap();
    assert!(server.is_free("a").await);
}

#[test]
fn all_whose_limits_end_together_are_told_that_the_name_is_taken() {
    goes_well(race);
}

#[test]
fn one_who_looks_after_it_has_left_the_line_is_found() {
    is_found(Mutant::LeavesBeforeTheLastWord, race);
}
