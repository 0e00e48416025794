//! Who came before whom: overlaps, and the order of tokens.

use std::collections::HashMap;

use super::holds::Hold;
use super::{Breach, Check, History};

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
    breaches
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
}
