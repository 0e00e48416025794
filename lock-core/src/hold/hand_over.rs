//! A hold passes to the next local waiter in one request: who that is, and what becomes of it.

use super::pass::Sequence;
use super::{ActiveHold, Grant, NextHolder, Share, Successor};
use crate::backend::AcquireRequest;
use crate::background::undo::UndoJob;
use crate::error::Result;
use crate::mutant::{Mutant, is_active};
use crate::queue::Turn;
use crate::sync::Ordering;

/// Chooses who is to have the hold next, if it may be passed on within the process.
pub(super) fn find_next<W: Successor>(active: &ActiveHold<W>) -> Option<AcquireRequest> {
    // In one step with choosing: another runner may be doing the same, and a next holder that is replaced is woken by nobody.
    let mut succession = active.succession();
    let most = active.options.limits.hand_overs;
    if active.release_sent.load(Ordering::SeqCst) || most == 0 || active.rest_of_minimum().is_some() {
        return None;
    }
    let turn = succession.inherited_turn()?;
    // After so many in a row, whoever waits elsewhere comes first; and so does this process's own request in another mode.
    let yields = active.sequence.is_over(most) || turn.is_awaited_in_other_modes();
    let waiter = turn.next()?;
    let (request, control) = waiter.request(yields);
    active.release_sent.store(true, Ordering::SeqCst);
    turn.asks(&request);
    succession.next = Some(Box::new(NextHolder {
        waiter: Some(waiter),
        request: request.clone(),
        _control: control,
    }));
    Some(request)
}

/// Gives the next holder what it was granted.
pub(super) fn grant_next<W: Successor>(active: &ActiveHold<W>, request: &AcquireRequest, grant: Result<Grant>) {
    let (turn, next) = {
        let mut succession = active.succession();
        (succession.turn.take(), succession.next.take())
    };
    let waiter = next.and_then(|next| next.waiter);
    let (Some(turn), Some(waiter), Some(keeper)) = (turn, waiter, active.keeper.upgrade()) else {
        // The answer came so late that the next one has gone on without it.
        return abandon(active, request.clone(), None);
    };
    let Ok(grant) = grant else {
        turn.put_first(waiter);
        return abandon(active, request.clone(), Some(turn));
    };
    let sequence = match request.yields() {
        true => Sequence::first(),
        false => active.sequence.handed_over(),
    };
    let next = ActiveHold::new(
        grant,
        waiter.options().clone(),
        &active.backend,
        active.keeper.clone(),
        (turn, sequence),
    );
    // Whoever has gone gives it back: the hold goes on to the next one, or is released.
    let unclaimed = waiter.take_share(Share::begin(next, &keeper));
    if is_active(Mutant::HandsOverToNobody) {
        return std::mem::forget(unclaimed);
    }
    drop(unclaimed);
}

/// Nothing was handed over: the next holder waits on, before all others.
pub(super) fn keep_next_waiting<W: Successor>(active: &ActiveHold<W>) {
    let mut succession = active.succession();
    let waiter = succession.next.take().and_then(|next| next.waiter);
    if let (Some(turn), Some(waiter)) = (&succession.turn, waiter) {
        turn.put_first(waiter);
    }
}

/// After the giver's release was answered: what may have been handed over is undone, and the next holder asks for itself.
pub(super) fn undo_next<W: Successor>(active: &ActiveHold<W>) {
    let (turn, next) = {
        let mut succession = active.succession();
        (succession.turn.take(), succession.next.take())
    };
    if let Some(next) = next {
        let NextHolder { waiter, request, .. } = *next;
        if let (Some(turn), Some(waiter)) = (&turn, waiter) {
            turn.put_first(waiter);
        }
        abandon(active, request, turn);
    }
}

pub(super) fn abandon<W: Successor>(active: &ActiveHold<W>, request: AcquireRequest, turn: Option<Turn<W>>) {
    if let Some(keeper) = active.keeper.upgrade() {
        keeper.push(Box::new(UndoJob::new(&active.backend.lock, request, None, turn)));
    }
}
