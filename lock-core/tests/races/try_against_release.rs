use lock_core::races::Mutant;
use shuttle::future::spawn;

use crate::explore::{goes_well, is_found, soon};
use crate::server::Server;

/// A guard was dropped, and two tasks try at once, whose requests overtake its release: one of them has the lock.
async fn race() {
    let server = Server::default();
    let locks = server.locker();
    drop(locks.lock("a").acquire().await.unwrap());
    let tries = [(); 2].map(|()| {
        let lock = locks.lock("a");
        spawn(async move { lock.try_acquire().await.unwrap() })
    });
    let mut guards = Vec::new();
    for tried in tries {
        guards.extend(soon(tried).await.unwrap());
    }
    assert_eq!(guards.len(), 1);
    guards.clear();
    locks.shutdown().await.unwrap();
    assert!(server.is_free("a").await);
}

/// The same, where the guard was a reader's, and what is tried is another mode.
async fn race_of_modes() {
    let server = Server::default();
    let locks = server.locker();
    drop(locks.rw_lock("a").read().acquire().await.unwrap());
    let tries = [locks.lock("a"), locks.semaphore("a", 1).permits(1)]
        .map(|lock| spawn(async move { lock.try_acquire().await.unwrap() }));
    let mut guards = Vec::new();
    for tried in tries {
        guards.extend(soon(tried).await.unwrap());
    }
    assert_eq!(guards.len(), 1);
    guards.clear();
    locks.shutdown().await.unwrap();
    assert!(server.is_free("a").await);
}

#[test]
fn one_of_two_tries_in_other_modes_finds_it_free() {
    goes_well(race_of_modes);
}

#[test]
fn a_try_in_another_mode_that_asks_once_is_found() {
    is_found(Mutant::AsksOnce, race_of_modes);
}

#[test]
fn one_of_two_tries_finds_it_free() {
    goes_well(race);
}

#[test]
fn a_try_that_asks_once_is_found() {
    is_found(Mutant::AsksOnce, race);
}
