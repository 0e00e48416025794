//! The subject of the mutants whose bug is above the backend. Every other mutant leaves it whole.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use lock_core::backend::{Capabilities, DistributedLock, LockStatus, Mode};
use lock_core::{Error, ErrorKind, ReentryKey, Result};
use tokio::runtime::Handle;
use tokio::sync::OwnedMutexGuard;
use tokio::time::{Instant, sleep, timeout};

use self::memory::{Maxima, UnderWay};
use super::election::MutantCandidate;
use super::guard::{MutantGuard, revive};
use super::reentry::Keys;
use crate::mutant::Mutant;
use crate::subject::{Ask, Candidate, LockerSubject, Subject, SubjectGuard, WaitLimit};

#[derive(Debug)]
pub(super) struct MutantSubject {
    whole: Arc<LockerSubject>,
    backend: Arc<dyn DistributedLock>,
    mutant: Mutant,
    shut_down: AtomicBool,
    /// Whether its server has ever answered.
    reached: AtomicBool,
    /// The runtime that first used it.
    home: OnceLock<Handle>,
    keys: Keys,
    maxima: Maxima,
    /// The only key of one that does not look at keys.
    any_key: ReentryKey,
    /// The acquires under way.
    under_way: Arc<Mutex<Vec<Ask>>>,
    /// Whoever may ask the server for a name.
    leaders: Mutex<HashMap<String, Arc<tokio::sync::Mutex<()>>>>,
}

type Acquired = Result<Option<Box<dyn SubjectGuard>>>;

impl MutantSubject {
    pub(super) fn new(backend: Arc<dyn DistributedLock>, mutant: Mutant) -> Self {
        Self {
            whole: Arc::new(match mutant {
                Mutant::PassesWithoutEnd => LockerSubject::without_end(backend.clone()),
                _ => LockerSubject::new(backend.clone()),
            }),
            backend,
            mutant,
            shut_down: AtomicBool::new(false),
            reached: AtomicBool::new(false),
            home: OnceLock::new(),
            keys: Keys::default(),
            maxima: Maxima::default(),
            any_key: ReentryKey::new(),
            under_way: Arc::default(),
            leaders: Mutex::default(),
        }
    }

    async fn acquire_broken(&self, ask: &Ask) -> Acquired {
        let (whole, mut ask) = (self.whole.clone(), ask.clone());
        match (self.mutant, ask.wait) {
            (Mutant::WaitGivesUpAtOnce, WaitLimit::Within(_)) => match whole.acquire(&ask.trying()).await? {
                None => Err(Error::new(ErrorKind::TimedOut, "not acquired in the time given")),
                granted => Ok(granted),
            },
            (Mutant::TryWaits, WaitLimit::Try) => match whole.acquire(&ask.within(Duration::from_secs(10))).await {
                Err(error) if error.kind() == ErrorKind::TimedOut => Ok(None),
                other => other,
            },
            (Mutant::TimeoutNamesNobody, _) => whole.acquire(&ask).await.map_err(|error| match error.kind() {
                ErrorKind::TimedOut => Error::new(ErrorKind::TimedOut, "not acquired in the time given"),
                _ => error,
            }),
            (Mutant::EveryErrorIsATimeout, _) => whole.acquire(&ask).await.map_err(|error| match error.kind() {
                ErrorKind::Unavailable => Error::new(ErrorKind::TimedOut, "not acquired").with_source(error),
                _ => error,
            }),
            (Mutant::OutageIsATimeout, WaitLimit::Within(_)) if self.reached.load(Ordering::SeqCst) => {
                whole.acquire(&ask).await.map_err(|error| match error.kind() {
                    ErrorKind::Unavailable => Error::new(ErrorKind::TimedOut, "not acquired").with_source(error),
                    _ => error,
                })
            }
            (Mutant::OutageIsATimeout, _) => {
                let acquired = whole.acquire(&ask).await;
                self.reached.fetch_or(acquired.is_ok(), Ordering::SeqCst);
                acquired
            }
            (Mutant::LateWaiterIsAnOutage, WaitLimit::Within(_)) => {
                let under_way = UnderWay::new(&self.under_way, &ask);
                let is_behind = under_way.first(|other| other.name == ask.name).is_some();
                whole.acquire(&ask).await.map_err(|error| match error.kind() {
                    ErrorKind::TimedOut if is_behind => {
                        Error::new(ErrorKind::Unavailable, "given up before the server was asked")
                    }
                    _ => error,
                })
            }
            (Mutant::OutageWithoutACause, _) => whole.acquire(&ask).await.map_err(|error| match error.kind() {
                ErrorKind::Unavailable => Error::new(ErrorKind::Unavailable, error.to_string()),
                _ => error,
            }),
            (Mutant::WaitOfZeroAsksNobody, WaitLimit::Within(Duration::ZERO)) => {
                Err(Error::new(ErrorKind::TimedOut, "not acquired in the time given"))
            }
            (Mutant::StaysOnItsFirstRuntime, _) => {
                let home = self.home.get_or_init(Handle::current);
                let acquired = home.spawn(async move { whole.acquire(&ask).await }).await;
                acquired.unwrap_or_else(|error| Err(Error::new(ErrorKind::Unexpected, error.to_string())))
            }
            (Mutant::NoRenewal, _) => {
                ask.fixed = true;
                whole.acquire(&ask).await
            }
            (Mutant::FixedLeaseIsRenewed, _) => {
                ask.fixed = false;
                whole.acquire(&ask).await
            }
            (Mutant::ShortTtlIsTaken, _) => {
                ask.ttl = ask.ttl.max(self.backend.capabilities().shortest_ttl);
                whole.acquire(&ask).await
            }
            (Mutant::OrphanAfterCancel, _) => {
                let acquiring = tokio::spawn(async move {
                    let guard = whole.acquire(&ask).await;
                    // Nobody looks whether the one who asked is still there.
                    Orphan(Some(guard))
                });
                let answer = acquiring.await.map(Orphan::adopt);
                answer.unwrap_or_else(|panic| Err(Error::new(ErrorKind::Unexpected, panic.to_string())))
            }
            (Mutant::WaiterEndsInAnOutage, WaitLimit::Forever) => tokio::select! {
                guard = whole.acquire(&ask) => guard,
                error = first_failure(&whole, &ask.name) => Err(error),
            },
            (Mutant::PlaceForEachWaiter, _) => LockerSubject::new(self.backend.clone()).acquire(&ask).await,
            (Mutant::TermsOfTheFirstWaiter, _) => {
                let under_way = UnderWay::new(&self.under_way, &ask);
                let first = under_way.first(|other| other.name == ask.name).unwrap_or(ask.clone());
                whole.acquire(&ask.on_the_terms_of(first)).await
            }
            _ if ask.reentry.is_some() => self.acquire_with_key(ask).await,
            _ if ask.minimum.is_some() && self.keeps_the_minimum_itself() => {
                ask.minimum = None;
                whole.acquire(&ask).await
            }
            (Mutant::MaximumIgnored | Mutant::MaximumFreesNothing, _) => {
                ask.maximum = None;
                whole.acquire(&ask).await
            }
            _ => whole.acquire(&ask).await,
        }
    }

