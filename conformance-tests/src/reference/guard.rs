//! The guard of the mutants whose bug is in the guard.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use async_trait::async_trait;
use lock_core::{Error, ErrorKind, FencingToken, Release, Result};
use tokio::sync::OwnedMutexGuard;
use tokio::time::{Instant, sleep_until};

use crate::mutant::Mutant;
use crate::subject::{Ask, End, LockerSubject, State, Subject, SubjectGuard, Task};

#[derive(Debug)]
pub(super) struct MutantGuard {
    /// `None` once it was released or dropped, or by a failed upgrade.
    whole: Option<Box<dyn SubjectGuard>>,
    token: FencingToken,
    mutant: Mutant,
    pub(super) revived: Arc<AtomicBool>,
    /// Who acquires it anew, and as what.
    pub(super) again: Option<(Arc<LockerSubject>, Ask)>,
    pub(super) leader: Option<OwnedMutexGuard<()>>,
    /// Since when, and for how long, the guard itself is to keep the name taken.
    pub(super) minimum: Option<(Instant, Duration)>,
    /// When the guard itself says that it is lost.
    pub(super) lost_at: Option<Instant>,
}

impl MutantGuard {
    pub(super) fn new(whole: Box<dyn SubjectGuard>, mutant: Mutant) -> Self {
        Self {
            token: whole.token(),
            whole: Some(whole),
            mutant,
            revived: Arc::default(),
            again: None,
            leader: None,
            minimum: None,
            lost_at: None,
        }
    }

    fn whole(&self) -> &dyn SubjectGuard {
        self.whole
            .as_deref()
            .unwrap_or_else(|| unreachable!("what has ended is only asked for its state and token"))
    }

    fn is_revived(&self) -> bool {
        self.revived.load(Ordering::SeqCst)
    }

    /// Until when the release is put off.
    fn kept_until(&self) -> Option<Instant> {
        let (since, minimum) = self.minimum?;
        match self.mutant {
            Mutant::MinimumNotRefused => None,
            Mutant::MinimumCountsFromTheRelease => Some(Instant::now() + minimum),
            _ => Some(since + minimum),
        }
    }
}

/// Makes a lost lock held again once the server answers.
pub(super) async fn revive(whole: Arc<LockerSubject>, name: String, end: Task<End>, revived: Arc<AtomicBool>) {
    if end.await == End::Lost && whole.status(&name).await.is_ok() {
        revived.store(true, Ordering::SeqCst);
    }
}

/// A release that nobody finishes when it is dropped.
struct Forgetful(Option<Task<Result<Release>>>);

impl Future for Forgetful {
    type Output = Result<Release>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<Release>> {
        let Some(releasing) = &mut self.0 else {
            return Poll::Pending;
        };
        let released = releasing.as_mut().poll(context);
        if released.is_ready() {
            self.0 = None;
        }
        released
    }
}

impl Drop for Forgetful {
    fn drop(&mut self) {
        std::mem::forget(self.0.take());
    }
}

#[async_trait]
impl SubjectGuard for MutantGuard {
    fn token(&self) -> FencingToken {
        self.whole.as_ref().map_or(self.token, |whole| whole.token())
    }

    fn state(&self) -> State {
        let state = self.whole.as_ref().map_or(State::Released, |whole| whole.state());
        match state {
            State::Held if self.lost_at.is_some_and(|lost_at| lost_at <= Instant::now()) => State::Lost,
            State::Lost if self.mutant == Mutant::LostNeverFires || self.is_revived() => State::Held,
            state => state,
        }
    }

    fn valid_for(&self) -> Duration {
        self.whole().valid_for()
    }

    async fn lost(&self) {
        match (self.mutant, self.lost_at) {
            (Mutant::LostNeverFires, _) => std::future::pending().await,
            (_, Some(lost_at)) => sleep_until(lost_at).await,
            _ => self.whole().lost().await,
        }
    }

    fn watch(&self) -> Task<End> {
        let (watch, mutant) = (self.whole().watch(), self.mutant);
        Box::pin(async move {
            match (watch.await, mutant) {
                (End::Lost, Mutant::LostNeverFires) => std::future::pending().await,
                (End::Released, Mutant::LostFiresOnRelease) => End::Lost,
                (end, _) => end,
            }
        })
    }

    async fn run(&self, work: Task<()>) -> bool {
        if self.mutant == Mutant::WorkGoesOnAfterTheLoss {
            work.await;
            return true;
        }
        self.whole().run(work).await
    }

    async fn extend(&self, ttl: Duration) -> Result<()> {
        self.whole().extend(ttl).await
    }

    async fn downgrade(&mut self) -> Result<()> {
        if let Some((subject, ask)) = self.again.take() {
            if let Some(whole) = self.whole.take() {
                whole.release().await?;
            }
            self.whole = subject.acquire(&ask).await?;
            return Ok(());
        }
        match &mut self.whole {
            Some(whole) => whole.downgrade().await,
            None => Err(Error::new(ErrorKind::Lost, "it has ended")),
        }
    }

    async fn upgrade(&mut self, limit: Option<Duration>) -> Result<()> {
        let Some(whole) = &mut self.whole else {
            return Err(Error::new(ErrorKind::Lost, "it has ended"));
        };
        if self.mutant == Mutant::UpgradeAsksNobody {
            return Ok(());
        }
        let upgraded = whole.upgrade(limit).await;
        if upgraded.is_err() && self.mutant == Mutant::FailedUpgradeReleases {
            self.whole = None;
        }
        upgraded
    }

    async fn release(mut self: Box<Self>) -> Result<Release> {
        let kept_until = self.kept_until();
        let Some(whole) = self.whole.take() else {
            return Ok(Release::Released);
        };
        match (self.mutant, kept_until) {
            (Mutant::DroppedReleaseIsForgotten, _) => return Forgetful(Some(whole.release())).await,
            (Mutant::ReleaseWaitsForItsMinimum, Some(until)) => sleep_until(until).await,
            (_, Some(until)) => {
                release_at(until, whole);
                return Ok(Release::Released);
            }
            _ => {}
        }
        match whole.release().await {
            Err(error) if error.is_lost() && self.mutant == Mutant::LossIsNoError => Ok(Release::Released),
            outcome => outcome,
        }
    }
}

fn release_at(time: Instant, guard: Box<dyn SubjectGuard>) {
    tokio::spawn(async move {
        sleep_until(time).await;
        drop(guard);
    });
}

impl Drop for MutantGuard {
    fn drop(&mut self) {
        let kept_until = self.kept_until();
        let Some(whole) = self.whole.take() else { return };
        match (self.mutant, kept_until) {
            (Mutant::DropLeavesTheKey, _) => std::mem::forget(whole),
            (Mutant::DropSpawns, _) => drop(tokio::spawn(whole.release())),
            (_, Some(until)) => release_at(until, whole),
            _ => drop(whole),
        }
    }
}
