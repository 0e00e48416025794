//! The token is decided, and short votes are renewed.

use super::*;

/// The first two nodes have voted with these tokens, and the third has not answered.
fn two_voted(wanted: Wanted, tokens: [u64; 2], after: Duration) -> Client {
    let mut client = Client::wants(wanted);
    client.step();
    client.passes(after);
    client.is_granted(0, tokens[0]);
    client.is_granted(1, tokens[1]);
    client
}

fn half() -> Duration {
    lock_core::backend::rules::lease_time(TTL) / 2
}

#[test]
fn an_answer_is_waited_for_as_long_again_as_the_majority_took() {
    for (took, waits) in [(0, 2), (100, 100), (400, 300)] {
        let mut client = two_voted(Client::wanted(), [9, 7], Duration::from_millis(took));
        let (commands, step) = client.step();
        assert!(commands.is_empty(), "{took}: {commands:?}");
        let until = client.now + Duration::from_millis(waits);
        assert_eq!(waits_until(&step), Some(until), "{took}");
        client.now = until;
        let (commands, _) = client.step();
        assert_eq!(changed(&client, &commands), [(1, Some(token(9)), false)], "{took}");
    }
}

#[test]
fn an_answer_that_decides_nothing_is_not_waited_for() {
    let raises = |mut client: Client| {
        let (commands, _) = client.step();
        !changed(&client, &commands).is_empty()
    };
    let new = || two_voted(Client::wanted(), [9, 7], Duration::ZERO);
    assert!(!raises(new()));
    let mut client = new();
    client.is_busy(2);
    assert!(raises(client), "it has answered");
    let mut client = new();
    client.known.suspect(2, client.now, TTL);
    assert!(raises(client), "it is suspected");

    let mut client = Client::new(true);
    client.step();
    client.hears(0, News::Queued(busy("somebody")));
    client.is_granted(1, 7);
    client.is_granted(2, 9);
    assert!(raises(client), "it waits in the node's queue");
}

#[test]
fn a_node_that_is_slower_by_far_is_not_waited_for() {
    let took = Duration::from_millis(10);
    let raises = |round_trip: Duration| {
        let mut client = two_voted(Client::wanted(), [9, 7], took);
        client.known.answered_after(2, round_trip);
        let (commands, _) = client.step();
        !changed(&client, &commands).is_empty()
    };
    let slowest = 2 * took + Duration::from_micros(500);
    assert!(!raises(slowest));
    assert!(raises(slowest + Duration::from_micros(1)));
}

#[test]
fn a_token_to_which_a_vote_is_being_raised_already_is_granted() {
    let mut client = two_voted(Client::wanted(), [9, 7], Duration::ZERO);
    client.step();
    client.passes(Duration::from_millis(2));
    client.step();
    client.is_granted(2, 9);
    assert_eq!(granted(&client.step().1), Some(token(9)));
}

#[test]
fn a_vote_that_is_being_raised_is_not_raised_again() {
    let mut client = two_voted(Client::wanted(), [9, 7], Duration::ZERO);
    client.step();
    client.passes(Duration::from_millis(2));
    client.step();
    client.is_granted(2, 8);
    let (commands, _) = client.step();
    assert_eq!(changed(&client, &commands), [(2, Some(token(9)), false)]);
}

#[test]
fn over_slow_lines_all_votes_are_renewed_while_one_is_raised() {
    let slow = TTL / 6 + Duration::from_millis(1);
    let changes = |wanted: Wanted, took: Duration| {
        let mut client = two_voted(wanted, [9, 7], took);
        let (commands, _) = client.step();
        changed(&client, &commands)
    };
    let raised = Some(token(9));
    assert_eq!(changes(Client::wanted(), slow), [(0, None, true), (1, raised, true)]);
    assert_eq!(changes(Client::wanted(), TTL / 6), [(1, raised, false)]);
    let fixed = Wanted {
        is_fixed: true,
        ..Client::wanted()
    };
    assert_eq!(changes(fixed, slow), [(1, raised, false)]);
    let sessions = Wanted {
        has_session: vec![true; 3],
        ..Client::wanted()
    };
    assert_eq!(changes(sessions, slow), [(1, raised, false)], "the session renews");
}

#[test]
fn votes_of_which_too_little_is_left_are_renewed_before_the_grant() {
    let short = half() - Duration::from_millis(1);
    let mut client = two_voted(Client::wanted(), [9, 9], Duration::ZERO);
    client.left[..2].copy_from_slice(&[half(), short]);
    let (commands, step) = client.step();
    assert_eq!(changed(&client, &commands), [(1, None, true)]);
    assert_eq!((commands.len(), granted(&step)), (1, None));
    let (commands, step) = client.step();
    assert!(commands.is_empty() && granted(&step).is_none(), "{commands:?}");
    client.left[1] = TTL;
    client.hears(1, News::Changed(Ok(Changed::Renewed)));
    assert_eq!(granted(&client.step().1), Some(token(9)));

    let mut client = two_voted(Client::wanted(), [9, 9], Duration::ZERO);
    client.left[..2].fill(short);
    let (commands, _) = client.step();
    assert_eq!(changed(&client, &commands), [(0, None, true), (1, None, true)]);
}

#[test]
fn a_grant_waits_for_no_renewal_that_is_not_needed() {
    let short = half() - Duration::from_millis(1);
    let grants = |wanted: Wanted, left: [Duration; 2]| {
        let mut client = two_voted(wanted, [9, 9], Duration::ZERO);
        client.left[..2].copy_from_slice(&left);
        let (commands, step) = client.step();
        commands.is_empty() && granted(&step).is_some()
    };
    let fixed = Wanted {
        is_fixed: true,
        ..Client::wanted()
    };
    assert!(grants(fixed, [short; 2]));
    let session = Wanted {
        has_session: vec![false, true, false],
        ..Client::wanted()
    };
    assert!(grants(session, [TTL, short]), "the session renews");

    let mut client = two_voted(Client::wanted(), [9, 9], Duration::ZERO);
    client.is_granted(2, 9);
    client.left[2] = short;
    let (commands, step) = client.step();
    assert!(commands.is_empty() && granted(&step).is_some(), "two are long enough");
}
