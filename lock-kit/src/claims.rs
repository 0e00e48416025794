//! Acquires that were never answered.
//!
//! The server may still execute such an acquire after its holder id was abandoned, and then nobody would release it. Over the
//! same connection requests come in order, so an end that is sent after the acquire is executed after it. Over another
//! connection the end may come first. The backend then has the server refuse the late acquire, by a tombstone or by ending the
//! acquire's connection.

use std::collections::HashMap;
use std::fmt;
use std::time::Duration;

use foldhash::fast::RandomState;
use lock_core::backend::HolderId;
use parking_lot::Mutex;
use tokio::time::Instant;

/// The holder ids of which something may be left at the server, and the connections over which an acquire of theirs was sent
/// and never answered. `C` is a connection, or its number.
///
/// # Examples
/// ```
/// # use lock_core::backend::HolderId;
/// # use lock_kit::claims::Claims;
/// let (claims, holder) = (Claims::default(), HolderId::random());
/// claims.sending(holder, 1).answered();
/// assert!(!claims.may_overtake(holder, &2));
/// // Its connection ended, or its future was dropped.
/// drop(claims.sending(holder, 1));
/// assert!(claims.may_overtake(holder, &2) && !claims.may_overtake(holder, &1));
/// ```
pub struct Claims<C>(Mutex<Recent<C>>);

/// The claims of the last one to two days. A whole day's are forgotten at once, so that one more costs the same however
/// many there are. By then core has long stopped to abandon their requests.
struct Recent<C> {
    today: HashMap<HolderId, Vec<C>, RandomState>,
    yesterday: HashMap<HolderId, Vec<C>, RandomState>,
    /// The beginning of today. `None`: nothing was ever recorded.
    since: Option<Instant>,
}

/// An acquire in flight. Its drop leaves a claim unless [`answered`](Self::answered) is called.
#[must_use]
pub struct InFlight<'a, C: Clone + PartialEq> {
    claims: &'a Claims<C>,
    holder: HolderId,
    connection: C,
    is_answered: bool,
}

impl<C> Default for Claims<C> {
    fn default() -> Self {
        Self(Mutex::new(Recent {
            today: HashMap::default(),
            yesterday: HashMap::default(),
            since: None,
        }))
    }
}

impl<C: Clone + PartialEq> Claims<C> {
    /// Begins an acquire over this connection. To be called before the acquire is sent.
    pub fn sending(&self, holder: HolderId, connection: C) -> InFlight<'_, C> {
        InFlight {
            claims: self,
            holder,
            connection,
            is_answered: false,
        }
    }

    /// The connections on which the server may still execute an acquire of this holder id.
    pub fn unanswered(&self, holder: HolderId) -> Vec<C> {
        self.0.lock().get(holder).cloned().unwrap_or_default()
    }

    /// Returns whether a request over this connection may overtake an acquire of this holder id.
    pub fn may_overtake(&self, holder: HolderId, connection: &C) -> bool {
        let recent = self.0.lock();
        recent
            .get(holder)
            .is_some_and(|sent| sent.iter().any(|sent| sent != connection))
    }

    /// Returns whether this holder id may have left anything at the server.
    pub fn contain(&self, holder: HolderId) -> bool {
        self.0.lock().get(holder).is_some()
    }

    /// Notes that this holder id may have left something that a request over any connection finds, such as an entry in a queue.
    pub fn note(&self, holder: HolderId) {
        self.0.lock().entry(holder, Instant::now());
    }

    /// Forgets this holder id: the server has ended whatever it had, for good.
    pub fn remove(&self, holder: HolderId) {
        let forgotten = self.0.lock().remove(holder);
        // Dropped outside the lock: it may be the last that keeps a connection.
        drop(forgotten);
    }
}

impl<C> Recent<C> {
    fn get(&self, holder: HolderId) -> Option<&Vec<C>> {
        self.today.get(&holder).or_else(|| self.yesterday.get(&holder))
    }

    fn entry(&mut self, holder: HolderId, now: Instant) -> &mut Vec<C> {
        self.rotate(now);
        let known = self.yesterday.remove(&holder).unwrap_or_default();
        self.today.entry(holder).or_insert(known)
    }

    fn remove(&mut self, holder: HolderId) -> Option<Vec<C>> {
        self.today.remove(&holder).or_else(|| self.yesterday.remove(&holder))
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

impl<C: Clone + PartialEq> InFlight<'_, C> {
    /// Notes that it is sent once more over this connection: the server of the earlier one has refused it.
    pub fn moves_to(&mut self, connection: C) {
        self.connection = connection;
    }

    /// Notes that the server has answered it, or that it was not sent: it leaves no claim.
    pub fn answered(mut self) {
        self.is_answered = true;
    }
}

impl<C: Clone + PartialEq> Drop for InFlight<'_, C> {
    fn drop(&mut self) {
        if self.is_answered {
            return;
        }
        let mut recent = self.claims.0.lock();
        let sent = recent.entry(self.holder, Instant::now());
        if !sent.contains(&self.connection) {
            sent.push(self.connection.clone());
        }
    }
}

impl<C> fmt::Debug for Claims<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Claims").finish_non_exhaustive()
    }
}

impl<C: Clone + PartialEq> fmt::Debug for InFlight<'_, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("InFlight").field(&self.holder).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn only_another_connection_can_overtake() {
        let (claims, holder) = (Claims::default(), HolderId::random());
        claims.sending(holder, 1).answered();
        assert!(!claims.may_overtake(holder, &2) && !claims.contain(holder));
        claims.note(holder);
        assert!(!claims.may_overtake(holder, &2) && claims.contain(holder));
        drop(claims.sending(holder, 1));
        assert!(!claims.may_overtake(holder, &1));
        assert!(claims.may_overtake(holder, &2));
        assert!(!claims.may_overtake(HolderId::random(), &2));
        let mut moved = claims.sending(holder, 1);
        moved.moves_to(2);
        drop(moved);
        assert!(claims.may_overtake(holder, &1) && claims.may_overtake(holder, &2));
        assert_eq!(claims.unanswered(holder), [1, 2]);
        claims.remove(holder);
        assert!(!claims.may_overtake(holder, &3) && !claims.contain(holder));
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
        assert!(claims.may_overtake(holder, &2), "it was recorded again and again");
        claims.remove(holder);
        assert!(!claims.contain(holder));
    }

    /// Of acquires that were cancelled while the server was away. Looking through all of them for each one more took
    /// minutes.
    #[test]
    fn many_claims_cost_no_more_each_than_few() {
        let (claims, start) = (Claims::<u64>::default(), std::time::Instant::now());
        for _ in 0..100_000 {
            claims.note(HolderId::random());
        }
        assert!(start.elapsed() < Duration::from_secs(60), "{:?}", start.elapsed());
    }
}
