//! Clients that are used from several runtimes, of which some end and some are idle.

use std::sync::Arc;

use lock_core::backend::{AcquireRequest, Attempt, DistributedLock, ReleaseOptions};
use tokio::runtime::{Builder, Runtime};
use tokio::task::yield_now;

use super::support::{Polls, in_one_of, on_a_thread};
use crate::context::{Cx, RawCx};
use crate::raw::{Grant, drive};
use crate::subject::{Ask, Subject, SubjectGuard};
use crate::verdict::{OrFail, Stop, Verdict};

/// More polls than any request takes.
const MANY: u32 = 1000;

/// If an acquire is dropped half-way because its runtime ends, another runtime repeats it: one grant, which one
/// release ends.
pub(crate) async fn an_acquire_dropped_half_way_can_be_repeated(cx: &RawCx) -> Verdict {
    let client = cx.connected().await?;
    for polls in 1..MANY {
        let (request, control) = cx.request("a", cx.long_ttl().await)?;
        if begun_elsewhere(&client, &request, polls)? {
            // Granted, and gone with its runtime where that carries the hold.
            return cx.abandoned(&client, &request).await;
        }
        let what = format!("an acquire that was dropped after {polls} polls");
        let hold = match cx.soon(&what, drive(&*client, &request)).await? {
            Ok(Attempt::Granted(hold, _)) => hold,
            other => return Err(Stop::assertion(format!("{what} was repeated, and answered {other:?}"))),
        };
        let grant = Grant::new(hold, request, control);
        cx.ensure_taken(&cx.backend().await, "a").await?;
        grant.release().await?;
        cx.until_free("a", &what).await?;
    }
    Err(Stop::assertion(format!("an acquire takes more than {MANY} polls")))
}

/// Polls an acquire so often on a runtime that is gone when this returns; whether it was done.
fn begun_elsewhere(client: &Arc<dyn DistributedLock>, request: &AcquireRequest, polls: u32) -> Result<bool, Stop> {
    let (client, request) = (client.clone(), request.clone());
    on_a_thread(move || {
        let acquiring = Polls::new(client.acquire(&request), polls);
        Ok(runtime()?.block_on(acquiring).is_some())
    })?
}

/// The same for one that waits: it is granted when its turn comes, and no place of it is left.
pub(crate) async fn a_wait_dropped_half_way_can_be_repeated(cx: &RawCx) -> Verdict {
    let (holder, client) = (cx.backend().await, cx.backend().await);
    let ttl = cx.long_ttl().await;
    let grant = cx.grant(&holder, "a").await?;
    let (request, control) = cx.request("a", ttl)?;
    let (waiting, asked) = (client.clone(), request.clone());
    on_a_thread(move || {
        runtime()?.block_on(async {
            tokio::select! {
                attempt = drive(&*waiting, &asked) => Err(Stop::assertion(format!("held, and answered {attempt:?}"))),
                () = told_busy(&asked) => Ok(()),
            }
        })
    })??;
    let waiter = cx.go_on_waiting(&client, request, control);
    cx.until_places("a", 1).await?;
    waiter.ensure_waiting("while it was held")?;
    grant.release().await?;
    let granted = waiter.grant_soon(cx, "the waiter to be granted").await?;
    granted.release().await?;
    cx.until_free("a", "its release").await
}

async fn told_busy(request: &AcquireRequest) {
    while request.last_busy().is_none() {
        yield_now().await;
    }
}

