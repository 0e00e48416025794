//! Who waits, and when each asks again.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lock_core::backend::HolderId;
use tokio::time::Instant;

/// The requests of this process that were refused and may ask again.
#[derive(Debug, Default)]
pub(super) struct Waits(Mutex<Registry>);

#[derive(Debug, Default)]
struct Registry {
    waits: HashMap<HolderId, Wait>,
    /// At which size to look for those that nobody will ask for again.
    sweep_at: usize,
}

#[derive(Debug)]
struct Wait {
    /// How often it was refused.
    refused: u32,
    holder: Option<Arc<str>>,
    asked: Instant,
}

/// The shortest and the longest time between two questions for a name, if few names are waited for.
const PAUSES: (Duration, Duration) = (Duration::from_millis(5), Duration::from_millis(50));
/// Each name that is waited for adds so much to the longest time: a process asks at most a thousand times a second.
const FOR_EACH_NAME: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// By so much a question may be late.
const LATE: Duration = Duration::from_millis(250);
/// A wait that has not asked for so long has ended without saying so.
const FORGOTTEN: Duration = Duration::from_secs(600);

impl Waits {
    /// Whether the holder's label is to be asked for: it may have changed.
    pub(super) fn needs_label(&self, waiter: HolderId) -> bool {
        const SOMETIMES: u32 = 16;
        let registry = self.lock();
        registry
            .waits
            .get(&waiter)
            .is_none_or(|wait| wait.refused.is_multiple_of(SOMETIMES))
    }

    /// The label that was found when it was asked for last.
    pub(super) fn label(&self, waiter: HolderId) -> Option<Arc<str>> {
        self.lock().waits.get(&waiter)?.holder.clone()
    }

    /// Notes a refusal, and returns when to ask again. The name stays taken for `rest` if nothing renews it.
    pub(super) fn refused(&self, waiter: HolderId, label: Option<Arc<str>>, rest: Duration, random: f64) -> Duration {
        let now = Instant::now();
        let mut registry = self.lock();
        registry.sweep(now);
        let names = registry.waits.len();
        let wait = registry.waits.entry(waiter).or_insert(Wait {
            refused: 0,
            holder: None,
            asked: now,
        });
        wait.refused = wait.refused.saturating_add(1);
        wait.holder = label;
        wait.asked = now;
        pause(wait.refused, names, rest, random)
    }

    /// For how long the mark of a waiter stays in the row: until it has asked again.
    pub(super) fn mark_lasts(&self) -> Duration {
        longest_pause(self.lock().waits.len()) + LATE
    }

    pub(super) fn remove(&self, waiter: HolderId) {
        self.lock().waits.remove(&waiter);
    }

    fn lock(&self) -> MutexGuard<'_, Registry> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Registry {
    fn sweep(&mut self, now: Instant) {
        const FEW: usize = 64;
        if self.waits.len() < self.sweep_at.max(FEW) {
            return;
        }
        self.waits.retain(|_, wait| now - wait.asked < FORGOTTEN);
        self.sweep_at = self.waits.len() * 2;
    }
}

/// When to ask again after the `refused`th refusal: less and less often, when the hold ends at the latest, and with so much
/// jitter that those who wait do not ask at the same time. `random` is from 0 to 1.
fn pause(refused: u32, names: usize, rest: Duration, random: f64) -> Duration {
    let shortest = PAUSES.0;
    let backoff = shortest.saturating_mul(1 << refused.saturating_sub(1).min(16));
    let backoff = backoff.min(longest_pause(names));
    // Not all at the moment when the hold ends.
    let end = rest + shortest.mul_f64(random);
    backoff.mul_f64(0.5 + random / 2.0).min(end)
}

/// The longest time between two questions, if so many names are waited for.
fn longest_pause(names: usize) -> Duration {
    let names = u32::try_from(names).unwrap_or(u32::MAX);
    (PAUSES.1 + FOR_EACH_NAME.saturating_mul(names)).min(LONGEST_PAUSE)
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn asks_less_and_less_often_and_when_the_hold_ends() {
        let pauses = [1, 2, 3, 4, 5, 99].map(|refused| pause(refused, 0, ms(9999), 1.0));
        assert_eq!(pauses, [ms(5), ms(10), ms(20), ms(40), ms(50), ms(50)]);
        assert_eq!(pause(99, 0, ms(9999), 0.0), ms(25));
        assert_eq!(pause(99, 0, ms(7), 0.0), ms(7));
        assert_eq!(pause(99, 0, ms(7), 1.0), ms(12));
    }

    #[test]
    fn a_thousand_names_ask_a_thousand_times_a_second() {
        assert_eq!(pause(99, 1000, ms(60_000), 1.0), ms(1050));
        assert_eq!(pause(u32::MAX, usize::MAX, ms(70), 1.0), ms(75));
        assert_eq!(pause(u32::MAX, usize::MAX, ms(99_999), 1.0), LONGEST_PAUSE);
    }

    #[tokio::test(start_paused = true)]
    async fn those_who_left_without_a_word_are_forgotten() {
        let waits = Waits::default();
        for _ in 0..200 {
            waits.refused(HolderId::random(), None, ms(1), 0.5);
        }
        tokio::time::advance(2 * FORGOTTEN).await;
        for _ in 0..200 {
            waits.refused(HolderId::random(), None, ms(1), 0.5);
        }
        assert!(waits.lock().waits.len() <= 300, "{}", waits.lock().waits.len());
    }
}
