//! The leader of an election, as observers see it.

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use futures_util::future::BoxFuture;

use super::Election;
use super::candidate::Candidate;
use crate::backend::{Change, LockStatus, Mode};
use crate::error::Result;
use crate::runtime;
use crate::sync::time::Instant;
use crate::sync::{Arc, RuntimeId};
use crate::time::until;
use crate::token::FencingToken;

/// An observer asks the server every this part of the TTL.
const ASKS_EVERY: u32 = 3;
/// Observers that were started together do not ask together: each asks earlier, by up to this part of its period.
const JITTER: u32 = 4;
/// The shortest time between two requests of an observer, however often the server reports a change.
const PAUSE: Duration = Duration::from_millis(20);

/// Somebody who leads, or led when the server was asked.
#[derive(Clone, Debug)]
pub struct Leader {
    term: FencingToken,
    value: Option<Arc<str>>,
    /// The candidate that observes.
    candidate: Arc<Candidate>,
    /// Whether it was known when the server answered that it is the leader.
    is_me: bool,
    asked: Instant,
}

impl Leader {
    /// Asks the server. `None` if nobody leads.
    pub(super) async fn ask(election: Election) -> Result<Option<Self>> {
        let asked = Instant::now();
        let status = election.lock.status().await?;
        Ok(Self::of(&status, asked, &election.candidate))
    }

    /// The same, and what completes when somebody else may lead.
    async fn follow(election: Election) -> Result<(Option<Self>, Change)> {
        let asked = Instant::now();
        let (status, change) = election.lock.follow().await?;
        Ok((Self::of(&status, asked, &election.candidate), change))
    }

    /// A holder that leads: in exclusive mode, and with a token.
    fn of(status: &LockStatus, asked: Instant, candidate: &Arc<Candidate>) -> Option<Self> {
        let leads = |mode: Option<Mode>| mode.is_none_or(|mode| mode == Mode::Exclusive);
        let holder = status.holders.iter().find(|holder| leads(holder.mode))?;
        let term = holder.token?;
        Some(Self {
            term,
            value: holder.label.clone(),
            is_me: candidate.had(term),
            candidate: candidate.clone(),
            asked,
        })
    }

    /// The leader's term: its fencing token.
    #[must_use]
    pub fn term(&self) -> FencingToken {
        self.term
    }

    /// The leader's [value](crate::Election::value), if the server knows one.
    #[must_use]
    pub fn value(&self) -> Option<&str> {
        self.value.as_deref()
    }

    /// Returns whether the leader is the candidate that observes. The server may know that before the candidate does.
    #[must_use]
    pub fn is_me(&self) -> bool {
        self.is_me || self.candidate.had(self.term)
    }

    /// Returns the age of this answer, counted from before the request was sent. The leader's term may have ended
    /// since. The time that the machine was suspended does not count.
    #[must_use]
    pub fn age(&self) -> Duration {
        Instant::now().saturating_duration_since(self.asked)
    }
}

/// Follows the leaders of an election; made by [`Election::observe`].
///
/// It learns at once when a candidate of the same [`Election`] is elected, and of others if the server reports changes
/// ([`Capabilities::follow`](crate::backend::Capabilities::follow): memory, Redis, ZooKeeper, and quorums of these). It also asks the server every
/// third of the TTL, or up to a quarter of that earlier. A term of another candidate that begins and ends between two requests is not
/// seen.
///
/// # Examples
/// ```
/// # use lock_core::{Locker, MemoryBackend};
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
/// # let locks = Locker::new(MemoryBackend::new());
/// # let _term = locks.election("scheduler").value("http://10.0.0.7:8080").campaign().await?;
/// let mut seen = locks.election("scheduler").observe();
/// let leader = seen.changed().await?;
/// println!("{:?} leads in term {}", leader.value(), leader.term());
/// # Ok(()) }
/// ```
pub struct Observer {
    election: Election,
    latest: Option<Leader>,
    period: Duration,
    /// `None` past the end of the clock.
    ask_at: Option<Instant>,
    /// A request under way, which outlives the call that began it, and the runtime on which it began.
    asking: Option<(RuntimeId, Asking)>,
    /// Completes when the last answer may be out of date.
    change: Change,
    /// The time of the last request.
    asked: Option<Instant>,
    /// When `latest` was last named as the leader.
    named: Option<Instant>,
    /// The candidate's own term that was looked at last.
    own_term: Option<FencingToken>,
}

type Asking = BoxFuture<'static, Result<(Option<Leader>, Change)>>;

impl Observer {
    pub(super) fn new(election: Election) -> Self {
        let period = period(election.lock.options().ttl, RandomState::new().hash_one(()));
        Self {
            election,
            latest: None,
            period,
            ask_at: Some(Instant::now()),
            asking: None,
            change: Change::never(),
            asked: None,
            named: None,
            own_term: None,
        }
    }

