//! Who waits, and when each asks again.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use lock_core::LockName;
use lock_core::backend::{AcquireRequest, HolderId, Mode};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::connection::Session;
use crate::protocol::lease_table::Taken;

/// The requests of this process that were refused and may ask again.
#[derive(Debug, Default)]
pub(super) struct Waits(Mutex<Registry>);

#[derive(Debug, Default)]
struct Registry {
    waiters: HashMap<HolderId, Waiter>,
    /// How often somebody was woken.
    calls: u64,
    /// At which size to look for those that nobody will ask for again.
    sweep_at: usize,
}

#[derive(Debug)]
pub(super) struct Waiter {
    name: LockName,
    /// Whether it waits to share the name.
    shares: bool,
    /// How often it was refused.
    refused: u32,
    /// The holder's label, when it was asked for last.
    label: Option<Arc<str>>,
    asked: Instant,
    /// Whether the row has its mark.
    pub(super) is_marked: bool,
    /// Where it has a queue entry, or a request for one may be under way: the named lock of this connection.
    pub(super) entry: Option<Arc<Session>>,
    /// Notified when the name may be free.
    woken: Arc<Notify>,
}

/// What has a waiter ask before its pause is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wakes {
    /// The release of the name: the row has this waiter's mark.
    Release,
    /// The next grant, which calls one of those who wait without a mark.
    Turn,
    Nobody,
    /// The connection by which it is woken, once that is made.
    Sleeper,
    /// It is to ask at once.
    Now,
}

/// The shortest and the longest time between two questions of a waiter that nobody wakes, if few names are waited for.
const PAUSES: (Duration, Duration) = (Duration::from_millis(5), Duration::from_millis(50));
/// The longest time between two questions of one that a release wakes: the call that wakes it may be lost.
const PAUSE_IF_WOKEN: Duration = Duration::from_secs(1);
/// The longest time between two questions of one whose turn comes: whoever was to call it may be gone, or have called another
/// one that is gone.
const PAUSE_UNTIL_TURN: Duration = Duration::from_millis(500);
/// The longest time between two questions of one that waits to share the name, whatever wakes it: it asks by a transaction of
/// ten statements.
const PAUSE_TO_SHARE: Duration = Duration::from_secs(2);
/// Each name that is waited for adds so much to the longest time: a process asks at most a thousand times a second.
const FOR_EACH_NAME: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// By so much a question may be late.
const LATE: Duration = Duration::from_millis(250);
/// A waiter that has not asked for so long has left without saying so.
const FORGOTTEN: Duration = Duration::from_secs(600);

impl Waits {
    /// Whether this request was refused before.
    pub(super) fn contains(&self, waiter: HolderId) -> bool {
        self.0.lock().waiters.contains_key(&waiter)
    }

    /// Whether the holder's label is to be asked for: it may have changed.
    pub(super) fn needs_label(&self, waiter: HolderId) -> bool {
        const SOMETIMES: u32 = 16;
        let registry = self.0.lock();
        let waiter = registry.waiters.get(&waiter);
        waiter.is_none_or(|waiter| waiter.refused.is_multiple_of(SOMETIMES))
    }

    /// The label that was found when it was asked for last.
    pub(super) fn label(&self, waiter: HolderId) -> Option<Arc<str>> {
        self.0.lock().waiters.get(&waiter)?.label.clone()
    }

    /// Notes a refusal, and returns what is notified if the name may be free.
    pub(super) fn refused(&self, request: &AcquireRequest, label: Option<Arc<str>>, taken: Taken) -> Arc<Notify> {
        let now = Instant::now();
        let mut registry = self.0.lock();
        registry.sweep(now);
        let waiter = registry.waiters.entry(request.holder()).or_insert_with(|| Waiter {
            name: request.name().clone(),
            shares: request.mode() != Mode::Exclusive,
            refused: 0,
            label: None,
            asked: now,
            is_marked: false,
            entry: None,
            woken: Arc::default(),
        });
        waiter.refused = waiter.refused.saturating_add(1);
        waiter.label = label;
        waiter.asked = now;
        waiter.is_marked = taken.is_marked;
        waiter.woken.clone()
    }

