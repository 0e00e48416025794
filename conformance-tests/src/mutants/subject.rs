//! A subject with a defect above its backend. Every other defect leaves it whole.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use lock_core::backend::{Capabilities, LockStatus};
use lock_core::{Error, ErrorKind, FencingToken, Result};
use tokio::time::sleep;

use super::Defect;
use crate::subject::{Ask, End, LockerSubject, Patience, State, Subject, SubjectGuard, Task};

#[derive(Debug)]
pub(super) struct Broken {
    whole: Arc<LockerSubject>,
    defect: Defect,
    shut_down: AtomicBool,
}

#[derive(Debug)]
struct BrokenGuard {
    /// `None` once it was released or dropped.
    whole: Option<Box<dyn SubjectGuard>>,
    defect: Defect,
    revived: Arc<AtomicBool>,
}

impl Broken {
    pub(super) fn new(whole: Arc<LockerSubject>, defect: Defect) -> Self {
        Self {
            whole,
            defect,
            shut_down: AtomicBool::new(false),
        }
    }

    fn guard(&self, name: &str, whole: Box<dyn SubjectGuard>) -> Box<dyn SubjectGuard> {
        let revived = Arc::new(AtomicBool::new(false));
        if self.defect == Defect::LateAnswerRevives {
            tokio::spawn(revive(
                self.whole.clone(),
                name.to_owned(),
                whole.watch(),
                revived.clone(),
            ));
        }
        Box::new(BrokenGuard {
            whole: Some(whole),
            defect: self.defect,
            revived,
        })
    }

    async fn acquire_broken(&self, ask: &Ask) -> Result<Option<Box<dyn SubjectGuard>>> {
        let (whole, mut ask) = (self.whole.clone(), ask.clone());
        match (self.defect, ask.patience) {
            (Defect::WaitGivesUpAtOnce, Patience::Within(_)) => match whole.acquire(&ask.trying()).await? {
                None => Err(Error::new(ErrorKind::TimedOut, "not acquired in the time given")),
                granted => Ok(granted),
            },
            (Defect::TryWaits, Patience::Try) => match whole.acquire(&ask.within(Duration::from_secs(10))).await {
                Err(error) if error.kind() == ErrorKind::TimedOut => Ok(None),
                other => other,
            },
            (Defect::TimeoutNamesNobody, _) => whole.acquire(&ask).await.map_err(|error| match error.kind() {
                ErrorKind::TimedOut => Error::new(ErrorKind::TimedOut, "not acquired in the time given"),
                _ => error,
            }),
            (Defect::EveryErrorIsATimeout, _) => whole.acquire(&ask).await.map_err(|error| match error.kind() {
                ErrorKind::Unavailable => Error::new(ErrorKind::TimedOut, "not acquired").with_source(error),
                _ => error,
            }),
            (Defect::NoRenewal, _) => {
                ask.fixed = true;
                whole.acquire(&ask).await
            }
            (Defect::OrphanAfterCancel, _) => {
                let acquiring = tokio::spawn(async move {
                    let guard = whole.acquire(&ask).await;
                    // Nobody looks whether the one who asked is still there.
                    Orphan(Some(guard))
                });
                let answer = acquiring.await.map(Orphan::adopt);
                answer.unwrap_or_else(|panic| Err(Error::new(ErrorKind::Unexpected, panic.to_string())))
            }
            (Defect::WaiterEndsInAnOutage, Patience::Forever) => tokio::select! {
                guard = whole.acquire(&ask) => guard,
                error = first_failure(&whole, &ask.name) => Err(error),
            },
            _ => whole.acquire(&ask).await,
        }
    }
}

/// The answer to an acquire, whose guard is never released if nobody takes it.
struct Orphan(Option<Result<Option<Box<dyn SubjectGuard>>>>);

impl Orphan {
    fn adopt(mut self) -> Result<Option<Box<dyn SubjectGuard>>> {
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

async fn revive(whole: Arc<LockerSubject>, name: String, end: Task<End>, revived: Arc<AtomicBool>) {
    if end.await == End::Lost && whole.status(&name).await.is_ok() {
        revived.store(true, Ordering::SeqCst);
    }
}

#[async_trait]
impl Subject for Broken {
    fn capabilities(&self) -> Capabilities {
        self.whole.capabilities()
    }

    async fn acquire(&self, ask: &Ask) -> Result<Option<Box<dyn SubjectGuard>>> {
        let acquired = self.acquire_broken(ask).await?;
        Ok(acquired.map(|whole| self.guard(&ask.name, whole)))
    }

    async fn status(&self, name: &str) -> Result<LockStatus> {
        self.whole.status(name).await
    }

    async fn shutdown(&self) -> Result<()> {
        if self.defect == Defect::ShutdownWaitsForNothing {
            self.shut_down.store(true, Ordering::SeqCst);
            return Ok(());
        }
        self.whole.shutdown().await
    }
}

impl BrokenGuard {
    fn whole(&self) -> &dyn SubjectGuard {
        self.whole
            .as_deref()
            .unwrap_or_else(|| unreachable!("only release and drop, which consume the guard, take it"))
    }

    fn is_revived(&self) -> bool {
        self.revived.load(Ordering::SeqCst)
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

    async fn release(mut self: Box<Self>) -> Result<()> {
        let Some(whole) = self.whole.take() else { return Ok(()) };
        match whole.release().await {
            Err(error) if error.is_lost() && self.defect == Defect::LossIsNoError => Ok(()),
            outcome => outcome,
        }
    }
}

impl Drop for BrokenGuard {
    fn drop(&mut self) {
        let Some(whole) = self.whole.take() else { return };
        match self.defect {
            Defect::DropLeavesTheKey => std::mem::forget(whole),
            Defect::DropSpawns => drop(tokio::spawn(whole.release())),
            _ => drop(whole),
        }
    }
}