    /// Waits for a leader of a later term than any that this observer has returned. Terms may be skipped, but not one that lasts
    /// longer than a third of the TTL. While the server cannot be reached, it keeps asking.
    ///
    /// A server that lost its data may grant smaller terms than before. A leader of such a term is returned once the last leader
    /// has not been named for longer than the observer's TTL.
    ///
    /// # Errors
    /// Errors that waiting cannot cure, such as [`ErrorKind::Misconfigured`](crate::ErrorKind::Misconfigured),
    /// [`ErrorKind::Denied`](crate::ErrorKind::Denied),
    /// [`ErrorKind::InvalidName`](crate::ErrorKind::InvalidName) and [`ErrorKind::ShutDown`](crate::ErrorKind::ShutDown).
    ///
    /// # Cancel safety
    /// If it is dropped, nothing is missed: the next call goes on.
    ///
    /// # Examples
    /// ```
    /// # use lock_core::{Locker, MemoryBackend};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
    /// # let locks = Locker::new(MemoryBackend::new());
    /// let election = locks.election("scheduler");
    /// let mut seen = election.observe();
    /// let term = election.campaign().await?;
    /// let leader = seen.changed().await?;
    /// assert!(leader.is_me() && leader.term() == term.token());
    /// # Ok(()) }
    /// ```
    pub async fn changed(&mut self) -> Result<Leader> {
        runtime::current()?;
        self.election.lock.locker().shared().keeper.check_process()?;
        // A ttl of zero would ask without a pause.
        self.election.lock.check()?;
        let (candidate, shared) = (
            self.election.candidate.clone(),
            self.election.lock.locker().shared().clone(),
        );
        let closing = shared.closing.notified();
        tokio::pin!(closing);
        closing.as_mut().enable();
        loop {
            let elected = candidate.elected.notified();
            tokio::pin!(elected);
            elected.as_mut().enable();
            shared.check_open()?;
            if let Some(leader) = self.own().and_then(|own| self.later(own)) {
                return Ok(leader);
            }
            tokio::select! {
                biased;
                () = &mut closing => {}
                () = elected => {}
                answer = self.answer() => match answer {
                    Ok(Some(leader)) => if let Some(leader) = self.newer(leader) {
                        return Ok(leader);
                    }
                    Ok(None) => {}
                    Err(error) if error.is_retryable() => {}
                    Err(error) => return Err(error),
                },
            }
        }
    }

    /// The leader that [`changed`](Self::changed) returned last.
    ///
    /// # Examples
    /// ```
    /// # use lock_core::{Locker, MemoryBackend};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
    /// # let locks = Locker::new(MemoryBackend::new());
    /// # let _term = locks.election("scheduler").campaign().await?;
    /// let mut seen = locks.election("scheduler").observe();
    /// assert!(seen.current().is_none());
    /// let term = seen.changed().await?.term();
    /// assert_eq!(seen.current().map(|leader| leader.term()), Some(term));
    /// # Ok(()) }
    /// ```
    pub fn current(&self) -> Option<&Leader> {
        self.latest.as_ref()
    }

    /// The answer of the server, which is asked when that is due.
    async fn answer(&mut self) -> Result<Option<Leader>> {
        let here = runtime::current()?.id();
        // Its timers belong to the other runtime, which may have ended.
        self.asking.take_if(|(began, _)| *began != here);
        if self.asking.is_none() {
            self.due().await;
            let now = Instant::now();
            (self.asked, self.ask_at) = (Some(now), now.checked_add(self.period));
            self.change = Change::never();
        }
        let election = &self.election;
        let (_, asking) = self
            .asking
            .get_or_insert_with(|| (here, Box::pin(Leader::follow(election.clone()))));
        let answer = asking.await;
        self.asking = None;
        let (leader, change) = answer?;
        self.change = change;
        Ok(leader)
    }

    /// Waits until the server is to be asked: its time has come, or the server reported a change.
    async fn due(&mut self) {
        tokio::select! {
            biased;
            () = until(self.ask_at) => return,
            () = self.change.happened() => {}
        }
        // Completed: it must not be polled again, also if this is dropped below.
        self.change = Change::never();
        if let Some(soon) = self.asked.and_then(|asked| asked.checked_add(PAUSE)) {
            self.ask_at = Some(self.ask_at.map_or(soon, |at| at.min(soon)));
        }
        until(self.ask_at).await;
    }

    /// The latest term of the candidate of this process, which may be over by now. Once for each term: after a loss of the
    /// server's data, one that is over may be larger than the leader's.
    fn own(&mut self) -> Option<Leader> {
        let (term, value) = self.election.candidate.latest()?;
        (self.own_term.replace(term) != Some(term)).then(|| Leader {
            term,
            value,
            candidate: self.election.candidate.clone(),
            is_me: true,
            asked: Instant::now(),
        })
    }

    /// The leader that the server has named, if it is a new one. A smaller term is an answer from before the latest one, unless
    /// the question was asked so long after that was named that the server must have lost its data.
    fn newer(&mut self, leader: Leader) -> Option<Leader> {
        let ttl = self.election.lock.options().ttl;
        let is_latest = self.latest.as_ref().is_some_and(|latest| latest.term == leader.term);
        if is_latest {
            self.named = Some(Instant::now());
            return None;
        }
        let has_ended = |named| leader.asked.saturating_duration_since(named) > ttl;
        if self.named.is_some_and(has_ended) {
            self.latest = None;
        }
        self.later(leader)
    }

