//! Who came before whom: overlaps, and the order of tokens.

use std::collections::HashMap;

use lock_core::backend::rules;

use super::holds::{Came, Hold, Stretch};
use crate::check::Check;
use crate::history::History;
use crate::verdict::Breach;

/// Pairs of holds of one lock that were believed in at once, and do not go together. Where all pairs would, but not all of
/// them, as of too many permits: the last one with the one before it.
pub(crate) fn overlaps<'a>(holds: &[&'a Hold]) -> Vec<(Stretch<'a>, Stretch<'a>)> {
    let mut pairs = Vec::new();
    let mut believed: Vec<Stretch<'_>> = Vec::new();
    for stretch in in_order(holds) {
        believed.retain(|earlier| earlier.hold.lock == stretch.hold.lock && earlier.to > stretch.from);
        let before = pairs.len();
        let others = believed.iter().filter(|earlier| !go_together(**earlier, stretch));
        pairs.extend(others.map(|earlier| (*earlier, stretch)));
        let is_one_too_many = !rules::fits(believed.iter().map(|earlier| earlier.mode.mode()), stretch.mode.mode());
        if pairs.len() == before && is_one_too_many {
            pairs.extend(believed.last().map(|earlier| (*earlier, stretch)));
        }
        believed.push(stretch);
    }
    pairs
}

/// A token that somebody else had already, or that is not larger than one whose hold was granted before this one was
/// asked for.
pub(super) fn tokens(history: &History, holds: &[&Hold]) -> Vec<Breach> {
    let tell = |a: &Hold, b: &Hold| {
        let [a, b] = [a, b].map(|hold| history.tell(hold.held, hold));
        format!("\n    {a}\n    {b}")
    };
    let (grants, twice) = grants(holds);
    let mut breaches = Vec::new();
    breaches.extend(twice.iter().map(|(a, b)| {
        let what = format!("one token twice:{}", tell(a, b));
        Breach::new(Check::Tokens, what)
    }));
    let is_exclusive = history.outcome.config.promises_exclusion();
    let smaller = smaller_later(&grants).into_iter();
    breaches.extend(
        smaller
            .filter(|(_, later)| is_exclusive || !has_reserved(later))
            .map(|(earlier, later)| {
                let what = format!("a later token is smaller:{}", tell(earlier, later));
                Breach::new(Check::Tokens, what)
            }),
    );
    if is_exclusive {
        breaches.extend(out_of_order(holds).iter().map(|(earlier, later)| {
            let what = format!("believed in later, and smaller:{}", tell(earlier.hold, later.hold));
            Breach::new(Check::Tokens, what)
        }));
    }
    breaches
}

/// Whether the token was reserved with the grant before, in the same process. If somebody else was granted the name
/// meanwhile, their token is larger.
fn has_reserved(hold: &Hold) -> bool {
    hold.came == Came::Passed
}

/// A token that was granted: after it was asked for, before it was held.
#[derive(Clone, Copy, Debug)]
struct Granted<'a> {
    hold: &'a Hold,
    token: u64,
    asked: u64,
    held: u64,
}

/// The grants, and the pairs of holds with the same token. Readers of one process share a grant: it was asked for when
/// the first of them came, or later.
fn grants<'a>(holds: &[&'a Hold]) -> (Vec<Granted<'a>>, Vec<(&'a Hold, &'a Hold)>) {
    let mut grants: HashMap<(usize, u64), (Granted<'_>, bool)> = HashMap::new();
    let mut twice = Vec::new();
    for hold in holds {
        let later = hold.changes.iter().map(|change| (change.t, change.mode, change.token));
        let mut before = None;
        for (held, mode, token) in std::iter::once((hold.held, hold.mode, hold.token)).chain(later) {
            if before.replace(token) == Some(token) {
                continue;
            }
            let asked = hold.asked;
            let granted = Granted {
                hold,
                token,
                asked,
                held,
            };
            let (first, is_shared) = grants.entry((hold.lock, token)).or_insert((granted, mode.is_shared()));
            if std::ptr::eq(first.hold, *hold) {
                continue;
            }
            if !(*is_shared && mode.is_shared() && first.hold.is_beside(hold)) {
                twice.push((first.hold, *hold));
            }
            first.asked = first.asked.min(asked);
            first.held = first.held.min(held);
        }
    }
    (grants.into_values().map(|(granted, _)| granted).collect(), twice)
}

/// A smaller token that was asked for when a larger one was granted already.
fn smaller_later<'a>(grants: &[Granted<'a>]) -> Vec<(&'a Hold, &'a Hold)> {
    let mut pairs = Vec::new();
    let mut granted: Vec<&Granted<'_>> = grants.iter().collect();
    granted.sort_by_key(|grant| grant.held);
    let mut asked = granted.clone();
    asked.sort_by_key(|grant| grant.asked);
    let mut granted = granted.into_iter().peekable();
    let mut largest: HashMap<usize, &Granted<'_>> = HashMap::new();
    for later in asked {
        while let Some(earlier) = granted.next_if(|grant| grant.held < later.asked) {
            let known = largest.entry(earlier.hold.lock).or_insert(earlier);
            if earlier.token > known.token {
                *known = earlier;
            }
        }
        let known = largest.get(&later.hold.lock);
        if let Some(earlier) = known.filter(|earlier| earlier.token > later.token) {
            pairs.push((earlier.hold, later.hold));
        }
    }
    pairs
}

