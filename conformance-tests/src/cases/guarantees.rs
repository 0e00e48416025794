//! The events that a hold survives, as its backend declares them.

use std::sync::Arc;

use lock_core::Guarantee;
use lock_core::backend::DistributedLock;
use tokio::time::{sleep, timeout};

use crate::context::{LOOK_AGAIN, RawCx};
use crate::harness::Data;
use crate::link::Link;
use crate::raw::Grant;
use crate::verdict::{OrFail, Skip, Stop, Verdict};

/// The number of names that are used beside the one that is held.
const OTHERS: usize = 100;

/// Skips the case where the backend, which has read the server's settings, does not say that it keeps the guarantee.
async fn kept_or_skip(client: &Arc<dyn DistributedLock>, guarantee: Guarantee) -> Verdict {
    match client.keeps(guarantee).is_yes() {
        true => Ok(()),
        false => Err(Stop::Skipped(Skip::NotKept(guarantee))),
    }
}

/// Fails if another client is granted the name while its holder may believe in it.
async fn ensure_survived(cx: &RawCx, held: &Grant, by: &str) -> Verdict {
    let other = cx.backend().await;
    // The server may only just be back.
    let answered = async {
        loop {
            match cx.try_once(&other, "a").await {
                Err(Stop::Failed(failure)) if !failure.asserted => sleep(LOOK_AGAIN).await,
                answer => return answer,
            }
        }
    };
    let answer = timeout(cx.patience(), answered).await;
    match answer.map_err(|_| Stop::assertion(format!("the server did not answer after {by}")))?? {
        Ok(second) if held.is_live() => Err(Stop::safety(format!(
            "{by} ended a hold: its name was granted to a second one, token {}, while the first believed",
            second.token()
        ))),
        _ => Ok(()),
    }
}

/// The server is killed while a name is held, and starts again with its data.
pub(crate) async fn a_hold_survives_a_crash_of_the_server(cx: &RawCx) -> Verdict {
    let client = cx.connected().await?;
    kept_or_skip(&client, Guarantee::ServerCrash).await?;
    let held = cx.grant(&client, "a").await?;
    cx.restart(Data::Kept).await;
    ensure_survived(cx, &held, "a crash of the server").await
}

/// The holder's connection breaks, and it connects again.
pub(crate) async fn a_hold_survives_a_broken_connection(cx: &RawCx) -> Verdict {
    let link = Link::new();
    let client = cx.backend_through(&link).await;
    cx.soon("connect", client.connect()).await?.or_fail("connect")?;
    kept_or_skip(&client, Guarantee::ConnectionLoss).await?;
    let held = cx.grant(&client, "a").await?;
    link.reset();
    let connected = async {
        while client.connect().await.is_err() {
            sleep(LOOK_AGAIN).await;
        }
    };
    cx.soon("the client to connect again", connected).await?;
    ensure_survived(cx, &held, "a broken connection").await
}

/// Many other names are used while one is held.
pub(crate) async fn a_hold_is_not_evicted_by_other_names(cx: &RawCx) -> Verdict {
    let client = cx.connected().await?;
    kept_or_skip(&client, Guarantee::NoEviction).await?;
    let held = cx.grant(&client, "a").await?;
    for other in 0..OTHERS {
        cx.grant(&client, &format!("other {other}")).await?.release().await?;
    }
    ensure_survived(cx, &held, "the use of many other names").await
}
