use lock_core::ReentryKey;
use lock_core::races::Mutant;
use shuttle::future::spawn;

use crate::explore::{goes_well, is_found, soon};
use crate::server::Server;

/// A caller with the key of a hold comes while the hold is released, and somebody else waits for it: the caller shares
/// what is still held or waits like anybody, and has no share in what has ended.
async fn race() {
    let server = Server::default();
    let locks = server.locker();
    let key = ReentryKey::new();
    let lock = locks.lock("a");
    let guard = lock.clone().reentrant(&key).acquire().await.unwrap();
    let again = spawn({
        let (lock, server) = (lock.clone().reentrant(&key), server.clone());
        async move {
            let guard = lock.acquire().await.unwrap();
            server.work(&guard).await;
            guard.release().await.unwrap()
        }
    });
    let other = spawn({
        let server = server.clone();
        async move {
            let guard = lock.acquire().await.unwrap();
            server.work(&guard).await;
            guard.release().await.unwrap()
        }
    });
    let release = spawn(guard.release());
    soon(release).await.unwrap().unwrap();
    soon(again).await.unwrap();
    soon(other).await.unwrap();
    locks.shutdown().await.unwrap();
    assert!(server.is_free("a").await);
}

#[test]
fn nobody_shares_what_has_ended() {
    goes_well(race);
}

#[test]
fn a_share_in_what_has_ended_is_found() {
    is_found(Mutant::SharesWhatHasEnded, race);
}
