use std::time::Duration;

use lock_core::races::{Mutant, pass};
use lock_core::{Ended, HoldState};
use shuttle::future::spawn;

use crate::explore::{goes_well, is_found};
use crate::server::Server;

/// A renewal becomes due while the guard is released: none is sent after the release has begun, and none that was sent
/// before brings the hold back.
async fn race() {
    let server = Server::default();
    let locks = server.locker();
    let guard = locks.lock("a").ttl(Duration::from_secs(3)).acquire().await.unwrap();
    let watch = guard.watch();
    let time = spawn(async { pass(Duration::from_secs(1)) });
    let release = spawn(guard.release());
    time.await.unwrap();
    release.await.unwrap().unwrap();
    assert_eq!(watch.state(), HoldState::Released);
    assert_eq!(watch.ended().await, Ended::Released);
    locks.shutdown().await.unwrap();
    assert!(!server.renewed_after_release());
    assert!(server.is_free("a").await);
}

#[test]
fn no_renewal_follows_a_release() {
    goes_well(race);
}

#[test]
fn a_renewal_after_the_release_is_found() {
    is_found(Mutant::RenewsAfterRelease, race);
}

#[test]
fn an_answer_that_revives_is_found() {
    is_found(Mutant::AnswerRevives, race);
}
