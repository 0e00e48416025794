//! Keeping a hold for longer than its ttl, by itself.

use std::time::Duration;

use lock_core::backend::{Attempt, Renewal};
use tokio::time::{Instant, sleep, timeout};

use super::support::{ensure_pending_beside, in_one_of, released_by};
use crate::context::{Cx, LOOK_AGAIN, RawCx};
use crate::link::Link;
use crate::raw::Grant;
use crate::subject::State;
use crate::verdict::{OrFail, Stop, Verdict, ensure, ensure_or_explained};

/// A lock outlasts its ttl as long as its client lives, and another client waits in vain.
pub(crate) async fn a_held_lock_is_renewed(cx: &Cx) -> Verdict {
    in_one_of(3, cx, |name| held_for_three_ttls(cx, name)).await
}

async fn held_for_three_ttls(cx: &Cx, name: &str) -> Verdict {
    let (client, waiter) = (cx.subject().await, cx.subject().await);
    let guard = cx.hold(&client, &cx.brief(name)).await?;
    let ask = cx.ask(name).await;
    let mut waiting = Box::pin(waiter.acquire(&ask));
    ensure_pending_beside(&*guard, &mut waiting, 3 * cx.ttl(), "while it was held").await?;
    // A busy machine may have made it suspect.
    ensure_or_explained!(guard.state() != State::Lost, "lost, though its client lives");
    guard.released().await?;
    ensure!(
        cx.soon("the waiter to be granted", waiting)
            .await?
            .or_fail("wait")?
            .is_some(),
        "a waiter was told busy"
    );
    Ok(())
}

/// Each renewal keeps the hold for its ttl again, at the server and in the lease; a session does it by itself.
pub(crate) async fn a_renewal_keeps_the_hold(cx: &RawCx) -> Verdict {
    in_one_of(3, cx, |name| kept_by_renewals(cx, name)).await
}

async fn kept_by_renewals(cx: &RawCx, name: &str) -> Verdict {
    let (client, other, ttl) = (cx.backend().await, cx.connected().await?, cx.ttl());
    let grant = cx.grant_for(&client, name, ttl).await?;
    for _ in 0..10 {
        sleep(ttl / 5).await;
        if !client.capabilities().session_renewal {
            let (asked, before) = (Instant::now(), grant.lease().valid_for());
            let renewed = grant.renew(ttl).await?;
            grant.ensure_kept(renewed, "a renewal of a live hold said that it was lost")?;
            ensure_later_end(&grant, asked, before, ttl, "renewed").await?;
        }
        cx.ensure_taken_beside(&grant, &other, name).await?;
    }
    grant.ensure_kept(grant.is_live(), "it was renewed all along, and is not held")?;
    grant.release().await
}

/// A lease of which `before` was left when its holder `asked` ends later now, or soon: of a hold at several servers, some may be kept by a
/// session, whose heartbeat comes by itself. Counted by its end: on a busy machine the answer may take longer than what was gone of
/// the lease.
async fn ensure_later_end(grant: &Grant, asked: Instant, before: Duration, ttl: Duration, how: &str) -> Verdict {
    loop {
        let (after, took) = (grant.lease().valid_for(), asked.elapsed());
        if after + took > before + ttl / 10 {
            return Ok(());
        }
        ensure!(
            took < ttl / 2,
            "{how} for {ttl:?}, and {after:?} are left after {took:?} where {before:?} were"
        );
        sleep(LOOK_AGAIN).await;
    }
}

/// After its last renewal a hold lasts one ttl, and belief in it no longer than that.
pub(crate) async fn belief_in_a_renewal_counts_from_before_it(cx: &RawCx) -> Verdict {
    let (link, ttl) = (Link::new(), cx.ttl());
    let (far, waiter) = (cx.backend_through(&link).await, cx.connected().await?);
    cx.connect(&far).await?;
    let asked = Instant::now();
    let grant = cx.grant_for(&far, "a", ttl).await?;
    sleep(ttl / 10).await;
    link.delay(ttl / 8);
    if !far.capabilities().session_renewal {
        grant.renew_live(asked, ttl).await?;
    }
    let asking = cx.request("a", cx.long_ttl().await)?;
    let waiting = cx.wait_out(&waiter, asking).await?;
    link.stall();
    let next = waiting
        .grant_after(
            &grant,
            cx,
            cx.freed_by(ttl),
            "the waiter to be granted when the ttl is over",
        )
        .await?;
    next.release().await
}

/// The same request again, as after a lost reply, is the same grant: one token, one hold, the full ttl from now.
pub(crate) async fn a_repeated_acquire_is_the_same_grant(cx: &RawCx) -> Verdict {
    let (link, ttl) = (Link::new(), cx.ttl());
    let (client, waiter) = (cx.backend_through(&link).await, cx.connected().await?);
    cx.connect(&client).await?;
    let first_asked = Instant::now();
    let grant = cx.grant_for(&client, "a", ttl).await?;
    sleep(ttl / 5).await;
    let (asked, before) = (Instant::now(), grant.lease().valid_for());
    let again = cx.ensure_granted_again(&client, &grant).await;
    // On a busy machine the hold may be over by the time of the answer, and granted anew.
    if first_asked.elapsed() < ttl {
        again?;
        if !client.capabilities().session_renewal {
            ensure_later_end(&grant, asked, before, ttl, "acquired again").await?;
        }
    }
    let asking = cx.request("a", cx.long_ttl().await)?;
    let waiting = cx.wait_out(&waiter, asking).await?;
    link.stall();
    let next = waiting
        .grant_after(
            &grant,
            cx,
            cx.freed_by(ttl),
            "the waiter to be granted when the ttl is over",
        )
        .await?;
    next.release().await
}

