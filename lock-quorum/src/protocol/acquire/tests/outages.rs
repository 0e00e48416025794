//! Nodes that fail or are silent.

use super::*;

#[test]
fn without_a_majority_the_error_names_the_nodes() {
    let mut client = Client::new(true);
    client.step();
    client.hears(0, unavailable());
    client.hears(2, unavailable());
    let (commands, _) = client.step();
    assert!(
        matches!(commands[..], [Command::Vote(_, Order::GiveUp)]),
        "{commands:?}"
    );
    client.hears(1, unavailable());
    let (_, step) = client.step();
    let Step::Done(Outcome::Failed(failure)) = step else {
        panic!("{step:?}")
    };
    let nodes: Vec<usize> = failure.nodes.iter().map(|(node, _)| *node).collect();
    assert_eq!((failure.is_given_up, nodes), (false, vec![0, 1, 2]));
}

#[test]
fn a_silent_anchor_costs_the_patience_and_another_one_decides() {
    let mut client = Client::new(false);
    client.step();
    client.hears(1, News::Busy(busy("somebody")));
    client.hears(2, News::Busy(busy("somebody")));
    let (_, step) = client.step();
    assert!(
        matches!(step, Step::Wait(until) if until <= client.now + PATIENCE),
        "{step:?}"
    );
    client.passes(PATIENCE);
    assert!(matches!(client.step().1, Step::Done(Outcome::Busy(_))));
    assert!(client.known.is_suspected(0, client.now));
}

/// Others may have use for the vote.
#[test]
fn votes_are_given_back_when_a_majority_is_silent() {
    let mut client = Client::new(true);
    client.step();
    client.is_granted(1, 7);
    client.step();
    client.passes(PATIENCE);
    let (commands, step) = client.step();
    assert_eq!(given_back(&commands).len(), 3);
    client.left = [Duration::ZERO; 3];
    let Step::Wait(until) = step else { panic!("{step:?}") };
    client.now = until;
    assert_eq!(
        asked(&client.step().0),
        [(0, Ask::Once), (2, Ask::Once)],
        "first those that were silent"
    );
}

/// Until then the name was taken. An outage from now on is no reason why the request got nothing.
#[test]
fn a_failure_in_the_wake_that_ends_the_time_does_not_hide_that_the_name_is_taken() {
    let mut client = Client::waiting();
    client.is_given_up = true;
    client.hears(0, unreachable());
    let (_, step) = client.step();
    assert!(
        matches!(&step, Step::Done(Outcome::Busy(found)) if *found == busy("somebody")),
        "{step:?}"
    );
}

#[test]
fn an_outage_before_the_end_of_the_time_is_reported() {
    let mut client = Client::waiting();
    client.hears(0, unreachable());
    client.step();
    client.is_given_up = true;
    client.step();
    client.passes(LONGEST_END);
    let (_, step) = client.step();
    assert!(matches!(step, Step::Done(Outcome::Failed(_))), "{step:?}");
}
