//! The end of a hold: it passes to the next local waiter, or is released.

use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt, poll_fn};
use tokio::task::coop;
use tracing::Instrument;

use super::pass::pass_on;
use super::renewal::RenewedBy;
use super::{ActiveHold, GivenBack, Share, Successor};
use crate::backend::{ReleaseOptions, ReleaseOutcome};
use crate::background::call::{BackendCall, shielded};
use crate::background::job::Job;
use crate::background::keeper::Keeper;
use crate::background::schedule::{Checked, ScheduleSlot, ScheduledHold};
use crate::background::undos::Undos;
use crate::error::{Error, ErrorKind, Result};
use crate::mutant::{Mutant, is_active};
use crate::observe::{self, BackendRequest};
use crate::own_hold::OwnHold;
use crate::queue::Turn;
use crate::retry::until_answered;
use crate::sync::time::Instant;
use crate::sync::{Arc, Mutex, Ordering};
use crate::time::{until, within};

/// Gives back a share, and ends the hold with its last share. Waits for the answer for at most `limit`; after that, or
/// if this is dropped, the release continues in the background. Returns whether others still share in the hold.
pub(crate) async fn release_share<W: Successor>(mut share: Share<W>, limit: Duration) -> Result<bool> {
    let given_back = share.give_back();
    // The share keeps the keeper alive for work in the background, even if the locker is dropped.
    let keeper = share.keeper();
    let hold = match given_back {
        GivenBack::StillShared(hold) => {
            hold.check()?;
            return Ok(true);
        }
        GivenBack::Ended(hold) => {
            // Reported here, since the keeper may never run if nobody drives its runtime.
            hold.report_loss();
            hold.check()?;
            return Ok(false);
        }
        GivenBack::ToRelease(hold) => hold,
    };
    // A shutdown also waits for what follows, such as the release of a hold that was passed to a caller who has gone.
    let _in_flight = keeper.in_flight();
    let patience = Instant::now().checked_add(limit);
    let mut releasing = Releasing {
        keeper,
        begun: BackendCall::new(release(hold.clone(), patience)),
        hold: &hold,
    };
    tokio::select! {
        biased;
        answer = poll_fn(|context| releasing.begun.poll(context)) => answer.map(|()| false),
        () = until(patience) => {
            let message = format!("the release was not answered {}; it goes on in the background", within(limit));
            Err(Error::new(ErrorKind::Unavailable, message).with_name(&hold.lock.name))
        }
    }
}

/// A release that its caller waits for; when the caller goes, it moves to the background.
struct Releasing<'a, W: Successor> {
    keeper: &'a Keeper,
    hold: &'a Arc<ActiveHold<W>>,
    begun: BackendCall<()>,
}

impl<W: Successor> Drop for Releasing<'_, W> {
    fn drop(&mut self) {
        if !self.begun.is_over {
            let begun = std::mem::replace(&mut self.begun, BackendCall::over());
            if self.keeper.has_forked() {
                // It is the parent's, and so are its locks.
                return std::mem::forget((begun, self.hold.clone()));
            }
            self.keeper.push(Box::new(ReleaseJob {
                hold: self.hold.clone(),
                begun: Some(begun),
            }));
        }
    }
}

/// A release in the background.
struct ReleaseJob<W: Successor> {
    hold: Arc<ActiveHold<W>>,
    /// The call that was begun before.
    begun: Option<BackendCall<()>>,
}

impl<W: Successor> Job for ReleaseJob<W> {
    fn run(self: Box<Self>, _undos: &Arc<Undos>) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            let Self { hold, begun } = *self;
            // One that began on another runtime is made anew, and so is one that panicked.
            let begun = match begun.and_then(BackendCall::into_future_here) {
                Some(begun) => AssertUnwindSafe(begun).catch_unwind().await.ok(),
                None => None,
            };
            let result = match begun {
                Some(result) => result,
                None => release(hold.clone(), None).await,
            };
            if let Err(error) = result {
                observe::release_failed(&hold.lock.name, &error);
            }
        })
    }

    fn restart(&self) -> Box<dyn Job> {
        self.hold.clone().release_job()
    }
}

