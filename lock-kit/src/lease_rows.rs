//! Holds that are rows of an SQL database, with an expiry by the server's clock.
//!
//! A backend has the statements: [`LeaseRows`]. A [`LeaseHold`] decides which of them a hold needs: in which table its row may be, how
//! often a renewal tries again while somebody keeps the row locked, and whether it may be passed on.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use lock_core::backend::{
    AcquireRequest, Hold, HolderId, Lease, Mode, ReleaseOptions, ReleaseOutcome, Renewal, SentAt,
};
use lock_core::{Error, ErrorKind, FencingToken, HoldState, LockName, Result};
use parking_lot::Mutex;
use tokio::time::sleep;

use crate::downgrades::Downgrades;
use crate::locked_rows::{LockedRows, PAUSES};

/// The identity of a hold at the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    /// The lock's name.
    pub name: LockName,
    /// The holder id of its request.
    pub holder: HolderId,
    /// Its token.
    pub token: FencingToken,
    /// The mode of its request. An exclusive hold may have been downgraded since.
    pub mode: Mode,
}

/// The end of one try to renew a hold.
#[derive(Clone, Debug)]
pub enum Renewed {
    /// It was renewed, by a request that was sent then.
    At(SentAt),
    /// It was not there.
    Lost,
    /// Somebody else has its row locked. The error is for the caller if that lasts.
    Locked(Error),
}

/// The tables of a backend: one with a row for each name, which has an exclusive hold, and one with a row for each hold that shares
/// its name.
///
/// # Cancel safety
/// Each future may be dropped at any point: its request is then executed or not.
pub trait LeaseRows: Send + Sync + 'static {
    /// The names whose rows somebody keeps locked.
    fn locked_rows(&self) -> &LockedRows;

    /// The holder ids whose downgrades were begun.
    fn downgrades(&self) -> &Downgrades;

    /// Renews a hold in one of the two tables, and waits for no row that is locked for long. Waits for an answer for as long as
    /// the caller does.
    ///
    /// # Errors
    /// If the outcome is unknown, or if the server rejects the request. A row that stays locked is [`Renewed::Locked`], and a hold that is gone
    /// is [`Renewed::Lost`].
    fn renew(
        self: &Arc<Self>,
        held: &Held,
        ttl: Duration,
        is_shared: bool,
    ) -> impl Future<Output = Result<Renewed>> + Send;

    /// Ends a hold, and retires its holder id. Returns whether it was there. `may_share`: it may be in either table.
    ///
    /// # Errors
    /// If the outcome is unknown, or if the server rejects the request.
    fn release(
        self: &Arc<Self>,
        held: &Held,
        may_share: bool,
        keep_for: Option<Duration>,
    ) -> impl Future<Output = Result<bool>> + Send;

    /// Makes an exclusive hold a reader's. Repeated, it renews. Returns when that was sent; `None` if the hold was not there.
    ///
    /// # Errors
    /// If the outcome is unknown, or if the server rejects the request. The hold may then be in either table.
    fn downgrade(self: &Arc<Self>, held: &Held, ttl: Duration) -> impl Future<Output = Result<Option<SentAt>>> + Send;

    /// Raises the name's last token to at least this one, if the hold is in this table. Returns whether it is.
    ///
    /// # Errors
    /// If the outcome is unknown, or if the server rejects the request.
    fn raise(
        self: &Arc<Self>,
        held: &Held,
        token: FencingToken,
        is_shared: bool,
    ) -> impl Future<Output = Result<bool>> + Send;
}

/// A hold that is a row.
pub struct LeaseHold<R: LeaseRows> {
    rows: Arc<R>,
    held: Held,
    /// The number of tokens that are left, its own included.
    reserved: u32,
    lease: Lease,
    record: Mutex<Record>,
}

/// The table that has the row of a hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Record {
    /// That of names.
    Exclusive,
    /// That of holds that share their names.
    Shared,
    /// One of them: the hold is being downgraded. That ends the exclusive one, and not the other way round.
    Either,
}

impl<R: LeaseRows> LeaseHold<R> {
    /// The hold of a request that was granted with this token, the first of so many that are reserved.
    pub fn new(rows: &Arc<R>, request: &AcquireRequest, token: FencingToken, reserved: u32) -> Self {
        let record = match request.mode() {
            Mode::Exclusive => Record::Exclusive,
            _ => Record::Shared,
        };
        Self {
            rows: rows.clone(),
            held: Held {
                name: request.name().clone(),
                holder: request.holder(),
                token,
                mode: request.mode(),
            },
            reserved,
            lease: request.lease().clone(),
            record: Mutex::new(record),
        }
    }

    fn record(&self) -> Record {
        *self.record.lock()
    }

    fn set_record(&self, record: Record) {
        *self.record.lock() = record;
    }

    /// The server keeps a hold a little longer than its lease lasts. Nothing may revive the lease.
    fn is_lost(&self) -> bool {
        matches!(self.lease.state(), HoldState::Lost(_))
    }

