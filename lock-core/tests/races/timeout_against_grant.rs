use std::time::Duration;

use lock_core::ErrorKind;
use lock_core::races::{Mutant, pass};
use shuttle::future::spawn;

use crate::explore::{goes_well, is_found, soon};
use crate::server::Server;

/// The time of a waiter is up at about the moment when another process releases: it has the lock or is told that it is
/// too late, and whoever waits behind it has it in the end.
async fn race() {
    let server = Server::default();
    let (locks, elsewhere) = (server.locker(), server.locker());
    let guard = elsewhere.lock("a").acquire().await.unwrap();
    let hurried = spawn({
        let lock = locks.lock("a");
        async move { lock.acquire_within(Duration::from_secs(1)).await }
    });
    let patient = spawn({
        let (lock, server) = (locks.lock("a"), server.clone());
        async move {
            let guard = lock.acquire().await.unwrap();
            server.work(&guard).await;
            guard.release().await
        }
    });
    let release = spawn(guard.release());
    let time = spawn(async { pass(Duration::from_secs(1)) });
    match soon(hurried).await.unwrap() {
        Ok(guard) => {
            server.work(&guard).await;
            guard.release().await.unwrap();
        }
        Err(error) => assert!(
            matches!(error.kind(), ErrorKind::TimedOut | ErrorKind::Unavailable),
            "{error}"
        ),
    }
    time.await.unwrap();
    release.await.unwrap().unwrap();
    soon(patient).await.unwrap().unwrap();
    locks.shutdown().await.unwrap();
    elsewhere.shutdown().await.unwrap();
    assert!(server.is_free("a").await);
}

#[test]
fn who_waits_behind_the_one_who_was_too_late_has_it() {
    goes_well(race);
}

#[test]
fn a_late_grant_that_is_left_is_found() {
    is_found(Mutant::LeavesLateGrant, race);
}