/// Repeated or not, it is one hold: one release frees it.
pub(crate) async fn a_repeated_acquire_is_released_once(cx: &RawCx) -> Verdict {
    let client = cx.backend().await;
    let grant = cx.grant(&client, "a").await?;
    for _ in 0..3 {
        let again = cx
            .soon("the repeated acquire", client.acquire(&grant.request))
            .await?
            .or_fail("acquire again")?;
        ensure!(
            matches!(again, Attempt::Granted(..)),
            "the holder itself was answered {again:?}"
        );
    }
    grant.release().await?;
    cx.until_free("a", "one release").await
}

/// A network that is silent for less than the ttl costs nothing.
pub(crate) async fn a_short_silence_is_survived(cx: &Cx) -> Verdict {
    in_one_of(3, cx, |name| held_over_short_silences(cx, name)).await
}

async fn held_over_short_silences(cx: &Cx, name: &str) -> Verdict {
    let (link, ttl) = (Link::new(), cx.ttl());
    let client = cx.subject_through(&link).await;
    let guard = cx.hold(&client, &cx.brief(name)).await?;
    for _ in 0..3 {
        link.stall();
        sleep(ttl / 4).await;
        link.heal();
        sleep(ttl * 3 / 4).await;
        ensure_or_explained!(
            guard.state() != State::Lost,
            "lost through a silence of a quarter of its ttl"
        );
    }
    cx.ensure_busy_beside(&*guard, &cx.subject().await, &cx.ask(name).await)
        .await?;
    guard.released().await
}

/// A line on which every answer takes two fifths of the ttl, or what the harness says, costs no hold: a late answer counts
/// for its request.
pub(crate) async fn a_slow_line_loses_no_hold(cx: &Cx) -> Verdict {
    in_one_of(3, cx, |name| held_on_a_slow_line(cx, name)).await
}

async fn held_on_a_slow_line(cx: &Cx, name: &str) -> Verdict {
    let (link, ttl) = (Link::new(), cx.ttl());
    let (far, waiter) = (cx.subject_through(&link).await, cx.subject().await);
    let before = cx.hold(&far, &cx.brief(name)).await?;
    // The time that two machines need comes on top, and busy machines need much.
    let of_it = if cx.timing().paused { 95 } else { 75 };
    link.delay(ttl * cx.round_trip_percent() * of_it / 20_000);
    let meanwhile = cx.hold(&far, &cx.brief(&format!("{name}_meanwhile"))).await?;
    let ask = cx.ask(name).await;
    let mut waiting = Box::pin(waiter.acquire(&ask));
    ensure_pending_beside(&*before, &mut waiting, 4 * ttl, "while it was held").await?;
    for guard in [before, meanwhile] {
        ensure_or_explained!(guard.state() != State::Lost, "lost on a line that is slow");
        guard.released().await?;
    }
    let granted = cx.soon("the waiter to be granted", waiting).await?;
    ensure!(granted.or_fail("wait")?.is_some(), "a waiter was told busy");
    Ok(())
}

/// A renewal that is still under way when the lock is released does not bring it back.
pub(crate) async fn no_renewal_outlives_the_release(cx: &Cx) -> Verdict {
    in_one_of(3, cx, |name| released_beside_a_renewal(cx, name)).await
}

async fn released_beside_a_renewal(cx: &Cx, name: &str) -> Verdict {
    let (link, ttl) = (Link::new(), cx.ttl());
    let client = cx.subject_through(&link).await;
    let guard = cx.hold(&client, &cx.brief(name)).await?;
    link.hold_requests();
    cx.within(ttl + cx.patience(), "a renewal to be sent", link.holding())
        .await
        .map_err(|stop| stop.explained_if(!guard.believes()))?;
    let ends = guard.ends();
    let mut releasing = Box::pin(guard.release());
    if let Ok(released) = timeout(ttl / 20, &mut releasing).await {
        released_by(ends, released)?;
        return Err(Stop::assertion("released without a word to the server"));
    }
    link.heal();
    released_by(ends, cx.soon("the release", releasing).await?)?;
    for _ in 0..20 {
        sleep(ttl / 10).await;
        ensure!(!cx.is_held(name).await?, "held again after its release");
    }
    cx.until_free(name, "the release").await
}

/// Nothing renews after a release, though a renewal would be due.
pub(crate) async fn a_renewal_after_the_release_does_nothing(cx: &RawCx) -> Verdict {
    let client = cx.backend().await;
    let grant = cx.grant(&client, "a").await?;
    grant.release().await?;
    let renewed = cx
        .soon("a renewal after the release", grant.hold.renew(cx.long_ttl().await))
        .await?;
    ensure!(!matches!(renewed, Ok(Renewal::Renewed(_))), "renewed after its release");
    ensure!(
        !cx.is_held("a").await?,
        "held again after its release; the renewal was answered {renewed:?}"
    );
    cx.until_free("a", "the release").await
}
