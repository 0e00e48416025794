//! Several locks at once: all of them or none.

use std::time::Duration;

use futures_util::future::join_all;

use self::guard::{MultiGuard, first_loss};
use self::plan::{Plan, Tried, held_after};
use crate::error::{Error, ErrorKind, Result};
use crate::guard::Guard;
use crate::lock::Lock;
use crate::lost::Lost;
use crate::options::wait::{Rest, WaitLimit};
use crate::retry::pauses;
use crate::sync::time::{Instant, sleep};
use crate::time::{until, within};

pub(crate) mod guard;
mod plan;

/// Acquires several locks, however long that takes: all of them or none.
///
/// The locks may be of any modes, lockers and backends: `acquire_all([locks.lock("a"), rw.read(), api.permits(2)])`. They are
/// acquired so that callers never wait for each other in a circle, whatever order each of them gives: first all at once
/// without waiting, then one after the other, sorted by the bytes of their names. A caller waits only for names that are
/// larger than those it holds.
///
/// If a lock is lost while the caller waits for another one, all are released, and the acquire starts over, at the ends of the
/// queues. A [fixed lease](Lock::fixed_lease) counts from its own grant, and is lost like that when it ends. So leave it out, or
/// choose a TTL that is longer than the wait for the other locks.
///
/// **The same name on two servers** is two locks. They are waited for in the order given, so give them in the same order
/// everywhere. Two [`Locker`](crate::Locker)s count as one server if they are clones, or were made of one `Arc` by
/// [`Locker::from_backend`](crate::Locker::from_backend), and as two otherwise.
///
/// # Errors
/// - [`ErrorKind::Misconfigured`] if there is no lock, if a name of one server is there twice (also in two modes), or if a
///   lock has a [minimum hold](Lock::hold_at_least) or a [maximum hold](Lock::hold_at_most).
/// - The errors of [`Lock::acquire`]. [`Error::name`] is the name of the lock that failed.
///
/// After an error no lock is held. The call waits for the releases, each for up to the operation timeout of its locker.
/// Locks that are not released by then are released in the background.
///
/// # Cancel safety
/// If it is dropped, all locks are released in the background, and what was sent is undone.
///
/// # Examples
/// ```
/// # use lock_core::{Locker, MemoryBackend, acquire_all};
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
/// # let locks = Locker::new(MemoryBackend::new());
/// let both = acquire_all([locks.lock("account/7"), locks.lock("account/3")]).await?;
/// assert_eq!(both.guards()[0].name().as_str(), "account/7"); // in the order given
/// both.release().await?;
/// # Ok(()) }
/// ```
pub async fn acquire_all(locks: impl IntoIterator<Item = Lock>) -> Result<MultiGuard> {
    Acquiring::new(locks, None)?.acquire().await
}

/// Acquires several locks within `limit` in all, connecting included: all of them or none. See [`acquire_all`].
///
/// With a limit of zero it tries each lock once, all at the same time.
///
/// # Errors
/// - [`ErrorKind::TimedOut`] if the time was up and the server last answered that a lock is taken. [`Error::name`] is the name
///   of the lock that it waited for then, and [`Error::holder`] that lock's holder's label, if known.
/// - Those of [`acquire_all`], and of [`Lock::acquire_within`].
///
/// After an error no lock is held. The call waits for the releases until its time is up. What is not released by then is
/// released in the background.
///
/// # Cancel safety
/// If it is dropped, all locks are released in the background, and what was sent is undone.
///
/// # Examples
/// ```
/// # use std::time::Duration;
/// # use lock_core::{Locker, MemoryBackend, acquire_all_within};
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
/// # let locks = Locker::new(MemoryBackend::new());
/// let _taken = locks.lock("b").acquire().await?;
/// let both = [locks.lock("a"), locks.lock("b")];
/// let error = acquire_all_within(both, Duration::from_millis(10)).await.unwrap_err();
/// assert!(error.is_timed_out());
/// assert_eq!(error.name().unwrap().as_str(), "b");
/// # Ok(()) }
/// ```
pub async fn acquire_all_within(locks: impl IntoIterator<Item = Lock>, limit: Duration) -> Result<MultiGuard> {
    let acquiring = Acquiring::new(locks, Some(limit))?;
    match limit.is_zero() {
        true => acquiring.try_within_zero().await,
        false => acquiring.acquire().await,
    }
}

