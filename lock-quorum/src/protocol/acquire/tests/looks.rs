//! The looks at all nodes of a request that waits at the anchor.

use super::*;

/// The look that is to begin, and the nodes that it asks.
fn look(commands: &[Command]) -> Option<(u32, Vec<usize>)> {
    commands.iter().find_map(|command| match command {
        Command::Look { look, nodes, patience } => {
            assert_eq!(*patience, PATIENCE);
            Some((*look, nodes.clone()))
        }
        _ => None,
    })
}

fn holders(nodes: [&[&str]; 3]) -> Vec<Seen> {
    let holders = |node: &[&str]| Seen::Holders(node.iter().map(|holder| (*holder).into()).collect());
    nodes.map(holders).into()
}

#[test]
fn a_waiter_looks_around_after_its_patience() {
    let mut client = Client::new(true);
    client.step();
    client.passes(Duration::from_millis(100));
    client.hears(0, News::Queued(busy("somebody")));
    let (commands, step) = client.step();
    assert_eq!(look(&commands), None);
    assert_eq!(waits_until(&step), Some(client.now + PATIENCE));
    client.passes(PATIENCE - Duration::from_millis(1));
    assert_eq!(look(&client.step().0), None);
    client.passes(Duration::from_millis(1));
    let (commands, step) = client.step();
    assert_eq!(look(&commands), Some((1, vec![0, 1, 2])));
    let latest = client.now + TTL / 3;
    assert_eq!(
        waits_until(&step),
        Some(latest),
        "nothing tells that a suspicion has ended"
    );
}

#[test]
fn a_look_leaves_suspected_nodes_out() {
    let mut client = Client::waiting();
    client.known.suspect(2, client.now, TTL);
    client.passes(PATIENCE);
    assert_eq!(look(&client.step().0), Some((1, vec![0, 1])));
}

#[test]
fn looks_are_rarer_while_the_holder_has_a_majority_or_has_gone() {
    for seen in [
        [&["somebody"][..], &["somebody"], &[]],
        [&[], &["somebody"], &["somebody"]],
        [&[], &[], &[]],
    ] {
        let mut client = Client::waiting();
        client.passes(PATIENCE);
        for (number, times) in [(1, 2), (2, 4), (3, 4)] {
            assert_eq!(look(&client.step().0).map(|(number, _)| number), Some(number));
            client.acquire.handle(Event::Looked(number, holders(seen)));
            let (commands, step) = client.step();
            assert_eq!(look(&commands), None);
            let next = client.now + times * PATIENCE;
            assert_eq!(waits_until(&step), Some(next.min(client.now + TTL / 3)), "{seen:?}");
            client.now = next;
        }
        assert!(!client.known.is_passed_by(&name(), 0, client.now));
    }
}

#[test]
fn a_node_that_is_silent_when_looked_at_is_suspected() {
    let mut client = Client::waiting();
    client.known.suspect(1, client.now, PATIENCE / 2);
    client.passes(PATIENCE);
    client.step();
    let seen = vec![Seen::Holders(Vec::new()), Seen::Unknown, Seen::Silent];
    client.acquire.handle(Event::Looked(1, seen));
    client.step();
    let suspected = [0, 1, 2].map(|node| client.known.is_suspected(node, client.now));
    assert_eq!(suspected, [false, false, true]);
}

/// The anchor has voted for this request meanwhile: its holder is this one.
#[test]
fn a_look_that_is_under_way_when_the_anchor_votes_is_for_nobody() {
    let mut client = Client::waiting();
    client.passes(PATIENCE);
    client.step();
    client.is_granted(0, 8);
    client.step();
    client.is_busy(1);
    client.hears(2, News::Busy(busy("somebody else")));
    let (_, step) = client.step();
    client.left[0] = Duration::ZERO;
    client.now = waits_until(&step).unwrap();
    client.step();
    client.hears(0, News::Queued(busy("somebody")));
    client.step();
    client.passes(PATIENCE);
    assert_eq!(look(&client.step().0).map(|(look, _)| look), Some(2));
    let silent = || vec![Seen::Silent, Seen::Silent, Seen::Silent];
    client.acquire.handle(Event::Looked(1, silent()));
    client.step();
    assert!(!client.known.is_suspected(0, client.now));
    client.acquire.handle(Event::Looked(2, silent()));
    client.step();
    assert!(client.known.is_suspected(0, client.now));
}

#[test]
fn who_has_the_anchor_s_vote_does_not_look_around() {
    let mut client = Client::waiting();
    client.passes(PATIENCE - Duration::from_millis(100));
    client.is_granted(0, 8);
    for node in [1, 2] {
        client.known.suspect(node, client.now, TTL);
    }
    // Both are asked although they are suspected: there is no other majority.
    let (commands, step) = client.step();
    assert_eq!(asked(&commands), [(1, Ask::Once), (2, Ask::Once)]);
    assert_eq!(waits_until(&step), Some(client.now + PATIENCE));
}
