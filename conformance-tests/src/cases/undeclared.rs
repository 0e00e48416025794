//! A feature that a backend does not declare is rejected before the backend is called.

use std::fmt::Debug;
use std::sync::Arc;

use async_trait::async_trait;
use lock_core::backend::{AcquireRequest, Attempt, Capabilities, DistributedLock, LockStatus, Mode};
use lock_core::{ErrorKind, Lock, LockName, Locker, Result};

use crate::context::RawCx;
use crate::raw::limit;
use crate::verdict::{Capability, OrFail, Stop, Verdict, ensure};
use crate::watched::Watched;
use crate::yielding::Yielding;

/// A mode that the backend does not declare is refused as unsupported, and the backend is not called. So is a downgrade, which leaves the
/// hold exclusive.
pub(crate) async fn undeclared_modes_are_refused(cx: &RawCx) -> Verdict {
    let backend = cx.connected().await?;
    let without_modes: Arc<dyn DistributedLock> = Arc::new(WithoutModes(backend.clone()));
    for backend in [backend, without_modes] {
        let capabilities = backend.capabilities();
        let watched = Watched::new(backend);
        let locks = Locker::new(Yielding::new(watched.clone()));
        let semaphore = |limit| locks.semaphore("a", limit).permits(1);
        let mut refused = Vec::new();
        if !Capability::Shared.is_in(capabilities) {
            refused.push(locks.rw_lock("a").read());
        }
        if capabilities.permits == 0 {
            refused.push(semaphore(1));
        }
        refused.extend(capabilities.permits.checked_add(1).map(semaphore));
        for lock in refused {
            ensure_refused(cx, &lock, ErrorKind::Unsupported).await?;
        }
        if !Capability::Upgradable.is_in(capabilities) {
            let lock = locks.rw_lock("a").upgradable();
            let trying = async { lock.try_acquire().await.map(drop) };
            ensure_error(cx, trying, ErrorKind::Unsupported, &lock).await?;
            let acquiring = async { lock.acquire().await.map(drop) };
            ensure_error(cx, acquiring, ErrorKind::Unsupported, &lock).await?;
        }
        ensure!(
            watched.asked() == 0,
            "the backend was asked for a mode that it does not declare"
        );
        if !Capability::Downgrade.is_in(capabilities) {
            ensure_not_downgraded(cx, &locks).await?;
        }
    }
    Ok(())
}

/// A request for more permits than there are, or for none, is refused, and the backend is not called.
pub(crate) async fn more_than_the_limit_is_misconfigured(cx: &RawCx) -> Verdict {
    let client = cx.client_with(Capability::Permits).await?;
    let most = limit(&client, 2..=3)?;
    let watched = Watched::new(client);
    let locks = Locker::new(Yielding::new(watched.clone()));
    for (take, limit) in [(most + 1, most), (0, most), (1, 0)] {
        let lock = locks.semaphore("a", limit).permits(take);
        ensure_refused(cx, &lock, ErrorKind::Misconfigured).await?;
    }
    ensure!(
        watched.asked() == 0,
        "the backend was asked for permits that there cannot be"
    );
    Ok(())
}

async fn ensure_refused(cx: &RawCx, lock: &Lock, expected: ErrorKind) -> Verdict {
    let trying = async { lock.try_acquire().await.map(drop) };
    ensure_error(cx, trying, expected, lock).await?;
    let acquiring = async { lock.acquire().await.map(drop) };
    ensure_error(cx, acquiring, expected, lock).await
}

async fn ensure_error(
    cx: &RawCx,
    asking: impl Future<Output = Result<()>>,
    expected: ErrorKind,
    what: &dyn Debug,
) -> Verdict {
    match cx.soon("the refusal", asking).await? {
        Err(error) if error.kind() == expected && !error.is_retryable() => Ok(()),
        other => Err(Stop::assertion(format!(
            "to be refused as {expected:?}, and {other:?}: {what:?}"
        ))),
    }
}

/// A writer that asks for a downgrade holds the name alone afterwards.
async fn ensure_not_downgraded(cx: &RawCx, locks: &Locker) -> Verdict {
    let other = cx.connected().await?;
    let lock = locks.rw_lock("a").write().ttl(cx.long_ttl().await);
    let mut guard = cx.soon("a free lock", lock.acquire()).await?.or_fail("acquire")?;
    ensure_error(cx, guard.downgrade(), ErrorKind::Unsupported, &lock).await?;
    let mode = match Capability::Shared.is_in(other.capabilities()) {
        true => Mode::Shared,
        false => Mode::Exclusive,
    };
    cx.ensure_refused(&other, "a", mode).await?;
    let released = cx.soon("the release", guard.release()).await?;
    released.or_fail("release").map(drop)
}

/// A backend that declares no mode but the exclusive one.
#[derive(Debug)]
struct WithoutModes(Arc<dyn DistributedLock>);

#[async_trait]
impl DistributedLock for WithoutModes {
    fn capabilities(&self) -> Capabilities {
        let mut capabilities = self.0.capabilities();
        (capabilities.shared, capabilities.upgradable, capabilities.downgrade) = (false, false, false);
        capabilities.permits = 0;
        capabilities
    }

    async fn connect(&self) -> Result<()> {
        self.0.connect().await
    }

    async fn acquire(&self, request: &AcquireRequest) -> Result<Attempt> {
        self.0.acquire(request).await
    }

    async fn abandon(&self, request: &AcquireRequest) -> Result<()> {
        self.0.abandon(request).await
    }

    async fn status(&self, name: &LockName) -> Result<LockStatus> {
        self.0.status(name).await
    }
}
