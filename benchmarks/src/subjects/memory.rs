//! What memory is compared with.

use std::sync::{Arc, Mutex as Table};
use std::time::Duration;

use benchmarks_load::{Client, Lock, Result, Subject};
use lock_core::backend::request::{RequestOptions, Terms};
use lock_core::backend::{Attempt, DistributedLock, Hold, ReleaseOptions};
use lock_core::{LockName, MemoryBackend};
use std::collections::HashMap;
use tokio::sync::{Mutex, OwnedMutexGuard};
use tokio::time::sleep;

use super::{POLL, TTL};

/// `plain`: tokio's mutex. Clients share them by name.
#[derive(Clone, Default)]
pub(crate) struct Mutexes(Arc<Table<HashMap<String, Arc<Mutex<()>>>>>);

pub(crate) struct Plain(Arc<Mutex<()>>);

impl Subject for Mutexes {
    type Client = Self;

    async fn connect(&self) -> Result<Self> {
        Ok(self.clone())
    }
}

impl Client for Mutexes {
    type Lock = Plain;

    async fn lock(&self, name: &str) -> Result<Plain> {
        let mut table = self.0.lock().expect("nothing panics while it is locked");
        Ok(Plain(table.entry(name.into()).or_default().clone()))
    }
}

impl Lock for Plain {
    type Held = OwnedMutexGuard<()>;

    async fn acquire(&mut self) -> Result<OwnedMutexGuard<()>> {
        Ok(self.0.clone().lock_owned().await)
    }

    async fn release(&mut self, held: OwnedMutexGuard<()>) -> Result<()> {
        drop(held);
        Ok(())
    }
}

/// `poll-10ms`: the memory backend, asked again and again.
#[derive(Clone, Default)]
pub(crate) struct Poll(MemoryBackend);

pub(crate) struct Polled {
    backend: MemoryBackend,
    name: LockName,
}

impl Subject for Poll {
    type Client = Self;

    async fn connect(&self) -> Result<Self> {
        Ok(self.clone())
    }
}

impl Client for Poll {
    type Lock = Polled;

    async fn lock(&self, name: &str) -> Result<Polled> {
        Ok(Polled {
            backend: self.0.clone(),
            name: LockName::new(name)?,
        })
    }
}

impl Lock for Polled {
    type Held = Arc<dyn Hold>;

    async fn acquire(&mut self) -> Result<Arc<dyn Hold>> {
        loop {
            let terms = Terms::new(TTL).time_left(Duration::from_secs(5));
            let (request, _control) = RequestOptions::new(self.name.clone(), terms).waits(false).start();
            if let Attempt::Granted(hold, _) = self.backend.acquire(&request).await? {
                return Ok(hold);
            }
            sleep(POLL).await;
        }
    }

    async fn release(&mut self, hold: Arc<dyn Hold>) -> Result<()> {
        hold.release(ReleaseOptions::default()).await?;
        Ok(())
    }
}
