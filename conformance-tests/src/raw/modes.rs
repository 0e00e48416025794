//! Driving a raw backend in modes.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use lock_core::backend::request::{RequestControl, RequestOptions, Terms};
use lock_core::backend::{AcquireRequest, Busy, DistributedLock, Mode, Permits, Renewal};
use tokio::time::sleep;

use super::{ASKER, Grant, SOON_AGAIN, Waiter, granted};
use crate::context::{Pauses, RawCx, lock_name};
use crate::link::Link;
use crate::verdict::{Capability, OrFail, Skip, Stop, Verdict, ensure};

/// Long enough for a server to grant what it should not.
pub(crate) const A_MOMENT: Duration = Duration::from_millis(100);

/// Fails if one of these was granted, which means two holders but where a session renews, or failed within a moment.
pub(crate) async fn ensure_waiting(waiters: &[&Waiter], when: &str) -> Verdict {
    sleep(A_MOMENT).await;
    waiters.iter().try_for_each(|waiter| waiter.ensure_waiting(when))
}

/// Fails if one of these was granted or failed within a moment. There is room for it, but it is not its turn: a grant breaks the
/// order alone.
pub(crate) async fn ensure_in_line(waiters: &[&Waiter], when: &str) -> Verdict {
    sleep(A_MOMENT).await;
    waiters.iter().try_for_each(|waiter| waiter.ensure_in_line(when))
}

/// The mode of a request for permits.
pub(crate) fn permits(take: u32, of: u32) -> Result<Mode, Stop> {
    Permits::new(take, of).map(Mode::Permits).or_fail("make permits")
}

/// The limit with which a case asks for permits: the highest of these that the backend can keep. Below the lowest one the case is
/// skipped.
pub(crate) fn limit(backend: &Arc<dyn DistributedLock>, limits: RangeInclusive<u32>) -> Result<u32, Stop> {
    let (least, most) = limits.into_inner();
    Capability::Permits.or_skip(backend.capabilities())?;
    match backend.capabilities().permits {
        declared if declared < least => Err(Stop::Skipped(Skip::FewerPermits(least))),
        declared => Ok(declared.min(most)),
    }
}

/// A request in this mode that waits for ever.
pub(crate) fn request_in(name: &str, mode: Mode, ttl: Duration) -> Result<(AcquireRequest, RequestControl), Stop> {
    let terms = Terms::new(ttl).label(ASKER);
    Ok(RequestOptions::new(lock_name(name)?, terms).mode(mode).start())
}

impl RawCx {
    /// A new client of a backend that declares this. Otherwise the case is skipped.
    pub(crate) async fn client_with(&self, capability: Capability) -> Result<Arc<dyn DistributedLock>, Stop> {
        let client = self.connected().await?;
        capability.or_skip(client.capabilities())?;
        Ok(client)
    }

    /// A new client behind a link, of a backend that declares this. Otherwise the case is skipped.
    pub(crate) async fn client_through(
        &self,
        link: &Link,
        capability: Capability,
    ) -> Result<Arc<dyn DistributedLock>, Stop> {
        let client = self.backend_through(link).await;
        capability.or_skip(client.capabilities())?;
        self.connect(&client).await?;
        Ok(client)
    }

    /// A request in this mode, for a ttl that does not end meanwhile, that waits for ever.
    pub(crate) async fn request_in(&self, name: &str, mode: Mode) -> Result<(AcquireRequest, RequestControl), Stop> {
        self.request_in_for(name, mode, self.long_ttl().await)
    }

    /// A request in this mode that waits for ever.
    pub(crate) fn request_in_for(
        &self,
        name: &str,
        mode: Mode,
        ttl: Duration,
    ) -> Result<(AcquireRequest, RequestControl), Stop> {
        request_in(name, mode, ttl)
    }

    /// A grant in this mode that must be had soon, of a ttl that does not end meanwhile.
    pub(crate) async fn grant_in(
        &self,
        backend: &Arc<dyn DistributedLock>,
        name: &str,
        mode: Mode,
    ) -> Result<Grant, Stop> {
        self.grant_to(backend, self.request_in(name, mode).await?).await
    }

    /// A grant in this mode that must be had soon.
    pub(crate) async fn grant_in_for(
        &self,
        backend: &Arc<dyn DistributedLock>,
        name: &str,
        mode: Mode,
        ttl: Duration,
    ) -> Result<Grant, Stop> {
        self.grant_to(backend, self.request_in_for(name, mode, ttl)?).await
    }

    /// One try in this mode: a grant, or who has it.
    pub(crate) async fn try_in(
        &self,
        backend: &Arc<dyn DistributedLock>,
        name: &str,
        mode: Mode,
    ) -> Result<Result<Grant, Busy>, Stop> {
        let options = RequestOptions::new(lock_name(name)?, Terms::new(self.long_ttl().await));
        let (request, control) = options.mode(mode).waits(false).start();
        let attempt = self.soon("try", backend.acquire(&request)).await?.or_fail("try")?;
        granted(attempt, request, control)
    }

