//! The pairs of limits of one semaphore that were found to differ, so that each pair is logged once.

use std::collections::VecDeque;

use crate::name::LockName;
use crate::sync::Mutex;

/// So many are remembered, the latest. A process with more of them has worse to do than to read a line twice.
const MOST: usize = 64;

/// The pairs that one locker has logged.
#[derive(Debug, Default)]
pub(crate) struct DifferingLimits(Mutex<VecDeque<(LockName, u32, u32)>>);

impl DifferingLimits {
    /// Remembers these two limits, in any order. Returns whether they were not remembered yet.
    pub(super) fn note(&self, name: &LockName, limit: u32, other: u32) -> bool {
        let pair = (name.clone(), limit.min(other), limit.max(other));
        let mut known = self.0.lock();
        if known.contains(&pair) {
            return false;
        }
        if known.len() == MOST {
            known.pop_front();
        }
        known.push_back(pair);
        true
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;

    #[test]
    fn a_pair_is_new_once_and_nothing_piles_up() {
        let name = |name| LockName::new(name).unwrap();
        let limits = DifferingLimits::default();
        assert!(limits.note(&name("a"), 5, 10));
        assert!(!limits.note(&name("a"), 10, 5));
        assert!(limits.note(&name("a"), 5, 11) && limits.note(&name("b"), 5, 10));
        for other in 0..1000 {
            limits.note(&name("c"), 5000, other);
        }
        assert_eq!(limits.0.lock().len(), MOST);
        assert!(!limits.note(&name("c"), 5000, 999));
    }
}
