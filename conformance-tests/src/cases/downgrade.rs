//! A writer becomes a reader, without a moment in which somebody else writes. By capability.

use std::sync::Arc;

use lock_core::backend::Mode::{Exclusive, Shared};
use lock_core::backend::{DistributedLock, ReleaseOutcome};

use crate::context::RawCx;
use crate::raw::ensure_waiting;
use crate::verdict::{Capability, Stop, Verdict, ensure, ensure_safe};

/// A new client of a backend that declares what a downgrade needs.
async fn client(cx: &RawCx) -> Result<Arc<dyn DistributedLock>, Stop> {
    let client = cx.client_with(Capability::Downgrade).await?;
    Capability::Shared.or_skip(client.capabilities())?;
    Ok(client)
}

/// A writer that waits does not get in when the holder becomes a reader, but when that reader releases. The hold keeps
/// its token.
pub(crate) async fn nobody_writes_during_a_downgrade(cx: &RawCx) -> Verdict {
    let client = client(cx).await?;
    let (writer, other) = (cx.connected().await?, cx.connected().await?);
    let grant = cx.grant_in(&client, "a", Exclusive).await?;
    let token = grant.token();
    let writing = cx.wait_in(&writer, "a", Exclusive).await?;
    cx.until_places("a", 1).await?;
    for _ in 0..2 {
        // The second one as after a lost answer.
        ensure!(
            grant.downgraded(cx).await?,
            "a downgrade of a live hold said that it was lost"
        );
        ensure_waiting(&[&writing], "while the hold was downgraded").await?;
    }
    cx.ensure_refused(&other, "a", Exclusive).await?;
    cx.ensure_holders("a", 1, "a writer became a reader").await?;
    ensure!(grant.token() == token, "token {token} became {}", grant.token());
    if !client.capabilities().session_renewal {
        ensure!(
            grant.renew(cx.long_ttl().await).await?,
            "a renewal of a hold that was downgraded said that it was lost"
        );
    }
    ensure!(grant.is_live(), "a downgrade ended the hold");
    grant.release().await?;
    let what = "the writer to be granted after the hold that was downgraded";
    let next = writing.grant_soon(cx, what).await?;
    ensure_safe!(next.token() > token, "{token} was followed by {}", next.token());
    next.release().await
}

/// Readers that wait get in when the holder becomes one of them, and so does a reader that comes later.
pub(crate) async fn a_downgrade_admits_waiting_readers(cx: &RawCx) -> Verdict {
    let client = client(cx).await?;
    let late = cx.connected().await?;
    let grant = cx.grant_in(&client, "a", Exclusive).await?;
    let mut waiting = Vec::new();
    for number in 0..2 {
        waiting.push(cx.wait_in(&cx.connected().await?, "a", Shared).await?);
        cx.until_places("a", number + 1).await?;
    }
    ensure!(
        grant.downgraded(cx).await?,
        "a downgrade of a live hold said that it was lost"
    );
    let mut readers = Vec::new();
    for waiter in waiting {
        let what = "waiting readers to be granted after a downgrade";
        readers.push(waiter.grant_soon(cx, what).await?);
    }
    readers.push(cx.grant_in(&late, "a", Shared).await?);
    for reader in &readers {
        ensure_safe!(
            reader.token() > grant.token(),
            "{} was followed by {}",
            grant.token(),
            reader.token()
        );
    }
    cx.ensure_holders("a", 4, "a downgrade admitted three readers").await?;
    grant.release().await?;
    for reader in readers {
        cx.ensure_refused(&client, "a", Exclusive).await?;
        reader.release().await?;
    }
    cx.until_free("a", "all readers have released").await
}

/// A hold that was taken away is not downgraded: nothing is held by that, and the successor's hold is not touched.
pub(crate) async fn a_lost_hold_is_not_downgraded(cx: &RawCx) -> Verdict {
    let client = client(cx).await?;
    let other = cx.connected().await?;
    for has_successor in [false, true] {
        let grant = cx.grant_in(&client, "a", Exclusive).await?;
        cx.take_away("a").await;
        let successor = match has_successor {
            true => Some(cx.grant_in(&other, "a", Exclusive).await?),
            false => None,
        };
        ensure!(
            !grant.downgraded(cx).await?,
            "a hold that was taken away was downgraded"
        );
        if let Some(successor) = successor {
            cx.ensure_refused(&client, "a", Shared).await?;
            successor.release().await?;
        }
        let released = grant.released(cx).await?;
        ensure!(
            released == ReleaseOutcome::AlreadyLost,
            "a hold that was taken away was released: {released:?}"
        );
        cx.until_free("a", "a lost hold was to be downgraded").await?;
    }
    Ok(())
}