    /// Fails if this client is granted the name in this mode. The ttls of those who hold it do not end meanwhile, so that a grant
    /// means that they do not fit together, but where a session renews.
    pub(crate) async fn ensure_refused(&self, backend: &Arc<dyn DistributedLock>, name: &str, mode: Mode) -> Verdict {
        self.ensure_refused_or(|message| Stop::by_ttl(message), backend, name, mode)
            .await
    }

    /// The same beside a hold whose ttl may be over on a busy machine.
    pub(crate) async fn ensure_refused_beside(
        &self,
        first: &Grant,
        backend: &Arc<dyn DistributedLock>,
        name: &str,
        mode: Mode,
    ) -> Verdict {
        let stop = |message| Stop::second(first.is_live(), message);
        self.ensure_refused_or(stop, backend, name, mode).await
    }

    /// The same where there is room for it, but others wait before it: a grant breaks the order alone.
    pub(crate) async fn ensure_passes_nobody(
        &self,
        backend: &Arc<dyn DistributedLock>,
        name: &str,
        mode: Mode,
    ) -> Verdict {
        self.ensure_refused_or(|message| Stop::assertion(message), backend, name, mode)
            .await
    }

    async fn ensure_refused_or(
        &self,
        stop: impl FnOnce(String) -> Stop,
        backend: &Arc<dyn DistributedLock>,
        name: &str,
        mode: Mode,
    ) -> Verdict {
        match self.try_in(backend, name, mode).await? {
            Err(_) => Ok(()),
            Ok(grant) => Err(stop(format!(
                "{mode:?} was granted beside those who hold it or wait for it, token {}",
                grant.token()
            ))),
        }
    }

    /// Starts to wait in this mode, and comes back when the server has said that the name is taken.
    pub(crate) async fn wait_in(
        &self,
        backend: &Arc<dyn DistributedLock>,
        name: &str,
        mode: Mode,
    ) -> Result<Waiter, Stop> {
        let (request, control) = self.request_in(name, mode).await?;
        self.wait_with(backend, request, control).await
    }

    /// A request that upgrades this hold, and waits for ever.
    pub(crate) async fn upgrade_of(&self, base: &Grant) -> Result<(AcquireRequest, RequestControl), Stop> {
        let terms = Terms::new(self.long_ttl().await).label(ASKER);
        let options = RequestOptions::new(base.request.name().clone(), terms);
        Ok(options.replacing(&base.request).start())
    }

    /// The number of holders of the name, as the server reports it.
    pub(crate) async fn holders(&self, name: &str) -> Result<usize, Stop> {
        Ok(self.status(name).await?.holders.len())
    }

    /// Fails unless so many hold the name.
    pub(crate) async fn ensure_holders(&self, name: &str, expected: usize, when: &str) -> Verdict {
        let holders = self.status(name).await?.holders;
        ensure!(
            holders.len() == expected,
            "{when}, {} hold {name:?} instead of {expected}: {holders:?}",
            holders.len()
        );
        Ok(())
    }

    /// Waits until so many hold the name.
    pub(crate) async fn until_holders(&self, name: &str, expected: usize, bound: Duration, when: &str) -> Verdict {
        let shown = async {
            let mut pauses = Pauses::new();
            while self.holders(name).await? != expected {
                pauses.pass().await;
            }
            Ok::<_, Stop>(())
        };
        self.within(bound, when, shown).await?
    }
}

impl Grant {
    /// Makes it a shared hold, repeated until it is answered, and whether it was still ours.
    pub(crate) async fn downgraded(&self, cx: &RawCx) -> Result<bool, Stop> {
        let ttl = cx.long_ttl().await;
        let downgrading = async {
            loop {
                match self.hold.downgrade(ttl).await {
                    Ok(answer) => return matches!(answer, Renewal::Renewed(_)),
                    Err(_unknown) => sleep(SOON_AGAIN).await,
                }
            }
        };
        cx.soon("a downgrade to be answered", downgrading).await
    }

    /// Renews at each quarter of the ttl for so long, and fails if it is lost. A session does this by itself.
    pub(crate) async fn keep_up(&self, backend: &Arc<dyn DistributedLock>, ttl: Duration, time: Duration) -> Verdict {
        let end = tokio::time::Instant::now() + time;
        while tokio::time::Instant::now() < end {
            if !backend.capabilities().session_renewal {
                let renewed = self.renew(ttl).await?;
                self.ensure_kept(renewed, "a renewal of a live hold said that it was lost")?;
            }
            sleep(ttl / 4).await;
        }
        Ok(())
    }
}
