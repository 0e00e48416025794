//! The end of a hold whose client is cut off, dead or silent: not before its TTL, and soon after.

use tokio::time::{Instant, sleep};

use crate::child::Child;
use crate::context::{Cx, RawCx};
use crate::job::Job;
use crate::link::Link;
use crate::verdict::{Capability, OrFail, Stop, Verdict, ensure, ensure_safe};

/// A client whose network goes silent loses its holds to those who wait, and by then has ceased to believe in them.
pub(crate) async fn a_silent_clients_hold_ends(cx: &RawCx) -> Verdict {
    let (link, ttl) = (Link::new(), cx.ttl());
    let (silent, waiter) = (cx.backend_through(&link).await, cx.connected().await?);
    let grant = cx.grant_for(&silent, "a", ttl).await?;
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

/// Belief counts from before the request was sent: an answer that takes long makes it shorter, not later.
pub(crate) async fn belief_counts_from_before_the_request(cx: &RawCx) -> Verdict {
    let (link, ttl) = (Link::new(), cx.ttl());
    let (far, waiter) = (cx.backend_through(&link).await, cx.connected().await?);
    cx.connect(&far).await?;
    // Each reply is late by more than the margin.
    link.delay(ttl / 8);
    let grant = cx.grant_for(&far, "a", ttl).await?;
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

/// A client that disconnects without a word leaves nothing that outlives its ttl.
pub(crate) async fn a_disconnected_clients_hold_ends(cx: &RawCx) -> Verdict {
    let (link, ttl) = (Link::new(), cx.ttl());
    let client = cx.backend_through(&link).await;
    let _grant = cx.grant_for(&client, "a", ttl).await?;
    link.cut();
    cx.until_free_by("a", cx.freed_by(ttl), "its client had disconnected")
        .await
}

/// A waiter that goes silent keeps the lock from nobody for longer than its ttl.
pub(crate) async fn a_silent_waiters_place_ends(cx: &RawCx) -> Verdict {
    let (link, ttl) = (Link::new(), cx.ttl());
    let (holder, silent) = (cx.backend().await, cx.backend_through(&link).await);
    let grant = cx.grant(&holder, "a").await?;
    let _gone = cx.wait_for(&silent, "a", ttl).await?;
    link.stall();
    grant.release().await?;
    // Granted to the silent one or not: one ttl for its place, one for its hold.
    cx.until_free_by("a", cx.freed_by(2 * ttl), "the release to a waiter that was silent")
        .await
}

/// A hold whose ttl is over stays over: a renewal that comes too late does not bring it back.
pub(crate) async fn an_expired_hold_stays_expired(cx: &RawCx) -> Verdict {
    let (link, ttl) = (Link::new(), cx.ttl());
    let client = cx.backend_through(&link).await;
    let grant = cx.grant_for(&client, "a", ttl).await?;
    link.stall();
    let ended = async {
        while cx.is_held("a").await? {
            sleep(ttl / 20).await;
        }
        Ok::<_, Stop>(())
    };
    cx.within(cx.freed_by(ttl), "the hold of a silent client to end", ended)
        .await??;
    link.heal();
    let renewed = cx.soon("a renewal of what has ended", grant.hold.renew(ttl)).await?;
    let held = cx.is_held("a").await?;
    ensure!(
        !held,
        "a renewal after its end brought a hold back; it was answered {renewed:?}"
    );
    grant.ensure_over("renewed after its end")
}

/// Nor does it take the lock from the one who has it by then.
pub(crate) async fn an_expired_hold_is_not_renewed_over_its_successor(cx: &RawCx) -> Verdict {
    let (link, ttl) = (Link::new(), cx.ttl());
    let (silent, waiter) = (cx.backend_through(&link).await, cx.backend().await);
    let grant = cx.grant_for(&silent, "a", ttl).await?;
    link.stall();
    let waiting = cx.start_waiting(&waiter, "a", cx.long_ttl().await)?;
    let next = waiting
        .grant_after(&grant, cx, cx.freed_by(ttl), "the successor to be granted")
        .await?;
    link.heal();
    let renewed = cx.soon("a renewal of what has ended", grant.hold.renew(ttl)).await?;
    grant.ensure_over(&format!(
        "its successor holds it, and its renewal was answered {renewed:?}"
    ))?;
    let token = cx.status("a").await?.holders.first().and_then(|holder| holder.token);
    ensure!(
        token.is_none() || token == Some(next.token()),
        "the successor {} is gone: {token:?}",
        next.token()
    );
    next.release().await
}

/// Somebody who only waits, and with a shorter ttl, does not cut the holder's.
pub(crate) async fn an_askers_ttl_does_not_cut_the_holders(cx: &RawCx) -> Verdict {
    let (holder, asker) = (cx.backend().await, cx.backend().await);
    let grant = cx.grant(&holder, "a").await?;
    // The longest ttl of a backend may be short.
    let short = cx.ttl().min(cx.long_ttl().await / 4);
    let short = short.max(holder.capabilities().shortest_ttl);
    let waiting = cx.wait_for(&asker, "a", short).await?;
    sleep(2 * short).await;
    cx.ensure_taken(&asker, "a").await?;
    waiting.ensure_waiting("while the holder's ttl ran")?;
    ensure!(grant.is_live(), "the holder lost it meanwhile");
    grant.release().await?;
    waiting
        .grant_soon(cx, "the waiter to be granted")
        .await?
        .release()
        .await
}

/// A process that is killed frees its lock within the ttl, for a larger token.
pub(crate) async fn a_killed_process_frees_its_lock(cx: &Cx) -> Verdict {
    let client = cx.subject().await;
    let ttl = cx.ttl();
    let mut child = Child::start(
        cx,
        &Job::Hold {
            name: "a".to_owned(),
            ttl,
            minimum: None,
        },
    )?;
    let token = child.says(cx, "held", cx.patience()).await?;
    child.kill()?;
    let ask = cx.ask("a").await;
    let what = "the killed process's lock";
    let guard = cx
        .within(cx.freed_by(ttl), what, client.acquire(&ask))
        .await?
        .or_fail(what)?;
    let guard = guard.ok_or_else(|| Stop::assertion("a waiter was told busy"))?;
    let theirs: u64 = token
        .parse()
        .map_err(|_| Stop::assertion(format!("not a token: {token:?}")))?;
    ensure_safe!(
        guard.token().as_u64() > theirs,
        "token {} after {theirs}",
        guard.token()
    );
    guard.released().await
}

/// A fixed lease ends by itself although its client is well, and its guard knows. By capability.
pub(crate) async fn a_fixed_lease_ends_by_itself(cx: &Cx) -> Verdict {
    let (client, waiter) = (cx.subject().await, cx.subject().await);
    let ttl = cx.ttl();
    let started = Instant::now();
    let acquired = cx
        .soon("acquire a fixed lease", client.acquire(&cx.brief("a").fixed()))
        .await?;
    if !Capability::FixedLease.is_in(client.capabilities()) {
        return Err(cx.undeclared(Capability::FixedLease, acquired));
    }
    let Some(guard) = acquired.or_fail("acquire a fixed lease")? else {
        return Err(Stop::assertion("an acquire that waits for ever was busy"));
    };
    let ask = cx.ask("a").await;
    let what = "the waiter to be granted when the fixed lease is over";
    let next = cx
        .within(cx.freed_by(ttl), what, waiter.acquire(&ask))
        .await?
        .or_fail(what)?;
    let took = started.elapsed();
    guard.ensure_over()?;
    ensure!(took >= ttl - ttl / 10, "a fixed lease of {ttl:?} ended after {took:?}");
    ensure!(next.is_some(), "a waiter was told busy");
    Ok(())
}

/// A fixed lease can still be released before its end. By capability.
pub(crate) async fn a_fixed_lease_is_released_early(cx: &Cx) -> Verdict {
    let (client, other) = (cx.subject().await, cx.subject().await);
    let ask = cx.ask("a").await;
    let acquired = cx
        .soon("acquire a fixed lease", client.acquire(&ask.clone().fixed()))
        .await?;
    if !Capability::FixedLease.is_in(client.capabilities()) {
        return Err(cx.undeclared(Capability::FixedLease, acquired));
    }
    let Some(guard) = acquired.or_fail("acquire a fixed lease")? else {
        return Err(Stop::assertion("an acquire that waits for ever was busy"));
    };
    cx.ensure_busy(&other, &ask).await?;
    guard.released().await?;
    cx.hold(&other, &ask).await?.released().await
}
