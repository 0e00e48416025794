//! Nodes that fail or are silent.

use super::*;
use crate::rules;

fn for_good() -> News {
    News::Failed {
        error: Error::new(ErrorKind::Misconfigured, "no such table"),
        is_gone: true,
    }
}

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
fn nodes_that_failed_for_good_leave_no_majority() {
    let mut client = Client::new(true);
    client.step();
    client.hears(0, for_good());
    client.hears(2, for_good());
    let (commands, _) = client.step();
    assert!(
        matches!(commands[..], [Command::Vote(_, Order::GiveUp)]),
        "{commands:?}"
    );
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

#[test]
fn the_patience_doubles_after_a_silent_majority() {
    let mut client = Client::new(true);
    client.step();
    client.is_granted(1, 7);
    client.step();
    client.passes(PATIENCE);
    let (_, step) = client.step();
    client.left = [Duration::ZERO; 3];
    client.now = waits_until(&step).unwrap();
    assert_eq!(waits_until(&client.step().1), Some(client.now + 2 * PATIENCE));
}

#[test]
fn the_others_are_asked_once_a_suspected_majority_may_vote() {
    // Whether the node that is the anchor has answered, and how the rest is asked.
    for (is_anchor_back, ask) in [(true, Ask::Once), (false, Ask::Forever)] {
        let mut client = Client::new(true);
        for node in [0, 2] {
            client.known.suspect(node, client.now, TTL);
        }
        assert_eq!(asked(&client.step().0), [(0, Ask::Once), (2, Ask::Once)]);
        client.is_granted(if is_anchor_back { 0 } else { 2 }, 8);
        assert_eq!(asked(&client.step().0), [(1, ask)]);
    }
    let mut client = Client::new(true);
    for node in [0, 2] {
        client.known.suspect(node, client.now, TTL);
    }
    client.step();
    client.hears(0, unavailable());
    let (commands, step) = client.step();
    assert!(commands.is_empty() && waits_until(&step).is_some(), "{commands:?}");
}

#[test]
fn a_suspected_node_is_asked_if_the_others_cannot_be_a_majority() {
    let mut client = Client::new(true);
    client.known.suspect(2, client.now, TTL);
    assert_eq!(asked(&client.step().0), [(0, Ask::Forever), (1, Ask::Once)]);
    client.is_granted(0, 8);
    let (commands, _) = client.step();
    assert!(commands.is_empty(), "{commands:?}");
    client.passes(PATIENCE);
    client.hears(1, unavailable());
    let (commands, step) = client.step();
    assert_eq!((commands.len(), asked(&commands)), (1, vec![(2, Ask::Once)]));
    assert_eq!(waits_until(&step), Some(client.now + PATIENCE));
}

/// Whether it stores the token is not known, so its vote is given back.
#[test]
fn a_node_that_is_silent_while_its_vote_is_raised_costs_the_patience() {
    let mut client = Client::new(true);
    client.known.suspect(2, client.now, TTL);
    client.step();
    client.is_granted(0, 9);
    client.is_granted(1, 7);
    let (commands, step) = client.step();
    assert_eq!(changed(&client, &commands), [(1, Some(token(9)), false)]);
    assert_eq!(waits_until(&step), Some(client.now + PATIENCE));
    client.passes(PATIENCE);
    let (commands, _) = client.step();
    let silent = client.votes[1].unwrap();
    assert_eq!(
        (given_back(&commands), asked(&commands)),
        (vec![silent], vec![(2, Ask::Once)])
    );
    assert!(client.known.is_suspected(1, client.now));
    client.hears(1, News::Changed(Ok(Changed::Raised(token(9)))));
    assert_eq!(granted(&client.step().1), None, "its vote does not count any more");
    client.is_granted(2, 9);
    assert_eq!(granted(&client.step().1), Some(token(9)));
}

#[test]
fn a_node_that_is_silent_while_its_vote_is_renewed_costs_the_patience() {
    let mut client = Client::new(true);
    client.known.suspect(2, client.now, TTL);
    client.step();
    client.is_granted(0, 9);
    client.is_granted(1, 9);
    client.left[1] = Duration::from_secs(1);
    let (commands, _) = client.step();
    assert_eq!(changed(&client, &commands), [(1, None, true)]);
    client.passes(PATIENCE);
    assert_eq!(asked(&client.step().0), [(2, Ask::Once)]);
}

/// It may answer a moment later: the request asks again with more patience, as after any silence.
#[test]
fn a_node_that_is_silent_while_its_vote_is_changed_is_asked_again_if_it_is_needed() {
    let mut client = Client::new(false);
    client.step();
    client.hears(2, unavailable());
    client.is_granted(0, 9);
    client.is_granted(1, 7);
    let (commands, _) = client.step();
    assert_eq!(changed(&client, &commands), [(1, Some(token(9)), false)]);
    client.passes(PATIENCE);
    let (commands, step) = client.step();
    assert_eq!(given_back(&commands), [1, 0].map(|node| client.votes[node].unwrap()));
    client.left = [Duration::ZERO; 3];
    client.now = waits_until(&step).expect("it asks again");
    let (commands, step) = client.step();
    assert_eq!(asked(&commands), [(1, Ask::Once), (2, Ask::Once)]);
    assert_eq!(waits_until(&step), Some(client.now + 2 * PATIENCE));
    client.hears(2, unavailable());
    client.is_granted(1, 10);
    assert_eq!(asked(&client.step().0), [(0, Ask::Once)]);
    client.is_granted(0, 10);
    assert_eq!(granted(&client.step().1), Some(token(10)));
}

#[test]
fn a_request_asks_again_if_no_node_answers_a_change_of_its_vote() {
    let took = TTL / 6 + Duration::from_millis(1);
    let mut client = Client::new(false);
    client.step();
    client.hears(2, unavailable());
    client.passes(took);
    client.is_granted(0, 9);
    client.is_granted(1, 7);
    let (commands, _) = client.step();
    let both = [(0, None, true), (1, Some(token(9)), true)];
    assert_eq!(changed(&client, &commands), both);
    client.passes(2 * took);
    let (_, step) = client.step();
    client.now = waits_until(&step).expect("it asks again");
    assert_eq!(
        asked(&client.step().0),
        [(0, Ask::Once), (1, Ask::Once), (2, Ask::Once)]
    );
}

/// The silent node alone would be no majority.
#[test]
fn a_silent_change_hides_no_majority_that_failed() {
    let mut client = Client::new(false);
    client.step();
    client.hears(2, unavailable());
    client.is_granted(0, 9);
    client.is_granted(1, 7);
    client.step();
    client.hears(0, unavailable());
    client.passes(PATIENCE);
    assert_eq!(failed(&client.step().1), Some((false, vec![0, 1, 2])));
}

/// All nodes are far away: a change takes as long as a vote.
#[test]
fn a_change_at_a_far_node_is_waited_for() {
    let took = PATIENCE - Duration::from_millis(100);
    let mut client = Client::new(true);
    client.known.suspect(2, client.now, TTL);
    client.step();
    client.passes(took);
    client.is_granted(0, 9);
    client.is_granted(1, 7);
    client.step();
    client.passes(2 * took - Duration::from_millis(1));
    let (commands, step) = client.step();
    assert!(commands.is_empty(), "{commands:?}");
    client.now = waits_until(&step).unwrap();
    assert_eq!(asked(&client.step().0), [(2, Ask::Once)]);
}

#[test]
fn a_try_asks_no_suspected_node_if_the_others_are_taken() {
    let mut client = Client::new(false);
    client.known.suspect(2, client.now, TTL);
    client.step();
    client.is_granted(0, 8);
    client.is_busy(1);
    assert!(matches!(asked(&client.step().0)[..], [(1, Ask::Within(_))]));
    client.is_busy(1);
    let (commands, step) = client.step();
    assert!(commands.is_empty(), "{commands:?}");
    assert_eq!(refused(&step), Some(&busy("somebody")));
}

/// It may vote by now, so there is a majority in reach, and the anchor has the last word.
#[test]
fn a_node_whose_suspicion_has_ended_does_not_count_as_failed() {
    let mut client = Client::new(false);
    client.known.suspect(2, client.now, PATIENCE / 2);
    client.step();
    client.passes(PATIENCE / 2);
    client.is_busy(0);
    client.hears(1, unavailable());
    let (commands, step) = client.step();
    assert!(commands.is_empty(), "{commands:?}");
    assert_eq!(refused(&step), Some(&busy("somebody")));
}

#[test]
fn a_vote_waits_for_its_own_patience() {
    let mut client = Client::new(true);
    client.step();
    client.passes(Duration::from_millis(100));
    client.is_granted(1, 7);
    client.step();
    client.passes(PATIENCE - Duration::from_millis(100));
    let (commands, step) = client.step();
    assert!(commands.is_empty(), "{commands:?}");
    let in_vain = client.now + Duration::from_millis(100);
    assert_eq!(waits_until(&step), Some(in_vain));
    client.now = in_vain;
    assert_eq!(given_back(&client.step().0).len(), 3);
}

/// A request that cannot ask its node at the moment counts as failed only where it waits.
#[test]
fn a_request_without_a_place_fails_by_its_own_answer() {
    let mut client = Client::new(true);
    client.step();
    client.hears(1, unreachable());
    client.is_granted(0, 8);
    client.hears(0, unreachable());
    let (commands, _) = client.step();
    assert!(commands.is_empty(), "{commands:?}");
    client.is_granted(1, 8);
    assert_eq!(granted(&client.step().1), Some(token(8)));
}

/// Others wait there.
#[test]
fn a_waiter_returns_to_the_first_node_once_that_answers_again() {
    let mut client = Client::new(true);
    client.step();
    client.hears(0, unavailable());
    client.is_busy(1);
    client.step();
    client.hears(1, News::Queued(busy("somebody")));
    let suspicion = rules::suspicion(TTL);
    client.passes(suspicion - Duration::from_millis(1));
    assert_eq!(asked(&client.step().0), []);
    client.passes(Duration::from_millis(1));
    let (commands, _) = client.step();
    assert_eq!(asked(&commands), [(0, Ask::Forever)]);
    assert_eq!(given_back(&commands), [client.votes[1].unwrap()]);
}

#[test]
fn an_answer_to_another_request_ends_the_suspicion() {
    let mut client = Client::new(true);
    client.step();
    client.hears(0, unavailable());
    client.step();
    client.known.has_answered(0);
    client.is_busy(1);
    assert_eq!(asked(&client.step().0), [(1, Ask::Forever), (0, Ask::Forever)]);
}

#[test]
fn a_node_that_failed_for_good_is_not_asked_again() {
    let mut client = Client::new(true);
    client.step();
    client.hears(0, for_good());
    client.is_busy(1);
    assert_eq!(asked(&client.step().0), [(1, Ask::Forever)]);
    client.hears(1, News::Queued(busy("somebody")));
    client.passes(TTL);
    assert_eq!(asked(&client.step().0), []);
    client.is_granted(1, 8);
    assert!(matches!(asked(&client.step().0)[..], [(2, Ask::Within(_))]));
}
