//! What an outage does to those who hold, wait, try and release.

use std::time::Duration;

use lock_core::ErrorKind;
use tokio::time::{Instant, sleep};

use super::errors::ensure_unavailable;
use super::support::is_pending;
use crate::context::{Cx, RawCx};
use crate::link::Link;
use crate::verdict::{OrFail, Stop, Verdict, ensure};

/// A server that cannot be reached is no reason to say busy.
pub(crate) async fn an_outage_is_not_busy(cx: &Cx) -> Verdict {
    let link = Link::new();
    let client = cx.subject_through(&link).await;
    let ask = cx.ask("a").await;
    cx.hold(&client, &ask).await?.released().await?;
    link.cut();
    match cx
        .soon("a try in an outage", client.acquire(&ask.clone().trying()))
        .await?
    {
        Ok(None) => return Err(Stop::assertion("busy, says a client that cannot reach the server")),
        Ok(Some(_)) => return Err(Stop::assertion("acquired from a server that cannot be reached")),
        Err(error) => ensure_unavailable(&error, "a try in an outage")?,
    }
    match cx.soon("a status in an outage", client.status("a")).await? {
        Ok(status) => {
            return Err(Stop::assertion(format!(
                "a server that cannot be reached said {status:?}"
            )));
        }
        Err(error) => ensure_unavailable(&error, "a status in an outage")?,
    }
    link.heal();
    cx.hold(&client, &ask).await?.released().await
}

/// The raw backend says so as well: an unknown outcome is an error, and the next request finds the way again.
pub(crate) async fn a_lost_connection_is_an_error_and_mended(cx: &RawCx) -> Verdict {
    let link = Link::new();
    let client = cx.backend_through(&link).await;
    cx.grant(&client, "a").await?.release().await?;
    link.cut();
    let (request, _control) = cx.trying("a", cx.long_ttl().await)?;
    match cx.soon("a try in an outage", client.acquire(&request)).await? {
        Ok(attempt) => {
            return Err(Stop::assertion(format!(
                "a server that cannot be reached answered {attempt:?}"
            )));
        }
        Err(error) => ensure_unavailable(&error, "a try in an outage")?,
    }
    link.heal();
    let mended = async {
        while client.acquire(&request).await.is_err() {
            sleep(Duration::from_millis(20)).await;
        }
    };
    cx.soon("the connection to come back", mended).await?;
    client.abandon(&request).await.or_fail("abandon")?;
    cx.until_free("a", cx.patience(), "the abandon").await
}

/// A waiter outlasts an outage, and gets the lock after it.
pub(crate) async fn a_waiter_outlasts_an_outage(cx: &Cx) -> Verdict {
    let link = Link::new();
    let (holder, waiter) = (cx.subject().await, cx.subject_through(&link).await);
    let ask = cx.ask("a").await;
    cx.hold(&waiter, &ask).await?.released().await?;
    let guard = cx.hold(&holder, &ask).await?;
    let mut waiting = Box::pin(waiter.acquire(&ask));
    ensure!(
        is_pending(&mut waiting, Duration::from_millis(100)).await,
        "granted while it was held"
    );
    link.cut();
    ensure!(
        is_pending(&mut waiting, cx.ttl()).await,
        "a waiter that wants to wait for ever ended in an outage"
    );
    link.heal();
    guard.released().await?;
    let acquired = cx
        .soon("the waiter to be granted after the outage", waiting)
        .await?
        .or_fail("wait")?;
    let acquired = acquired.ok_or_else(|| Stop::assertion("a waiter was told busy"))?;
    acquired.released().await?;
    cx.until_free("a", cx.freed_by(cx.ttl()), "the outage").await
}

/// A wait ends at its deadline, outage or not.
pub(crate) async fn a_wait_ends_in_an_outage(cx: &Cx) -> Verdict {
    let link = Link::new();
    let (holder, waiter) = (cx.subject().await, cx.subject_through(&link).await);
    let ask = cx.ask("a").await;
    let guard = cx.hold(&holder, &ask).await?;
    cx.ensure_busy(&waiter, &ask).await?;
    let (time, started) = (Duration::from_secs(3), Instant::now());
    let limited = ask.clone().within(time);
    let mut waiting = Box::pin(waiter.acquire(&limited));
    ensure!(
        is_pending(&mut waiting, Duration::from_millis(100)).await,
        "granted while it was held"
    );
    link.cut();
    let Err(error) = cx.soon("a wait in an outage", waiting).await? else {
        return Err(Stop::assertion("granted while it was held"));
    };
    let took = started.elapsed();
    ensure!(took >= time, "a wait of {time:?} ended after {took:?}: {error}");
    ensure!(
        matches!(error.kind(), ErrorKind::TimedOut | ErrorKind::Unavailable),
        "a wait in an outage ended as {:?}: {error}",
        error.kind()
    );
    link.heal();
    guard.released().await?;
    cx.until_free("a", cx.freed_by(cx.ttl()), "the outage").await
}

/// Releasing in an outage fails as unavailable; the lock is free when its ttl is over, or before.
pub(crate) async fn a_release_in_an_outage_is_told(cx: &Cx) -> Verdict {
    let link = Link::new();
    let client = cx.subject_through(&link).await;
    let guard = cx.hold(&client, &cx.brief("a")).await?;
    link.cut();
    if let Err(error) = cx
        .within(cx.ttl() + cx.patience(), "a release in an outage", guard.release())
        .await?
    {
        ensure!(
            matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Lost),
            "a release in an outage failed as {:?}: {error}",
            error.kind()
        );
    }
    cx.until_free("a", cx.freed_by(cx.ttl()), "a release in an outage")
        .await
}
