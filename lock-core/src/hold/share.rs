//! Shares in a hold: of its guards, of callers with its re-entry key, and of readers who join it.

use std::time::Duration;

use super::{ActiveHold, Succession, Successor};
use crate::backend::Mode;
use crate::backend::lease::{Ended, HoldState};
use crate::backend::options::LockOptions;
use crate::background::keeper::{Keeper, KeeperRef};
use crate::background::schedule::ScheduledHold;
use crate::error::Result;
use crate::lost::Lost;
use crate::mutant::{Mutant, is_active};
use crate::queue::Turn;
use crate::sync::time::Instant;
use crate::sync::{Arc, Ordering};

/// A share in a hold. The hold ends with its last share: dropping that releases the hold in the background.
#[derive(Debug)]
pub(crate) struct Share<W: Successor> {
    /// `None` once it was given back.
    hold: Option<Arc<ActiveHold<W>>>,
    keeper: KeeperRef,
}

impl<W: Successor> Share<W> {
    /// The first share. From here on the keeper checks the hold. Callers that may share in it are let in, and those that do
    /// not wait for an exclusive one are refused.
    pub(crate) fn begin(hold: Arc<ActiveHold<W>>, keeper: &Arc<Keeper>) -> Self {
        let (chosen, turn) = hold.enter_lines();
        hold.let_in(chosen, keeper);
        // Of a hold that does not keep it: the next one asks.
        drop(turn);
        let scheduled: Arc<dyn ScheduledHold> = hold.clone();
        keeper.schedule(&scheduled, hold.renewals.first_due());
        Self::of(hold, keeper)
    }

    /// A share that was counted already.
    pub(crate) fn of(hold: Arc<ActiveHold<W>>, keeper: &Arc<Keeper>) -> Self {
        Self {
            hold: Some(hold),
            keeper: keeper.keep(),
        }
    }

    pub(crate) fn hold(&self) -> &Arc<ActiveHold<W>> {
        self.hold
            .as_ref()
            .expect("only release and drop, which consume the share, take it")
    }

    pub(crate) fn keeper(&self) -> &Arc<Keeper> {
        &self.keeper
    }

    /// In a forked child, the hold is the parent's: the locks of its lease must not be touched.
    fn check_process(&self) -> Result<(), Lost> {
        match self.keeper.has_forked() {
            false => Ok(()),
            true => Err(Lost::by_fork(&self.hold().lock.name)),
        }
    }

    pub(crate) fn check(&self) -> Result<(), Lost> {
        self.check_process()?;
        self.hold().check()
    }

    pub(crate) fn state(&self) -> HoldState {
        match self.check_process() {
            Ok(()) => self.hold().lease.state(),
            Err(lost) => HoldState::Lost(lost),
        }
    }

    pub(crate) fn valid_for(&self) -> Duration {
        match self.check_process() {
            Ok(()) => self.hold().lease.valid_for(),
            Err(_) => Duration::ZERO,
        }
    }

    /// Waits until the hold is lost, for ever if it never is.
    pub(crate) async fn lost(&self) -> Lost {
        if let Err(lost) = self.check_process() {
            return lost;
        }
        match self.hold().lease.ended().await {
            Ended::Lost(lost) => lost,
            Ended::Released => std::future::pending().await,
        }
    }

    /// Gives the share back. The caller does the rest.
    pub(super) fn give_back(&mut self) -> GivenBack<W> {
        let hold = self
            .hold
            .take()
            .expect("only release and drop, which consume the share, take it");
        if !hold.unshare() {
            GivenBack::StillShared(hold)
        } else if hold.begin_release(&self.keeper) {
            GivenBack::ToRelease(hold)
        } else {
            GivenBack::Ended(hold)
        }
    }
}

/// The rest after a share was given back.
pub(super) enum GivenBack<W: Successor> {
    StillShared(Arc<ActiveHold<W>>),
    /// It was the last share: the caller releases the hold.
    ToRelease(Arc<ActiveHold<W>>),
    /// It was the last share, and the hold had ended before. The keeper cleans up.
    Ended(Arc<ActiveHold<W>>),
}

impl<W: Successor> Drop for Share<W> {
    fn drop(&mut self) {
        let Some(hold) = self.hold.take() else { return };
        if self.keeper.has_forked() {
            // It is the parent's, and so are its locks.
            return std::mem::forget(hold);
        }
        if hold.unshare() && hold.begin_release(&self.keeper) {
            self.keeper.push(hold.release_job());
        }
    }
}

impl<W: Successor> ActiveHold<W> {
    /// Adds a share for a caller with these options, if it has the hold's re-entry key. Returns whether it did.
    ///
    /// # Errors
    /// If the caller has the re-entry key, but cannot have what it asked for.
    pub(crate) fn admit(&self, options: &LockOptions) -> Result<bool> {
        if !options.has_key_of(&self.lock.options) || !self.is_shared() {
            return Ok(false);
        }
        // In one step: a hold that is downgraded has no share that believes it to be exclusive.
        let current = self.current.lock();
        self.check_shared(options, current.mode)?;
        Ok(self.share(is_active(Mutant::SharesWhatHasEnded)))
    }

