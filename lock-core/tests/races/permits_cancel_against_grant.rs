use lock_core::races::Mutant;
use shuttle::future::spawn;
use shuttle::rand::{Rng, thread_rng};

use crate::explore::{goes_well, is_found, soon};
use crate::server::Server;

/// Whoever waits at the server for permits gives up while another process releases what it waits for: those behind have
/// theirs in the end, and nothing is left at the server.
async fn race() {
    cancel_at(Server::default(), |_| ()).await;
}

/// The same, where answers get lost.
async fn race_with_losses() {
    cancel_at(Server::default(), Server::lose_answers).await;
}

async fn cancel_at(server: Server, weather: fn(&Server)) {
    let (locks, elsewhere) = (server.locker(), server.locker());
    let all = elsewhere.semaphore("a", 2).permits(2).acquire().await.unwrap();
    weather(&server);
    let ask = |take| {
        let lock = locks.semaphore("a", 2).permits(take);
        spawn(async move { lock.acquire().await.unwrap().release().await })
    };
    // The next one may take the request over, or not.
    let first = ask(if thread_rng().gen_bool(0.5) { 1 } else { 2 });
    let behind = [ask(1), ask(2), ask(1)];
    let release = spawn(async move { all.release().await });
    first.abort();
    for behind in behind {
        soon(behind).await.unwrap().unwrap();
    }
    drop((soon(first).await, soon(release).await));
    for locks in [locks, elsewhere] {
        let shutdown = spawn(async move { locks.shutdown().await });
        soon(shutdown).await.unwrap().unwrap();
    }
    assert!(server.is_free("a").await);
}

#[test]
fn those_behind_the_one_who_gave_up_have_theirs() {
    goes_well(race);
}

#[test]
fn those_behind_the_one_who_gave_up_have_theirs_in_bad_weather() {
    goes_well(race_with_losses);
}

#[test]
fn a_line_that_stays_closed_is_found() {
    is_found(Mutant::StaysClosed, race);
}

#[test]
fn a_late_grant_of_permits_that_is_left_is_found() {
    is_found(Mutant::LeavesLateGrant, race);
}
