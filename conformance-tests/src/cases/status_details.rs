//! The optional parts of a status: the time of the grant, the id of the holder, and the waiters.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use lock_core::backend::{DistributedLock, Mode};

use crate::context::RawCx;
use crate::raw::{Grant, Waiter, is_renewed};
use crate::verdict::{Capability, Stop, Verdict, ensure};

/// Two clocks, and a busy machine.
const ABOUT: Duration = Duration::from_secs(60);

/// An id stays through renewals, and no other hold has it. Where the server knows none, nothing is shown.
pub(crate) async fn each_hold_has_an_id(cx: &RawCx) -> Verdict {
    let client = cx.connected().await?;
    let mut seen = Vec::new();
    for _ in 0..3 {
        let grant = cx.grant(&client, "a").await?;
        let id = only_id(cx).await?;
        renew_if_renewed(cx, &client, &grant).await?;
        ensure!(only_id(cx).await? == id, "renewed, and its id is another");
        ensure!(id.is_none() || !seen.contains(&id), "two holds have the id {id:?}");
        seen.push(id);
        grant.release().await?;
    }
    Ok(())
}

async fn renew_if_renewed(cx: &RawCx, client: &Arc<dyn DistributedLock>, grant: &Grant) -> Verdict {
    if is_renewed(client) {
        grant.renew(cx.long_ttl().await).await?;
    }
    Ok(())
}

async fn only_id(cx: &RawCx) -> Result<Option<String>, Stop> {
    let status = cx.status("a").await?;
    match status.holders.as_slice() {
        [holder] => Ok(holder.id.as_deref().map(str::to_owned)),
        holders => Err(Stop::assertion(format!("one holds it, and shown are {holders:?}"))),
    }
}

/// Where the server shows it, it is about when the hold began, and a renewal does not change it.
pub(crate) async fn since_when_it_is_held_is_shown(cx: &RawCx) -> Verdict {
    let client = cx.connected().await?;
    let before = SystemTime::now();
    let grant = cx.grant(&client, "a").await?;
    let Some(since) = since(cx).await? else {
        return grant.release().await;
    };
    let (earliest, latest) = (before - ABOUT, SystemTime::now() + ABOUT);
    ensure!(
        (earliest..=latest).contains(&since),
        "granted between {earliest:?} and {latest:?}, and held since {since:?}"
    );
    renew_if_renewed(cx, &client, &grant).await?;
    let renewed = self::since(cx).await?.unwrap_or(SystemTime::UNIX_EPOCH);
    let apart = since
        .max(renewed)
        .duration_since(since.min(renewed))
        .unwrap_or_default();
    // Of a server in this process, by its clock of the moment.
    ensure!(
        apart < Duration::from_secs(3),
        "held since {since:?}, and after a renewal since {renewed:?}"
    );
    grant.release().await
}

async fn since(cx: &RawCx) -> Result<Option<SystemTime>, Stop> {
    Ok(cx.status("a").await?.holders.first().and_then(|holder| holder.since))
}

/// In the order of the queue, each with its mode, where the server shows them. By capability.
pub(crate) async fn the_waiters_are_shown_in_order(cx: &RawCx) -> Verdict {
    let client = cx.client_with(Capability::Shared).await?;
    Capability::Fifo.or_skip(client.capabilities())?;
    let grant = cx.grant_in(&client, "a", Mode::Exclusive).await?;
    let modes = [Mode::Shared, Mode::Exclusive, Mode::Exclusive];
    let mut waiters: Vec<Waiter> = Vec::new();
    for (number, mode) in modes.into_iter().enumerate() {
        let (request, control) = cx.request_in("a", mode).await?;
        let waiting = cx.connected().await?;
        waiters.push(cx.wait_with(&waiting, request, control).await?);
        cx.until_places("a", number + 1).await?;
    }
    let status = cx.status("a").await?;
    if let Some(shown) = &status.waiters {
        ensure!(
            status.waiting == Some(shown.len()) && shown.len() == modes.len(),
            "three wait, and shown are {status:?}"
        );
        for (mode, waiter) in modes.into_iter().zip(shown) {
            ensure!(
                waiter.mode.is_none_or(|shown| shown == mode),
                "{modes:?} wait in this order, and shown are {shown:?}"
            );
        }
    }
    grant.release().await?;
    for waiter in waiters {
        let granted = waiter.grant_soon(cx, "the next waiter to be granted").await?;
        granted.release().await?;
    }
    cx.until_free("a", "all have had it").await
}
