//! Leader election, without async.

use std::ops::{ControlFlow, Deref};
use std::time::Duration;

use super::call::wait_for;
use super::guard::Guard;
use super::observer::Observer;
use crate::election::ElectionState;
use crate::election::term::Reign;
use crate::error::Result;
use crate::sync::Arc;
use crate::watch::Watch;

/// A candidate in an election, or somebody who only observes it, without async: see [`Election`](crate::Election). Owned and cheap to
/// clone; made by [`Locker::election`](super::Locker::election). Clones are the same candidate.
///
/// # Examples
/// ```
/// # use std::ops::ControlFlow;
/// # use std::time::Duration;
/// # use lock_core::{MemoryBackend, blocking::Locker};
/// # fn main() -> Result<(), lock_core::Error> {
/// # let locks = Locker::new(MemoryBackend::new());
/// # let mut jobs = vec![1, 2, 3];
/// # let run = |_job, _term| {};
/// let election = locks.election("scheduler").value("http://10.0.0.7:8080").ttl(Duration::from_secs(10));
/// election.lead(|term| {
///     while term.is_held() {
///         let Some(job) = jobs.pop() else { return ControlFlow::Break(()) }; // resign, and do not campaign again
///         run(job, term.token());
///     }
///     ControlFlow::Continue(()) // the term was lost: campaign again
/// })?;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Election(crate::Election);

impl Election {
    pub(super) fn new(election: crate::Election) -> Self {
        Self(election)
    }

    /// Sets the value that the candidate proclaims when it is elected: see [`Election::value`](crate::Election::value).
    #[must_use]
    pub fn value(self, value: impl Into<Arc<str>>) -> Self {
        Self(self.0.value(value))
    }

    /// Sets the TTL: see [`Election::ttl`](crate::Election::ttl).
    #[must_use]
    pub fn ttl(self, ttl: Duration) -> Self {
        Self(self.0.ttl(ttl))
    }

    /// Ends each term at the latest so long after its election: see [`Election::hold_at_most`](crate::Election::hold_at_most).
    #[must_use]
    pub fn hold_at_most(self, maximum: Duration) -> Self {
        Self(self.0.hold_at_most(maximum))
    }

    /// Reports the gauge `polylock_leader`: see [`Election::measured`](crate::Election::measured).
    #[must_use]
    pub fn measured(self) -> Self {
        Self(self.0.measured())
    }

    /// Campaigns, and calls `work` on this thread with each term that it wins, until a call returns [`ControlFlow::Break`]: then it
    /// resigns and returns the value. After [`ControlFlow::Continue`] it resigns if it still leads, pauses for a third
    /// of the TTL, and campaigns again.
    ///
    /// Nothing can stop a thread, so there is no `margin`: `work` has to return when its term ends. Have it check
    /// [`Watch::is_held`] before each step, or that [`Watch::valid_for`] is longer than the step may take. To stop leading
    /// from outside, have `work` return `Break`; a [shutdown](super::Locker::shutdown) of the locker ends a campaign.
    ///
    /// # Errors
    /// Those of [`campaign`](Self::campaign).
    ///
    /// # Panics
    /// Panics if `work` panics. The candidate resigns in the background.
    ///
    /// # Examples
    /// ```
    /// # use std::ops::ControlFlow;
    /// # use lock_core::{MemoryBackend, blocking::Locker};
    /// # fn main() -> Result<(), lock_core::Error> {
    /// # let locks = Locker::new(MemoryBackend::new());
    /// let election = locks.election("scheduler");
    /// let answer = election.lead(|term| match term.check() {
    ///     Ok(()) => ControlFlow::Break(6 * 7), // resign, and do not campaign again
    ///     Err(_lost) => ControlFlow::Continue(()),
    /// })?;
    /// assert_eq!(answer, 42);
    /// # Ok(()) }
    /// ```
    pub fn lead<T>(&self, mut work: impl FnMut(Watch) -> ControlFlow<T>) -> Result<T> {
        loop {
            let term = self.campaign()?;
            let done = work(term.watch());
            // `work` may have forked: then the term is the parent's.
            term.check_process()?;
            // It led until here, or has noticed that it did not.
            let _ = term.resign();
            if let ControlFlow::Break(value) = done {
                return Ok(value);
            }
        }
    }

    /// Waits until this candidate is elected, however long that takes: see [`Election::campaign`](crate::Election::campaign).
    ///
    /// # Errors
    /// Those of [`Election::campaign`](crate::Election::campaign).
    ///
    /// # Examples
    /// ```
    /// # use lock_core::{MemoryBackend, blocking::Locker};
    /// # fn main() -> Result<(), lock_core::Error> {
    /// # let locks = Locker::new(MemoryBackend::new());
    /// let term = locks.election("scheduler").campaign()?;
    /// term.check()?; // before each step that only the leader may do
    /// term.resign()?;
    /// # Ok(()) }
    /// ```
    pub fn campaign(&self) -> Result<Term> {
        let election = self.0.clone();
        wait_for(async move { election.campaign().await }).map(Term::new)
    }

