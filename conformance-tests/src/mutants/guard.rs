//! A guard with a defect.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use async_trait::async_trait;
use lock_core::{FencingToken, Release, Result};
use tokio::sync::OwnedMutexGuard;
use tokio::time::{Instant, sleep_until};

use super::Defect;
use crate::subject::{End, LockerSubject, State, Subject, SubjectGuard, Task};

#[derive(Debug)]
pub(super) struct BrokenGuard {
    /// `None` once it was released or dropped.
    whole: Option<Box<dyn SubjectGuard>>,
    defect: Defect,
    pub(super) revived: Arc<AtomicBool>,
    pub(super) leader: Option<OwnedMutexGuard<()>>,
    /// Since when, and for how long, the guard itself is to keep the name taken.
    pub(super) minimum: Option<(Instant, Duration)>,
}

impl BrokenGuard {
    pub(super) fn new(whole: Box<dyn SubjectGuard>, defect: Defect) -> Self {
        Self {
            whole: Some(whole),
            defect,
            revived: Arc::default(),
            leader: None,
            minimum: None,
        }
    }

    fn whole(&self) -> &dyn SubjectGuard {
        self.whole
            .as_deref()
            .unwrap_or_else(|| unreachable!("only release and drop, which consume the guard, take it"))
    }

    fn is_revived(&self) -> bool {
        self.revived.load(Ordering::SeqCst)
    }

    /// Until when the release is put off.
    fn kept_until(&self) -> Option<Instant> {
        let (since, minimum) = self.minimum?;
        match self.defect {
            Defect::MinimumNotRefused => None,
            Defect::MinimumCountsFromTheRelease => Some(Instant::now() + minimum),
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
impl SubjectGuard for BrokenGuard {
    fn token(&self) -> FencingToken {
        self.whole().token()
    }

    fn state(&self) -> State {
        match self.whole().state() {
            State::Lost if self.defect == Defect::LostNeverFires || self.is_revived() => State::Held,
            state => state,
        }
    }

    fn valid_for(&self) -> Duration {
        self.whole().valid_for()
    }

    async fn lost(&self) {
        match self.defect {
            Defect::LostNeverFires => std::future::pending().await,
            _ => self.whole().lost().await,
        }
    }

    fn watch(&self) -> Task<End> {
        let (watch, defect) = (self.whole().watch(), self.defect);
        Box::pin(async move {
            match (watch.await, defect) {
                (End::Lost, Defect::LostNeverFires) => std::future::pending().await,
                (End::Released, Defect::LostFiresOnRelease) => End::Lost,
                (end, _) => end,
            }
        })
    }

    async fn run(&self, work: Task<()>) -> bool {
        if self.defect == Defect::WorkGoesOnAfterTheLoss {
            work.await;
            return true;
        }
        self.whole().run(work).await
    }

    async fn extend(&self, ttl: Duration) -> Result<()> {
        self.whole().extend(ttl).await
    }

    async fn release(mut self: Box<Self>) -> Result<Release> {
        let kept_until = self.kept_until();
        let Some(whole) = self.whole.take() else {
            return Ok(Release::Released);
        };
        match (self.defect, kept_until) {
            (Defect::DroppedReleaseIsForgotten, _) => return Forgetful(Some(whole.release())).await,
            (Defect::ReleaseWaitsForItsMinimum, Some(until)) => sleep_until(until).await,
            (_, Some(until)) => {
                release_at(until, whole);
                return Ok(Release::Released);
            }
            _ => {}
        }
        match whole.release().await {
            Err(error) if error.is_lost() && self.defect == Defect::LossIsNoError => Ok(Release::Released),
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

impl Drop for BrokenGuard {
    fn drop(&mut self) {
        let kept_until = self.kept_until();
        let Some(whole) = self.whole.take() else { return };
        match (self.defect, kept_until) {
            (Defect::DropLeavesTheKey, _) => std::mem::forget(whole),
            (Defect::DropSpawns, _) => drop(tokio::spawn(whole.release())),
            (_, Some(until)) => release_at(until, whole),
            _ => drop(whole),
        }
    }
}
