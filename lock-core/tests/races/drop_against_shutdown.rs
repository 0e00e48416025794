use lock_core::ErrorKind;
use lock_core::races::Mutant;
use shuttle::future::spawn;

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

#[test]
fn nothing_is_left() {
    goes_well(race);
}

#[test]
fn a_shutdown_that_looks_before_it_listens_is_found() {
    is_found(Mutant::LooksBeforeItListens, race);
}