    /// When to ask again for a name that stays taken for so long.
    pub(super) fn pause(&self, waiter: HolderId, rest: Duration, wakes: Wakes) -> Duration {
        let registry = self.0.lock();
        let waiter = registry.waiters.get(&waiter);
        let (refused, shares) = waiter.map_or((1, false), |waiter| (waiter.refused, waiter.shares));
        let longest = longest_pause(registry.waiters.len(), wakes, shares);
        pause(refused, longest, rest, wakes, rand::random())
    }

    pub(super) fn entry(&self, waiter: HolderId) -> Option<Arc<Session>> {
        self.0.lock().waiters.get(&waiter)?.entry.clone()
    }

    pub(super) fn take_entry(&self, waiter: HolderId) -> Option<Arc<Session>> {
        self.0.lock().waiters.get_mut(&waiter)?.entry.take()
    }

    /// Returns whether the waiter is there.
    pub(super) fn set_entry(&self, waiter: HolderId, entry: Option<Arc<Session>>) -> bool {
        let mut registry = self.0.lock();
        let waiter = registry.waiters.get_mut(&waiter);
        waiter.map(|waiter| waiter.entry = entry).is_some()
    }

    /// For how long the mark of a waiter stays in the row: until it has asked again.
    pub(super) fn mark_lasts(&self, wakes: Wakes, mode: Mode) -> Duration {
        longest_pause(self.0.lock().waiters.len(), wakes, mode != Mode::Exclusive) + LATE
    }

    pub(super) fn remove(&self, waiter: HolderId) -> Option<Waiter> {
        self.0.lock().waiters.remove(&waiter)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.lock().waiters.is_empty()
    }

    /// How often somebody was woken. A question that was answered meanwhile may have left the mark for which that was, and is
    /// asked again.
    pub(super) fn calls(&self) -> u64 {
        self.0.lock().calls
    }

    /// Counts a call, and returns the names of those who are called: their mark is in a row, or they have a queue entry.
    pub(super) fn called(&self) -> Vec<LockName> {
        let mut registry = self.0.lock();
        registry.calls += 1;
        let called = registry.waiters.values().filter(|waiter| waiter.is_called());
        called.map(|waiter| waiter.name.clone()).collect()
    }

    /// Has all ask.
    pub(super) fn wake_all(&self) {
        let mut registry = self.0.lock();
        registry.calls += 1;
        for waiter in registry.waiters.values() {
            waiter.woken.notify_one();
        }
    }

    /// Has those ask who are called, wait for a name, and `may_ask`.
    pub(super) fn wake(&self, may_ask: impl Fn(&LockName, HolderId) -> bool) {
        let registry = self.0.lock();
        for (holder, waiter) in &registry.waiters {
            if waiter.is_called() && may_ask(&waiter.name, *holder) {
                waiter.woken.notify_one();
            }
        }
    }
}

impl Waiter {
    fn is_called(&self) -> bool {
        self.is_marked || self.entry.is_some()
    }
}

impl Registry {
    fn sweep(&mut self, now: Instant) {
        const FEW: usize = 64;
        if self.waiters.len() < self.sweep_at.max(FEW) {
            return;
        }
        self.waiters.retain(|_, waiter| now - waiter.asked < FORGOTTEN);
        self.sweep_at = self.waiters.len() * 2;
    }
}

/// When to ask again after the `refused`th refusal: less and less often, when the hold ends at the latest, and with so much
/// jitter that those who wait do not ask at the same time. `random` is from 0 to 1.
fn pause(refused: u32, longest: Duration, rest: Duration, wakes: Wakes, random: f64) -> Duration {
    let shortest = PAUSES.0;
    let backoff = match wakes {
        Wakes::Now => return Duration::ZERO,
        Wakes::Release | Wakes::Turn | Wakes::Sleeper => longest,
        Wakes::Nobody => shortest
            .saturating_mul(1 << refused.saturating_sub(1).min(16))
            .min(longest),
    };
    // Not all at the moment when the hold ends.
    let end = rest + shortest.mul_f64(random);
    backoff.mul_f64(0.5 + random / 2.0).min(end)
}