    /// For the mutants of re-entry.
    async fn acquire_with_key(&self, mut ask: Ask) -> Acquired {
        let whole = &self.whole;
        match self.mutant {
            Mutant::KeyWaitsForItself => ask.reentry = None,
            Mutant::AnyKeyWillDo => ask.reentry = Some(self.any_key.clone()),
            Mutant::NestedAcquireAsksTheServer => {
                while whole.status(&ask.name).await.is_err() {
                    sleep(ask.ttl / 100).await;
                }
            }
            Mutant::SuspectIsNotShared if timeout(ask.ttl / 100, whole.status(&ask.name)).await.is_err() => {
                ask.reentry = None;
            }
            Mutant::KeyIsLookedUpOnce => {
                let under_way = UnderWay::new(&self.under_way, &ask);
                if under_way.first(|other| other.reentry == ask.reentry).is_some() {
                    ask.reentry = None;
                }
                return whole.acquire(&ask).await;
            }
            Mutant::ContradictionAccepted => {
                let acquired = whole.acquire(&ask).await;
                return match acquired {
                    Err(error) if error.kind() == ErrorKind::Misconfigured => {
                        let first = self.keys.first_ask(&ask).unwrap_or(ask.clone());
                        whole.acquire(&ask.on_the_terms_of(first)).await
                    }
                    acquired => {
                        self.keys.remember(&ask);
                        acquired
                    }
                };
            }
            Mutant::FirstReleaseEndsAll | Mutant::LostHoldIsShared => {
                return self.keys.acquire(&**whole, &ask, self.mutant).await;
            }
            _ => {}
        }
        whole.acquire(&ask).await
    }

    /// For the mutants of several locks at once: one after the other, in the caller's order.
    async fn one_by_one(&self, asks: &[Ask], wait: WaitLimit) -> Result<Option<Vec<Box<dyn SubjectGuard>>>> {
        let mut guards = Vec::new();
        for ask in asks {
            let ask = Ask { wait, ..ask.clone() };
            match self.whole.acquire(&ask).await {
                Ok(Some(guard)) => guards.push(guard),
                refused => {
                    if self.mutant != Mutant::SeveralInTheCallersOrder {
                        std::mem::forget(guards);
                    }
                    return refused.map(|_busy| None);
                }
            }
        }
        Ok(Some(guards))
    }

    fn keeps_the_minimum_itself(&self) -> bool {
        matches!(
            self.mutant,
            Mutant::MinimumNotRefused
                | Mutant::MinimumDiesWithItsClient
                | Mutant::ReleaseWaitsForItsMinimum
                | Mutant::MinimumCountsFromTheRelease
        )
    }

