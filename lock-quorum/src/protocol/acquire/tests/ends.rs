//! The end of an acquire without a grant.

use super::*;

#[test]
fn a_try_ends_within_a_ttl() {
    let mut client = Client::new(false);
    client.step();
    client.passes(PATIENCE);
    let (commands, step) = client.step();
    assert!(commands.is_empty(), "{commands:?}");
    assert_eq!(waits_until(&step), Some(client.now + TTL / 3), "all may be far away");
    client.passes(TTL - PATIENCE - Duration::from_secs(1));
    let (commands, step) = client.step();
    assert!(commands.is_empty(), "{commands:?}");
    assert_eq!(waits_until(&step), Some(client.now + Duration::from_secs(1)));
    client.passes(Duration::from_secs(1));
    let (commands, step) = client.step();
    assert!(
        matches!(commands[..], [Command::Vote(_, Order::GiveUp), _, _]),
        "{commands:?}"
    );
    assert_eq!(waits_until(&step), Some(client.now + LONGEST_END));
    client.passes(LONGEST_END);
    assert_eq!(failed(&client.step().1), Some((true, vec![0, 1, 2])));
}

#[test]
fn a_waiter_waits_for_longer_than_a_ttl() {
    let mut client = Client::waiting();
    client.passes(2 * TTL);
    let (commands, step) = client.step();
    assert!(
        !commands
            .iter()
            .any(|command| matches!(command, Command::Vote(_, Order::GiveUp)))
    );
    assert!(waits_until(&step).is_some());
}

#[test]
fn an_abandoned_request_waits_for_no_answer() {
    let mut client = Client::waiting();
    client.is_given_up = true;
    assert!(waits_until(&client.step().1).is_some());
    client.acquire.abandon();
    assert_eq!(refused(&client.step().1), Some(&busy("somebody")));
}

#[test]
fn a_request_whose_answers_are_all_there_ends_at_once() {
    let mut client = Client::waiting();
    client.is_given_up = true;
    client.hears(0, News::Busy(Busy::new()));
    assert_eq!(refused(&client.step().1), Some(&busy("somebody")));
}

#[test]
fn a_request_that_was_given_up_before_it_began_has_no_answer() {
    let mut client = Client::new(true);
    client.reported = Some(busy("of an acquire before"));
    client.is_given_up = true;
    let (commands, step) = client.step();
    assert!(commands.is_empty(), "{commands:?}");
    assert_eq!(failed(&step), Some((true, Vec::new())));
}

#[test]
fn who_gives_up_after_a_silent_majority_hears_which_nodes_were_silent() {
    let mut client = Client::new(true);
    client.step();
    client.is_granted(1, 7);
    client.step();
    client.passes(PATIENCE);
    client.step();
    client.is_given_up = true;
    assert_eq!(failed(&client.step().1), Some((false, vec![0, 2])));
}