    /// Adds a share for a reader with these options, if it may join. Returns whether it did.
    pub(crate) fn join(&self, options: &LockOptions) -> bool {
        let joins = self.joins.as_ref().filter(|joins| joins.are_allowed(Instant::now()));
        let joined = joins.is_some()
            && !self.is_extended()
            && options.may_join(&self.lock.options, self.token())
            && self.lease.state() == HoldState::Held
            && self.share(is_active(Mutant::JoinsWhatHasEnded));
        if let Some(joins) = joins.filter(|_| joined) {
            joins.add(1);
        }
        joined
    }

    /// One share more, unless the last one has gone.
    fn share(&self, also_ended: bool) -> bool {
        let one_more = |shares| (shares > 0 || also_ended).then_some(shares + 1);
        self.shares
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, one_more)
            .is_ok()
    }

    /// Whether anybody has a share, and the hold is neither lost nor being released.
    fn is_shared(&self) -> bool {
        self.shares.load(Ordering::Acquire) > 0 && self.lease.is_live()
    }

    /// Enters the hold in the lines of its name. Returns the waiters to share or refuse, and the turn if the hold does
    /// not keep it.
    fn enter_lines(self: &Arc<Self>) -> (Vec<W>, Option<Turn<W>>) {
        let mut succession = self.succession();
        let Some(turn) = &mut succession.turn else {
            return (Vec::new(), None); // lost meanwhile
        };
        match self.lock.options.mode {
            Mode::Exclusive | Mode::Upgradable => {
                let (label, key) = (self.lock.options.label.clone(), self.lock.options.reentry_key.as_ref());
                (turn.holding(self, label, key), None)
            }
            Mode::Shared | Mode::Permits(_) => self.detach(&mut succession),
        }
    }

    /// Detaches the hold from its turn. Returns the waiters that share the hold, and the turn. The caller drops the
    /// turn outside the mutex, after the waiters have their shares.
    pub(super) fn detach(self: &Arc<Self>, succession: &mut Succession<W>) -> (Vec<W>, Option<Turn<W>>) {
        let at_most = self.joins.as_ref().map_or(0, |joins| joins.at_most);
        let may_join = |waiter: &W| waiter.asks_for().options.may_join(&self.lock.options, self.token());
        let key = self.lock.options.reentry_key.as_ref();
        let turn = succession.turn.take();
        let entered = turn
            .as_ref()
            .and_then(|turn| turn.detach(self, key, (at_most, may_join)));
        let Some((chosen, detached)) = entered else {
            return (Vec::new(), turn);
        };
        if let Some(joins) = &self.joins {
            joins.add(chosen.len());
        }
        succession.detached = Some(detached);
        (chosen, turn)
    }

    /// Gives each chosen waiter a share if it may have one, and refuses it otherwise. The caller has a share itself.
    pub(super) fn let_in(self: &Arc<Self>, chosen: Vec<W>, keeper: &Arc<Keeper>) {
        for waiter in chosen {
            if !self.is_for(&waiter) {
                waiter.refuse();
                continue;
            }
            match self.check_entering(&waiter) {
                Err(error) => waiter.fail(error),
                Ok(()) => {
                    self.shares.fetch_add(1, Ordering::AcqRel);
                    // If the caller has gone, the share is dropped here.
                    drop(waiter.take_share(Share::of(self.clone(), keeper)));
                }
            }
        }
    }

    /// Whether a waiter that was chosen may share in the hold. If not, it is refused.
    fn is_for(&self, waiter: &W) -> bool {
        waiter.asks_for().options.has_key_of(&self.lock.options)
            || waiter.asks_for().options.may_join(&self.lock.options, self.token())
    }

    fn check_entering(&self, waiter: &W) -> Result<()> {
        match self.lock.options.reentry_key {
            Some(_) => self.check_shared(&waiter.asks_for().options, self.mode()),
            None => Ok(()),
        }
    }

    fn check_shared(&self, options: &LockOptions, mode: Mode) -> Result<()> {
        options
            .check_shared(&self.lock.options, mode)
            .map_err(|error| error.with_name(&self.lock.name))
    }

    /// One share less; whether it was the last.
    fn unshare(&self) -> bool {
        self.shares.fetch_sub(1, Ordering::AcqRel) == 1
    }

    /// False when there is nothing to release any more. Needs no runtime.
    fn begin_release(&self, keeper: &Keeper) -> bool {
        if !self.lease.begin_release() {
            return false;
        }
        keeper.strike_off(self);
        self.renewals.stop();
        self.releasing();
        self.timer.let_go();
        true
    }
}
