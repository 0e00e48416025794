//! A name that stays taken for a minimum time, whatever becomes of its guard. By capability.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::support::{Began, granted};
use crate::child::Child;
use crate::context::Cx;
use crate::job::Job;
use crate::link::Link;
use crate::subject::{Ask, Subject, SubjectGuard};
use crate::verdict::{Capability, OrFail, Stop, Verdict, ensure, ensure_safe};

/// Acquires for at least so long; and when that was about to be asked for.
async fn hold_at_least(
    cx: &Cx,
    client: &Arc<dyn Subject>,
    ask: &Ask,
    minimum: Duration,
) -> Result<(Box<dyn SubjectGuard>, Instant), Stop> {
    let (what, asked) = ("acquire with a minimum hold", Instant::now());
    let acquired = cx
        .soon(what, client.acquire(&ask.clone().hold_at_least(minimum)))
        .await?;
    if !Capability::MinimumHold.is_in(client.capabilities()) {
        return Err(cx.undeclared(Capability::MinimumHold, acquired));
    }
    let guard = acquired.or_fail(what)?;
    let guard = guard.ok_or_else(|| Stop::assertion("an acquire that waits for ever was busy"))?;
    Ok((guard, asked))
}

/// The waiter's turn comes not before the minimum since then, and soon after that.
async fn granted_after(
    cx: &Cx,
    waiter: Began,
    asked: Instant,
    minimum: Duration,
) -> Result<Box<dyn SubjectGuard>, Stop> {
    let what = "the waiter to be granted when the minimum hold is over";
    let next = granted(cx.within(cx.freed_by(minimum), what, waiter.ended()).await??)?;
    let took = asked.elapsed();
    ensure!(
        took >= minimum,
        "to be held for at least {minimum:?}, and granted after {took:?}"
    );
    Ok(next)
}

/// Released or dropped at once, the name stays taken for its minimum, for others and for its own client.
pub(crate) async fn a_minimum_hold_outlasts_its_guard(cx: &Cx) -> Verdict {
    let (client, other, minimum) = (cx.subject().await, cx.subject().await, cx.ttl());
    let ask = cx.ask("a").await;
    for (drops, waiter) in [(false, &other), (true, &client)] {
        let (guard, asked) = hold_at_least(cx, &client, &ask, minimum).await?;
        let token = guard.token();
        match drops {
            true => drop(guard),
            false => guard.released().await?,
        }
        for tried in [&client, &other] {
            let ask = ask.clone().trying();
            let busy = tried.acquire(&ask).await.or_fail("try")?.is_none();
            ensure!(
                busy || asked.elapsed() >= minimum,
                "released before its minimum of {minimum:?}, and granted"
            );
        }
        let waiting = Began::acquire(waiter, &ask).await;
        let next = granted_after(cx, waiting, asked, minimum).await?;
        ensure_safe!(next.token() > token, "token {} after {token}", next.token());
        next.released().await?;
    }
    cx.until_free("a", "the release").await
}

/// Those who wait already, here and elsewhere, wait it out. By capability.
pub(crate) async fn waiters_wait_out_a_minimum_hold(cx: &Cx) -> Verdict {
    let (client, other, minimum) = (cx.subject().await, cx.subject().await, cx.ttl());
    let ask = cx.ask("a").await;
    let (guard, asked) = hold_at_least(cx, &client, &ask, minimum).await?;
    let mut local = Box::pin(Began::acquire(&client, &ask).await.ended());
    let mut elsewhere = Box::pin(Began::acquire(&other, &ask).await.ended());
    guard.released().await?;
    let either = async {
        tokio::select! {
            first = &mut local => (first, elsewhere),
            first = &mut elsewhere => (first, local),
        }
    };
    let what = "a waiter to be granted when the minimum hold is over";
    let (first, second) = cx.within(cx.freed_by(minimum), what, either).await?;
    let (first, took) = (granted(first?)?, asked.elapsed());
    ensure!(
        took >= minimum,
        "to be held for at least {minimum:?}, and granted after {took:?}"
    );
    first.released().await?;
    let what = "the other waiter to be granted";
    let second = cx.within(cx.freed_soon().await, what, second).await?;
    granted(second?)?.released().await
}

/// A release does not wait for it. By capability.
pub(crate) async fn a_release_answers_before_its_minimum(cx: &Cx) -> Verdict {
    let client = cx.subject().await;
    // Longer than the suite is ready to wait for anything, if the backend keeps a name for so long.
    let minimum = (2 * cx.patience()).min(client.capabilities().longest_ttl);
    let bound = cx.patience().min(minimum / 2);
    let (guard, _) = hold_at_least(cx, &client, &cx.ask("a").await, minimum).await?;
    cx.within(bound, "a release before its minimum hold is over", guard.released())
        .await??;
    ensure!(cx.is_held("a").await?, "released before its minimum, and free");
    let what = "a shutdown before a minimum hold is over";
    cx.within(bound, what, client.shutdown()).await?.or_fail(what)
}

/// A guard that is kept for longer than the minimum releases like any other. By capability.
pub(crate) async fn a_minimum_that_is_over_keeps_nothing(cx: &Cx) -> Verdict {
    let (client, other) = (cx.subject().await, cx.subject().await);
    let ask = cx.ask("a").await;
    let minimum = cx.ttl() / 10;
    let (guard, _) = hold_at_least(cx, &client, &ask, minimum).await?;
    sleep(minimum * 3 / 2).await;
    cx.ensure_busy(&other, &ask).await?;
    guard.released().await?;
    // One that does not wait, so that it finds it free at once.
    let next = other.acquire(&ask.clone().trying()).await.or_fail("try")?;
    next.ok_or_else(|| Stop::assertion("its minimum was over, it was released, and it is busy"))?
        .released()
        .await
}

/// A client that goes silent keeps it all the same, and no longer. By capability.
pub(crate) async fn a_minimum_hold_outlasts_its_client(cx: &Cx) -> Verdict {
    let (link, minimum) = (Link::new(), 2 * cx.ttl());
    let (client, other) = (cx.subject_through(&link).await, cx.subject().await);
    let (guard, asked) = hold_at_least(cx, &client, &cx.brief("a"), minimum).await?;
    link.stall();
    drop(guard);
    let waiting = Began::acquire(&other, &cx.ask("a").await).await;
    granted_after(cx, waiting, asked, minimum).await?.released().await
}

/// So does a process that exits after its release, and one that is killed before it. By capability.
pub(crate) async fn a_minimum_hold_outlasts_its_process(cx: &Cx) -> Verdict {
    let (client, ttl, minimum) = (cx.subject().await, 2 * cx.ttl(), 3 * cx.ttl());
    // An acquire that is rejected elsewhere is rejected here too.
    let (guard, _) = hold_at_least(cx, &client, &cx.ask("b").await, cx.ttl()).await?;
    guard.released().await?;
    for kills in [false, true] {
        let name = if kills { "killed" } else { "exited" };
        let ask = cx.ask(name).await;
        let job = Job::Hold {
            name: name.to_owned(),
            ttl,
            minimum: Some(minimum),
        };
        let started = Instant::now();
        let mut child = Child::start(cx, &job)?;
        child.says(cx, "held", cx.patience()).await?;
        if !kills {
            child.tell("release")?;
            child.says(cx, "released", cx.patience()).await?;
        }
        child.kill()?;
        let waiting = Began::acquire(&client, &ask).await;
        granted_after(cx, waiting, started, minimum).await?.released().await?;
    }
    Ok(())
}
