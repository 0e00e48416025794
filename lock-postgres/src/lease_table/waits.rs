//! The waiters of this process.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use lock_core::backend::HolderId;
use lock_kit::pacing::{Wakes, longest_pause, pause};
use lock_kit::sweep::Sweep;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;
use uuid::Uuid;

use crate::names::id_of;
use crate::protocol::LONGEST_ENTRY;

/// The requests of this process that were refused and may ask again.
#[derive(Debug, Default)]
pub(super) struct Waits(Mutex<Registry>);

#[derive(Debug, Default)]
struct Registry {
    waiters: HashMap<Uuid, Waiter>,
    sweep: Sweep,
}

#[derive(Debug)]
struct Waiter {
    /// The number of its refusals.
    refused: u32,
    asked: Instant,
    /// What its last answer took.
    round_trip: Duration,
    /// Its place in the queue, if it has one.
    place: Option<i64>,
    woken: Arc<Wakeup>,
}

/// What wakes a waiter.
#[derive(Debug, Default)]
pub(super) struct Wakeup {
    pub(super) turn: Notify,
    /// It is the stand-by: it asks a little later.
    pub(super) stand_by: Notify,
}

/// By so much a question may be late.
const LATE: Duration = Duration::from_millis(1500);

impl Waits {
    /// Notes that a request was refused, and returns what wakes it.
    pub(super) fn refused(&self, holder: HolderId, round_trip: Duration) -> Arc<Wakeup> {
        let now = Instant::now();
        let mut registry = self.0.lock();
        registry.sweep();
        let waiter = registry.waiter(holder);
        waiter.refused = waiter.refused.saturating_add(1);
        (waiter.asked, waiter.round_trip) = (now, round_trip);
        waiter.woken.clone()
    }

    /// The pause before the next question, if the name stays taken for `rest`.
    pub(super) fn pause(&self, holder: HolderId, rest: Duration, wakes: Wakes) -> Duration {
        let registry = self.0.lock();
        let refused = registry.waiters.get(&id_of(holder)).map_or(1, |waiter| waiter.refused);
        let longest = longest_pause(registry.waiters.len(), wakes, false);
        pause(refused, longest, rest, wakes, rand::random())
    }

    /// For how long the entry of a waiter lasts in the queue: until it has asked again.
    pub(super) fn entry_lasts(&self, holder: HolderId) -> Duration {
        let registry = self.0.lock();
        let waiter = registry.waiters.get(&id_of(holder));
        let round_trip = waiter.map_or(Duration::ZERO, |waiter| waiter.round_trip);
        let longest = longest_pause(registry.waiters.len(), Wakes::Release, false);
        (longest + LATE + round_trip * 2).min(Duration::from_micros(LONGEST_ENTRY))
    }

    pub(super) fn place(&self, holder: HolderId) -> Option<i64> {
        self.0.lock().waiters.get(&id_of(holder))?.place
    }

    pub(super) fn set_place(&self, holder: HolderId, place: Option<i64>) {
        self.0.lock().waiter(holder).place = place;
    }

    /// Returns whether it was there.
    pub(super) fn remove(&self, holder: HolderId) -> bool {
        self.0.lock().waiters.remove(&id_of(holder)).is_some()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.lock().waiters.is_empty()
    }

    /// Wakes the waiter that a notification names.
    pub(super) fn called(&self, payload: &str) {
        let (id, rank) = payload.split_once(':').unwrap_or((payload, "1"));
        let registry = self.0.lock();
        if let Some(waiter) = Uuid::parse_str(id).ok().and_then(|id| registry.waiters.get(&id)) {
            match rank {
                "1" => waiter.woken.turn.notify_one(),
                _ => waiter.woken.stand_by.notify_one(),
            }
        }
    }

    /// Has all ask: calls may have been missed.
    pub(super) fn wake_all(&self) {
        for waiter in self.0.lock().waiters.values() {
            waiter.woken.turn.notify_one();
        }
    }
}

impl Registry {
    fn waiter(&mut self, holder: HolderId) -> &mut Waiter {
        self.waiters.entry(id_of(holder)).or_insert_with(|| Waiter {
            refused: 0,
            asked: Instant::now(),
            round_trip: Duration::ZERO,
            place: None,
            woken: Arc::default(),
        })
    }

    fn sweep(&mut self) {
        self.sweep.run(&mut self.waiters, |waiter| waiter.asked);
    }
}

#[cfg(test)]
mod fuzz;
#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn those_who_left_without_a_word_are_forgotten() {
        let waits = Waits::default();
        for _ in 0..2 {
            (0..200).for_each(|_| drop(waits.refused(HolderId::random(), Duration::ZERO)));
            tokio::time::advance(Duration::from_secs(1200)).await;
        }
        drop(waits.refused(HolderId::random(), Duration::ZERO));
        assert!(waits.0.lock().waiters.len() <= 300, "{}", waits.0.lock().waiters.len());
    }

    #[test]
    fn a_call_wakes_the_one_of_whom_it_speaks() {
        let (waits, one, other) = (Waits::default(), HolderId::random(), HolderId::random());
        let (woken, not_woken) = (waits.refused(one, Duration::ZERO), waits.refused(other, Duration::ZERO));
        for payload in [
            "",
            "x:1",
            &format!("{}:1", HolderId::random()),
            &format!("{one}:1"),
            &format!("{other}:2"),
        ] {
            waits.called(payload);
        }
        assert!(has_turn(&woken) && !has_turn(&not_woken));
        assert!(not_woken.stand_by.notified().now_or_never().is_some());
        assert!(woken.stand_by.notified().now_or_never().is_none());
    }

    /// Whether it is to ask now.
    fn has_turn(woken: &Wakeup) -> bool {
        woken.turn.notified().now_or_never().is_some()
    }

    #[test]
    fn a_call_that_may_be_lost_wakes_all() {
        let waits = Waits::default();
        let woken = [(); 2].map(|()| waits.refused(HolderId::random(), Duration::ZERO));
        assert!(!woken.iter().any(|woken| has_turn(woken)));
        waits.wake_all();
        assert!(woken.iter().all(|woken| has_turn(woken)));
    }

    #[test]
    fn a_place_goes_with_its_waiter() {
        let (waits, holder) = (Waits::default(), HolderId::random());
        assert!(waits.is_empty() && !waits.remove(holder));
        drop(waits.refused(holder, Duration::ZERO));
        assert_eq!(waits.place(holder), None);
        waits.set_place(holder, Some(7));
        assert_eq!((waits.place(holder), waits.place(HolderId::random())), (Some(7), None));
        waits.set_place(holder, None);
        assert_eq!(waits.place(holder), None);
        assert!(!waits.is_empty() && waits.remove(holder));
        assert!(waits.is_empty());
    }

    #[tokio::test]
    async fn an_entry_outlasts_the_pause_and_no_longer_than_it_is_believed() {
        let (waits, holder) = (Waits::default(), HolderId::random());
        drop(waits.refused(holder, Duration::ZERO));
        let pause = waits.pause(holder, Duration::from_secs(3600), Wakes::Release);
        assert!(!pause.is_zero() && waits.entry_lasts(holder) >= pause + LATE);
        // A question takes as long as the last one, and the next may be sent after its answer.
        let before = waits.entry_lasts(holder);
        drop(waits.refused(holder, Duration::from_secs(1)));
        assert_eq!(waits.entry_lasts(holder), before + Duration::from_secs(2));
        drop(waits.refused(holder, Duration::from_secs(100)));
        assert_eq!(waits.entry_lasts(holder), Duration::from_micros(LONGEST_ENTRY));
    }
}
