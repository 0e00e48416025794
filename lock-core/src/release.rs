//! The end of a hold: it passes to the next local waiter, or is released.

use std::pin::pin;
use std::task::Poll;

use futures_util::future::poll_fn;
use tokio::task::coop;
use tracing::Instrument;

use crate::backend::{AcquireRequest, HandOver, Hold, ReleaseOptions, ReleaseOutcome};
use crate::clock::Time;
use crate::error::{Error, ErrorKind, LostCause, Result};
use crate::held::{Heir, Held};
use crate::observe::{self, Asked, Handed};
use crate::plant::{Plant, is_planted};
use crate::queue::{Answer, Turn};
use crate::sync::time::{Instant, sleep};
use crate::sync::{Arc, Ordering};
use crate::work::{LONGEST_PAUSE, Undo, Work, answer, pauses, until};

/// Ends the hold, trying until its lease is long over. The name is the next local waiter's after the first answer, or
/// when the hold has ended by itself.
pub(crate) async fn release(held: Arc<Held>) -> Result<()> {
    let span = observe::release_span(&held.plan.name, held.token);
    let result = pin!(release_within(held.clone())).instrument(span).await;
    let answered = held.succession().unanswered.take();
    drop(answered);
    result
}

async fn release_within(held: Arc<Held>) -> Result<()> {
    let ending = end(held.clone());
    let passing_on = async {
        let ended = held.end().max(Instant::now()).checked_add(held.plan.ttl / 10);
        until(ended).await;
        held.pass_turn_on();
        // The giver has ended by itself. Should its hand-over be answered yet, the next one is undone once more.
        let tried = held.succession().heir.as_ref().map(|heir| heir.request.clone());
        if let Some(request) = tried {
            abandon(&held, request, None);
        }
        std::future::pending().await
    };
    tokio::select! {
        biased;
        result = ending => result,
        result = passing_on => result,
    }
}

async fn end(held: Arc<Held>) -> Result<()> {
    if let Some(next) = find_heir(&held) {
        held.release_sent.store(true, Ordering::SeqCst);
        observe::asked(Asked::HandOver);
        let handed = answer(held.hold.hand_over(&next)).await;
        observe::handed_over(&held.plan.name, Handed::of(&handed));
        match handed {
            Ok(HandOver::Granted(hold, _armed)) => {
                inherit(&held, hold, &next);
                held.lease.finish_release(Ok(()));
                return Ok(());
            }
            Ok(HandOver::Yielded) => {
                held.pass_turn_on();
                held.lease.finish_release(Ok(()));
                return Ok(());
            }
            Ok(HandOver::AlreadyLost) => {
                held.pass_turn_on();
                return Err(lost(&held));
            }
            // Refused: the hold is still ours to release, and the next one has nothing.
            Err(error) if error.is_not_executed() => {
                observe::hand_over_unanswered(&held.plan.name, &error);
                held.release_sent.store(false, Ordering::SeqCst);
                keep_heir_waiting(&held);
            }
            // Unknown: the giver is undone first, or a late hand-over could still bring the next one's id to life.
            Err(error) => observe::hand_over_unanswered(&held.plan.name, &error),
        }
    }
    keep_trying(held).await
}

async fn keep_trying(held: Arc<Held>) -> Result<()> {
    let mut pauses = pauses(LONGEST_PAUSE);
    let last_try = held.end().checked_add(held.plan.ttl);
    loop {
        let earlier_unanswered = held.release_sent.swap(true, Ordering::SeqCst);
        let error = match release_once(&held).await {
            Ok(ReleaseOutcome::Released) => {
                undo_heir(&held);
                held.lease.finish_release(Ok(()));
                return Ok(());
            }
            // The earlier try did it, its answer got lost.
            Ok(ReleaseOutcome::AlreadyLost) if earlier_unanswered && Instant::now() < held.end() => {
                undo_heir(&held);
                held.lease.finish_release(Ok(()));
                return Ok(());
            }
            Ok(ReleaseOutcome::AlreadyLost) => {
                undo_heir(&held);
                return Err(lost(&held));
            }
            Err(error) => error,
        };
        if error.is_not_executed() && !earlier_unanswered {
            held.release_sent.store(false, Ordering::SeqCst);
        }
        if !error.is_retryable() || last_try.is_some_and(|last_try| Instant::now() >= last_try) {
            undo_heir(&held);
            held.lease.finish_release(Ok(()));
            return Err(error.about(&held.plan.name));
        }
        if held.succession().heir.is_none() {
            held.pass_turn_on();
        }
        observe::release_unanswered(&held.plan.name, &error);
        sleep(pauses.next().unwrap_or(LONGEST_PAUSE)).await;
    }
}