    /// Waits for at most `limit` until this candidate is elected. `None` if somebody else leads until then, or if the limit ends
    /// within the pause after a term of its own. It campaigns no more afterwards. With a limit of zero it tries once.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`](crate::ErrorKind::Unavailable) as of [`Lock::acquire_within`](crate::Lock::acquire_within), such as
    /// during an outage, and those of [`campaign`](Self::campaign).
    ///
    /// # Examples
    /// ```
    /// # use std::time::Duration;
    /// # use lock_core::{MemoryBackend, blocking::Locker};
    /// # fn main() -> Result<(), lock_core::Error> {
    /// # let locks = Locker::new(MemoryBackend::new());
    /// let term = locks.election("scheduler").campaign()?;
    /// let other = locks.election("scheduler");
    /// assert!(other.campaign_within(Duration::from_millis(10))?.is_none());
    /// # term.resign()?;
    /// # Ok(()) }
    /// ```
    pub fn campaign_within(&self, limit: Duration) -> Result<Option<Term>> {
        let election = self.0.clone();
        let term = wait_for(async move { election.campaign_for(Some(limit)).await });
        match term {
            Err(error) if error.is_timed_out() => Ok(None),
            term => term.map(|term| Some(Term::new(term))),
        }
    }

    /// A view of who leads, term by term. Needs no campaign.
    ///
    /// # Examples
    /// ```
    /// # use lock_core::{MemoryBackend, blocking::Locker};
    /// # fn main() -> Result<(), lock_core::Error> {
    /// # let locks = Locker::new(MemoryBackend::new());
    /// let term = locks.election("scheduler").campaign()?;
    /// let mut seen = locks.election("scheduler").observe();
    /// assert_eq!(seen.changed()?.term(), term.token());
    /// # term.resign()?;
    /// # Ok(()) }
    /// ```
    pub fn observe(&self) -> Observer {
        Observer::new(self.0.observe())
    }

    /// Returns whether this candidate leads now, by this process's clock and without any network.
    ///
    /// # Examples
    /// ```
    /// # use lock_core::{MemoryBackend, blocking::Locker};
    /// # fn main() -> Result<(), lock_core::Error> {
    /// # let locks = Locker::new(MemoryBackend::new());
    /// let election = locks.election("scheduler");
    /// let term = election.campaign()?;
    /// assert!(election.is_leader());
    /// term.resign()?;
    /// assert!(!election.is_leader());
    /// # Ok(()) }
    /// ```
    pub fn is_leader(&self) -> bool {
        self.0.is_leader()
    }

    /// Returns the state of the election as this candidate knows it, for a health endpoint: see
    /// [`Election::state`](crate::Election::state).
    ///
    /// # Examples
    /// ```
    /// # use lock_core::{ElectionState, MemoryBackend, blocking::Locker};
    /// # fn main() -> Result<(), lock_core::Error> {
    /// # let locks = Locker::new(MemoryBackend::new());
    /// assert!(matches!(locks.election("scheduler").state(), ElectionState::Electing));
    /// # Ok(()) }
    /// ```
    pub fn state(&self) -> ElectionState {
        let election = self.0.clone();
        wait_for(async move { Ok(election.state().await) }).unwrap_or_else(ElectionState::Unreachable)
    }
}

/// The term of a candidate that was elected by [`Election::campaign`]: see [`Term`](crate::Term). It is a [`Guard`], whose
/// [`token`](Guard::token) is the number of the term.
///
/// Dropping it posts the resignation and never waits.
#[derive(Debug)]
#[must_use = "a leader resigns when its term is dropped"]
pub struct Term {
    // Dropped before the other one, which looks whether it was lost.
    guard: Guard,
    reign: Reign,
}

impl Term {
    fn new(term: crate::Term) -> Self {
        let (guard, reign) = term.into_parts();
        Self {
            guard: Guard::new(guard),
            reign,
        }
    }

    /// Ends the term, so that another candidate is elected. Returns when the server has answered.
    ///
    /// # Errors
    /// Those of [`Guard::release`]: [`ErrorKind::Lost`](crate::ErrorKind::Lost) if the term had ended before this was called.
    pub fn resign(self) -> Result<()> {
        let Self { guard, reign } = self;
        let resigned = guard.release();
        drop(reign);
        resigned.map(drop)
    }
}

impl Deref for Term {
    type Target = Guard;

    fn deref(&self) -> &Guard {
        &self.guard
    }
}