    /// The right to ask the server for this name, of which a client has one. `None`: it took too long.
    async fn lead(&self, ask: &Ask) -> Option<OwnedMutexGuard<()>> {
        let leader = {
            let mut leaders = self.leaders.lock().unwrap_or_else(PoisonError::into_inner);
            leaders.entry(ask.name.clone()).or_default().clone()
        };
        match ask.wait {
            WaitLimit::Try => leader.try_lock_owned().ok(),
            WaitLimit::Within(time) => timeout(time, leader.lock_owned()).await.ok(),
            WaitLimit::Forever => Some(leader.lock_owned().await),
        }
    }
}

impl Ask {
    /// The same, as somebody else would ask for it.
    fn on_the_terms_of(self, other: Self) -> Self {
        Self {
            reentry: self.reentry,
            wait: self.wait,
            ..other
        }
    }
}

/// The answer to an acquire, whose guard is never released if nobody takes it.
struct Orphan(Option<Acquired>);

impl Orphan {
    fn adopt(mut self) -> Acquired {
        self.0.take().unwrap_or(Ok(None))
    }
}

impl Drop for Orphan {
    fn drop(&mut self) {
        std::mem::forget(self.0.take());
    }
}

async fn first_failure(whole: &LockerSubject, name: &str) -> Error {
    loop {
        sleep(Duration::from_millis(100)).await;
        if let Err(error) = whole.status(name).await {
            return error;
        }
    }
}

#[async_trait]
impl Subject for MutantSubject {
    fn capabilities(&self) -> Capabilities {
        self.whole.capabilities()
    }

    fn passes(&self) -> u32 {
        self.whole.passes()
    }

    fn least_polls(&self) -> u32 {
        self.whole.least_polls()
    }

    async fn acquire(&self, ask: &Ask) -> Acquired {
        let leads = self.mutant == Mutant::PlaceGoesWithItsFirstWaiter && ask.reentry.is_none();
        let leader = match leads {
            true => match (self.lead(ask).await, ask.wait) {
                (Some(leader), _) => Some(leader),
                (None, WaitLimit::Try) => return Ok(None),
                (None, _) => return Err(Error::new(ErrorKind::TimedOut, "not acquired in the time given")),
            },
            false => None,
        };
        let Some(whole) = self.acquire_broken(ask).await? else {
            return Ok(None);
        };
        let mut guard = MutantGuard::new(whole, self.mutant);
        guard.leader = leader;
        if self.mutant == Mutant::GuardDowngradesByARelease {
            guard.again = Some((self.whole.clone(), ask.clone().in_mode(Mode::Shared)));
        }
        if self.keeps_the_minimum_itself() {
            guard.minimum = ask.minimum.map(|minimum| (Instant::now(), minimum));
        }
        match self.mutant {
            Mutant::MaximumFreesNothing => guard.lost_at = ask.maximum.map(|maximum| Instant::now() + maximum),
            Mutant::MaximumOutlivesItsHold => guard.lost_at = self.maxima.of(ask),
            _ => {}
        }
        if self.mutant == Mutant::LateAnswerRevives {
            tokio::spawn(revive(
                self.whole.clone(),
                ask.name.clone(),
                guard.watch(),
                guard.revived.clone(),
            ));
        }
        Ok(Some(Box::new(guard)))
    }

    fn acquires_several(&self) -> bool {
        self.whole.acquires_several()
    }

    async fn acquire_all(&self, asks: &[Ask], wait: WaitLimit) -> Result<Option<Vec<Box<dyn SubjectGuard>>>> {
        match (self.mutant, wait) {
            (Mutant::SeveralInTheCallersOrder, _)
            | (Mutant::TimedOutKeepsAPart, WaitLimit::Within(_))
            | (Mutant::RefusedTryKeepsAPart, WaitLimit::Try) => self.one_by_one(asks, wait).await,
            _ => self.whole.acquire_all(asks, wait).await,
        }
    }

    fn candidate(&self, name: &str, ttl: Duration, value: &str) -> Option<Arc<dyn Candidate>> {
        let whole = match self.mutant {
            Mutant::ElectionBesideItsLock => self.whole.candidate(&format!("election {name}"), ttl, value)?,
            _ => self.whole.candidate(name, ttl, value)?,
        };
        Some(Arc::new(MutantCandidate {
            whole,
            subject: self.whole.clone(),
            ask: Ask::new(name, ttl),
            mutant: self.mutant,
            maximum: None,
            last: Arc::default(),
        }))
    }

    async fn status(&self, name: &str) -> Result<LockStatus> {
        self.whole.status(name).await
    }

    async fn shutdown(&self) -> Result<()> {
        if self.mutant == Mutant::ShutdownWaitsForNothing {
            self.shut_down.store(true, Ordering::SeqCst);
            return Ok(());
        }
        self.whole.shutdown().await
    }
}

mod memory;
