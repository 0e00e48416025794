use std::time::Duration;

use lock_core::races::{Mutant, pass};
use lock_core::{ErrorKind, HoldState};
use shuttle::future::spawn;

use shuttle::rand::{Rng, thread_rng};

use crate::explore::{goes_well, is_found, soon};
use crate::server::Server;

const TTL: Duration = Duration::from_secs(30);

/// A hold is lost, or its lease runs out by half or wholly, while it is passed on without a request: whoever has it then learns
/// of the loss, and believes in it no longer than the server keeps it.
async fn race() {
    let server = Server::default();
    server.passes();
    let (locks, elsewhere) = (server.locker(), server.locker());
    let lock = locks.lock("a").ttl(TTL);
    let first = lock.acquire().await.unwrap();
    let token = first.token();
    // The clock passes the tokens of the block.
    pass(Duration::from_millis(1));
    let waiter = spawn({
        let lock = lock.clone();
        async move { lock.acquire().await.unwrap() }
    });
    let time = [None, Some(TTL / 2), Some(TTL)][thread_rng().gen_range(0..3)];
    let loss = spawn({
        let server = server.clone();
        async move {
            match time {
                None => server.tell_of_losses(),
                Some(time) => pass(time),
            }
        }
    });
    match soon(spawn(first.release())).await.unwrap() {
        Ok(_) => {}
        // Time may jump over its limit.
        Err(error) => assert!(
            matches!(error.kind(), ErrorKind::Lost | ErrorKind::Unavailable),
            "{error}"
        ),
    }
    let next = soon(waiter).await.unwrap();
    soon(loss).await.unwrap();
    assert!(next.token() > token);
    // A grant of its own is none of this, and may come after the loss.
    let was_passed_on = next.token().as_u64() == token.as_u64() + 1;
    if was_passed_on && time.is_none() {
        assert!(matches!(next.state(), HoldState::Lost(_)), "{:?}", next.state());
    }
    let other = elsewhere.lock("a").try_acquire().await.unwrap();
    assert!(other.is_none() || next.check().is_err(), "two believe");
    drop((next, other));
    for locks in [locks, elsewhere] {
        let shutdown = spawn(async move { locks.shutdown().await });
        soon(shutdown).await.unwrap().unwrap();
    }
}

#[test]
fn a_loss_reaches_whoever_it_was_passed_on_to() {
    goes_well(race);
}

#[test]
fn a_loss_that_is_missed_in_a_pass_is_found() {
    is_found(Mutant::MissesALossInAPass, race);
}
