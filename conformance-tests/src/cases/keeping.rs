//! A release that keeps the name taken for a while: what a minimum hold is made of. By capability.

use std::sync::Arc;
use std::time::Duration;

use lock_core::backend::{Attempt, DistributedLock, ReleaseOptions, ReleaseOutcome, Renewal};
use tokio::time::Instant;

use crate::context::RawCx;
use crate::link::Link;
use crate::raw::{Grant, Waiter};
use crate::verdict::{Capability, OrFail, Stop, Verdict, ensure, ensure_safe};

fn or_skip(backend: &Arc<dyn DistributedLock>) -> Verdict {
    Capability::MinimumHold.or_skip(backend.capabilities())
}

fn keeping(time: Duration) -> ReleaseOptions {
    ReleaseOptions::default().keep_for(time)
}

/// Releases what must still be ours, and when that was about to be asked for.
async fn release_keeping(cx: &RawCx, grant: &Grant, time: Duration) -> Result<Instant, Stop> {
    let sent = Instant::now();
    let outcome = cx.soon("the release", grant.hold.release(keeping(time))).await?;
    let outcome = outcome.or_fail("release")?;
    ensure!(
        outcome == ReleaseOutcome::Released,
        "a release of a live hold answered {outcome:?}"
    );
    Ok(sent)
}

/// Grants the waiter, not before the name was kept for `time` since `sent`, and soon after that.
async fn granted_after(cx: &RawCx, waiter: Waiter, sent: Instant, time: Duration) -> Result<Grant, Stop> {
    granted_within(cx, waiter, cx.freed_by(time), sent, time).await
}

/// The same where something else would keep the name for `long`: then the grant must come well before that.
async fn granted_before(
    cx: &RawCx,
    waiter: Waiter,
    long: Duration,
    sent: Instant,
    time: Duration,
) -> Result<Grant, Stop> {
    granted_within(cx, waiter, cx.freed_by(time).min(long * 3 / 4), sent, time).await
}

async fn granted_within(
    cx: &RawCx,
    waiter: Waiter,
    bound: Duration,
    sent: Instant,
    time: Duration,
) -> Result<Grant, Stop> {
    let what = "the waiter to be granted when the name is kept no longer";
    let next = waiter.grant(cx, bound, what).await?;
    let took = sent.elapsed();
    ensure!(took >= time, "kept for {time:?}, and granted after {took:?}");
    Ok(next)
}

/// The name stays taken, for longer than its ttl would have been, and then whoever waits has it. By capability.
pub(crate) async fn a_released_name_is_kept(cx: &RawCx) -> Verdict {
    let (client, waiter, ttl) = (cx.backend().await, cx.connected().await?, cx.ttl());
    or_skip(&client)?;
    let (own, kept) = (2 * ttl, 3 * ttl);
    let grant = cx.grant_for(&client, "a", own).await?;
    let waiting = cx.wait_out(&waiter, cx.request("a", cx.long_ttl().await)?).await?;
    let sent = release_keeping(cx, &grant, kept).await?;
    for other in [&client, &waiter] {
        let is_taken = cx.ensure_taken_beside(&grant, other, "a").await;
        // On a busy machine the time may be over by now.
        if sent.elapsed() < kept {
            is_taken?;
        }
    }
    let is_held = cx.is_held("a").await?;
    ensure!(is_held || sent.elapsed() >= kept, "kept, and shown as free");
    let next = granted_after(cx, waiting, sent, kept).await?;
    ensure_safe!(
        next.token() > grant.token(),
        "{} was followed by {}",
        grant.token(),
        next.token()
    );
    next.release().await?;
    cx.until_free("a", "the next one's release").await
}

/// Longer than the suite is ready to wait for a name that is kept for the ttl, if the backend keeps one for so long.
fn longer_than_waited_for(cx: &RawCx, client: &Arc<dyn DistributedLock>) -> Duration {
    (2 * cx.freed_by(cx.ttl())).min(client.capabilities().longest_ttl)
}