/// The keeper's view of a hold.
impl<W: Successor> ScheduledHold for ActiveHold<W> {
    fn slot(&self) -> &Mutex<ScheduleSlot> {
        &self.slot
    }

    fn check_due(self: Arc<Self>, runner: usize, resumed: bool) -> Option<Checked> {
        if resumed {
            self.lease.look_again();
        }
        if !self.lease.is_live() {
            return None;
        }
        let next = self.renewals.due_after(Instant::now());
        let is_called_for = self.renewals.by == RenewedBy::Core && !self.renewals.is_by(runner);
        let renewal: Option<BoxFuture<'static, Instant>> = match is_called_for {
            true => Some(Box::pin(async move { self.renewals.renew(runner).await })),
            false => None,
        };
        Some(Checked { next, renewal })
    }

    fn may_be_early(&self) -> Duration {
        self.renewals.may_be_early()
    }

    fn is_renewed_elsewhere(&self, runner: usize) -> bool {
        self.renewals.is_by_another(runner)
    }

    fn end_lost(&self) {
        self.renewals.stop();
        self.releasing();
        self.report_loss();
    }

    fn own(&self) -> Option<OwnHold> {
        let guards = self.shares();
        (guards > 0).then(|| OwnHold {
            name: self.lock.name.clone(),
            mode: self.mode(),
            token: self.token(),
            label: self.lock.options.label.clone(),
            state: self.lease.state(),
            held_for: self.held_for(),
            valid_for: self.lease.valid_for(),
            guards,
        })
    }

    fn release_job(self: Arc<Self>) -> Box<dyn Job> {
        Box::new(ReleaseJob {
            hold: self,
            begun: None,
        })
    }
}

impl<W: Successor> std::fmt::Debug for ReleaseJob<W> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("ReleaseJob").field(&self.hold).finish()
    }
}

/// Ends the hold, trying until its lease is long over. The name is the next local waiter's after the first answer, or
/// when the hold has ended by itself. `patience` is when a caller who waits for it leaves it to the background, if there is
/// one: until then it needs no timer beside the caller's.
async fn release<W: Successor>(active: Arc<ActiveHold<W>>, patience: Option<Instant>) -> Result<()> {
    let span = observe::release_span(&active.lock.name, active.token());
    let result = pin!(release_within(active.clone(), patience)).instrument(span).await;
    active.pass_turn_on();
    active.release_answered();
    result
}

async fn release_within<W: Successor>(active: Arc<ActiveHold<W>>, patience: Option<Instant>) -> Result<()> {
    let ending = async {
        // An upgrade that is being undone comes first: undone later, it would bring back what this releases.
        if !is_active(Mutant::ReleasesBeforeTheUndo) {
            active.renewals.upgrade_settled().await;
        }
        end(active.clone()).await
    };
    let passing_on = async {
        let after = |end: Instant| end.checked_add(active.lock.options.ttl / 10);
        let is_later = |patience| after(active.end()).is_none_or(|ended| patience <= ended);
        if patience.is_some_and(is_later) {
            polled_again().await;
        }
        until(after(active.end().max(Instant::now()))).await;
        active.pass_turn_on();
        // Nothing that is sent now can overtake what frees the name.
        active.release_answered();
        std::future::pending().await
    };
    tokio::select! {
        biased;
        result = ending => result,
        result = passing_on => result,
    }
}

/// Returns when it is polled for the second time, as the background does when it takes over.
async fn polled_again() {
    let mut is_first = true;
    poll_fn(|_| match std::mem::take(&mut is_first) {
        true => Poll::Pending,
        false => Poll::Ready(()),
    })
    .await;
}

async fn end<W: Successor>(active: Arc<ActiveHold<W>>) -> Result<()> {
    // Mostly nobody waits, and one look at the line is enough.
    let is_awaited = active.succession().inherited_turn().is_some_and(Turn::is_awaited);
    if is_awaited && pass_on(&active) {
        released(&active);
        return Ok(());
    }
    keep_trying(active).await
}

fn released<W: Successor>(active: &ActiveHold<W>) {
    active.lease.finish_release();
    active.timer.released();
    observe::released(&active.lock.name, active.token());
}