/// So are releases and abandons: repeated, they end what there is to end.
pub(crate) async fn a_release_dropped_half_way_can_be_repeated(cx: &RawCx) -> Verdict {
    let client = cx.connected().await?;
    for polls in 1..MANY {
        let grant = cx.grant(&client, "a").await?;
        let hold = grant.hold.clone();
        let is_released = on_a_thread(move || {
            let releasing = Polls::new(hold.release(ReleaseOptions::default()), polls);
            Ok(runtime()?.block_on(releasing).is_some())
        })??;
        // Nobody knows whether the first call did it.
        let _outcome = grant.released(cx).await?;
        cx.until_free("a", "a release that was repeated").await?;
        let grant = cx.grant(&client, "b").await?;
        let (abandoning, request) = (client.clone(), grant.request.clone());
        let is_abandoned = on_a_thread(move || {
            let abandoning = Polls::new(abandoning.abandon(&request), polls);
            Ok(runtime()?.block_on(abandoning).is_some())
        })??;
        cx.abandoned(&client, &grant.request).await?;
        cx.until_free("b", "an abandon that was repeated").await?;
        if is_released && is_abandoned {
            return Ok(());
        }
    }
    Err(Stop::assertion(format!("a release takes more than {MANY} polls")))
}

/// A runtime that used the client first and that nobody drives keeps nobody on another one waiting, neither for an
/// acquire nor for a release, and no hold without its renewals.
pub(crate) async fn an_idle_runtime_keeps_nobody_waiting(cx: &Cx) -> Verdict {
    in_one_of(3, cx, |name| held_beside_an_idle_runtime(cx, name)).await
}

async fn held_beside_an_idle_runtime(cx: &Cx, name: &str) -> Verdict {
    let client = cx.subject().await;
    let (user, ask) = (client.clone(), cx.ask(&format!("{name}_first")).await);
    let _idle = on_a_thread(move || {
        let runtime = runtime()?;
        let guard = acquire_on(&runtime, &user, &ask)?;
        runtime.block_on(guard.released())?;
        Ok::<_, Stop>(Idle(Some(runtime)))
    })??;
    let held = cx.hold(&client, &cx.brief(&format!("{name}_held"))).await?;
    let ask = cx.ask(name).await;
    for _ in 0..3 {
        drop(cx.hold(&client, &ask).await?);
    }
    cx.until_free(name, "its guard was dropped").await?;
    cx.hold(&client, &ask).await?.released().await?;
    tokio::time::sleep(2 * cx.ttl()).await;
    cx.ensure_busy_beside(&*held, &cx.subject().await, &cx.ask(&format!("{name}_held")).await)
        .await?;
    held.released().await
}

/// A runtime that nobody drives. Within another one, it may not be dropped as it is.
struct Idle(Option<Runtime>);

impl Drop for Idle {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

/// A guard whose runtime has gone can be dropped, and its lock ends with its ttl at the latest.
pub(crate) async fn a_guard_that_outlives_its_runtime_ends(cx: &Cx) -> Verdict {
    let client = cx.subject().await;
    let ask = cx.brief("a");
    on_a_thread(move || {
        let guard = acquire_on(&runtime()?, &client, &ask)?;
        drop(guard);
        drop(client);
        Ok::<_, Stop>(())
    })??;
    cx.until_free_by("a", cx.freed_by(cx.ttl()), "its guard's runtime had gone")
        .await
}

/// A client outlives the runtime that it was first used on.
pub(crate) async fn a_client_outlives_its_runtime(cx: &Cx) -> Verdict {
    let client = cx.subject().await;
    let (used, ask) = (client.clone(), cx.brief("b"));
    on_a_thread(move || acquire_on(&runtime()?, &used, &ask).map(drop))??;
    let guard = cx.hold(&client, &cx.ask("a").await).await?;
    guard.released().await?;
    cx.until_free_by("b", cx.freed_by(cx.ttl()), "its runtime had gone")
        .await
}

fn acquire_on(runtime: &Runtime, client: &Arc<dyn Subject>, ask: &Ask) -> Result<Box<dyn SubjectGuard>, Stop> {
    let acquired = runtime.block_on(client.acquire(ask)).or_fail("acquire")?;
    acquired.ok_or_else(|| Stop::assertion("a free lock was busy"))
}

fn runtime() -> Result<Runtime, Stop> {
    Builder::new_current_thread()
        .enable_all()
        .build()
        .or_fail("build a runtime")
}
