//! The names that were refused a moment ago.

use std::collections::HashMap;
use std::time::Duration;

use crate::name::LockName;
use crate::sync::Mutex;
use crate::sync::time::Instant;

/// A name that was refused is crowded for this long: trying it once more would mostly cost a round trip.
const JUST_NOW: Duration = Duration::from_secs(1);

/// The names of one locker that an acquire of several locks found taken.
#[derive(Debug, Default)]
pub(crate) struct Refusals(Mutex<Refused>);

#[derive(Debug, Default)]
struct Refused {
    when: HashMap<LockName, Instant>,
    /// The last time at which old entries were removed. Not at every refusal, since that reads all entries.
    tidied: Option<Instant>,
}

impl Refusals {
    pub(crate) fn note(&self, name: &LockName) {
        let now = Instant::now();
        let mut refused = self.0.lock();
        if refused.tidied.is_none_or(|tidied| !is_just_now(tidied, now)) {
            refused.when.retain(|_, when| is_just_now(*when, now));
            refused.tidied = Some(now);
        }
        refused.when.insert(name.clone(), now);
    }

    pub(crate) fn has(&self, name: &LockName) -> bool {
        let refused = self.0.lock().when.get(name).copied();
        refused.is_some_and(|when| is_just_now(when, Instant::now()))
    }
}

fn is_just_now(when: Instant, now: Instant) -> bool {
    now.saturating_duration_since(when) < JUST_NOW
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_refusal_counts_for_a_second_and_is_forgotten_then() {
        let name = |name| LockName::new(name).unwrap();
        let refusals = Refusals::default();
        refusals.note(&name("a"));
        tokio::time::advance(JUST_NOW - Duration::from_nanos(1)).await;
        assert!(refusals.has(&name("a")) && !refusals.has(&name("b")));
        tokio::time::advance(Duration::from_nanos(1)).await;
        assert!(!refusals.has(&name("a")));
        refusals.note(&name("b"));
        assert_eq!(refusals.0.lock().when.len(), 1, "nothing piles up");
    }
}