    fn renewed(&self, sent: Option<SentAt>, ttl: Duration) -> Result<Renewal> {
        Ok(match sent {
            Some(sent) => Renewal::Renewed(self.lease.arm(sent, ttl)?),
            None => Renewal::Lost,
        })
    }

    async fn try_renew(&self, ttl: Duration) -> Result<Renewal> {
        if self.is_lost() {
            return Ok(Renewal::Lost);
        }
        let renewed = match self.record() {
            Record::Shared => None,
            _ => self.renew_in(ttl, false).await?,
        };
        let sent = match renewed {
            // A downgrade may have begun meanwhile.
            None if self.record() != Record::Exclusive => self.renew_in(ttl, true).await?,
            renewed => renewed,
        };
        self.renewed(sent, ttl)
    }

    /// Renews it in one of the tables, and returns when that was sent; `None` if it was not there.
    async fn renew_in(&self, ttl: Duration, is_shared: bool) -> Result<Option<SentAt>> {
        let (name, locked_rows) = (&self.held.name, self.rows.locked_rows());
        let mut pauses = match locked_rows.contains(name) {
            true => [].iter(),
            false => PAUSES.iter(),
        };
        loop {
            let why = match self.rows.renew(&self.held, ttl, is_shared).await? {
                Renewed::At(sent) => {
                    locked_rows.remove(name);
                    return Ok(Some(sent));
                }
                Renewed::Lost => return Ok(None),
                Renewed::Locked(why) => why,
            };
            let Some(pause) = pauses.next() else {
                locked_rows.insert(name);
                return Err(why);
            };
            sleep(Duration::from_millis(*pause)).await;
        }
    }

    async fn try_downgrade(&self, ttl: Duration) -> Result<Renewal> {
        if self.is_lost() {
            return Ok(Renewal::Lost);
        }
        // Until it is answered.
        self.rows.downgrades().insert(self.held.holder);
        self.set_record(Record::Either);
        let sent = self.rows.downgrade(&self.held, ttl).await?;
        if sent.is_some() {
            self.set_record(Record::Shared);
        }
        self.renewed(sent, ttl)
    }

    async fn try_raise(&self, token: FencingToken) -> Result<()> {
        let raise = |is_shared| self.rows.raise(&self.held, token, is_shared);
        let mut is_raised = self.record() != Record::Shared && raise(false).await?;
        // A downgrade may have begun meanwhile.
        if !is_raised && self.record() != Record::Exclusive {
            is_raised = raise(true).await?;
        }
        match is_raised {
            true => Ok(()),
            false => Err(Error::new(
                ErrorKind::Lost,
                "the hold has ended, so its token was not raised",
            )),
        }
    }
}

#[async_trait]
impl<R: LeaseRows> Hold for LeaseHold<R> {
    fn token(&self) -> FencingToken {
        self.held.token
    }

    async fn renew(&self, ttl: Duration) -> Result<Renewal> {
        let renewed = self.try_renew(ttl).await;
        renewed.map_err(|error| error.with_name(&self.held.name))
    }

    async fn release(&self, how: ReleaseOptions) -> Result<ReleaseOutcome> {
        let may_share = self.record() != Record::Exclusive;
        match self.rows.release(&self.held, may_share, how.keep_for).await {
            Ok(true) => Ok(ReleaseOutcome::Released),
            Ok(false) => Ok(ReleaseOutcome::AlreadyLost),
            Err(error) => Err(error.with_name(&self.held.name)),
        }
    }

    async fn downgrade(&self, ttl: Duration) -> Result<Renewal> {
        let downgraded = self.try_downgrade(ttl).await;
        downgraded.map_err(|error| error.with_name(&self.held.name))
    }

    async fn raise_token(&self, token: FencingToken) -> Result<()> {
        let raised = self.try_raise(token).await;
        raised.map_err(|error| error.with_name(&self.held.name))
    }

    fn pass(&self, next: &Lease) -> Option<Arc<dyn Hold>> {
        if self.record() != Record::Exclusive {
            return None;
        }
        let reserved = self.reserved.checked_sub(1).filter(|left| *left > 0)?;
        let held = Held {
            token: FencingToken::new(self.held.token.as_u64() + 1)?,
            ..self.held.clone()
        };
        Some(Arc::new(Self {
            rows: self.rows.clone(),
            held,
            reserved,
            lease: next.clone(),
            record: Mutex::new(Record::Exclusive),
        }))
    }
}

impl<R: LeaseRows> Drop for LeaseHold<R> {
    fn drop(&mut self) {
        if self.record() != Record::Exclusive {
            self.rows.downgrades().remove(self.held.holder);
        }
    }
}

impl<R: LeaseRows> fmt::Debug for LeaseHold<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LeaseHold")
            .field("name", &self.held.name)
            .field("holder", &self.held.holder)
            .field("token", &self.held.token)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
