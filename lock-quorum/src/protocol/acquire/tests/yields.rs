//! Who decides, and whom the others give way to.

use super::*;

/// The first node has voted after 10 ms, and the others are taken, as these say.
fn refused_by_the_others(waits: bool, holders: [&str; 2]) -> Client {
    let mut client = Client::new(waits);
    client.step();
    client.passes(Duration::from_millis(10));
    client.is_granted(0, 8);
    for (node, holder) in [1, 2].into_iter().zip(holders) {
        client.hears(node, News::Busy(busy(holder)));
    }
    client
}

/// How the other nodes are asked after the first one has voted, and the token that they adopt.
fn asked_again(commands: &[Command]) -> Vec<(usize, Ask, Option<FencingToken>)> {
    let asked = commands.iter().filter_map(|command| match command {
        Command::Vote(_, Order::Ask { node, ask, adopts }) => Some((*node, *ask, *adopts)),
        _ => None,
    });
    asked.collect()
}

#[test]
fn nodes_that_were_taken_are_asked_for_a_few_round_trips_after_the_anchor_has_voted() {
    let mut client = refused_by_the_others(true, ["somebody"; 2]);
    let (commands, _) = client.step();
    let within = Ask::Within(Duration::from_millis(120));
    let adopts = Some(token(8));
    assert_eq!(asked_again(&commands), [(1, within, adopts), (2, within, adopts)]);

    let mut client = refused_by_the_others(false, ["somebody"; 2]);
    let (commands, _) = client.step();
    let within = Ask::Within(PATIENCE);
    assert_eq!(asked_again(&commands), [(1, within, adopts), (2, within, adopts)]);
}

#[test]
fn a_node_that_has_not_answered_is_not_asked_again() {
    let mut client = Client::new(true);
    client.step();
    client.is_granted(0, 8);
    client.is_busy(1);
    let (commands, _) = client.step();
    assert!(matches!(asked(&commands)[..], [(1, Ask::Within(_))]), "{commands:?}");
}

#[test]
fn a_waiter_that_nobody_gives_way_to_collides_and_pauses() {
    let mut client = refused_by_the_others(true, ["somebody"; 2]);
    client.step();
    client.is_busy(1);
    client.is_busy(2);
    let (commands, step) = client.step();
    assert_eq!(reports(&commands), [busy("somebody")]);
    assert_eq!(given_back(&commands).len(), 3);
    let until = client.now + pause(1, 0.5);
    assert_eq!(waits_until(&step), Some(until));
    client.left[0] = Duration::ZERO;
    client.passes(Duration::from_micros(1));
    let (commands, step) = client.step();
    assert!(commands.is_empty(), "{commands:?}");
    assert_eq!(waits_until(&step), Some(until));
    client.is_given_up = true;
    assert_eq!(refused(&client.step().1), Some(&busy("somebody")));
}

#[test]
fn an_anchor_is_passed_by_if_a_majority_has_voted_for_one_hold_without_it() {
    for (holders, is_held) in [
        (["a #1f2e3d4c", "b #1f2e3d4c"], true),
        (["a #1f2e3d4c", "a #00000000"], false),
    ] {
        let mut client = refused_by_the_others(true, holders);
        client.step();
        for (node, holder) in [1, 2].into_iter().zip(holders) {
            client.hears(node, News::Busy(busy(holder)));
        }
        client.step();
        let passed_by = [0, 1, 2].map(|node| client.known.is_passed_by(&name(), node, client.now));
        assert_eq!(passed_by, [is_held, false, false], "{holders:?}");
    }
}

#[test]
fn the_anchor_is_a_node_that_is_neither_suspected_nor_passed_by() {
    let mut client = Client::new(true);
    client.known.suspect(0, client.now, TTL);
    assert_eq!(asked(&client.step().0), [(1, Ask::Forever), (2, Ask::Once)]);
    let mut client = Client::new(true);
    client.known.pass_by(&name(), 0, client.now);
    assert_eq!(
        asked(&client.step().0),
        [(1, Ask::Forever), (0, Ask::Once), (2, Ask::Once)]
    );
}

#[test]
fn a_name_that_was_found_taken_is_asked_for_at_its_anchor_first() {
    let mut client = Client::waiting();
    assert!(client.known.take_known_taken(&name(), client.now));
    let mut client = Client::new(true);
    client.known.note_taken(&name(), client.now);
    let (commands, _) = client.step();
    assert_eq!((commands.len(), asked(&commands)), (1, vec![(0, Ask::Forever)]));
    client.is_granted(0, 8);
    let asked = asked(&client.step().0);
    assert!(
        matches!(asked[..], [(1, Ask::Within(_)), (2, Ask::Within(_))]),
        "{asked:?}"
    );
    let mut client = Client::new(false);
    client.known.note_taken(&name(), client.now);
    assert_eq!(asked_nodes(&client.step().0), [0, 1, 2], "a try waits nowhere");
}

fn asked_nodes(commands: &[Command]) -> Vec<usize> {
    asked(commands).iter().map(|(node, _)| *node).collect()
}

#[test]
fn a_request_that_was_refused_without_a_place_is_not_given_back() {
    let mut client = Client::new(true);
    client.step();
    client.hears(0, News::Queued(busy("somebody")));
    client.is_busy(2);
    let (commands, _) = client.step();
    assert_eq!(given_back(&commands), [client.votes[1].unwrap()]);
}

#[test]
fn an_anchor_that_wakes_nobody_is_asked_again_when_it_said() {
    for (said, after) in [(None, 50), (Some(20), 20)] {
        let mut client = Client::waiting();
        let mut busy = busy("somebody");
        busy.ask_again = said.map(Duration::from_millis);
        client.hears(0, News::Busy(busy));
        let (commands, step) = client.step();
        assert!(commands.is_empty(), "{commands:?}");
        let again = client.now + Duration::from_millis(after);
        assert_eq!(waits_until(&step), Some(again));
        client.now = again;
        let (commands, _) = client.step();
        assert!(
            matches!(commands[..], [Command::Vote(vote, Order::AskAgain), _] if Some(vote) == client.votes[0]),
            "{commands:?}"
        );
    }
}

#[test]
fn a_holder_is_reported_when_it_changes() {
    let mut client = Client::new(true);
    let (commands, _) = client.step();
    assert!(reports(&commands).is_empty());
    client.hears(0, News::Queued(busy("web #1f2e3d4c")));
    assert_eq!(reports(&client.step().0), [busy("web")], "without the mark");
    assert!(reports(&client.step().0).is_empty());
    client.hears(0, News::Queued(busy("other")));
    assert_eq!(reports(&client.step().0), [busy("other")]);
    client.reported = None;
    assert_eq!(reports(&client.step().0), [busy("other")], "core has forgotten it");
}

#[test]
fn a_name_that_a_majority_calls_taken_is_reported_before_the_anchor_answers() {
    let mut client = Client::new(true);
    client.step();
    client.is_busy(1);
    assert!(reports(&client.step().0).is_empty());
    client.is_busy(2);
    assert_eq!(reports(&client.step().0), [busy("somebody")]);
    client.is_given_up = true;
    client.step();
    client.hears(0, News::Busy(Busy::new()));
    assert_eq!(refused(&client.step().1), Some(&busy("somebody")));

    let mut client = Client::new(false);
    client.step();
    client.is_busy(1);
    client.is_busy(2);
    assert!(reports(&client.step().0).is_empty(), "a try has its answer soon");
}
