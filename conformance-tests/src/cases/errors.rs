//! Failures are reported with the right error, in time.

use std::time::Duration;

use lock_core::{Error, ErrorKind};

use crate::context::{Cx, RawCx};
use crate::link::Link;
use crate::subject::Ask;
use crate::verdict::{OrFail, Stop, Verdict, ensure};

pub(super) fn ensure_unavailable(error: &Error, when: &str) -> Verdict {
    ensure!(
        error.kind() == ErrorKind::Unavailable,
        "{when}: {:?}: {error}",
        error.kind()
    );
    ensure!(
        error.is_retryable(),
        "{when}: it may come back, yet {error} is not retryable"
    );
    Ok(())
}

/// The error of an outage, with what caused it.
pub(super) fn ensure_explained(error: &Error, when: &str) -> Verdict {
    ensure_unavailable(error, when)?;
    ensure!(error.cause().is_some(), "{when}: {error:?} has no cause");
    Ok(())
}

/// A ttl of nothing is refused.
pub(crate) async fn a_ttl_of_zero_is_refused(cx: &Cx) -> Verdict {
    ensure_ttl_refused(cx, Duration::ZERO).await
}

/// A ttl shorter than the backend can keep is refused.
pub(crate) async fn a_ttl_too_short_is_refused(cx: &Cx) -> Verdict {
    let shortest = cx.observer().await.capabilities().shortest_ttl;
    ensure_ttl_refused(cx, shortest - shortest / 100).await?;
    let client = cx.subject().await;
    let guard = cx.hold(&client, &cx.ask("a").await.ttl(shortest.max(cx.ttl()))).await?;
    // A ttl so short may be over by now: only that it is accepted counts.
    drop(guard);
    Ok(())
}

/// A ttl longer than the backend can keep is refused.
pub(crate) async fn a_ttl_too_long_is_refused(cx: &Cx) -> Verdict {
    let longest = cx.observer().await.capabilities().longest_ttl;
    if let Some(longer) = longest.checked_add(Duration::from_millis(1)) {
        ensure_ttl_refused(cx, longer).await?;
        ensure_ttl_refused(cx, Duration::MAX).await?;
    }
    let client = cx.subject().await;
    cx.hold(&client, &cx.ask("a").await.ttl(longest))
        .await?
        .released()
        .await
}

async fn ensure_ttl_refused(cx: &Cx, ttl: Duration) -> Verdict {
    let client = cx.subject().await;
    let ask = cx.ask("a").await.ttl(ttl);
    for ask in [ask.clone(), ask.trying()] {
        let Err(error) = cx.soon("the refusal", client.acquire(&ask)).await? else {
            return Err(Stop::assertion(format!("a ttl of {ttl:?} was accepted")));
        };
        ensure!(
            matches!(error.kind(), ErrorKind::Misconfigured | ErrorKind::Unsupported),
            "a ttl of {ttl:?} was refused as {:?}: {error}",
            error.kind()
        );
    }
    cx.until_free("a", "a refusal").await
}

/// Where there is no server, an acquire fails as unavailable, in time and whatever it would wait.
pub(crate) async fn no_server_is_unavailable(cx: &Cx) -> Verdict {
    let ask = cx.ask("a").await;
    let [once, brief] = [ask.clone().trying(), ask.clone().within(Duration::from_millis(500))];
    // Side by side, since each waits until it gives up.
    tokio::try_join!(unavailable(cx, once), unavailable(cx, brief), unavailable(cx, ask)).map(drop)
}

async fn unavailable(cx: &Cx, ask: Ask) -> Verdict {
    let client = cx.subject_nowhere().await;
    let what = format!("an acquire without a server ({:?})", ask.wait);
    let Err(error) = cx.soon(&what, client.acquire(&ask)).await? else {
        return Err(Stop::assertion("acquired without a server"));
    };
    ensure_unavailable(&error, &what)
}

/// Connecting says whether there is a server.
pub(crate) async fn connecting_says_whether_there_is_a_server(cx: &RawCx) -> Verdict {
    cx.soon("connect", cx.backend().await.connect())
        .await?
        .or_fail("connect")?;
    let nowhere = cx.backend_nowhere().await;
    let Err(error) = cx.soon("connect to nowhere", nowhere.connect()).await? else {
        return Err(Stop::assertion("connected to nowhere"));
    };
    ensure_unavailable(&error, "connecting to nowhere")
}

/// A server that accepts a connection and never answers is unavailable too.
pub(crate) async fn a_silent_server_is_unavailable(cx: &Cx) -> Verdict {
    let link = Link::new();
    link.stall();
    let client = cx.subject_through(&link).await;
    let ask = cx.ask("a").await.within(Duration::from_millis(700));
    let Err(error) = cx.soon("an acquire from a silent server", client.acquire(&ask)).await? else {
        return Err(Stop::assertion("acquired from a silent server"));
    };
    ensure_unavailable(&error, "a silent server")?;
    link.heal();
    cx.until_free("a", "an acquire that nobody waits for").await
}
