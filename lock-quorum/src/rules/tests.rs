use super::Answer::{Busy, Failed, Granted, None as Silent};
use super::*;

fn tokens(numbers: &[u64]) -> Vec<FencingToken> {
    let tokens = numbers.iter().map(|number| FencingToken::new(*number));
    tokens.collect::<Option<_>>().unwrap()
}

fn token_of(live: &[u64], nodes: usize) -> Token {
    token(tokens(live), nodes)
}

fn decided(number: u64) -> Token {
    Token::Decided(FencingToken::new(number).unwrap())
}

fn raise(number: u64) -> Token {
    Token::Raise(FencingToken::new(number).unwrap())
}

#[test]
fn half_of_an_even_set_is_no_majority() {
    let majorities = [1, 2, 3, 4, 5, 6].map(majority);
    assert_eq!(majorities, [1, 2, 2, 3, 3, 4]);
    for nodes in 1..9 {
        assert!(2 * majority(nodes) > nodes, "two majorities of {nodes} meet");
    }
}

#[test]
fn the_order_is_rotated_by_the_name() {
    let orders = |name: &str| order(name, 3).collect::<Vec<_>>();
    // FNV-1a of the empty name is its offset basis. All processes have to agree, of whatever version.
    assert_eq!(orders(""), [2, 0, 1]);
    assert_eq!(orders("a"), [1, 2, 0]);
    assert_eq!(orders("orders/42"), orders("orders/42"));
    let mut firsts = [0; 3];
    for number in 0..300 {
        let order = orders(&format!("name{number}"));
        firsts[order[0]] += 1;
        assert_eq!((order[1], order[2]), ((order[0] + 1) % 3, (order[0] + 2) % 3));
    }
    assert!(firsts.iter().all(|names| (60..140).contains(names)), "{firsts:?}");
    assert_eq!(order("a", 1).collect::<Vec<_>>(), [0]);
    assert_eq!(order("a", 0).count(), 0);
}

#[test]
fn the_anchor_is_the_first_that_is_not_suspected() {
    let anchor = |suspected: &[usize]| anchor([2, 0, 1], |node| suspected.contains(&node));
    assert_eq!(anchor(&[]), Some(2));
    assert_eq!(anchor(&[2]), Some(0));
    assert_eq!(anchor(&[2, 0]), Some(1));
    assert_eq!(anchor(&[0, 1]), Some(2));
    assert_eq!(anchor(&[0, 1, 2]), Some(2));
    assert_eq!(super::anchor([], |_| false), None);
}

#[test]
fn a_majority_of_all_grants() {
    assert_eq!(outcome(&[Granted, Granted, Busy], 2, false), Outcome::Granted);
    assert_eq!(outcome(&[Granted, Granted, Failed], 2, false), Outcome::Granted);
    // Not of those that can be reached.
    assert_eq!(outcome(&[Granted, Failed, Failed], 0, false), Outcome::Unavailable);
    assert_eq!(outcome(&[Granted], 0, false), Outcome::Granted);
}

#[test]
fn half_of_an_even_set_does_not_grant() {
    assert_eq!(outcome(&[Granted, Granted, Silent, Busy], 0, false), Outcome::Undecided);
    assert_eq!(
        outcome(&[Granted, Granted, Failed, Failed], 0, false),
        Outcome::Unavailable
    );
}

#[test]
fn without_a_majority_in_reach_the_name_is_not_called_taken() {
    assert_eq!(outcome(&[Busy, Failed, Failed], 0, false), Outcome::Unavailable);
    assert_eq!(
        outcome(&[Busy, Busy, Failed, Failed, Failed], 0, true),
        Outcome::Unavailable
    );
    // One that cannot be reached is no hindrance.
    assert_eq!(outcome(&[Failed, Busy, Busy], 0, false), Outcome::Busy);
    assert_eq!(outcome(&[Failed, Silent, Silent], 0, false), Outcome::Undecided);
}

#[test]
fn the_anchor_decides_who_goes_on() {
    // Refused by the anchor: whatever the others say.
    assert_eq!(outcome(&[Busy, Silent, Granted], 0, false), Outcome::Busy);
    // Its vote: the others give way.
    assert_eq!(outcome(&[Granted, Busy, Busy], 0, false), Outcome::AskAgain);
    assert_eq!(outcome(&[Granted, Busy, Failed], 0, false), Outcome::AskAgain);
    assert_eq!(outcome(&[Granted, Busy, Busy], 0, true), Outcome::Busy);
    assert_eq!(outcome(&[Granted, Busy, Silent], 0, false), Outcome::Undecided);
    // Not heard yet: it decides, even if all the others are taken.
    assert_eq!(outcome(&[Silent, Busy, Busy], 0, false), Outcome::Undecided);
    assert_eq!(outcome(&[Silent, Granted, Busy], 0, false), Outcome::Undecided);
    assert_eq!(outcome(&[Failed, Granted, Busy], 0, false), Outcome::Busy);
}

