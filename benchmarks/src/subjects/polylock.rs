//! polylock as people use it, and its backends without core.

use std::sync::Arc;

use benchmarks_load::{Client, Lock, Mode, Result, Subject};
use lock_core::backend::request::{RequestControl, RequestOptions, Terms};
use lock_core::backend::{AcquireRequest, Attempt, DistributedLock, Hold, ReleaseOptions};
use lock_core::{Guard, LockName, Locker};
use tokio::time::sleep;

use super::{POLL, TTL};
use crate::entry::MakeBackend;

pub(crate) struct Polylock(pub(crate) MakeBackend);

/// polylock with fixed leases, which are never passed on.
pub(crate) struct WithoutPasses(pub(crate) MakeBackend);

pub(crate) struct PolylockClient {
    locker: Locker,
    passes: bool,
}

pub(crate) struct PolylockLock(lock_core::Lock);

impl Subject for Polylock {
    type Client = PolylockClient;

    async fn connect(&self) -> Result<PolylockClient> {
        PolylockClient::connect(&self.0, true).await
    }
}

impl Subject for WithoutPasses {
    type Client = PolylockClient;

    async fn connect(&self) -> Result<PolylockClient> {
        PolylockClient::connect(&self.0, false).await
    }
}

impl PolylockClient {
    async fn connect(make: &MakeBackend, passes: bool) -> Result<Self> {
        let locker = Locker::from_backend(make()?).without_label().with_ttl(TTL);
        locker.connect().await?;
        Ok(Self { locker, passes })
    }
}

impl Client for PolylockClient {
    type Lock = PolylockLock;

    async fn lock(&self, name: &str) -> Result<PolylockLock> {
        let lock = self.locker.lock(name);
        Ok(PolylockLock(if self.passes { lock } else { lock.fixed_lease() }))
    }

    async fn lock_in(&self, name: &str, mode: Mode) -> Result<PolylockLock> {
        Ok(match mode {
            Mode::Exclusive => self.lock(name).await?,
            Mode::Shared => PolylockLock(self.locker.rw_lock(name).read()),
            Mode::Permit { of } => PolylockLock(self.locker.semaphore(name, of).permits(1)),
            mode => return Err(format!("{mode:?} is not known here").into()),
        })
    }
}

impl Lock for PolylockLock {
    type Held = Guard;

    async fn acquire(&mut self) -> Result<Guard> {
        Ok(self.0.acquire().await?)
    }

    async fn release(&mut self, guard: Guard) -> Result<()> {
        guard.release().await.map(drop)?;
        Ok(())
    }

    fn release_in_background(&mut self, guard: Guard) -> Result<()> {
        drop(guard);
        Ok(())
    }
}

/// The backend's trait, called directly.
pub(crate) struct Raw(pub(crate) MakeBackend);

pub(crate) struct RawClient(Arc<dyn DistributedLock>);

pub(crate) struct RawLock {
    backend: Arc<dyn DistributedLock>,
    name: LockName,
}

impl Subject for Raw {
    type Client = RawClient;

    async fn connect(&self) -> Result<RawClient> {
        let backend = (self.0)()?;
        backend.connect().await?;
        Ok(RawClient(backend))
    }
}

impl Client for RawClient {
    type Lock = RawLock;

    async fn lock(&self, name: &str) -> Result<RawLock> {
        RawLock::new(self.0.clone(), name)
    }
}

impl RawLock {
    pub(crate) fn new(backend: Arc<dyn DistributedLock>, name: &str) -> Result<Self> {
        let name = LockName::new(name)?;
        Ok(Self { backend, name })
    }

    fn request(&self) -> (AcquireRequest, RequestControl) {
        RequestOptions::new(self.name.clone(), Terms::new(TTL)).start()
    }
}

impl Lock for RawLock {
    type Held = Arc<dyn Hold>;

    async fn acquire(&mut self) -> Result<Arc<dyn Hold>> {
        let (request, _control) = self.request();
        loop {
            match self.backend.acquire(&request).await? {
                Attempt::Granted(hold, _) => return Ok(hold),
                Attempt::Busy(busy) => sleep(busy.ask_again.unwrap_or(POLL)).await,
                _ => return Err("the backend answers what is not known here".into()),
            }
        }
    }

    async fn release(&mut self, hold: Arc<dyn Hold>) -> Result<()> {
        hold.release(ReleaseOptions::default()).await?;
        Ok(())
    }
}