/// The longest time between two questions, if so many names are waited for, of one that waits to share its name or not.
fn longest_pause(names: usize, wakes: Wakes, shares: bool) -> Duration {
    let names = u32::try_from(names).unwrap_or(u32::MAX);
    let one = match wakes {
        _ if shares => PAUSE_TO_SHARE,
        Wakes::Release => PAUSE_IF_WOKEN,
        Wakes::Turn | Wakes::Sleeper => PAUSE_UNTIL_TURN,
        Wakes::Nobody | Wakes::Now => PAUSES.1,
    };
    (one + FOR_EACH_NAME.saturating_mul(names)).min(LONGEST_PAUSE)
}

#[cfg(test)]
mod tests {
    use lock_core::backend::request::{RequestOptions, Terms};

    use super::*;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    /// The pause of one that waits to have the name alone.
    fn alone(refused: u32, names: usize, rest: Duration, wakes: Wakes, random: f64) -> Duration {
        pause(refused, longest_pause(names, wakes, false), rest, wakes, random)
    }

    #[test]
    fn asks_less_and_less_often_and_when_the_hold_ends() {
        let pauses = [1, 2, 3, 4, 5, 99].map(|refused| alone(refused, 0, ms(9999), Wakes::Nobody, 1.0));
        assert_eq!(pauses, [ms(5), ms(10), ms(20), ms(40), ms(50), ms(50)]);
        assert_eq!(alone(99, 0, ms(9999), Wakes::Nobody, 0.0), ms(25));
        assert_eq!(alone(99, 0, ms(7), Wakes::Nobody, 0.0), ms(7));
        assert_eq!(alone(99, 0, ms(7), Wakes::Nobody, 1.0), ms(12));
    }

    #[test]
    fn one_that_is_woken_asks_seldom() {
        assert_eq!(alone(1, 0, ms(9999), Wakes::Release, 1.0), ms(1000));
        assert_eq!(alone(1, 0, ms(9999), Wakes::Release, 0.0), ms(500));
        assert_eq!(alone(1, 0, ms(7), Wakes::Release, 1.0), ms(12));
        assert_eq!(alone(1, 0, ms(9999), Wakes::Turn, 1.0), ms(500));
        assert_eq!(alone(9, 0, ms(9999), Wakes::Now, 1.0), ms(0));
    }

    #[test]
    fn one_that_waits_to_share_asks_at_most_once_a_second() {
        for wakes in [Wakes::Turn, Wakes::Sleeper, Wakes::Nobody] {
            let longest = longest_pause(0, wakes, true);
            assert_eq!(pause(10, longest, ms(9999), wakes, 0.0), ms(1000), "{wakes:?}");
        }
        let longest = longest_pause(0, Wakes::Nobody, true);
        let pauses = [1, 2, 9, 10].map(|refused| pause(refused, longest, ms(9999), Wakes::Nobody, 1.0));
        assert_eq!(pauses, [ms(5), ms(10), ms(1280), ms(2000)]);
    }

    #[test]
    fn a_thousand_names_ask_a_thousand_times_a_second() {
        assert_eq!(alone(99, 1000, ms(60_000), Wakes::Nobody, 1.0), ms(1050));
        assert_eq!(alone(u32::MAX, usize::MAX, ms(70), Wakes::Nobody, 1.0), ms(75));
        assert_eq!(
            alone(u32::MAX, usize::MAX, ms(99_999), Wakes::Release, 1.0),
            LONGEST_PAUSE
        );
    }

    #[tokio::test(start_paused = true)]
    async fn those_who_left_without_a_word_are_forgotten() {
        let waits = Waits::default();
        let refuse = || {
            let terms = Terms::new(ms(1000));
            let (request, _control) = RequestOptions::new(LockName::new("a").unwrap(), terms).start();
            let taken = Taken {
                rest: ms(1),
                is_marked: false,
            };
            waits.refused(&request, None, taken);
        };
        (0..200).for_each(|_| refuse());
        tokio::time::advance(2 * FORGOTTEN).await;
        (0..200).for_each(|_| refuse());
        assert!(waits.0.lock().waiters.len() <= 300, "{}", waits.0.lock().waiters.len());
    }
}
