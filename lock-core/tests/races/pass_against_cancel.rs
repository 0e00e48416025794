//! A hold is passed on without a request while its next holder gives up.

use lock_core::races::Mutant;

use crate::explore::{goes_well, is_found};
use crate::release_against_cancel::cancel_at;
use crate::server::Server;

/// A waiter gives up, and at times the one who releases as well, while the hold is passed on without a request: whoever waits
/// behind them has it in the end, with a larger token, and nothing is left at the server.
async fn race() {
    cancel_at(Server::default(), Server::passes).await;
}

/// The same, where answers get lost.
async fn race_with_losses() {
    let both = |server: &Server| {
        server.passes();
        server.lose_answers();
    };
    cancel_at(Server::default(), both).await;
}

#[test]
fn who_waits_behind_the_one_who_gave_up_is_passed_it() {
    goes_well(race);
}

#[test]
fn who_waits_behind_the_one_who_gave_up_is_passed_it_in_bad_weather() {
    goes_well(race_with_losses);
}

#[test]
fn a_pass_to_nobody_is_found() {
    is_found(Mutant::PassesToNobody, race);
}
