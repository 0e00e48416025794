use std::time::Duration;

use lock_core::races::{Mutant, on_runtime, pass};
use shuttle::future::{spawn, yield_now};

use crate::explore::{goes_well, is_found, soon};
use crate::server::Server;

/// A guard is dropped and an acquire is given up on one runtime, and another guard is dropped on a second one, while a hold
/// is renewed or lost, and each runtime takes the background work over from the other: all of it is done, and nothing stays
/// at the server.
async fn race() {
    take_over(|_| ()).await;
}

/// The same, where answers get lost.
async fn race_with_losses() {
    take_over(Server::lose_answers).await;
}

async fn take_over(weather: fn(&Server)) {
    let server = Server::default();
    let locks = server.locker();
    let kept = locks.lock("kept").ttl(Duration::from_secs(3));
    let kept = on_runtime(1, kept.acquire()).await.unwrap();
    weather(&server);
    let on = |runtime, name| {
        let (lock, server) = (locks.lock(name), server.clone());
        let task = async move {
            let guard = lock.acquire().await.unwrap();
            server.work(&guard).await;
            drop(guard);
        };
        spawn(on_runtime(runtime, task))
    };
    let tasks = [on(1, "a"), on(2, "a")];
    let given_up = on(1, "a");
    let time = spawn(async {
        for _ in 0..4 {
            pass(Duration::from_secs(1));
            yield_now().await;
        }
    });
    given_up.abort();
    for task in tasks {
        soon(task).await.unwrap();
    }
    time.await.unwrap();
    drop(kept);
    let shutdown = spawn(on_runtime(2, async move { locks.shutdown().await }));
    soon(shutdown).await.unwrap().unwrap();
    assert!(server.is_free("a").await && server.is_free("kept").await);
}

#[test]
fn all_is_done_once_a_runner_is_in_charge() {
    goes_well(race);
}

#[test]
fn all_is_done_once_a_runner_is_in_charge_in_bad_weather() {
    goes_well(race_with_losses);
}

#[test]
fn a_runner_that_works_when_replaced_is_found() {
    is_found(Mutant::WorksWhenReplaced, race);
}
