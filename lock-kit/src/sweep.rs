//! Forgets those who left without saying so.

use std::collections::HashMap;
use std::time::Duration;

use tokio::time::Instant;

/// Who has not asked for so long has left.
const FORGOTTEN: Duration = Duration::from_secs(600);
/// With fewer it does not look.
const FEW: usize = 64;

/// Forgets waiters that have not asked for ten minutes. It looks when their number has doubled.
///
/// # Examples
/// ```
/// # use std::collections::HashMap;
/// # use lock_kit::sweep::Sweep;
/// # use tokio::time::Instant;
/// let (mut sweep, mut waiters) = (Sweep::default(), HashMap::from([(1, Instant::now())]));
/// sweep.run(&mut waiters, |asked| *asked);
/// assert_eq!(waiters.len(), 1);
/// ```
#[derive(Debug, Default)]
pub struct Sweep {
    /// At which number it looks next.
    at: usize,
}

impl Sweep {
    /// To be called for each new waiter. `asked`: when a waiter has asked last.
    pub fn run<K, W>(&mut self, waiters: &mut HashMap<K, W>, asked: impl Fn(&W) -> Instant) {
        if waiters.len() < self.at.max(FEW) {
            return;
        }
        waiters.retain(|_, waiter| asked(waiter).elapsed() < FORGOTTEN);
        self.at = waiters.len() * 2;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn those_who_left_without_a_word_are_forgotten() {
        let (mut sweep, mut waiters) = (Sweep::default(), HashMap::new());
        let mut add = |from: usize| {
            for number in from..from + 200 {
                sweep.run(&mut waiters, |asked| *asked);
                waiters.insert(number, Instant::now());
            }
            (waiters.len(), waiters.contains_key(&0))
        };
        assert_eq!(add(0), (200, true));
        tokio::time::advance(FORGOTTEN - Duration::from_secs(1)).await;
        assert_eq!(add(200), (400, true));
        tokio::time::advance(Duration::from_secs(1)).await;
        let (left, has_first) = add(400);
        assert!(!has_first && left == 400, "{left}");
    }
}
