//! The cost of faults of the server: for how long nobody was granted a lock, and for how long two processes believed at
//! once.

use super::holds::{Hold, Stretch};
use crate::record::Strike;

/// Times in nanoseconds.
#[derive(Clone, Debug, Default)]
pub(crate) struct Gaps {
    /// For each fault of the server, the longest time from one grant to the next; in ascending order.
    pub(crate) pauses: Vec<u64>,
    /// The longest time for which two believed at once.
    pub(crate) overlap: u64,
}

impl Gaps {
    pub(super) fn of(strikes: &[Strike], holds: &[&Hold], overlaps: &[(Stretch<'_>, Stretch<'_>)]) -> Self {
        let of_server = strikes.iter().filter(|strike| strike.process.is_none());
        let faults: Vec<(u64, u64)> = of_server.map(|strike| (strike.from, strike.to)).collect();
        let mut grants: Vec<u64> = holds.iter().map(|hold| hold.held).collect();
        grants.sort_unstable();
        let lengths = overlaps.iter().map(|(a, b)| a.to.min(b.to).saturating_sub(b.from));
        Self {
            pauses: pauses(&faults, &grants),
            overlap: lengths.max().unwrap_or(0),
        }
    }

    pub(crate) fn median(&self) -> Option<u64> {
        self.pauses.get(self.pauses.len() / 2).copied()
    }
}

/// The longest pause between two grants that a fault was a part of, for each fault. A fault with no grant after it has none.
fn pauses(faults: &[(u64, u64)], grants: &[u64]) -> Vec<u64> {
    let longest = |(from, to): &(u64, u64)| {
        let pairs = grants.windows(2).filter(|pair| pair[1] > *from && pair[0] < *to);
        pairs.map(|pair| pair[1] - pair[0]).max()
    };
    let mut pauses: Vec<u64> = faults.iter().filter_map(longest).collect();
    pauses.sort_unstable();
    pauses
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_is_the_longest_that_a_fault_was_a_part_of() {
        let grants = [0, 2, 9, 10, 30, 31];
        assert_eq!(
            pauses(&[(3, 4)], &grants),
            [7],
            "it began before the fault and ended after it"
        );
        assert_eq!(pauses(&[(1, 40), (9, 10)], &grants), [1, 20]);
        assert_eq!(
            pauses(&[(31, 40)], &grants),
            [] as [u64; 0],
            "nobody was granted anything"
        );
    }
}
