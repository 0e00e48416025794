use lock_core::ErrorKind;
use lock_core::races::Mutant;
use shuttle::future::{spawn, yield_now};

use crate::explore::{goes_well, is_found};
use crate::server::Server;

/// A guard is dropped while its locker is shut down and somebody else waits: the shutdown ends, and once both are over
/// nothing is left to do and nothing at the server.
async fn race() {
    let server = Server::default();
    let locks = server.locker();
    let guard = locks.lock("a").acquire().await.unwrap();
    let waiter = spawn({
        let lock = locks.lock("a");
        async move { lock.acquire().await.map(drop) }
    });
    let dropping = spawn(async move { drop(guard) });
    locks.shutdown().await.unwrap();
    dropping.await.unwrap();
    if let Err(error) = waiter.await.unwrap() {
        assert_eq!(error.kind(), ErrorKind::ShutDown);
    }
    locks.shutdown().await.unwrap();
    assert!(server.is_free("a").await);
}

/// A caller waits at the server while its locker is shut down: once that is over, the server has nothing of the wait.
async fn race_of_a_waiter() {
    let server = Server::default();
    let guard = server.locker().lock("a").acquire().await.unwrap();
    let locks = server.locker();
    let waiter = spawn({
        let lock = locks.lock("a");
        async move { lock.acquire().await.map(drop) }
    });
    while server.waiting("a").await == 0 {
        yield_now().await;
    }
    locks.shutdown().await.unwrap();
    assert_eq!(server.waiting("a").await, 0, "the wait is not undone");
    assert_eq!(waiter.await.unwrap().unwrap_err().kind(), ErrorKind::ShutDown);
    drop(guard);
}

#[test]
fn nothing_is_left() {
    goes_well(race);
}

#[test]
fn nothing_is_left_of_a_wait() {
    goes_well(race_of_a_waiter);
}

#[test]
fn a_shutdown_that_counts_the_jobs_first_is_found() {
    is_found(Mutant::CountsJobsFirst, race_of_a_waiter);
}

#[test]
fn a_shutdown_that_looks_before_it_listens_is_found() {
    is_found(Mutant::LooksBeforeItListens, race);
}
