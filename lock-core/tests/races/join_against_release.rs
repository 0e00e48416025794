use lock_core::HoldState;
use lock_core::races::Mutant;
use shuttle::future::spawn;

use crate::explore::{goes_well, is_found, soon};
use crate::server::Server;

/// Readers come while the last guard of their process's hold is released, and a writer of another process waits: each reads
/// with a hold that lasts, nobody writes meanwhile, and nothing is left at the server.
async fn race() {
    let server = Server::default();
    let (locks, elsewhere) = (server.locker(), server.locker());
    let rw = locks.rw_lock("a");
    let guard = rw.read().acquire().await.unwrap();
    let readers = [(); 2].map(|()| {
        let (lock, server) = (rw.read(), server.clone());
        spawn(async move {
            let guard = lock.acquire().await.unwrap();
            server.read(&guard).await;
            assert_eq!(guard.state(), HoldState::Held);
            guard.release().await.unwrap()
        })
    });
    let writer = spawn({
        let (lock, server) = (elsewhere.lock("a"), server.clone());
        async move {
            let guard = lock.acquire().await.unwrap();
            server.work(&guard).await;
            guard.release().await.unwrap()
        }
    });
    let release = spawn(guard.release());
    soon(release).await.unwrap().unwrap();
    for reader in readers {
        soon(reader).await.unwrap();
    }
    soon(writer).await.unwrap();
    locks.shutdown().await.unwrap();
    elsewhere.shutdown().await.unwrap();
    assert!(server.is_free("a").await);
}

#[test]
fn nobody_joins_what_has_ended() {
    goes_well(race);
}

#[test]
fn joining_what_has_ended_is_found() {
    is_found(Mutant::JoinsWhatHasEnded, race);
}