#[test]
fn the_token_of_all_of_an_odd_number_is_the_median() {
    assert_eq!(token_of(&[9, 3, 7], 3), decided(7));
    assert_eq!(token_of(&[5, 1, 9, 7, 3], 5), decided(5));
    assert_eq!(token_of(&[4], 1), decided(4));
}

#[test]
fn lower_votes_are_raised_until_a_majority_stores_the_token() {
    assert_eq!(token_of(&[9, 3], 3), raise(9));
    assert_eq!(token_of(&[9, 9], 3), decided(9));
    assert_eq!(token_of(&[1, 2, 3, 4], 4), raise(3));
    assert_eq!(token_of(&[3, 3, 3, 4], 4), decided(3));
    assert_eq!(token_of(&[1, 5, 9], 5), raise(9));
    assert_eq!(token_of(&[1, 5, 8, 9], 5), raise(8));
    assert_eq!(token_of(&[8, 5, 8, 9], 5), decided(8));
    // The third answer may come before the raise is done.
    assert_eq!(token_of(&[3, 9, 5], 3), decided(5));
    assert_eq!(token_of(&[3], 3), Token::Undecided);
    assert_eq!(token_of(&[3, 3], 4), Token::Undecided);
}

/// Whatever majority a grant asks, and whoever is raised or not asked: no token is granted twice, and none after a larger one.
#[test]
fn tokens_grow_over_any_two_majorities() {
    for nodes in 1..=5_usize {
        let sets: Vec<u32> = (1..1_u32 << nodes)
            .filter(|set| set.count_ones() as usize >= majority(nodes))
            .collect();
        let mut stored: Vec<u64> = (0..nodes as u64).map(|node| (node * 7) % 5).collect();
        let mut last = 0;
        for first in &sets {
            for second in &sets {
                for set in [first, second] {
                    let votes = (0..nodes).filter(|node| set & (1 << node) != 0);
                    let votes: Vec<usize> = votes.collect();
                    // Counted on at each node by a number of its own.
                    for vote in &votes {
                        stored[*vote] += 1 + (*vote as u64 * 3) % 4;
                    }
                    let of =
                        |stored: &[u64]| token_of(&votes.iter().map(|vote| stored[*vote]).collect::<Vec<_>>(), nodes);
                    if let Token::Raise(to) = of(&stored) {
                        for vote in &votes {
                            stored[*vote] = stored[*vote].max(to.as_u64());
                        }
                    }
                    let Token::Decided(token) = of(&stored) else {
                        panic!("raised, and not decided: {stored:?}");
                    };
                    assert!(token.as_u64() > last, "{token} after {last} of {nodes}: {stored:?}");
                    last = token.as_u64();
                }
            }
        }
    }
}

#[test]
fn a_hold_is_lost_when_no_majority_is_left() {
    assert!(!is_lost(1, 3) && is_lost(2, 3));
    assert!(!is_lost(1, 4) && is_lost(2, 4));
    assert!(!is_lost(2, 5) && is_lost(3, 5));
    assert!(!is_lost(0, 1) && is_lost(1, 1));
}

#[test]
fn a_release_is_what_a_majority_says() {
    assert_eq!(released(2, 1, 3), Released::Now);
    assert_eq!(released(1, 2, 3), Released::Before);
    assert_eq!(released(1, 1, 3), Released::Unknown);
    assert_eq!(released(2, 2, 4), Released::Before);
    assert_eq!(released(0, 0, 1), Released::Unknown);
}