async fn keep_trying<W: Successor>(active: Arc<ActiveHold<W>>) -> Result<()> {
    let may_repeat = |error: &Error| {
        let last_try = active.end().checked_add(active.lock.options.ttl);
        let may_repeat = last_try.is_none_or(|last_try| Instant::now() < last_try);
        if may_repeat {
            active.pass_turn_on();
            observe::release_unanswered(&active.lock.name, error);
        }
        may_repeat
    };
    match until_answered(|| try_to_release(&active), may_repeat).await {
        Ok(Answer::Released) => {
            released(&active);
            Ok(())
        }
        Ok(Answer::LostBefore) => Err(lost_before(&active)),
        Ok(Answer::Gone) => Err(gone(&active)),
        Err(error) => {
            active.lease.finish_release();
            active.timer.released();
            Err(error.about(&active.lock.name))
        }
    }
}

/// The answer of the server to a release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    Released,
    /// The hold was gone before its lease had ended, and nothing of this process has ended it.
    LostBefore,
    /// The hold is gone. Its lease may have ended it, or an earlier release that was not answered.
    Gone,
}

/// Sends a release, unless another runner has passed the hold on.
async fn try_to_release<W: Successor>(active: &ActiveHold<W>) -> Result<Answer> {
    let Some(earlier_unanswered) = begin_sending(active) else {
        return Ok(Answer::Released);
    };
    match release_once(active).await {
        Ok(ReleaseOutcome::Released) => Ok(Answer::Released),
        Ok(ReleaseOutcome::AlreadyLost) => Ok(already_lost(active, earlier_unanswered)),
        Err(error) => {
            if error.is_not_executed() && !earlier_unanswered {
                active.release_sent.store(false, Ordering::SeqCst);
            }
            Err(error)
        }
    }
}

/// What it means that the hold was gone when the release came. After an outage the lease may have ended meanwhile, and
/// nobody has relied on it since its last guard let go.
fn already_lost<W: Successor>(active: &ActiveHold<W>, earlier_unanswered: bool) -> Answer {
    let is_running = Instant::now() < active.end();
    match earlier_unanswered {
        // The earlier try did it, its answer got lost.
        true if is_running => Answer::Released,
        false if is_running || active.lease.was_lost_in_release() => Answer::LostBefore,
        _ => Answer::Gone,
    }
}

/// Notes that a release is sent, and returns whether an earlier one may have been. `None` if the hold was passed on by
/// another runner.
fn begin_sending<W: Successor>(active: &ActiveHold<W>) -> Option<bool> {
    let succession = active.succession();
    (!succession.passed).then(|| active.release_sent.swap(true, Ordering::SeqCst))
}

async fn release_once<W: Successor>(active: &ActiveHold<W>) -> Result<ReleaseOutcome> {
    let how = match active.rest_of_minimum() {
        Some(rest) => ReleaseOptions::default().keep_for(rest),
        None => ReleaseOptions::default(),
    };
    observe::requested(BackendRequest::Release);
    // Sent by the first poll, also in a task that tokio would rather have wait.
    let hold = active.hold();
    let mut request = pin!(coop::unconstrained(shielded(hold.release(how))));
    let mut is_sent = false;
    poll_fn(|context| {
        let answer = request.as_mut().poll(context);
        // Later requests of this process take effect after the release, so the next acquire need not wait for the
        // answer.
        if answer.is_pending() && !std::mem::replace(&mut is_sent, true) && active.backend.capabilities.ordered {
            active.pass_turn_on();
        }
        answer
    })
    .await
}

/// The error of a release that finds no hold although its lease lasts and nothing of this process has ended it.
fn lost_before<W: Successor>(active: &ActiveHold<W>) -> Error {
    let lost = active.lease.lost_before_release();
    active.timer.lost(&lost, active.token());
    let message = format!("the hold had ended before it was released: {}", lost.why());
    Error::new(ErrorKind::Lost, message)
        .with_name(&active.lock.name)
        .with_source(lost.cause())
}

/// The error of a release that was answered after the lease. The hold counted as held until the release began, so it is no loss.
fn gone<W: Successor>(active: &ActiveHold<W>) -> Error {
    active.lease.finish_release();
    active.timer.released();
    let message = "the release was not answered while the lease lasted; the hold has ended by now";
    Error::new(ErrorKind::Unavailable, message).with_name(&active.lock.name)
}
