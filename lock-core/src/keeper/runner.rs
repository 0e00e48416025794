//! The keeper's task. There is one on each runtime that ever acquired: one of them is in charge, and does what is due; the
//! others watch whether its runtime is driven, and take over if it is not.

use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt, poll_fn};
use futures_util::stream::{FuturesUnordered, StreamExt};

use super::{Keeper, Look};
use crate::held::{Held, RenewalPlan};
use crate::observe;
use crate::sync::time::{Instant, sleep};
use crate::sync::{Arc, Notify, RuntimeId};
use crate::work::{Work, until};

/// While there are others, the runner in charge looks what is due at least this often.
pub(super) const LONGEST_ROUND: Duration = Duration::from_millis(250);
/// If the runner in charge has not looked for this long, nobody drives its runtime.
const WATCH: Duration = Duration::from_millis(750);

#[derive(Debug)]
pub(super) struct Runner {
    pub(super) number: usize,
    pub(super) runtime: RuntimeId,
    pub(super) wake: Notify,
}

/// The task is alive as long as this is: a runtime that goes drops it.
pub(super) struct Running {
    pub(super) keeper: Arc<Keeper>,
    pub(super) runner: Arc<Runner>,
}

impl Running {
    pub(super) async fn run(self) {
        let number = self.runner.number;
        while !self.keeper.is_finished() {
            match self.keeper.is_in_charge(number) {
                true => self.serve().await,
                false => self.stand_by().await,
            }
        }
    }

    /// Does what is due, until another runner is in charge or nothing will ever be due again.
    async fn serve(&self) {
        let (keeper, number) = (&self.keeper, self.runner.number);
        keeper.resume(number);
        let mut serving = pin!(self.look_after());
        // Looked at before each poll: a runtime that was not driven for a while must not go on with what another runner
        // has taken over, nor a forked process with what its parent does.
        poll_fn(|context| match keeper.is_in_charge(number) && !keeper.has_forked() {
            true => serving.as_mut().poll(context),
            false => Poll::Ready(()),
        })
        .await;
    }

    async fn look_after(&self) {
        let (keeper, number) = (&self.keeper, self.runner.number);
        let mut renewals: FuturesUnordered<BoxFuture<'static, (Arc<Held>, Instant)>> = FuturesUnordered::new();
        let mut under_way: FuturesUnordered<BoxFuture<'static, u64>> = FuturesUnordered::new();
        loop {
            let due = keeper.due();
            drop(due.stale);
            for held in due.holds {
                if due.resumed {
                    held.lease.look_again();
                }
                if !held.lease.is_live() {
                    continue; // its lease has just told us
                }
                // Until the renewal says when: should it die with its runtime, it is made anew.
                keeper.schedule(&held, held.due_after(Instant::now()));
                if held.renewal == RenewalPlan::PerHold && !held.is_renewed_by(number) {
                    renewals.push(Box::pin(renew(held, number)));
                }
            }
            for held in due.lost {
                held.stop_renewal();
                held.releasing();
                held.holding.lost(&held.plan.name, held.token, &held.lease.state());
            }
            for (job, work) in due.work {
                under_way.push(Box::pin(finish(job, work)));
            }
            if due.finished && renewals.is_empty() && under_way.is_empty() {
                return;
            }
            tokio::select! {
                biased;
                Some((held, next)) = renewals.next() => keeper.schedule(&held, next),
                Some(job) = under_way.next() => keeper.done(job),
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
                () = sleep(WATCH) => {
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
        self.keeper.retire(&self.runner);
    }
}

async fn renew(held: Arc<Held>, runner: usize) -> (Arc<Held>, Instant) {
    let next = AssertUnwindSafe(held.clone().renew(runner)).catch_unwind().await;
    let next = next.unwrap_or_else(|_| {
        observe::renewal_panicked(&held.plan.name);
        held.begin_renewing(runner);
        held.lease.suspect();
        held.due_after(Instant::now())
    });
    (held, next)
}

async fn finish(job: u64, work: Work) -> u64 {
    if AssertUnwindSafe(work.finish()).catch_unwind().await.is_err() {
        observe::work_panicked();
    }
    job
}