/// Acquires several locks if all of them are free, and returns `None` if any is taken. All are tried at the same time. See
/// [`acquire_all`].
///
/// Bind the guard: `if let Some(guard) = try_acquire_all(locks).await? { .. }` holds the locks in the block, `.is_some()` does not.
///
/// # Errors
/// Those of [`Lock::try_acquire`], for any of the locks, and [`ErrorKind::Misconfigured`] as for [`acquire_all`].
///
/// After an error or `None` no lock is held. The call waits for the releases, each for up to the operation timeout of its
/// locker. What is not released by then is released in the background.
///
/// # Cancel safety
/// If it is dropped, all locks are released in the background, and what was sent is undone.
///
/// # Examples
/// ```
/// # use lock_core::{Locker, MemoryBackend, try_acquire_all};
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
/// # let locks = Locker::new(MemoryBackend::new());
/// let both = || [locks.lock("a"), locks.lock("b")];
/// let guard = try_acquire_all(both()).await?.expect("both are free");
/// assert!(try_acquire_all(both()).await?.is_none());
/// guard.release().await?;
/// # Ok(()) }
/// ```
pub async fn try_acquire_all(locks: impl IntoIterator<Item = Lock>) -> Result<Option<MultiGuard>> {
    Acquiring::new(locks, None)?.try_once().await
}

/// Longer than a hold that is lost again and again should cost the server.
const LONGEST_PAUSE: Duration = Duration::from_millis(250);

/// One acquire of several locks.
struct Acquiring {
    plan: Plan,
    limit: Option<Duration>,
    deadline: Option<Instant>,
}

/// Why a round ended without all locks.
enum Stop {
    /// One of those that were held was lost: what protects all of them has a gap.
    Lost(Lost),
    Failed(Error),
}

impl Acquiring {
    fn new(locks: impl IntoIterator<Item = Lock>, limit: Option<Duration>) -> Result<Self> {
        let plan = Plan::new(locks)?;
        let deadline = limit.and_then(|limit| Instant::now().checked_add(limit));
        Ok(Self { plan, limit, deadline })
    }

    async fn acquire(&self) -> Result<MultiGuard> {
        let mut pauses = pauses(LONGEST_PAUSE);
        let mut last_loss = None;
        loop {
            // Always the first ones of the plan.
            let mut held = Vec::with_capacity(self.plan.len());
            let filled = match self.plan.get(0).filter(|_| self.is_over()) {
                Some(first) => Err(Stop::Failed(self.too_late(first, last_loss.as_ref()))),
                None => self.fill(&mut held).await,
            };
            match filled {
                Ok(()) => return Ok(self.plan.guard(held)),
                Err(stop) => {
                    release_until(held, self.deadline).await;
                    match stop {
                        Stop::Failed(error) => return Err(error),
                        Stop::Lost(lost) => last_loss = Some(lost),
                    }
                }
            }
            let pause = sleep(pauses.next().unwrap_or(LONGEST_PAUSE));
            tokio::select! {
                biased;
                () = pause => {}
                () = until(self.deadline) => {}
            }
        }
    }

    /// Adds the missing locks to the held ones. Waits only for names that are larger than all held ones.
    async fn fill(&self, held: &mut Vec<Guard>) -> Result<(), Stop> {
        let mut is_crowded = self.plan.was_refused_just_now();
        if self.plan.len() > 1 && !is_crowded {
            self.try_all(held).await?;
            is_crowded = self.plan.was_refused_just_now();
        }
        while let Some(lock) = self.plan.get(held.len()) {
            let guard = tokio::select! {
                biased;
                lost = first_loss(&*held) => return Err(Stop::Lost(lost)),
                guard = self.wait_for(lock, is_crowded) => guard.map_err(Stop::Failed)?,
            };
            held.push(guard);
        }
        match held.iter().find_map(|guard| guard.check().err()) {
            None => Ok(()),
            Some(lost) => Err(Stop::Lost(lost)),
        }
    }

