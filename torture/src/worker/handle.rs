//! Locks and guards of all modes, each as one kind.

use std::ops::Deref;

use lock_core::{Guard, Lock, Release, Result, UpgradableGuard, UpgradableLock};
use tokio::time::timeout;

use super::plan::Ask;

/// A lock in some mode.
#[derive(Debug)]
pub(super) enum Handle {
    Plain(Lock),
    Upgradable(UpgradableLock),
}

/// A guard in some mode.
#[derive(Debug)]
pub(super) enum AnyGuard {
    Plain(Guard),
    Upgradable(Box<UpgradableGuard>),
}

impl Handle {
    /// `None`: its caller went away.
    pub(super) async fn acquire(&self, ask: Ask) -> Option<Result<Option<AnyGuard>>> {
        match ask {
            Ask::Within(limit) => Some(match self {
                Self::Plain(lock) => lock.acquire_within(limit).await.map(AnyGuard::some),
                Self::Upgradable(lock) => lock.acquire_within(limit).await.map(AnyGuard::some),
            }),
            Ask::Forever => Some(self.acquire_for_ever().await),
            Ask::Once => Some(match self {
                Self::Plain(lock) => lock.try_acquire().await.map(|guard| guard.map(AnyGuard::from)),
                Self::Upgradable(lock) => lock.try_acquire().await.map(|guard| guard.map(AnyGuard::from)),
            }),
            // Whoever is granted it before, keeps it.
            Ask::Dropped(after) => timeout(after, self.acquire_for_ever()).await.ok(),
        }
    }

    async fn acquire_for_ever(&self) -> Result<Option<AnyGuard>> {
        match self {
            Self::Plain(lock) => lock.acquire().await.map(AnyGuard::some),
            Self::Upgradable(lock) => lock.acquire().await.map(AnyGuard::some),
        }
    }
}

impl AnyGuard {
    fn some(guard: impl Into<Self>) -> Option<Self> {
        Some(guard.into())
    }

    /// Goes from writing to reading.
    pub(super) async fn downgrade(&mut self) -> Result<()> {
        match self {
            Self::Plain(guard) => guard.downgrade().await,
            Self::Upgradable(guard) => guard.downgrade().await,
        }
    }

    pub(super) async fn release(self) -> Result<Release> {
        match self {
            Self::Plain(guard) => guard.release().await,
            Self::Upgradable(guard) => guard.release().await,
        }
    }
}

impl From<Guard> for AnyGuard {
    fn from(guard: Guard) -> Self {
        Self::Plain(guard)
    }
}

impl From<UpgradableGuard> for AnyGuard {
    fn from(guard: UpgradableGuard) -> Self {
        Self::Upgradable(Box::new(guard))
    }
}

impl Deref for AnyGuard {
    type Target = Guard;

    fn deref(&self) -> &Guard {
        match self {
            Self::Plain(guard) => guard,
            Self::Upgradable(guard) => guard,
        }
    }
}
