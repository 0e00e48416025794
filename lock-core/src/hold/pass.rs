//! A hold is passed on to the next local waiter without asking the server: lock cohorting (Dice, Marathe and Shavit, 2012).
//!
//! The next holder inherits the lease and the holder id, and takes the next token of those that the grant reserved. So that
//! waiters elsewhere come to their turn, passes in a row are limited; while the process itself waits in another mode, the hold is
//! released at once.

use std::hint::spin_loop;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use super::{ActiveHold, Grant, Share, Successor};
use crate::backend::rules::{self, Moment};
use crate::backend::{Hold, Lease};
use crate::mutant::{Mutant, is_active};
use crate::observe;
use crate::queue::Turn;
use crate::sync::{Arc, Ordering};
use crate::time::LeaseInstant;

/// The most looks at the clock while a pass waits for it to reach its token, which takes microseconds. If the clock
/// stands still, as in tests, the pass becomes a release.
const MOST_LOOKS: u32 = 200;

/// The place of a hold in the sequence of local holders that had it without a release in between.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sequence {
    /// The moment when the server's grant was answered.
    granted: LeaseInstant,
    /// The moment when the current holder got the hold.
    began: LeaseInstant,
    /// The number of passes since the grant.
    passed: u32,
}

impl Sequence {
    /// The first one, granted now.
    pub(crate) fn first() -> Self {
        let granted = LeaseInstant::now();
        Self {
            granted,
            began: granted,
            passed: 0,
        }
    }

    fn passed(self) -> Self {
        Self {
            passed: self.passed + 1,
            began: LeaseInstant::now(),
            ..self
        }
    }

    /// The time since the current holder got the hold.
    pub(super) fn held_for(self) -> Duration {
        LeaseInstant::now().saturating_duration_since(self.began)
    }

    /// Whether the hold was passed on so often that waiters elsewhere come first.
    fn is_over(self, most: u32) -> bool {
        self.passed >= most
    }

    /// Waits for the clock to reach the next token: at most 2 us, since it had reached the one before.
    fn wait_for_clock(self) {
        let due = self.granted.after(rules::time_of_passes(self.passed + 1));
        let is_due = || due.is_some_and(|due| due <= LeaseInstant::now());
        for _ in 0..MOST_LOOKS {
            if is_due() {
                return;
            }
            spin_loop();
        }
    }
}

/// Passes the hold on, if the next local waiter may have it as it is. Returns whether it did.
pub(super) fn pass_on<W: Successor>(active: &ActiveHold<W>) -> bool {
    let Some(keeper) = active.keeper.upgrade() else {
        return false;
    };
    let Some((turn, waiter, grant)) = take_next(active) else {
        return false;
    };
    observe::passed(&active.lock.name, grant.token());
    let next = ActiveHold::new(
        grant,
        waiter.asks_for().clone(),
        &active.backend,
        active.keeper.clone(),
        (turn, active.sequence.passed()),
    );
    // A waiter that has gone returns its share, which passes the hold on or releases it.
    let unclaimed = waiter.take_share(Share::begin(next, &keeper));
    if is_active(Mutant::PassesToNobody) {
        std::mem::forget(unclaimed);
        return true;
    }
    drop(unclaimed);
    true
}

/// Returns the next local waiter, the turn, and the grant to pass on, if that waiter may have the hold as it is.
fn take_next<W: Successor>(active: &ActiveHold<W>) -> Option<(Turn<W>, W, Grant)> {
    if !active.sequence.is_over(active.lock.limits.passes) {
        active.sequence.wait_for_clock();
    }
    // In one step with the pass: a release that another runner sends would end what was passed on.
    let mut succession = active.succession();
    if active.release_sent.load(Ordering::SeqCst) || !succession.was_awaited || !may_pass(active) {
        return None;
    }
    let turn = succession.inherited_turn()?;
    let waiter = turn.next()?;
    let Some(grant) = pass(active, &waiter) else {
        turn.put_first(waiter);
        return None;
    };
    succession.passed = true;
    Some((succession.turn.take()?, waiter, grant))
}

fn may_pass<W: Successor>(active: &ActiveHold<W>) -> bool {
    let (sequence, lock) = (active.sequence, &active.lock);
    let Some(end) = active.lease.ends_at() else {
        return false;
    };
    !active.is_extended()
        && !sequence.is_over(lock.limits.passes)
        && rules::may_pass(
            sequence.granted,
            LeaseInstant::now(),
            sequence.passed + 1,
            end,
            active.lease.term(lock.options.ttl),
        )
}

/// Whether the server has confirmed that nobody else can have had the name since this waiter came.
fn is_confirmed<W: Successor>(active: &ActiveHold<W>, waiter: &W) -> bool {
    let Some(within) = active.backend.capabilities.pass_confirmed_within else {
        return true;
    };

    let confirmed = active.lease.confirmed_at();
    confirmed.is_some_and(|at| rules::is_confirmed(at, waiter.asked(), LeaseInstant::now(), within))
}

/// The hold as the next holder has it. `None` if the waiter wants other terms or a higher token, if the server has not confirmed
/// the hold of late, or if the backend has no token left.
fn pass<W: Successor>(active: &ActiveHold<W>, waiter: &W) -> Option<Grant> {
    let (options, lease) = (&waiter.asks_for().options, Lease::new(active.lock.name.clone()));
    let fits =
        options.may_inherit(&active.lock.options) && options.allows(active.token()) && is_confirmed(active, waiter);
    if !fits || !lease.inherit(&active.lease) {
        return None;
    }
    let hold: Option<Arc<dyn Hold>> =
        catch_unwind(AssertUnwindSafe(|| active.hold().pass(&lease))).unwrap_or_else(|_| {
            observe::job_panicked();
            None
        });
    let hold = hold?;
    if !is_active(Mutant::MissesALossInAPass) {
        lease.catch_up(&active.lease);
    }
    Grant::passed(hold, lease, active.token())
}
