use std::time::Duration;

use lock_core::races::pass;
use shuttle::future::spawn;
use shuttle::rand::{Rng, thread_rng};

use crate::explore::{goes_well, soon};
use crate::server::Server;

/// A waiter gives up, and at times the one who releases as well, while the hold is being released: whoever waits
/// behind them has it in the end, with a larger token, and nothing is left at the server.
async fn race() {
    cancel_at(Server::default(), |_| ()).await;
}

/// The same, where answers get lost.
async fn race_with_losses() {
    cancel_at(Server::default(), Server::lose_answers).await;
}

/// With a hold that is released or passed on, as the server can.
pub(crate) async fn cancel_at(server: Server, weather: fn(&Server)) {
    let locks = server.locker();
    let lock = locks.lock("a");
    let guard = lock.acquire().await.unwrap();
    let token = guard.token();
    weather(&server);
    // The clock passes the tokens that the grant has reserved: before that, nothing is passed on.
    pass(Duration::from_millis(1));
    let waiter = spawn({
        let lock = lock.clone();
        async move { lock.acquire().await.map(drop) }
    });
    let last = spawn({
        let server = server.clone();
        async move {
            let guard = lock.acquire().await.unwrap();
            server.work(&guard).await;
            guard.token()
        }
    });
    let release = spawn({
        let server = server.clone();
        async move {
            server.work(&guard).await;
            guard.release().await
        }
    });
    waiter.abort();
    if thread_rng().gen_bool(0.5) {
        release.abort();
    }
    assert!(soon(last).await.unwrap() > token);
    drop((soon(waiter).await, soon(release).await));
    let shutdown = spawn(async move { locks.shutdown().await });
    soon(shutdown).await.unwrap().unwrap();
    assert!(server.is_free("a").await);
}

#[test]
fn who_waits_behind_the_one_who_gave_up_has_it() {
    goes_well(race);
}

#[test]
fn who_waits_behind_the_one_who_gave_up_has_it_in_bad_weather() {
    goes_well(race_with_losses);
}