#[test]
fn the_order_by_address_does_not_depend_on_the_list() {
    let list = [
        "redis a:6379/0/",
        "redis b:6379/0/",
        "redis c:6379/0/",
        "redis d:6379/0/",
    ];
    let names: Vec<String> = (0..300).map(|name| format!("name-{name}")).collect();
    let ordered = |name: &str, list: &[&'static str]| -> Vec<&'static str> {
        order_by_address(name, list)
            .into_iter()
            .map(|node| list[node])
            .collect()
    };
    let mut first = std::collections::BTreeMap::new();
    for name in &names {
        let order = ordered(name, &list);
        *first.entry(order[0]).or_insert(0) += 1;
        for shift in 1..4 {
            let mut rotated = list;
            rotated.rotate_left(shift);
            assert_eq!(ordered(name, &rotated), order);
        }
        // Who is removed changes nothing for the others.
        let fewer: Vec<_> = order.iter().copied().filter(|node| *node != list[3]).collect();
        assert_eq!(ordered(name, &list[..3]), fewer);
    }
    assert!(
        first.len() == 4 && first.values().all(|names| (40..=120).contains(names)),
        "{first:?}"
    );
}

/// Processes of all versions have to agree.
#[test]
fn the_order_by_address_stays_the_same() {
    let list = [
        "redis a:6379/0/",
        "redis b:6379/0/",
        "redis c:6379/0/",
        "redis d:6379/0/",
    ];
    for (name, order) in [
        ("", [0, 1, 3, 2]),
        ("a", [0, 2, 3, 1]),
        ("b", [0, 2, 1, 3]),
        ("orders/42", [2, 0, 3, 1]),
        ("jobs", [3, 1, 0, 2]),
    ] {
        assert_eq!(order_by_address(name, &list), order, "{name:?}");
    }
}

/// Two lists that differ by one node: a hold of either excludes the holds of the other.
#[test]
fn majorities_of_lists_that_differ_by_one_node_meet() {
    for nodes in 1..=6_usize {
        let sets = |of: usize| (1..1_u32 << of).filter(move |set| set.count_ones() as usize >= majority(of));
        for old in sets(nodes) {
            for new in sets(nodes + 1) {
                assert_ne!(old & new, 0, "{nodes} nodes and one more");
            }
        }
    }
    // Two more, or one replaced: they need not meet.
    assert!(!majorities_meet(3, 5, 3));
    assert!(!majorities_meet(3, 3, 2));
}

/// Tried with all majorities of lists of up to five nodes.
#[test]
fn majorities_meet_where_the_rule_says_so() {
    for (nodes, others) in (1..=5_usize).flat_map(|nodes| (1..=5_usize).map(move |others| (nodes, others))) {
        for shared in 0..=nodes.min(others) {
            let sets = |of: usize| (0..1_u32 << of).filter(move |set| set.count_ones() as usize >= majority(of));
            // The other list begins with the last nodes of this one.
            let meet = sets(nodes).all(|one| sets(others).all(|other| one & other << (nodes - shared) != 0));
            assert_eq!(
                majorities_meet(nodes, others, shared),
                meet,
                "{nodes}, {others}, {shared}"
            );
        }
    }
}

#[test]
fn times_are_parts_of_the_ttl() {
    let millis = Duration::from_millis;
    assert_eq!(patience(millis(500), millis(6000)), millis(500));
    assert_eq!(patience(millis(500), millis(600)), millis(100));
    assert_eq!(suspicion(millis(600)), millis(300));
    assert_eq!(suspicion(millis(3_600_000)), millis(15_000));
    assert_eq!(patience_after(millis(500), millis(6000), 0), millis(500));
    assert_eq!(patience_after(millis(500), millis(6000), 2), millis(2000));
    assert_eq!(patience_after(millis(500), millis(6000), 99), millis(3000));
}

#[test]
fn a_vote_is_at_its_node_for_two_ttls_at_most() {
    assert_eq!(lasts_at_node(Duration::from_secs(10)), Duration::from_secs(20));
    assert_eq!(lasts_at_node(Duration::MAX), Duration::MAX);
}

#[test]
fn a_yield_is_a_few_round_trips() {
    let millis = Duration::from_millis;
    assert_eq!(yield_time(millis(10), millis(500), None), millis(160));
    assert_eq!(yield_time(millis(1), millis(500), None), millis(50));
    assert_eq!(yield_time(millis(99), millis(500), None), millis(500));
    assert_eq!(yield_time(millis(99), millis(500), Some(millis(5))), millis(5));
}

#[test]
fn looks_are_rarer_the_longer_nothing_is_wrong() {
    let millis = Duration::from_millis;
    assert_eq!(
        [0, 1, 2, 3, 99].map(|looks| look_after(millis(500), looks)),
        [500, 1000, 2000, 2000, 2000].map(millis)
    );
}

#[test]
fn suspected_nodes_are_asked_first_where_a_majority_is() {
    assert!(!asks_suspected_first(1, 3) && asks_suspected_first(2, 3) && !asks_suspected_first(3, 3));
    assert!(!asks_suspected_first(1, 4) && asks_suspected_first(2, 4));
    assert!(!asks_suspected_first(2, 5) && asks_suspected_first(3, 5));
    assert!(!asks_suspected_first(0, 1) && !asks_suspected_first(1, 1));
}

#[test]
fn a_ttl_is_ten_times_as_long_as_a_majority_needs() {
    let sensible = |millis: &[u64], nodes| {
        let times = millis.iter().map(|millis| Duration::from_millis(*millis));
        sensible_ttl(times, nodes).map(|ttl| ttl.as_millis())
    };
    assert_eq!(sensible(&[900, 1, 2], 3), Some(20));
    assert_eq!(sensible(&[3, 1], 3), Some(30));
    assert_eq!(sensible(&[1], 3), None);
    assert_eq!(sensible(&[5, 1, 9], 4), Some(90));
}
