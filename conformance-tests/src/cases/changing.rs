//! A guard becomes a reader's or the writer's, in place. By capability.

use std::sync::Arc;
use std::time::Duration;

use lock_core::ErrorKind;
use lock_core::backend::Mode::{Shared, Upgradable};
use tokio::time::timeout;

use super::support::Began;
use crate::context::Cx;
use crate::subject::{Ask, Subject, SubjectGuard};
use crate::verdict::{Capability, OrFail, Stop, Verdict, ensure, ensure_safe};

/// A client whose guards can be changed like this.
async fn client_with(cx: &Cx, capability: Capability) -> Result<Arc<dyn Subject>, Stop> {
    let client = cx.subject().await;
    capability.or_skip(client.capabilities())?;
    Ok(client)
}

/// It reads: others may read as well, and nobody writes.
async fn ensure_reading(cx: &Cx, guard: &dyn SubjectGuard, write: &Ask, after: &str) -> Verdict {
    let other = cx.subject().await;
    ensure!(guard.believes(), "{:?} after {after}", guard.state());
    cx.ensure_busy(&other, write).await?;
    let reader = cx.hold(&other, &write.clone().in_mode(Shared)).await?;
    reader.released().await
}

/// A writer becomes a reader, and the writer that waits does not get in between. Others read then.
pub(crate) async fn a_downgraded_guard_lets_no_writer_in(cx: &Cx) -> Verdict {
    let client = client_with(cx, Capability::Downgrade).await?;
    let (other, write) = (cx.subject().await, cx.ask("a").await);
    let mut guard = cx.hold(&client, &write).await?;
    let writing = Began::acquire(&other, &write).await;
    cx.until_places("a", 1).await?;
    cx.soon("downgrade", guard.downgrade()).await?.or_fail("downgrade")?;
    writing.ensure_waiting("while the former writer read on")?;
    writing.drop_it().await;
    ensure_reading(cx, &*guard, &write, "its downgrade").await?;
    guard.released().await?;
    cx.until_free("a", "the reader released").await
}

/// A reader that may becomes the writer when the other readers have left, with a larger token. Nobody is beside it.
pub(crate) async fn an_upgraded_guard_is_alone(cx: &Cx) -> Verdict {
    let client = client_with(cx, Capability::Upgradable).await?;
    let (other, write) = (cx.subject().await, cx.ask("a").await);
    let read = write.clone().in_mode(Shared);
    let reader = cx.hold(&other, &read).await?;
    let mut guard = cx.hold(&client, &write.clone().in_mode(Upgradable)).await?;
    let first = guard.token();
    let leaving = async {
        cx.until_places("a", 1).await?;
        reader.released().await
    };
    let both = async { tokio::join!(guard.upgrade(None), leaving) };
    let (upgraded, left) = cx.soon("an upgrade after the last reader", both).await?;
    left?;
    upgraded.or_fail("upgrade")?;
    ensure_safe!(
        guard.token() > first,
        "upgraded from token {first} to {}",
        guard.token()
    );
    cx.ensure_busy(&other, &read).await?;
    cx.ensure_busy(&other, &write).await?;
    guard.released().await?;
    cx.until_free("a", "the upgraded guard was released").await
}

/// An upgrade that times out, or that its caller drops, leaves a guard that reads, and nothing in the way of other readers.
pub(crate) async fn a_failed_upgrade_leaves_the_guard_reading(cx: &Cx) -> Verdict {
    let client = client_with(cx, Capability::Upgradable).await?;
    let (other, write) = (cx.subject().await, cx.ask("a").await);
    let reader = cx.hold(&other, &write.clone().in_mode(Shared)).await?;
    let mut guard = cx.hold(&client, &write.clone().in_mode(Upgradable)).await?;
    let mut limit = Duration::from_millis(200);
    for is_last in [false, false, true] {
        let (what, bound) = ("an upgrade to time out", limit + cx.patience());
        match cx.within(bound, what, guard.upgrade(Some(limit))).await? {
            Err(error) if error.kind() == ErrorKind::TimedOut => break,
            // A busy server may answer later than that.
            Err(error) if error.kind() == ErrorKind::Unavailable && !is_last => {
                cx.ensure_busy(&other, &write).await?;
                limit *= 4;
            }
            Ok(()) => return Err(Stop::by_ttl("upgraded beside a reader")),
            Err(error) => return Err(Stop::assertion(format!("an upgrade beside a reader failed: {error}"))),
        }
    }
    ensure_reading(cx, &*guard, &write, "its upgrade timed out").await?;
    {
        let mut upgrading = guard.upgrade(None);
        match timeout(Duration::from_millis(50), &mut upgrading).await {
            Err(_) => {}
            Ok(Ok(())) => return Err(Stop::by_ttl("upgraded beside a reader")),
            Ok(Err(error)) => return Err(Stop::assertion(format!("an upgrade beside a reader failed: {error}"))),
        }
    }
    ensure_reading(cx, &*guard, &write, "its upgrade was dropped").await?;
    reader.released().await?;
    ensure_reading(cx, &*guard, &write, "the other reader left").await?;
    guard.released().await?;
    cx.until_free("a", "all readers have released").await
}