/// Nor does it stay taken for as long as its ttl would have been. By capability.
pub(crate) async fn a_name_is_kept_no_longer_than_asked(cx: &RawCx) -> Verdict {
    let (client, waiter, ttl) = (cx.backend().await, cx.backend().await, cx.ttl());
    or_skip(&client)?;
    let long = longer_than_waited_for(cx, &client);
    let grant = cx.grant_for(&client, "a", long).await?;
    let waiting = cx.wait_for(&waiter, "a", cx.long_ttl().await).await?;
    let sent = release_keeping(cx, &grant, ttl).await?;
    granted_before(cx, waiting, long, sent, ttl).await?.release().await
}

/// Whoever released it has nothing to renew, to acquire, to release or to undo any more. By capability.
pub(crate) async fn a_kept_names_holder_is_retired(cx: &RawCx) -> Verdict {
    let (client, other, ttl) = (cx.backend().await, cx.backend().await, cx.ttl());
    or_skip(&client)?;
    let (kept, long) = (3 * ttl, cx.long_ttl().await);
    // One that does not wait, so that its id can be asked for again.
    let grant = cx.try_once(&client, "a").await?;
    let grant = grant.map_err(|busy| Stop::assertion(format!("free, yet {busy:?}")))?;
    let sent = release_keeping(cx, &grant, kept).await?;
    let renewed = cx.soon("a renewal", grant.hold.renew(long)).await?;
    ensure!(
        !matches!(renewed, Ok(Renewal::Renewed(_))),
        "renewed after its release, while the name is kept"
    );
    let again = cx.soon("its acquire again", client.acquire(&grant.request)).await?;
    ensure!(
        !matches!(again, Ok(Attempt::Granted(..))),
        "released, kept, and granted again to the same id"
    );
    let released = grant.released(cx).await?;
    cx.abandoned(&client, &grant.request).await?;
    let is_held = cx.is_held("a").await?;
    ensure!(
        is_held || sent.elapsed() >= kept,
        "freed by one who had released it before, which was answered {released:?}"
    );
    ensure!(
        released == ReleaseOutcome::AlreadyLost,
        "a second release answered {released:?}"
    );
    let waiting = cx.start_waiting(&other, "a", long)?;
    granted_after(cx, waiting, sent, kept).await?.release().await
}

/// A release that is repeated, as after a lost reply, keeps the name no longer than the first one. By capability.
pub(crate) async fn a_repeated_release_keeps_no_longer(cx: &RawCx) -> Verdict {
    let (link, ttl) = (Link::new(), cx.ttl());
    let (client, waiter) = (cx.backend_through(&link).await, cx.backend().await);
    or_skip(&client)?;
    let grant = cx.grant(&client, "a").await?;
    let waiting = cx.wait_for(&waiter, "a", cx.long_ttl().await).await?;
    link.swallow_reply(1);
    let sent = Instant::now();
    let first = cx
        .soon("a release without an answer", grant.hold.release(keeping(ttl)))
        .await?;
    cx.soon("its reply to be lost", link.swallowed()).await?;
    let long = longer_than_waited_for(cx, &client);
    let repeated = grant.released_with(cx, keeping(long)).await?;
    ensure!(
        first.is_err() || repeated == ReleaseOutcome::AlreadyLost,
        "released already, and again: {repeated:?}"
    );
    granted_before(cx, waiting, long, sent, ttl).await?.release().await
}

/// Of those who wait for a kept name, the first one has it. By capability.
pub(crate) async fn a_kept_name_is_the_first_waiters(cx: &RawCx) -> Verdict {
    let (client, first, second) = (cx.backend().await, cx.backend().await, cx.connected().await?);
    or_skip(&client)?;
    Capability::Fifo.or_skip(client.capabilities())?;
    let (ttl, long) = (cx.ttl(), cx.long_ttl().await);
    let grant = cx.grant(&client, "a").await?;
    let first = cx.wait_for(&first, "a", long).await?;
    cx.until_places("a", 1).await?;
    let sent = release_keeping(cx, &grant, ttl).await?;
    let (request, control) = cx.request("a", long)?;
    let second = cx.wait_with(&second, request, control).await?;
    let next = granted_after(cx, first, sent, ttl).await?;
    second.ensure_waiting("while the first one held it")?;
    next.release().await?;
    let last = second.grant_soon(cx, "the second one to be granted").await?;
    last.release().await
}
