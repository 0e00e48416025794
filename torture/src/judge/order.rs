//! Who came before whom: overlaps, and the order of tokens.

use std::collections::HashMap;

use super::holds::Hold;
use crate::check::Check;
use crate::history::History;
use crate::verdict::Breach;

/// Pairs of holds of one lock that were believed in at once.
pub(crate) fn overlaps<'a>(holds: &[&'a Hold]) -> Vec<(&'a Hold, &'a Hold)> {
    let mut sorted: Vec<&Hold> = holds.iter().copied().filter(|hold| hold.believed > hold.held).collect();
    sorted.sort_by_key(|hold| (hold.lock, hold.held));
    let mut pairs = Vec::new();
    for (index, first) in sorted.iter().enumerate() {
        let later = sorted[index + 1..].iter();
        let during = later.take_while(|hold| hold.lock == first.lock && hold.held < first.believed);
        pairs.extend(during.map(|second| (*first, *second)));
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
    let mut breaches = Vec::new();
    let mut by_token = HashMap::new();
    for hold in holds {
        if let Some(other) = by_token.insert((hold.lock, hold.token), *hold) {
            breaches.push(Breach::new(
                Check::Tokens,
                format!("one token twice:{}", tell(other, hold)),
            ));
        }
    }
    let mut granted: Vec<&Hold> = holds.to_vec();
    granted.sort_by_key(|hold| hold.held);
    let mut asked = granted.clone();
    asked.sort_by_key(|hold| hold.asked);
    let mut granted = granted.into_iter().peekable();
    let mut largest: HashMap<usize, &Hold> = HashMap::new();
    for later in asked {
        while let Some(earlier) = granted.next_if(|hold| hold.held < later.asked) {
            let known = largest.entry(earlier.lock).or_insert(earlier);
            if earlier.token > known.token {
                *known = earlier;
            }
        }
        if let Some(earlier) = largest.get(&later.lock).filter(|earlier| earlier.token > later.token) {
            breaches.push(Breach::new(
                Check::Tokens,
                format!("a later token is smaller:{}", tell(earlier, later)),
            ));
        }
    }
    if history.outcome.config.promises_exclusion() {
        breaches.extend(out_of_order(holds).map(|(earlier, later)| {
            let what = format!("believed in later, and smaller:{}", tell(earlier, later));
            Breach::new(Check::Tokens, what)
        }));
    }
    breaches
}

/// Where only one believes at a time, they do so in the order of their tokens, those who waited side by side as well.
fn out_of_order<'a>(holds: &[&'a Hold]) -> impl Iterator<Item = (&'a Hold, &'a Hold)> {
    let mut sorted: Vec<&Hold> = holds.iter().copied().filter(|hold| hold.believed > hold.held).collect();
    sorted.sort_by_key(|hold| (hold.lock, hold.held));
    let pairs: Vec<_> = sorted.windows(2).map(|pair| (pair[0], pair[1])).collect();
    pairs
        .into_iter()
        .filter(|(earlier, later)| earlier.lock == later.lock && earlier.token > later.token)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hold(token: u64, asked: u64, held: u64, believed: u64) -> Hold {
        Hold {
            process: 0,
            incarnation: 0,
            op: token,
            lock: 0,
            token,
            sent: asked,
            granted: held,
            handed: false,
            minimum: 0,
            reentered: Vec::new(),
            asked,
            held,
            believed,
            lease_end: believed,
            left: believed,
            lost: None,
        }
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
    fn whoever_waits_side_by_side_is_served_in_the_order_of_tokens() {
        let (a, b, c) = (hold(3, 0, 1, 5), hold(2, 0, 6, 9), hold(1, 0, 10, 10));
        assert_eq!(out_of_order(&[&a, &b, &c]).count(), 1);
        assert_eq!(out_of_order(&[&b, &c]).count(), 0, "what nobody believed in is nothing");
    }
}