    /// Tries all locks at once: one round trip, if none is taken. Locks after the first refusal are released: their
    /// owner must not wait for a smaller name.
    async fn try_all(&self, held: &mut Vec<Guard>) -> Result<(), Stop> {
        let in_time = |lock: &Lock| {
            let lock = lock.clone();
            async move {
                tokio::select! {
                    biased;
                    tried = lock.try_acquire() => tried,
                    () = until(self.deadline) => Err(self.unanswered(&lock)),
                }
            }
        };
        let tried = join_all(self.plan.locks().map(in_time)).await;
        let is_over = self.is_over();
        let mut guards = Vec::with_capacity(tried.len());
        let mut kinds = Vec::with_capacity(tried.len());
        for (index, tried) in tried.into_iter().enumerate() {
            kinds.push(match tried {
                Ok(Some(guard)) => {
                    guards.push((index, guard));
                    Tried::Granted
                }
                Ok(None) => {
                    self.plan.note_refusal(index);
                    Tried::Refused
                }
                // Waiting outlasts it, or fails with the better error.
                Err(error) if error.is_retryable() && !is_over => Tried::Refused,
                Err(error) => Tried::Failed(error),
            });
        }
        let count = held_after(kinds).map_err(Stop::Failed);
        // After a failure nothing is kept, but the caller waits for the releases; else they go on in the background.
        let is_kept = |index| count.as_ref().map_or(true, |count| index < *count);
        held.extend(
            guards
                .into_iter()
                .filter(|(index, _)| is_kept(*index))
                .map(|(_, guard)| guard),
        );
        count.map(drop)
    }

    async fn wait_for(&self, lock: &Lock, is_crowded: bool) -> Result<Guard> {
        let (Some(limit), Some(deadline)) = (self.limit, self.deadline) else {
            return lock.acquire().await;
        };
        let rest = Rest {
            left: deadline.saturating_duration_since(Instant::now()),
            limit,
            locks: self.plan.len(),
            has_waited: is_crowded,
        };
        if rest.left.is_zero() {
            return Err(timed_out(lock, &rest));
        }
        lock.wait(WaitLimit::Rest(rest)).await
    }

    /// The error when the time is up before a round. A server that said that a hold is gone does answer.
    fn too_late(&self, first: &Lock, last_loss: Option<&Lost>) -> Error {
        if last_loss.is_none_or(|lost| lost.error().is_some()) {
            return self.unanswered(first);
        }
        let rest = Rest {
            left: Duration::ZERO,
            limit: self.limit.unwrap_or_default(),
            locks: self.plan.len(),
            has_waited: false,
        };
        timed_out(first, &rest)
    }

    fn is_over(&self) -> bool {
        self.deadline.is_some_and(|deadline| deadline <= Instant::now())
    }

    fn unanswered(&self, lock: &Lock) -> Error {
        let limit = self.limit.unwrap_or_default();
        let message = format!(
            "the lock server did not answer {}: check that it is there",
            within(limit)
        );
        about(lock, Error::new(ErrorKind::Unavailable, message))
    }

    async fn try_once(&self) -> Result<Option<MultiGuard>> {
        let tried = join_all(self.plan.locks().map(Lock::try_acquire)).await;
        let mut failure = None;
        let mut held = Vec::with_capacity(tried.len());
        for (index, tried) in tried.into_iter().enumerate() {
            match tried {
                Ok(Some(guard)) => held.push(guard),
                Ok(None) => self.plan.note_refusal(index),
                Err(error) => drop(failure.get_or_insert(error)),
            }
        }
        if let Some(lost) = held.iter().find_map(|guard| guard.check().err()) {
            failure.get_or_insert(lost.into());
        }
        if failure.is_none() && held.len() == self.plan.len() {
            return Ok(Some(self.plan.guard(held)));
        }
        release_until(held, None).await;
        failure.map_or(Ok(None), Err)
    }

    async fn try_within_zero(&self) -> Result<MultiGuard> {
        let tried = join_all(
            self.plan
                .locks()
                .map(|lock| lock.wait(WaitLimit::Within(Duration::ZERO))),
        )
        .await;
        let (held, failed): (Vec<_>, Vec<_>) = tried.into_iter().partition(Result::is_ok);
        let held: Vec<_> = held.into_iter().flatten().collect();
        let failure = failed.into_iter().find_map(Result::err);
        let lost = || held.iter().find_map(|guard| guard.check().err()).map(Error::from);
        match failure.or_else(lost) {
            None => Ok(self.plan.guard(held)),
            Some(error) => {
                release_until(held, None).await;
                Err(error)
            }
        }
    }
}

fn timed_out(lock: &Lock, rest: &Rest) -> Error {
    let message = format!("not acquired {}", rest.text());
    about(lock, Error::new(ErrorKind::TimedOut, message))
}

fn about(lock: &Lock, error: Error) -> Error {
    match lock.name() {
        Some(name) => error.with_name(name),
        None => error,
    }
}

/// Releases all, and waits for the answers until then. Afterwards the releases go on in the background.
async fn release_until(held: Vec<Guard>, deadline: Option<Instant>) {
    let releases = join_all(held.into_iter().map(Guard::release));
    tokio::select! {
        biased;
        // First, so that the error of the failed acquire comes before those of the releases.
        _ = releases => {}
        () = until(deadline) => {}
    }
}