async fn release_once(held: &Held) -> Result<ReleaseOutcome> {
    let rest = held
        .kept_until
        .map(|until| until.saturating_duration_since(Time::now()));
    let how = match rest.filter(|rest| !rest.is_zero()) {
        Some(rest) => ReleaseOptions::default().keep_for(rest),
        None => ReleaseOptions::default(),
    };
    observe::asked(Asked::Release);
    // Sent by the first poll, also in a task that tokio would rather have wait.
    let request = coop::unconstrained(answer(held.hold.release(how)));
    tokio::pin!(request);
    let first = poll_fn(|context| Poll::Ready(request.as_mut().poll(context))).await;
    if let Poll::Ready(answer) = first {
        return answer;
    }
    // What this process sends next takes effect after it, so that the next acquire need not wait for the answer.
    if held.server.capabilities.ordered && held.succession().heir.is_none() {
        held.pass_turn_on();
    }
    request.await
}

/// Chooses who is to have the hold next, if it may be passed on within the process.
fn find_heir(held: &Held) -> Option<AcquireRequest> {
    if held.release_sent.load(Ordering::SeqCst)
        || held.passes >= held.plan.limits.hand_overs
        || held.kept_until.is_some_and(|until| Time::now() < until)
    {
        return None;
    }
    let mut succession = held.succession();
    let waiting = succession.turn.as_ref()?.next()?;
    let (request, control) = waiting.plan.request(waiting.patience, waiting.deadline);
    succession.heir = Some(Heir {
        waiting: Some(waiting),
        request: request.clone(),
        _control: control,
    });
    Some(request)
}

/// Gives the heir what it was granted.
fn inherit(held: &Held, hold: Arc<dyn Hold>, request: &AcquireRequest) {
    let token = hold.token(); // if it panics, all is still undone
    let (turn, heir) = {
        let mut succession = held.succession();
        (succession.turn.take(), succession.heir.take())
    };
    let waiting = heir.and_then(|heir| heir.waiting);
    let (Some(turn), Some(waiting), Some(keeper)) = (turn, waiting, held.keeper.upgrade()) else {
        // The answer came so late that the next one has gone on without it.
        return abandon(held, request.clone(), None);
    };
    if request.lease().end().is_none() {
        turn.put_first(waiting);
        return abandon(held, request.clone(), Some(turn));
    }
    let next = Held::new(
        (hold, token, request.lease().clone()),
        waiting.plan,
        &held.server,
        held.keeper.clone(),
        (turn, held.passes + 1),
    );
    let guard = next.begin(&keeper);
    // Whoever has gone gives it back: its guard goes on to the next, or releases.
    let unsent = waiting.answer.send(Answer::Guard(guard));
    if is_planted(Plant::HandsOverToNobody) {
        return std::mem::forget(unsent);
    }
    drop(unsent);
}

/// Nothing was handed over: the heir waits on, before all others.
fn keep_heir_waiting(held: &Held) {
    let mut succession = held.succession();
    let waiting = succession.heir.take().and_then(|heir| heir.waiting);
    if let (Some(turn), Some(waiting)) = (&succession.turn, waiting) {
        turn.put_first(waiting);
    }
}

/// After the giver's release was answered: what may have been handed over is undone, and the heir asks for itself.
fn undo_heir(held: &Held) {
    let (turn, heir) = {
        let mut succession = held.succession();
        (succession.turn.take(), succession.heir.take())
    };
    if let Some(Heir { waiting, request, .. }) = heir {
        if let (Some(turn), Some(waiting)) = (&turn, waiting) {
            turn.put_first(waiting);
        }
        abandon(held, request, turn);
    }
}

fn abandon(held: &Held, request: AcquireRequest, turn: Option<Turn>) {
    if !request.was_sent() {
        return;
    }
    if let Some(keeper) = held.keeper.upgrade() {
        keeper.push(Work::Undo(Undo {
            backend: held.server.backend.clone(),
            request,
            attempt: None,
            turn,
        }));
    }
}

fn lost(held: &Held) -> Error {
    held.lease.finish_release(Err(LostCause::NotHeld));
    Error::new(ErrorKind::Lost, "the hold had ended before it was released")
        .with_name(&held.plan.name)
        .with_source(LostCause::NotHeld)
}
