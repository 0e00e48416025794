//! Each permit expires by itself, and comes back once. By capability.

use lock_core::backend::ReleaseOutcome;

use super::support::in_one_of;
use crate::context::RawCx;
use crate::link::Link;
use crate::raw::{limit, permits};
use crate::verdict::{Capability, Verdict, ensure};

/// A silent holder's permit ends with its own ttl, and others' permits do not end with it.
pub(crate) async fn each_permit_expires_by_itself(cx: &RawCx) -> Verdict {
    let (link, ttl, one) = (Link::new(), cx.ttl(), permits(1, 2)?);
    let silent = cx.client_through(&link, Capability::Permits).await?;
    let (client, waiter) = (cx.connected().await?, cx.connected().await?);
    let stays = cx.grant_in(&client, "a", one).await?;
    let ends = cx.grant_in_for(&silent, "a", one, ttl).await?;
    let waiting = cx.wait_out(&waiter, cx.request_in("a", one).await?).await?;
    link.stall();
    let what = "the waiter to be granted when the silent holder's ttl is over";
    let next = waiting.grant(cx, cx.freed_by(ttl), what).await?;
    // Before the other one is judged: if this one has ended with its session, the waiter may have its permit.
    ensure!(stays.is_live(), "a permit ended with another one");
    ends.ensure_over("granted to the next one")?;
    cx.ensure_refused(&client, "a", one).await?;
    for grant in [stays, next] {
        grant.release().await?;
    }
    cx.until_free("a", "all permits have been released").await
}

/// An expired permit comes back once: its holder's late release and abandon return no second one.
pub(crate) async fn an_expired_permit_returns_once(cx: &RawCx) -> Verdict {
    let (link, ttl, one) = (Link::new(), cx.ttl(), permits(1, 2)?);
    let silent = cx.client_through(&link, Capability::Permits).await?;
    let (client, waiter) = (cx.connected().await?, cx.connected().await?);
    let stays = cx.grant_in(&client, "a", one).await?;
    let ends = cx.grant_in_for(&silent, "a", one, ttl).await?;
    let waiting = cx.wait_out(&waiter, cx.request_in("a", one).await?).await?;
    link.stall();
    let what = "the waiter to be granted when the silent holder's ttl is over";
    let next = waiting.grant(cx, cx.freed_by(ttl), what).await?;
    link.heal();
    for _ in 0..2 {
        let released = ends.released(cx).await?;
        ensure!(
            released == ReleaseOutcome::AlreadyLost,
            "an expired permit's release answered {released:?}"
        );
        cx.ensure_refused(&client, "a", one).await?;
    }
    cx.abandoned(&silent, &ends.request).await?;
    cx.ensure_refused(&client, "a", one).await?;
    cx.ensure_holders("a", 2, "an expired permit was released and abandoned")
        .await?;
    for grant in [stays, next] {
        grant.release().await?;
    }
    cx.until_free("a", "all permits have been released").await
}

/// All permits of a holder that died come back within its ttl.
pub(crate) async fn a_dead_holders_permits_return(cx: &RawCx) -> Verdict {
    let (link, ttl) = (Link::new(), 2 * cx.ttl());
    let dead = cx.client_through(&link, Capability::Permits).await?;
    let client = cx.connected().await?;
    let limit = limit(&dead, 2..=3)?;
    let all = permits(limit, limit)?;
    let taken = cx.grant_in_for(&dead, "a", permits(2, limit)?, ttl).await?;
    cx.ensure_refused_beside(&taken, &client, "a", all).await?;
    link.cut();
    let (request, control) = cx.request_in("a", all).await?;
    let waiting = cx.go_on_waiting(&client, request, control);
    let what = "a request for all permits to be granted when the dead holder's ttl is over";
    waiting.grant(cx, cx.freed_by(ttl), what).await?.release().await
}

/// A permit that is renewed stays its holder's beyond the first ttl, while another one that is not renewed comes back.
pub(crate) async fn a_renewed_permit_stays(cx: &RawCx) -> Verdict {
    in_one_of(3, cx, |name| kept_beside_one_that_ends(cx, name)).await
}

async fn kept_beside_one_that_ends(cx: &RawCx, name: &str) -> Verdict {
    let (link, ttl, one) = (Link::new(), cx.ttl(), permits(1, 2)?);
    let silent = cx.client_through(&link, Capability::Permits).await?;
    let client = cx.connected().await?;
    let ends = cx.grant_in_for(&silent, name, one, ttl).await?;
    let stays = cx.grant_in_for(&client, name, one, ttl).await?;
    link.stall();
    let bound = cx.freed_by(ttl);
    tokio::select! {
        ended = cx.until_holders(name, 1, bound, "the silent holder's permit to end") => {
            ended.map_err(|stop| stop.explained_if(!stays.is_live()))?;
        }
        failed = stays.keep_up(&client, ttl, 2 * bound) => failed?,
    }
    stays.ensure_kept(stays.is_live(), "a permit that was renewed is lost")?;
    ends.ensure_over("its permit has ended")?;
    cx.ensure_refused_beside(&stays, &client, name, permits(2, 2)?).await?;
    stays.release().await?;
    cx.until_free(name, "all permits have been released").await
}
