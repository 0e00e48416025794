//! Each reader's hold ends by itself. By capability.

use lock_core::backend::Mode::{Exclusive, Shared};
use lock_core::backend::{ReleaseOutcome, Renewal};

use super::support::in_one_of;
use crate::context::RawCx;
use crate::link::Link;
use crate::verdict::{Capability, Verdict, ensure};

/// A silent reader's hold ends with its own ttl, whatever the ttls of the others are, and theirs go on.
pub(crate) async fn each_reader_ends_by_its_own_ttl(cx: &RawCx) -> Verdict {
    let (link, ttl) = (Link::new(), cx.ttl());
    let silent = cx.client_through(&link, Capability::Shared).await?;
    let (client, writer) = (cx.connected().await?, cx.connected().await?);
    let before = cx.grant_in(&client, "a", Shared).await?;
    let ends = cx.grant_in_for(&silent, "a", Shared, ttl).await?;
    let after = cx.grant_in(&client, "a", Shared).await?;
    let writing = cx.wait_in(&writer, "a", Exclusive).await?;
    link.stall();
    cx.until_holders("a", 2, cx.freed_by(ttl), "the silent reader's hold to end")
        .await?;
    let are_live = before.is_live() && after.is_live();
    ensure!(are_live, "a reader's hold ended with another one's");
    ends.ensure_over("its reader's hold has ended")?;
    for reader in [before, after] {
        writing.ensure_waiting("while a reader held it")?;
        ensure!(reader.is_live(), "a reader's hold ended with another one's");
        reader.release().await?;
    }
    let what = "the writer to be granted after the last reader";
    writing.grant_soon(cx, what).await?.release().await
}

/// A silent reader's hold ends although another one renews its own.
pub(crate) async fn renewing_one_reader_prolongs_no_other(cx: &RawCx) -> Verdict {
    let (link, ttl) = (Link::new(), cx.ttl());
    let silent = cx.client_through(&link, Capability::Shared).await?;
    let client = cx.connected().await?;
    let ends = cx.grant_in_for(&silent, "a", Shared, ttl).await?;
    // Its own ttl outlasts any delay of a busy machine; it renews for the silent one's.
    let stays = cx.grant_in(&client, "a", Shared).await?;
    link.stall();
    let bound = cx.freed_by(ttl);
    tokio::select! {
        ended = cx.until_holders("a", 1, bound, "the silent reader's hold to end") => ended?,
        failed = stays.keep_up(&client, ttl, 2 * bound) => failed?,
    }
    ensure!(stays.is_live(), "a reader that renewed lost its hold");
    ends.ensure_over("its reader's hold has ended")?;
    cx.ensure_refused(&client, "a", Exclusive).await?;
    stays.release().await
}

/// A reader that renews its hold keeps it beyond the first ttl, after every other reader has left.
pub(crate) async fn a_renewed_reader_stays(cx: &RawCx) -> Verdict {
    in_one_of(3, cx, |name| reading_by_renewals(cx, name)).await
}

async fn reading_by_renewals(cx: &RawCx, name: &str) -> Verdict {
    let ttl = cx.ttl();
    let client = cx.client_with(Capability::Shared).await?;
    let leaves = cx.grant_in(&cx.connected().await?, name, Shared).await?;
    let stays = cx.grant_in_for(&client, name, Shared, ttl).await?;
    stays.keep_up(&client, ttl, ttl / 2).await?;
    leaves.release().await?;
    stays.keep_up(&client, ttl, ttl * 3 / 4).await?;
    cx.ensure_refused_beside(&stays, &cx.connected().await?, name, Exclusive)
        .await?;
    let shown = cx.ensure_holders(name, 1, "one reader renewed").await;
    shown.map_err(|stop| stop.explained_if(!stays.is_live()))?;
    stays.ensure_kept(stays.is_live(), "a reader that renewed lost its hold")?;
    stays.release().await?;
    cx.until_free(name, "all readers have released").await
}

/// A reader's hold that expired stays expired: neither its late renewal nor its late release touches the other readers.
pub(crate) async fn an_expired_reader_stays_expired(cx: &RawCx) -> Verdict {
    let (link, ttl) = (Link::new(), cx.ttl());
    let silent = cx.client_through(&link, Capability::Shared).await?;
    let stays = cx.grant_in(&cx.connected().await?, "a", Shared).await?;
    let ends = cx.grant_in_for(&silent, "a", Shared, ttl).await?;
    link.stall();
    cx.until_holders("a", 1, cx.freed_by(ttl), "the silent reader's hold to end")
        .await?;
    link.heal();
    let renewed = cx.soon("a renewal of what has ended", ends.hold.renew(ttl)).await?;
    ensure!(stays.is_live(), "a reader's hold ended with another one's");
    ends.ensure_over("renewed after its end")?;
    ensure!(!matches!(renewed, Ok(Renewal::Renewed(_))), "renewed after its end");
    cx.ensure_holders("a", 1, "an expired reader renewed").await?;
    let released = ends.released(cx).await?;
    ensure!(
        released == ReleaseOutcome::AlreadyLost,
        "an expired reader's release answered {released:?}"
    );
    cx.ensure_holders("a", 1, "an expired reader released").await?;
    stays.release().await?;
    cx.until_free("a", "the other reader released").await
}
