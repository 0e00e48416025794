//! Requests for permits wait in one queue, in which those for many do not starve. By capability.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::context::RawCx;
use crate::raw::{drive, ensure_in_line, ensure_waiting, granted, limit, permits, request_in};
use crate::verdict::{Capability, OrFail, Stop, Verdict};

/// A request for all permits gets them in the end, though there is never a moment in which nobody wants one.
pub(crate) async fn a_large_request_is_not_starved(cx: &RawCx) -> Verdict {
    let large = cx.client_with(Capability::Permits).await?;
    let (is_over, ttl) = (Arc::new(AtomicBool::new(false)), cx.long_ttl().await);
    let limit = limit(&large, 2..=3)?;
    let (one, all) = (permits(1, limit)?, permits(limit, limit)?);
    let mut takers = JoinSet::new();
    for number in 0..3 {
        let (client, is_over) = (cx.connected().await?, is_over.clone());
        takers.spawn(async move {
            sleep(Duration::from_millis(10 * number)).await;
            while !is_over.load(Ordering::SeqCst) {
                let (request, control) = request_in("a", one, ttl)?;
                let attempt = drive(&*client, &request).await.or_fail("take a permit")?;
                let Ok(grant) = granted(attempt, request, control)? else {
                    return Err(Stop::assertion("a request that waits for ever was busy"));
                };
                sleep(Duration::from_millis(30)).await;
                grant.release().await?;
            }
            Ok(())
        });
    }
    cx.until_holders("a", 2, cx.patience(), "the small requests to overlap")
        .await?;
    let (request, control) = cx.request_in("a", all).await?;
    let waiting = cx.go_on_waiting(&large, request, control);
    let what = "a request for all permits to be granted among steady small ones";
    let grant = waiting.grant_soon(cx, what).await?;
    is_over.store(true, Ordering::SeqCst);
    cx.ensure_holders("a", 1, "one holds all permits").await?;
    grant.release().await?;
    while let Some(taker) = cx.soon("the small requests to end", takers.join_next()).await? {
        taker.map_err(|panic| Stop::assertion(panic.to_string()))??;
    }
    cx.until_free("a", "all permits have been released").await
}

/// A small request that comes after a waiting large one is not granted before it, though its permit is there. By
/// capability.
pub(crate) async fn a_small_request_does_not_pass_a_large_one(cx: &RawCx) -> Verdict {
    let client = cx.client_with(Capability::Permits).await?;
    Capability::Fifo.or_skip(client.capabilities())?;
    let (large, small) = (cx.connected().await?, cx.connected().await?);
    let limit = limit(&client, 2..=3)?;
    let (one, all) = (permits(1, limit)?, permits(limit, limit)?);
    let held = cx.grant_in(&client, "a", one).await?;
    let waiting = cx.wait_in(&large, "a", all).await?;
    cx.until_places("a", 1).await?;
    cx.ensure_passes_nobody(&small, "a", one).await?;
    // For all that are left.
    let behind = cx.wait_in(&small, "a", permits(limit - 1, limit)?).await?;
    ensure_waiting(&[&waiting], "while one permit was out").await?;
    ensure_in_line(&[&behind], "while a large request waited").await?;
    held.release().await?;
    let what = "the large request to be granted";
    let grant = waiting.grant_soon(cx, what).await?;
    ensure_waiting(&[&behind], "while all permits were out").await?;
    grant.release().await?;
    let what = "the small request behind it to be granted";
    behind.grant_soon(cx, what).await?.release().await
}

/// Permits that come back together are given to all who wait for them, none after another.
pub(crate) async fn several_waiters_enter_at_once(cx: &RawCx) -> Verdict {
    let client = cx.client_with(Capability::Permits).await?;
    let limit = limit(&client, 2..=3)?;
    let one = permits(1, limit)?;
    let held = cx.grant_in(&client, "a", permits(limit, limit)?).await?;
    let mut waiting = Vec::new();
    for _ in 0..limit {
        waiting.push(cx.wait_in(&cx.connected().await?, "a", one).await?);
        cx.until_places("a", waiting.len()).await?;
    }
    held.release().await?;
    let mut grants = Vec::new();
    for waiter in waiting {
        let what = "all who wait for the permits to be granted at once";
        grants.push(waiter.grant_soon(cx, what).await?);
    }
    cx.ensure_refused(&client, "a", one).await?;
    for grant in grants {
        grant.release().await?;
    }
    cx.until_free("a", "all permits have been released").await
}

/// A request that states a smaller limit and has to wait for it holds back those behind it, whose limit is larger. By
/// capability.
pub(crate) async fn a_smaller_limit_is_not_starved(cx: &RawCx) -> Verdict {
    let client = cx.client_with(Capability::Permits).await?;
    Capability::Fifo.or_skip(client.capabilities())?;
    let of_large = permits(1, limit(&client, 3..=5)?)?;
    let (smaller, larger) = (cx.connected().await?, cx.connected().await?);
    let first = cx.grant_in(&client, "a", of_large).await?;
    let second = cx.grant_in(&client, "a", of_large).await?;
    let waiting = cx.wait_in(&smaller, "a", permits(1, 2)?).await?;
    cx.until_places("a", 1).await?;
    cx.ensure_passes_nobody(&larger, "a", of_large).await?;
    let behind = cx.wait_in(&larger, "a", of_large).await?;
    ensure_waiting(&[&waiting], "while its limit was reached").await?;
    ensure_in_line(&[&behind], "while a request waited for its smaller limit").await?;
    first.release().await?;
    let what = "the request of the smaller limit to be granted";
    let third = waiting.grant_soon(cx, what).await?;
    let what = "the request of the larger limit to be granted behind it";
    let fourth = behind.grant_soon(cx, what).await?;
    for grant in [second, third, fourth] {
        grant.release().await?;
    }
    cx.until_free("a", "all permits have been released").await
}

/// A waiter that gives up keeps the permits from nobody behind it.
pub(crate) async fn a_waiter_that_leaves_lets_smaller_ones_in(cx: &RawCx) -> Verdict {
    let client = cx.client_with(Capability::Permits).await?;
    let (large, small) = (cx.connected().await?, cx.connected().await?);
    let limit = limit(&client, 2..=3)?;
    let held = cx.grant_in(&client, "a", permits(1, limit)?).await?;
    let waiting = cx.wait_in(&large, "a", permits(limit, limit)?).await?;
    cx.until_places("a", 1).await?;
    let (request, control) = cx.request_in("a", permits(limit - 1, limit)?).await?;
    let behind = cx.go_on_waiting(&small, request, control);
    cx.until_places("a", 2).await?;
    waiting.abandon(cx, &large).await?;
    let what = "the one behind the one who left to be granted";
    let grant = behind.grant_soon(cx, what).await?;
    for grant in [held, grant] {
        grant.release().await?;
    }
    cx.until_free("a", "all permits have been released").await
}
