//! The keeper's task, one on each runtime that ever acquired. One of them is in charge and does the due work. The
//! others watch whether its runtime is driven, and take over if it is not.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt, poll_fn};
use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio::task::coop;

use super::job::Job;
use super::keeper::{Keeper, Look, Runner};
use super::schedule::{Checked, ScheduledHold};
use super::undos::Undos;
use crate::error::{Error, ErrorKind, Result};
use crate::runtime::UNDRIVEN_AFTER;
use crate::sync::Arc;
use crate::sync::time::{Instant, sleep};
use crate::time::until;
use crate::{observe, runtime};

/// The pause before work that panicked is done again.
const AFTER_A_PANIC: Duration = Duration::from_millis(100);

/// Sees to it that the keeper has a runner on this runtime.
///
/// # Errors
/// Outside a runtime, on one that is shutting down, and in another process than that of the keeper's making.
pub(crate) fn ensure_running(keeper: &Arc<Keeper>) -> Result<()> {
    keeper.check_process()?;
    ensure_running_here(keeper)
}

/// The same, for a caller that has just checked the process: each look at its id is a system call.
///
/// # Errors
/// Outside a runtime, and on one that is shutting down.
pub(crate) fn ensure_running_here(keeper: &Arc<Keeper>) -> Result<()> {
    let runtime = runtime::current()?;
    let Some(runner) = keeper.enlist(runtime.id()) else {
        return Ok(());
    };
    let number = runner.number;
    let running = Running {
        keeper: keeper.clone(),
        runner,
    };
    runtime.spawn(running.run());
    // A runtime that is shutting down drops the task at once.
    match keeper.has_runner(number) {
        true => Ok(()),
        false => {
            let message = "the tokio runtime is shutting down: acquire and release before it does";
            Err(Error::new(ErrorKind::Unavailable, message).not_executed())
        }
    }
}

/// The task is alive as long as this is: a runtime that goes drops it.
struct Running {
    keeper: Arc<Keeper>,
    runner: Arc<Runner>,
}

impl Running {
    async fn run(self) {
        let number = self.runner.number;
        while !self.keeper.is_finished() {
            match self.keeper.is_in_charge(number) {
                true => self.serve_on().await,
                false => self.stand_by().await,
            }
        }
    }

    /// Serves. After a panic it begins anew: what was under way is repeated, and no hold is forgotten.
    async fn serve_on(&self) {
        if AssertUnwindSafe(self.serve()).catch_unwind().await.is_err() {
            observe::job_panicked();
            sleep(AFTER_A_PANIC).await;
        }
    }

    /// Does the due work, until another runner is in charge or nothing can become due any more.
    async fn serve(&self) {
        let (keeper, number) = (&self.keeper, self.runner.number);
        keeper.resume(number);
        let mut serving = pin!(self.do_what_is_due());
        // Checked before each poll. A runtime that was not driven for a while must not continue work that another
        // runner has taken over, nor a forked process that of its parent.
        poll_fn(|context| match keeper.is_in_charge(number) && !keeper.has_forked() {
            true => serving.as_mut().poll(context),
            false => Poll::Ready(()),
        })
        .await;
    }

    async fn do_what_is_due(&self) {
        let (keeper, number) = (&self.keeper, self.runner.number);
        let mut renewals: FuturesUnordered<BoxFuture<'static, ()>> = FuturesUnordered::new();
        let mut jobs: FuturesUnordered<BoxFuture<'static, u64>> = FuturesUnordered::new();
        // They belong to this task alone. If its runtime is not driven any more, its undos never end.
        let undos = Arc::new(Undos::new());
        while let Some(due) = keeper.due(number) {
            shielded(|| drop(due.stale));
            for hold in due.holds {
                let check = || hold.clone().check_due(number, due.resumed);
                let Some(checked) = shielded(check) else {
                    keeper.schedule(&hold, after_a_panic());
                    continue;
                };
                let Some(Checked { next, renewal }) = checked else {
                    continue; // its lease has just told us
                };
                // Until the renewal returns its own time.
                keeper.schedule(&hold, next);
                if let Some(renewal) = renewal {
                    let renewing = Renewing {
                        keeper: keeper.clone(),
                        hold,
                        next: Instant::now(),
                    };
                    renewals.push(Box::pin(renewing.renew(renewal)));
                }
            }
            for hold in due.lost {
                shielded(|| hold.end_lost());
            }
            for (number, job) in due.jobs {
                // Outside tokio's cooperative budget of the task: once that is spent, no ready future makes progress.
                jobs.push(Box::pin(coop::unconstrained(finish(number, job, undos.clone()))));
            }
            if due.finished && renewals.is_empty() && jobs.is_empty() {
                return;
            }
            tokio::select! {
                biased;
                Some(()) = renewals.next() => {}
                Some(number) = jobs.next() => {
                    keeper.done(number);
                    coop::consume_budget().await;
                }
                () = self.runner.wake.notified() => {}
                () = until(due.next) => {}
            }
        }
    }

    /// Waits until this runner is in charge, or has nothing to wait for any more.
    async fn stand_by(&self) {
        let (keeper, number) = (&self.keeper, self.runner.number);
        let mut before = keeper.look();
        while !keeper.is_in_charge(number) && !keeper.is_finished() {
            tokio::select! {
                biased;
                () = self.runner.wake.notified() => {}
                () = sleep(UNDRIVEN_AFTER) => {
                    let now = keeper.look();
                    if Look::is_stuck(before, now) {
                        keeper.take_over(number);
                    }
                    before = now;
                }
            }
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // In a forked process the keeper's mutexes are the parent's.
        if !self.keeper.has_forked() {
            self.keeper.retire(&self.runner);
        }
    }
}

/// A hold under renewal. Its drop schedules the hold: at the time that the renewal gave, or at once if another runner took
/// over before that.
struct Renewing {
    keeper: Arc<Keeper>,
    hold: Arc<dyn ScheduledHold>,
    next: Instant,
}

impl Renewing {
    async fn renew(mut self, renewal: BoxFuture<'static, Instant>) {
        self.next = AssertUnwindSafe(renewal).catch_unwind().await.unwrap_or_else(|_| {
            observe::job_panicked();
            after_a_panic()
        });
    }
}

impl Drop for Renewing {
    fn drop(&mut self) {
        if !self.keeper.has_forked() {
            self.keeper.schedule(&self.hold, self.next);
        }
    }
}

/// The result, unless it panics. A panic in the work for one hold must not end that for all.
fn shielded<T>(work: impl FnOnce() -> T) -> Option<T> {
    let result = catch_unwind(AssertUnwindSafe(work));
    result.inspect_err(|_| observe::job_panicked()).ok()
}

fn after_a_panic() -> Instant {
    Instant::now() + AFTER_A_PANIC
}

async fn finish(number: u64, job: Box<dyn Job>, undos: Arc<Undos>) -> u64 {
    if AssertUnwindSafe(async { job.run(&undos).await })
        .catch_unwind()
        .await
        .is_err()
    {
        observe::job_panicked();
    }
    number
}
