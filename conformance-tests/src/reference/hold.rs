//! A hold of the reference: its renewals, its passes and its release.

use std::future::pending;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use lock_core::backend::{Hold, HolderId, Lease, ReleaseOptions, ReleaseOutcome, Renewal, SentAt};
use lock_core::{Error, ErrorKind, FencingToken, LockName, Result};
use tokio::time::{sleep, timeout};

use super::client::{Client, LOOK_AGAIN};
use super::state::Request;
use crate::mutant::Mutant;

#[derive(Debug)]
pub(super) struct ReferenceHold {
    client: Client,
    ask: Request,
    token: FencingToken,
    /// The number of tokens that are left, including the hold's own.
    reserved: u32,
    was_passed: bool,
    lease: Lease,
    /// That of the next holder, for the mutant whose renewals arm it.
    next_lease: OnceLock<Lease>,
}

impl ReferenceHold {
    pub(super) fn new(client: Client, ask: Request, token: FencingToken, lease: Lease) -> Self {
        Self {
            client,
            reserved: ask.acquire.reserve,
            ask,
            token,
            was_passed: false,
            lease,
            next_lease: OnceLock::new(),
        }
    }
}

#[async_trait]
impl Hold for ReferenceHold {
    fn token(&self) -> FencingToken {
        self.token
    }

    async fn renew(&self, ttl: Duration) -> Result<Renewal> {
        let ask = self.ask.with_ttl(match self.client.has(Mutant::ExtendIsCut) {
            true => ttl.min(self.ask.acquire.ttl),
            false => ttl,
        });
        let sent = SentAt::now();
        let of_effect = self.client.has(Mutant::RenewalCountsFromItsEffect);
        let asking = self.client.put(move |server| {
            let renewed = server.renew(&ask)?;
            Ok((renewed, of_effect.then(SentAt::now)))
        });
        let renewing = async {
            match asking.await {
                Err(_) if self.client.has(Mutant::RenewalErrorIsDropped) => pending().await,
                answer => answer,
            }
        };
        let (renewed, of_effect) = match self.client.has(Mutant::RenewalGivenUpEarly) {
            true => timeout(ttl / 6, renewing).await.unwrap_or_else(|_| Err(unanswered()))?,
            false => renewing.await?,
        };
        let late = self.client.has(Mutant::RenewalCountsFromTheReply);
        let sent = if late { SentAt::now() } else { of_effect.unwrap_or(sent) };
        let lease = self.next_lease.get().unwrap_or(&self.lease);
        let never_lost = self.was_passed && self.client.has(Mutant::PassedHoldIsNeverLost);
        Ok(match renewed || never_lost {
            true => Renewal::Renewed(lease.arm(sent, ttl)?),
            false => Renewal::Lost,
        })
    }

    async fn release(&self, how: ReleaseOptions) -> Result<ReleaseOutcome> {
        let release = Release {
            client: self.client.clone(),
            name: self.ask.name.clone(),
            holder: self.ask.holder(),
            how,
        };
        match self.client.mutant() {
            Some(Mutant::ReleaseIsSentLate) => {
                sleep(LOOK_AGAIN).await;
                release.send().await
            }
            Some(Mutant::ReleaseIsNotAwaited) => {
                tokio::spawn(release.repeat());
                Ok(ReleaseOutcome::Released)
            }
            _ => release.send().await,
        }
    }

    async fn downgrade(&self, ttl: Duration) -> Result<Renewal> {
        let ask = self.ask.with_ttl(ttl);
        let sent = SentAt::now();
        if self.client.has(Mutant::DowngradeLetsAWriterIn) {
            let (name, holder) = (ask.name.clone(), ask.holder());
            self.client.put(move |server| server.let_go(&name, holder)).await?;
            sleep(LOOK_AGAIN).await;
        }
        Ok(match self.client.put(move |server| server.downgrade(&ask)).await? {
            true => Renewal::Renewed(self.lease.arm(sent, ttl)?),
            false => Renewal::Lost,
        })
    }

    async fn raise_token(&self, token: FencingToken) -> Result<()> {
        let ask = self.ask.clone();
        match self.client.put(move |server| server.raise(&ask, token)).await? {
            true => Ok(()),
            false => Err(Error::new(ErrorKind::Lost, "the hold has ended")),
        }
    }

    fn pass(&self, next: &Lease) -> Option<Arc<dyn Hold>> {
        let has_one_left = self.reserved > 1 || self.client.has(Mutant::PassesWithoutEnd);
        let token = match self.client.has(Mutant::PassKeepsTheToken) {
            true => self.token,
            false => FencingToken::new(self.token.as_u64() + 1)?,
        };
        has_one_left.then(|| {
            if self.client.has(Mutant::RenewalArmsTheNextLease) {
                // The first one stays.
                let _ = self.next_lease.set(next.clone());
            }
            Arc::new(Self {
                client: self.client.clone(),
                ask: self.ask.clone(),
                token,
                reserved: self.reserved.saturating_sub(1),
                was_passed: true,
                lease: next.clone(),
                next_lease: OnceLock::new(),
            }) as Arc<dyn Hold>
        })
    }
}

/// The terms of a release.
#[derive(Debug)]
struct Release {
    client: Client,
    name: LockName,
    holder: HolderId,
    how: ReleaseOptions,
}

impl Release {
    async fn send(&self) -> Result<ReleaseOutcome> {
        let (name, holder, keep_for) = (self.name.clone(), self.holder, self.how.keep_for);
        let releasing = self.client.put(move |server| server.release(&name, holder, keep_for));
        Ok(match releasing.await? {
            true => ReleaseOutcome::Released,
            false => ReleaseOutcome::AlreadyLost,
        })
    }

    /// Sends it until it is answered.
    async fn repeat(self) {
        while self.send().await.is_err() {
            sleep(LOOK_AGAIN).await;
        }
    }
}

fn unanswered() -> Error {
    Error::new(ErrorKind::Unavailable, "not answered in time")
}