    /// The leader, if its term is later than that of the latest one.
    fn later(&mut self, leader: Leader) -> Option<Leader> {
        let is_later = self.latest.as_ref().is_none_or(|latest| latest.term < leader.term);
        is_later.then(|| {
            self.named = Some(Instant::now());
            self.latest.insert(leader).clone()
        })
    }
}

impl fmt::Debug for Observer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Observer")
            .field("election", &self.election)
            .field("latest", &self.latest)
            .finish_non_exhaustive()
    }
}

/// The pause between two requests of an observer. `random` spreads the requests of several.
fn period(ttl: Duration, random: u64) -> Duration {
    let longest = ttl / ASKS_EVERY;
    let percent = u32::try_from(random % 101).unwrap_or_default();
    longest - longest / JITTER / 100 * percent
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;
    use crate::backend::{HolderStatus, Permits};
    use crate::locker::Locker;
    use crate::memory::MemoryBackend;

    #[test]
    fn it_asks_within_a_third_of_the_ttl() {
        let ttl = Duration::from_secs(12);
        assert_eq!(period(ttl, 0), Duration::from_secs(4));
        assert_eq!(period(ttl, 100), Duration::from_secs(3));
        assert!((0..1000).all(|random| (3..=4).contains(&period(ttl, random).as_secs())));
        assert!(period(Duration::MAX, 100) < Duration::MAX / 3);
    }

    /// A server may answer what was true before, as a replica does.
    #[tokio::test(start_paused = true)]
    async fn an_older_answer_is_dropped() {
        let mut observer = Locker::new(MemoryBackend::new()).election("a").observe();
        let mut is_new = |term: u64| {
            let holder = HolderStatus::new().with_token(FencingToken::try_from(term).unwrap());
            let leader = Leader::of(&LockStatus::held(holder), Instant::now(), &Arc::default());
            observer.newer(leader.unwrap()).is_some()
        };
        assert_eq!([7, 5, 7, 8, 6].map(&mut is_new), [true, false, false, true, false]);
        assert_eq!(observer.current().map(|leader| leader.term().as_u64()), Some(8));
    }

    /// A server that lost its data grants smaller terms. An answer counts from its question, however late it comes.
    #[tokio::test(start_paused = true)]
    async fn a_smaller_term_that_was_asked_for_a_ttl_later_is_new() {
        let mut observer = Locker::new(MemoryBackend::new()).election("a").observe();
        let mut is_new = |term: u64, asked: Instant| {
            let holder = HolderStatus::new().with_token(FencingToken::try_from(term).unwrap());
            let leader = Leader::of(&LockStatus::held(holder), asked, &Arc::default());
            observer.newer(leader.unwrap()).is_some()
        };
        let ttl = Duration::from_secs(30);
        let pass = |time| tokio::time::advance(time);
        let first = Instant::now();
        assert!(is_new(7, first));
        pass(ttl / 2).await;
        assert!(!is_new(7, first), "and it is named again");
        let named = Instant::now();
        pass(ttl).await;
        assert!(!is_new(5, named + ttl), "it may be the one before");
        pass(ttl).await;
        assert!(!is_new(5, named + ttl), "an answer that comes late");
        assert!(is_new(5, Instant::now()));
        assert!(!is_new(4, Instant::now()));
        assert!(is_new(6, Instant::now()));
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_holds_the_name_alone_and_has_a_token_leads() {
        let token = FencingToken::try_from(7_u64).unwrap();
        let leader = |holder: HolderStatus| Leader::of(&LockStatus::held(holder), Instant::now(), &Arc::default());
        let holder = HolderStatus::new().with_token(token).with_label("theirs");
        let led = leader(holder.clone()).unwrap();
        assert_eq!((led.term(), led.value(), led.is_me()), (token, Some("theirs"), false));
        tokio::time::advance(Duration::from_secs(2)).await;
        assert_eq!(led.age(), Duration::from_secs(2));
        assert!(leader(holder.clone().with_mode(Mode::Exclusive)).is_some());
        assert!(leader(holder.clone().with_mode(Mode::Shared)).is_none());
        assert!(leader(holder.with_mode(Mode::Permits(Permits::new(1, 2).unwrap()))).is_none());
        assert!(leader(HolderStatus::new().with_label("a foreign client")).is_none());
        assert!(Leader::of(&LockStatus::free(), Instant::now(), &Arc::default()).is_none());
    }

    /// The answer of its own acquire may still be on its way.
    #[tokio::test]
    async fn a_candidate_that_hears_of_its_term_late_is_still_its_leader() {
        let candidate = Arc::<Candidate>::default();
        let guard = Locker::new(MemoryBackend::new()).lock("a").acquire().await.unwrap();
        let holder = HolderStatus::new().with_token(guard.token());
        let leader = Leader::of(&LockStatus::held(holder), Instant::now(), &candidate).unwrap();
        assert!(!leader.is_me());
        candidate.begin(guard.watch(), None);
        assert!(leader.is_me());
    }
}
