//! What holder ids may have left at the server: a queue entry, and an acquire that is still in flight on a connection that
//! has been replaced.
//!
//! The server executes the requests of one connection in the order in which they were sent. So a release that goes over
//! the same connection as the acquire comes after it. Over another connection it may come before, and then leaves a
//! tombstone, by which the server refuses the late acquire.

use std::collections::HashMap;
use std::time::Duration;

use lock_core::backend::HolderId;
use parking_lot::Mutex;
use tokio::time::Instant;

/// One for each holder id that may have left something.
#[derive(Debug, Default)]
pub(crate) struct Claims(Mutex<Recent>);

/// The claims of the last one to two days. A whole day's are forgotten at once, so that one more costs the same however
/// many there are. By then core has long stopped to abandon their requests.
#[derive(Debug, Default)]
struct Recent {
    today: HashMap<HolderId, Claim>,
    yesterday: HashMap<HolderId, Claim>,
    /// When today began. `None`: nothing was ever recorded.
    since: Option<Instant>,
}

#[derive(Debug, Default)]
struct Claim {
    /// The generations of the connections over which an acquire went that was never answered.
    generations: Vec<u64>,
}

/// An acquire in flight. It leaves a claim unless [`answered`](Self::answered) is called.
#[derive(Debug)]
#[must_use]
pub(crate) struct InFlight<'a> {
    claims: &'a Claims,
    holder: HolderId,
    generation: u64,
}

impl Claims {
    /// To be called before an acquire is sent.
    pub(crate) fn sending(&self, holder: HolderId, generation: u64) -> InFlight<'_> {
        InFlight {
            claims: self,
            holder,
            generation,
        }
    }

    /// Whether a request over this connection may overtake an acquire of this holder id.
    pub(crate) fn may_overtake(&self, holder: HolderId, generation: u64) -> bool {
        let recent = self.0.lock();
        let claim = recent.get(holder);
        claim.is_some_and(|claim| claim.generations.iter().any(|sent| *sent != generation))
    }

    /// Whether this holder id may have left anything.
    pub(crate) fn contain(&self, holder: HolderId) -> bool {
        self.0.lock().get(holder).is_some()
    }

    /// Notes that this holder id may have a queue entry.
    pub(crate) fn note_entry(&self, holder: HolderId) {
        self.record(holder, None);
    }

    /// Forgets this holder id: the server has ended whatever it had, for good.
    pub(crate) fn remove(&self, holder: HolderId) {
        self.0.lock().remove(holder);
    }

    fn record(&self, holder: HolderId, generation: Option<u64>) {
        let mut recent = self.0.lock();
        let claim = recent.entry(holder, Instant::now());
        if let Some(generation) = generation
            && !claim.generations.contains(&generation)
        {
            claim.generations.push(generation);
        }
    }
}

impl Recent {
    fn get(&self, holder: HolderId) -> Option<&Claim> {
        self.today.get(&holder).or_else(|| self.yesterday.get(&holder))
    }

    fn entry(&mut self, holder: HolderId, now: Instant) -> &mut Claim {
        self.rotate(now);
        let known = self.yesterday.remove(&holder).unwrap_or_default();
        self.today.entry(holder).or_insert(known)
    }

    fn remove(&mut self, holder: HolderId) {
        if self.today.remove(&holder).is_none() {
            self.yesterday.remove(&holder);
        }
    }

    fn rotate(&mut self, now: Instant) {
        const DAY: Duration = Duration::from_secs(24 * 3600);
        let age = now - *self.since.get_or_insert(now);
        if age >= DAY {
            self.yesterday = std::mem::take(&mut self.today);
            self.since = Some(now);
        }
        if age >= 2 * DAY {
            self.yesterday.clear();
        }
    }
}

impl InFlight<'_> {
    /// It is sent once more over this connection: the server of the earlier one has refused it.
    pub(crate) fn moves_to(&mut self, generation: u64) {
        self.generation = generation;
    }

    /// The server has answered it, so it is in flight no longer.
    pub(crate) fn answered(self) {
        std::mem::forget(self);
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.claims.record(self.holder, Some(self.generation));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn only_another_connection_can_overtake() {
        let (claims, holder) = (Claims::default(), HolderId::random());
        claims.sending(holder, 1).answered();
        assert!(!claims.may_overtake(holder, 2) && !claims.contain(holder));
        claims.note_entry(holder);
        assert!(!claims.may_overtake(holder, 2) && claims.contain(holder));
        drop(claims.sending(holder, 1));
        assert!(!claims.may_overtake(holder, 1));
        assert!(claims.may_overtake(holder, 2));
        assert!(!claims.may_overtake(HolderId::random(), 2));
        drop(claims.sending(holder, 2));
        assert!(claims.may_overtake(holder, 1) && claims.may_overtake(holder, 2));
        claims.remove(holder);
        assert!(!claims.may_overtake(holder, 3) && !claims.contain(holder));
    }

    #[tokio::test(start_paused = true)]
    async fn claims_are_forgotten_after_a_day_or_two() {
        const DAY: Duration = Duration::from_secs(24 * 3600);
        for (days, known) in [(0, true), (1, true), (2, false)] {
            let (claims, holder) = (Claims::default(), HolderId::random());
            drop(claims.sending(holder, 1));
            tokio::time::advance(days * DAY).await;
            drop(claims.sending(HolderId::random(), 2));
            assert_eq!(claims.contain(holder), known, "after {days} days");
        }
        let (claims, holder) = (Claims::default(), HolderId::random());
        for number in 0..3 {
            drop(claims.sending(holder, number));
            tokio::time::advance(DAY).await;
        }
        assert!(claims.may_overtake(holder, 2), "it was recorded again and again");
        claims.remove(holder);
        assert!(!claims.contain(holder));
    }

    /// Of acquires that were cancelled while the server was away. Looking through all of them for each one more took
    /// minutes.
    #[test]
    fn many_claims_cost_no_more_each_than_few() {
        let (claims, start) = (Claims::default(), std::time::Instant::now());
        for _ in 0..100_000 {
            claims.note_entry(HolderId::random());
        }
        assert!(start.elapsed() < Duration::from_secs(60), "{:?}", start.elapsed());
    }
}
