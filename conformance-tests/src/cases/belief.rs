//! Belief counts from before a request takes effect, also if it takes effect at once.
//!
//! In each case time passes just before the backend takes a moment of sending. If it takes that moment in time, its
//! request is only later. If it takes it after its request has taken effect, its lease is longer than the server's.

use std::sync::Arc;
use std::time::Duration;

use lock_core::backend::DistributedLock;
use tokio::time::Instant;

use crate::context::RawCx;
use crate::link::Link;
use crate::raw::Grant;
use crate::sending::delay_sending;
use crate::verdict::{Stop, Verdict};

/// More than the margin of a lease, and so little that it may pass several times before a grant.
pub(super) const PART_OF_THE_TTL: u32 = 6;

/// A grant counts from before its request took effect.
pub(crate) async fn belief_counts_from_before_the_effect(cx: &RawCx) -> Verdict {
    let (link, client) = near(cx).await?;
    delay_sending(cx.ttl() / PART_OF_THE_TTL);
    let grant = cx.grant_for(&client, "a", cx.ttl()).await?;
    ensure_ends_first(cx, &link, &grant).await
}

/// So does a renewal, where core renews.
pub(crate) async fn belief_in_a_renewal_counts_from_before_its_effect(cx: &RawCx) -> Verdict {
    let (link, client) = near(cx).await?;
    let asked = Instant::now();
    let grant = cx.grant_for(&client, "a", cx.ttl()).await?;
    if !client.capabilities().session_renewal {
        delay_sending(cx.ttl() / PART_OF_THE_TTL);
        grant.renew_live(asked, cx.ttl()).await?;
    }
    ensure_ends_first(cx, &link, &grant).await
}

/// A client that has reached its server, and the link to it.
pub(super) async fn near(cx: &RawCx) -> Result<(Link, Arc<dyn DistributedLock>), Stop> {
    let link = Link::new();
    let client = cx.backend_through(&link).await;
    cx.connect(&client).await?;
    Ok((link, client))
}

/// Cuts the holder off. When somebody else is granted the name, the holder must not believe in its hold any more.
pub(super) async fn ensure_ends_first(cx: &RawCx, link: &Link, grant: &Grant) -> Verdict {
    delay_sending(Duration::ZERO);
    let waiter = cx.connected().await?;
    let asking = cx.request("a", cx.long_ttl().await)?;
    let waiting = cx.wait_out(&waiter, asking).await?;
    link.stall();
    let what = "the waiter to be granted when the ttl is over";
    let next = waiting.grant_after(grant, cx, cx.freed_by(cx.ttl()), what).await?;
    next.release().await
}
