//! A hold is passed on to the next local waiter without asking the server: lock cohorting (Dice, Marathe and Shavit, 2012).
//!
//! The next holder inherits the lease and the holder id, and takes the next token of those that the grant reserved. So that
//! waiters elsewhere come to their turn, passes and hand-overs in a row are limited together; while the process itself waits in
//! another mode, a hand-over yields at once.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use super::{ActiveHold, Grant, Share, Successor};
use crate::backend::{Hold, Lease, rules};
use crate::mutant::{Mutant, is_active};
use crate::observe::{self, HandOverOutcome};
use crate::queue::Turn;
use crate::sync::{Arc, Ordering};
use crate::time::LeaseInstant;

/// Where a hold stands among those that local waiters have one after the other, without a release in between.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sequence {
    /// How many of them were before.
    earlier: u32,
    /// When the server's last grant was answered.
    granted: LeaseInstant,
    /// When this one of them began.
    began: LeaseInstant,
    /// How often the hold was passed on since then.
    passed: u32,
    /// Whether anybody has had it: else its terms may be those of somebody who has gone.
    is_used: bool,
}

impl Sequence {
    /// The first one, granted now.
    pub(crate) fn first() -> Self {
        let granted = LeaseInstant::now();
        Self {
            earlier: 0,
            granted,
            began: granted,
            passed: 0,
            is_used: true,
        }
    }

    /// A grant that nobody takes on these terms.
    pub(crate) fn unused() -> Self {
        Self {
            is_used: false,
            ..Self::first()
        }
    }

    /// The next one, to whom the server has handed the hold over now.
    pub(super) fn handed_over(self) -> Self {
        Self {
            earlier: self.earlier + 1,
            ..Self::first()
        }
    }

    fn passed(self) -> Self {
        Self {
            earlier: self.earlier + 1,
            passed: self.passed + 1,
            began: LeaseInstant::now(),
            ..self
        }
    }

    /// How long ago it began.
    pub(super) fn held_for(self) -> Duration {
        LeaseInstant::now().saturating_duration_since(self.began)
    }

    /// Whether so many in a row have had the name that waiters elsewhere come first.
    pub(super) fn is_over(self, most: u32) -> bool {
        self.earlier >= most
    }
}

/// Passes the hold on, if the next local waiter may have it as it is. Whether it did.
pub(super) fn pass_on<W: Successor>(active: &ActiveHold<W>) -> bool {
    let Some(keeper) = active.keeper.upgrade() else {
        return false;
    };
    let Some((turn, waiter, grant)) = take_next(active) else {
        return false;
    };
    observe::handed_over(&active.options.name, HandOverOutcome::Passed);
    let next = ActiveHold::new(
        grant,
        waiter.options().clone(),
        &active.backend,
        active.keeper.clone(),
        (turn, active.sequence.passed()),
    );
    // Whoever has gone gives it back: it goes on to the next one, or is released.
    let unclaimed = waiter.take_share(Share::begin(next, &keeper));
    if is_active(Mutant::PassesToNobody) {
        std::mem::forget(unclaimed);
        return true;
    }
    drop(unclaimed);
    true
}

/// The next local waiter, with the turn and with what it is passed, if it may have the hold as it is.
fn take_next<W: Successor>(active: &ActiveHold<W>) -> Option<(Turn<W>, W, Grant)> {
    // In one step with the pass: a release that another runner sends would end what was passed on.
    let mut succession = active.succession();
    if active.release_sent.load(Ordering::SeqCst) || !succession.was_awaited || !may_pass(active) {
        return None;
    }
    let turn = succession.inherited_turn()?;
    let waiter = turn.next_of_all()?;
    let Some(grant) = pass(active, &waiter) else {
        turn.put_first(waiter);
        return None;
    };
    succession.passed = true;
    Some((succession.turn.take()?, waiter, grant))
}

fn may_pass<W: Successor>(active: &ActiveHold<W>) -> bool {
    let (sequence, options) = (active.sequence, &active.options);
    let Some(end) = active.lease.ends_at() else {
        return false;
    };
    sequence.is_used
        && !active.is_extended()
        && !sequence.is_over(options.limits.hand_overs)
        && rules::may_pass(
            sequence.granted,
            LeaseInstant::now(),
            sequence.passed + 1,
            end,
            active.lease.term(options.ttl),
        )
}

/// Whether nobody else can have the name since before this waiter came, as far as the server has confirmed it.
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
    let (options, lease) = (waiter.options(), Lease::new(active.options.name.clone()));
    let fits = options.may_inherit(&active.options) && options.allows(active.token()) && is_confirmed(active, waiter);
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