/// Those who cannot hold at once do so in the order of their tokens, those who waited side by side as well.
fn out_of_order<'a>(holds: &[&'a Hold]) -> Vec<(Stretch<'a>, Stretch<'a>)> {
    let mut pairs = Vec::new();
    // Of each lock, by modes.
    let mut largest: HashMap<usize, Vec<Stretch<'_>>> = HashMap::new();
    for later in in_order(holds) {
        let known = largest.entry(later.hold.lock).or_default();
        let odd = known
            .iter()
            .filter(|earlier| earlier.token > later.token && !go_together(**earlier, later));
        pairs.extend(odd.map(|earlier| (*earlier, later)));
        match known.iter_mut().find(|earlier| earlier.mode == later.mode) {
            Some(earlier) if earlier.token >= later.token => {}
            Some(earlier) => *earlier = later,
            None => known.push(later),
        }
    }
    pairs
}

/// All that was believed, by lock and time.
fn in_order<'a>(holds: &[&'a Hold]) -> Vec<Stretch<'a>> {
    let mut stretches: Vec<_> = holds.iter().flat_map(|hold| hold.stretches()).collect();
    stretches.sort_by_key(|stretch| (stretch.hold.lock, stretch.from));
    stretches
}

fn go_together(a: Stretch<'_>, b: Stretch<'_>) -> bool {
    rules::fits([a.mode.mode()], b.mode.mode())
}

#[cfg(test)]
mod tests {
    use super::super::holds::Change;
    use super::*;
    use crate::mode::Held;

    fn hold(token: u64, asked: u64, held: u64, believed: u64) -> Hold {
        Hold {
            process: 0,
            incarnation: 0,
            op: token,
            lock: 0,
            token,
            mode: Held::Exclusive,
            fixed: false,
            sent: asked,
            granted: held,
            came: Came::FromServer,
            minimum: 0,
            reentered: Vec::new(),
            asked,
            held,
            changes: Vec::new(),
            believed,
            lease_end: believed,
            left: believed,
            lost: None,
        }
    }

    fn held_as(mode: Held, hold: Hold) -> Hold {
        Hold { mode, ..hold }
    }

    #[test]
    fn touching_intervals_do_not_overlap() {
        let (a, b, c) = (hold(1, 0, 1, 5), hold(2, 0, 5, 9), hold(3, 0, 8, 12));
        assert!(overlaps(&[&a, &b]).is_empty());
        assert_eq!(overlaps(&[&c, &a, &b]).len(), 1);
        let never = hold(4, 0, 6, 6);
        assert!(overlaps(&[&never, &b]).is_empty());
    }

    #[test]
    fn readers_overlap_with_writers_alone() {
        let read = |hold| held_as(Held::Shared, hold);
        let (a, b) = (read(hold(1, 0, 1, 5)), read(hold(2, 0, 2, 9)));
        assert!(overlaps(&[&a, &b]).is_empty());
        let writer = hold(3, 0, 4, 6);
        assert_eq!(overlaps(&[&a, &b, &writer]).len(), 2);
    }

    #[test]
    fn permits_overlap_beyond_their_limit() {
        let permits = |take, hold| held_as(Held::Permits { take, of: 3 }, hold);
        let (a, b) = (permits(1, hold(1, 0, 1, 9)), permits(2, hold(2, 0, 2, 9)));
        assert!(overlaps(&[&a, &b]).is_empty());
        let c = permits(1, hold(3, 0, 8, 12));
        assert_eq!(overlaps(&[&a, &b, &c]).len(), 1, "each of them goes with each other");
        let d = permits(1, hold(3, 0, 9, 12));
        assert!(overlaps(&[&a, &b, &d]).is_empty());
    }

    #[test]
    fn a_hold_is_as_it_was_changed() {
        let change = |mode, token| Change { t: 5, mode, token };
        let downgraded = Hold {
            changes: vec![change(Held::Shared, 1)],
            ..hold(1, 0, 1, 9)
        };
        let reader = |from| held_as(Held::Shared, hold(2, 0, from, 9));
        assert!(overlaps(&[&downgraded, &reader(5)]).is_empty());
        assert_eq!(overlaps(&[&downgraded, &reader(4)]).len(), 1);
        let upgraded = Hold {
            changes: vec![change(Held::Exclusive, 3)],
            ..held_as(Held::Upgradable, hold(1, 0, 1, 9))
        };
        assert_eq!(overlaps(&[&upgraded, &reader(4)]).len(), 1);
        assert!(out_of_order(&[&upgraded, &held_as(Held::Shared, hold(4, 0, 9, 12))]).is_empty());
        assert_eq!(
            out_of_order(&[&upgraded, &held_as(Held::Shared, hold(2, 0, 9, 12))]).len(),
            1
        );
    }

    #[test]
    fn whoever_waits_side_by_side_is_served_in_the_order_of_tokens() {
        let (a, b, c) = (hold(3, 0, 1, 5), hold(2, 0, 6, 9), hold(1, 0, 10, 10));
        assert_eq!(out_of_order(&[&a, &b, &c]).len(), 1);
        assert_eq!(out_of_order(&[&b, &c]).len(), 0, "what nobody believed in is nothing");
    }

    #[test]
    fn readers_of_one_process_share_a_token() {
        let read = |process, asked, held| {
            let hold = held_as(Held::Shared, hold(1, asked, held, 9));
            Hold { process, ..hold }
        };
        let (a, b, other) = (read(0, 0, 1), read(0, 4, 5), read(1, 0, 3));
        let (found, twice) = grants(&[&a, &b]);
        assert!(twice.is_empty());
        let next = Hold { token: 2, ..other };
        let (more, _) = grants(&[&a, &next, &b]);
        assert!(smaller_later(&found).is_empty() && smaller_later(&more).is_empty());
        let other = read(1, 0, 3);
        assert_eq!(grants(&[&a, &other]).1.len(), 1);
        let writer = hold(1, 0, 1, 9);
        assert_eq!(grants(&[&a, &writer]).1.len(), 1);
    }
}
