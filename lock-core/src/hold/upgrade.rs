//! The upgrade of a hold: replaced when the server grants it, and read on otherwise.

use std::fmt;
use std::panic::AssertUnwindSafe;

use futures_util::future::{BoxFuture, FutureExt};

use super::{ActiveHold, Grant, Successor};
use crate::background::job::Job;
use crate::background::undo::UndoJob;
use crate::background::undos::Undos;
use crate::error::{Error, ErrorKind, Result};
use crate::lost::LostCause;
use crate::observe;
use crate::sync::Arc;

/// An upgrade that the server has not granted. Dropped without an undo, it leaves the hold as it is.
pub(crate) struct Upgrade<W: Successor> {
    hold: Arc<ActiveHold<W>>,
    /// Its number among the upgrades of the hold; `None` once it was granted, or its undo has begun.
    number: Option<u64>,
}

impl<W: Successor> Upgrade<W> {
    pub(crate) fn begin(hold: &Arc<ActiveHold<W>>) -> Self {
        let number = hold.renewals.begin_upgrade();
        if let Some(turn) = &hold.succession().turn {
            turn.upgrades(number);
        }
        Self {
            number: Some(number),
            hold: hold.clone(),
        }
    }

    /// Replaces the hold by the grant.
    ///
    /// # Errors
    /// If the hold has ended. Then the grant is to be undone.
    pub(crate) fn granted(&mut self, grant: Grant) -> Result<()> {
        let token = grant.token();
        if !self.number.is_some_and(|number| self.hold.replace(number, grant)) {
            return Err(self.hold.lost_in_upgrade());
        }
        self.number = None;
        observe::upgraded(&self.hold.lock.name, token);
        if self.hold.lease.is_suspect() {
            // Perhaps because of a renewal of the former hold. The next renewal shows it.
            self.hold.renew_now();
        }
        Ok(())
    }

    /// The hold that was to be upgraded has ended.
    pub(crate) fn lost(&self) -> Error {
        self.hold.lost_in_upgrade()
    }

    /// The job that undoes the upgrade at the server, which gives the hold that it may have replaced back. The hold is neither
    /// upgraded nor released before that.
    pub(crate) fn undone_by(mut self, undo: UndoJob<W>) -> Box<dyn Job> {
        match self.number.take() {
            None => Box::new(undo),
            Some(number) => Box::new(UndoUpgrade {
                undo: Box::new(undo),
                hold: self.hold.clone(),
                number,
            }),
        }
    }
}

impl<W: Successor> Drop for Upgrade<W> {
    fn drop(&mut self) {
        if let Some(number) = self.number {
            self.hold.settle_upgrade(number);
        }
    }
}

impl<W: Successor> ActiveHold<W> {
    /// The error of an upgrade whose hold has ended.
    pub(crate) fn lost_in_upgrade(&self) -> Error {
        self.lease.lose(LostCause::NotHeld);
        let ended = || Error::new(ErrorKind::Lost, "the hold was lost").with_name(&self.lock.name);
        self.check().err().map_or_else(ended, Error::from)
    }

    /// Nothing of the upgrade is left at the server.
    fn settle_upgrade(self: &Arc<Self>, upgrade: u64) {
        // In a forked process, the hold and its locks are the parent's.
        let has_forked = self.keeper.upgrade().is_some_and(|keeper| keeper.has_forked());
        if has_forked {
            return;
        }
        if let Some(turn) = &self.succession().turn {
            turn.upgrade_undone(upgrade);
        }
        if self.renewals.settle_upgrade(upgrade) {
            // The hold was replaced for a moment, or lost. The next renewal shows it.
            self.renew_now();
        }
    }
}

struct UndoUpgrade<W: Successor> {
    undo: Box<dyn Job>,
    hold: Arc<ActiveHold<W>>,
    number: u64,
}

impl<W: Successor> Job for UndoUpgrade<W> {
    fn run(self: Box<Self>, undos: &Arc<Undos>) -> BoxFuture<'static, ()> {
        let undos = undos.clone();
        Box::pin(async move {
            let Self { undo, hold, number } = *self;
            // A panic leaves the outcome unknown. The hold is not to wait for an undo that has gone.
            let undone = AssertUnwindSafe(async { undo.run(&undos).await }).catch_unwind().await;
            if undone.is_err() {
                observe::job_panicked();
            }
            hold.settle_upgrade(number);
        })
    }

    fn restart(&self) -> Box<dyn Job> {
        Box::new(Self {
            undo: self.undo.restart(),
            hold: self.hold.clone(),
            number: self.number,
        })
    }
}

impl<W: Successor> fmt::Debug for UndoUpgrade<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("UndoUpgrade").field(&self.undo).finish()
    }
}
