use std::time::Duration;

use lock_core::ErrorKind;
use lock_core::backend::Mode;
use lock_core::races::{Mutant, pass};
use shuttle::future::{spawn, yield_now};
use shuttle::rand::{Rng, thread_rng};

use crate::explore::{goes_well, is_found, soon};
use crate::server::Server;

/// A reader becomes the writer or gives that up, while another reader leaves, a writer waits and the hold is renewed: the
/// guard writes alone or reads on, nobody writes in between, and nothing is left of it.
async fn race() {
    upgrade_in(Server::default(), |_| ()).await;
}

/// The same, where answers get lost.
async fn race_with_losses() {
    upgrade_in(Server::default(), Server::lose_answers).await;
}

async fn upgrade_in(server: Server, weather: fn(&Server)) {
    let (locks, elsewhere, yet_elsewhere) = (server.locker(), server.locker(), server.locker());
    let ttl = Duration::from_secs(30);
    let mut guard = locks.rw_lock("a").upgradable().ttl(ttl).acquire().await.unwrap();
    let reader = match thread_rng().gen_bool(0.5) {
        true => Some(elsewhere.rw_lock("a").read().acquire().await.unwrap()),
        false => None,
    };
    weather(&server);
    let leaving = spawn(async move { drop(reader) });
    let writer = spawn({
        let server = server.clone();
        async move {
            let guard = yet_elsewhere.rw_lock("a").write().acquire().await.unwrap();
            server.write(&guard).await;
            guard.release().await
        }
    });
    let time = spawn(async { pass(Duration::from_secs(10)) });
    let upgrade = spawn({
        let server = server.clone();
        async move {
            let patience: u32 = *[5, 20, 80, 400].get(thread_rng().gen_range(0..4_usize)).unwrap();
            let gives_up = async {
                for _ in 0..patience {
                    yield_now().await;
                }
            };
            let upgraded = tokio::select! {
                biased;
                upgraded = guard.upgrade() => { upgraded.unwrap(); true },
                () = gives_up => false,
            };
            match upgraded {
                true => server.write(&guard).await,
                false => server.read_on(&guard).await,
            }
            assert_eq!(guard.mode() == Mode::Exclusive, upgraded);
            // In bad weather it may take longer than its caller waits, and goes on in the background.
            let released = guard.release().await.map_err(|error| error.kind());
            assert!(matches!(released, Ok(_) | Err(ErrorKind::Unavailable)), "{released:?}");
        }
    });
    time.await.unwrap();
    leaving.await.unwrap();
    soon(upgrade).await.unwrap();
    match soon(writer).await.unwrap() {
        Ok(_) => {}
        // Time may jump over its limit.
        Err(error) => assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}"),
    }
    let shutdown = spawn(async move { locks.shutdown().await });
    soon(shutdown).await.unwrap().unwrap();
    assert!(server.is_free("a").await);
}

#[test]
fn a_guard_writes_alone_or_reads_on() {
    goes_well(race);
}

#[test]
fn a_guard_writes_alone_or_reads_on_in_bad_weather() {
    goes_well(race_with_losses);
}

#[test]
fn an_answer_about_the_former_hold_is_found() {
    is_found(Mutant::HeedsTheFormerHold, race);
}

#[test]
fn a_grant_that_is_taken_for_a_loss_is_found() {
    is_found(Mutant::TakesAGrantForALoss, race);
}

#[test]
fn a_release_before_the_undo_is_found() {
    is_found(Mutant::ReleasesBeforeTheUndo, race);
}
