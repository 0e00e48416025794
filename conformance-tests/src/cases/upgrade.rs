//! One reader may become the writer, before all who wait. By capability.

use std::sync::Arc;

use lock_core::ErrorKind;
use lock_core::backend::Mode::{Exclusive, Shared, Upgradable};
use lock_core::backend::request::{RequestOptions, Terms};
use lock_core::backend::{Attempt, Busy, DistributedLock, Renewal};

use crate::context::RawCx;
use crate::raw::{Grant, ensure_waiting, granted};
use crate::verdict::{Capability, OrFail, Stop, Verdict, ensure, ensure_safe, ensure_safe_by_ttl};

/// Readers hold a name beside the one that may upgrade, and no second one of that kind does.
pub(crate) async fn upgradable_is_alone_of_its_kind(cx: &RawCx) -> Verdict {
    let client = cx.client_with(Capability::Upgradable).await?;
    let other = cx.connected().await?;
    let before = cx.grant_in(&other, "a", Shared).await?;
    let upgradable = cx.grant_in(&client, "a", Upgradable).await?;
    let after = cx.grant_in(&other, "a", Shared).await?;
    for another in [&client, &other] {
        cx.ensure_refused(another, "a", Upgradable).await?;
        cx.ensure_refused(another, "a", Exclusive).await?;
    }
    ensure!(upgradable.is_live(), "a refused one ended the hold of the first");
    upgradable.release().await?;
    let next = cx.grant_in(&other, "a", Upgradable).await?;
    for reader in [before, after, next] {
        reader.release().await?;
    }
    let writer = cx.grant_in(&client, "a", Exclusive).await?;
    cx.ensure_refused(&other, "a", Upgradable).await?;
    writer.release().await
}

/// An upgrade waits until the other readers have released, and goes before the writers that have waited for longer. Then
/// its first hold has ended. By capability.
pub(crate) async fn an_upgrade_waits_for_readers_and_passes_writers(cx: &RawCx) -> Verdict {
    let client = cx.client_with(Capability::Upgradable).await?;
    Capability::Fifo.or_skip(client.capabilities())?;
    let (other, writer) = (cx.connected().await?, cx.connected().await?);
    let base = cx.grant_in(&client, "a", Upgradable).await?;
    let reader = cx.grant_in(&other, "a", Shared).await?;
    let writing = cx.wait_in(&writer, "a", Exclusive).await?;
    cx.until_places("a", 1).await?;
    let (request, control) = cx.upgrade_of(&base).await?;
    let upgrading = cx.wait_with(&client, request, control).await?;
    ensure_waiting(&[&writing, &upgrading], "while a reader held it").await?;
    cx.ensure_passes_nobody(&other, "a", Shared).await?;
    reader.release().await?;
    let what = "the upgrade to be granted after the last reader";
    let upgraded = upgrading.grant_soon(cx, what).await?;
    ensure_safe!(
        upgraded.token() > base.token(),
        "{} was upgraded to {}",
        base.token(),
        upgraded.token()
    );
    ensure_waiting(&[&writing], "while the upgraded hold was held").await?;
    cx.ensure_refused(&other, "a", Shared).await?;
    cx.ensure_holders("a", 1, "an upgrade was granted").await?;
    let renewed = cx.soon("a late renewal", base.hold.renew(cx.long_ttl().await)).await?;
    ensure!(
        !matches!(renewed, Ok(Renewal::Renewed(_))),
        "the hold that was upgraded is there to be renewed"
    );
    upgraded.release().await?;
    let what = "the writer to be granted after the upgraded hold";
    writing.grant_soon(cx, what).await?.release().await
}

/// An upgrade beside no other reader is granted at once, also to a request that does not wait.
pub(crate) async fn an_upgrade_without_readers_is_granted(cx: &RawCx) -> Verdict {
    let client = cx.client_with(Capability::Upgradable).await?;
    for waits in [false, true] {
        let base = cx.grant_in(&client, "a", Upgradable).await?;
        let upgraded = match waits {
            true => cx.grant_to(&client, cx.upgrade_of(&base).await?).await?,
            false => {
                let tried = try_upgrade(cx, &client, &base).await?;
                tried.map_err(|busy| Stop::assertion(format!("nobody else reads, yet {busy:?}")))?
            }
        };
        cx.ensure_refused(&cx.connected().await?, "a", Shared).await?;
        upgraded.release().await?;
        cx.until_free("a", "the upgraded hold was released").await?;
    }
    Ok(())
}

/// One try to upgrade: a grant, or who is in the way.
async fn try_upgrade(cx: &RawCx, client: &Arc<dyn DistributedLock>, base: &Grant) -> Result<Result<Grant, Busy>, Stop> {
    let options = RequestOptions::new(base.request.name().clone(), Terms::new(cx.long_ttl().await));
    let (request, control) = options.replacing(&base.request).waits(false).start();
    let attempt = cx.soon("try to upgrade", client.acquire(&request)).await?;
    granted(attempt.or_fail("try to upgrade")?, request, control)
}

/// An upgrade that was refused, or given up, leaves the hold as it was: others read beside it, and nobody writes.
pub(crate) async fn a_failed_upgrade_keeps_the_read(cx: &RawCx) -> Verdict {
    let client = cx.client_with(Capability::Upgradable).await?;
    let other = cx.connected().await?;
    let base = cx.grant_in(&client, "a", Upgradable).await?;
    let reader = cx.grant_in(&other, "a", Shared).await?;
    ensure_safe_by_ttl!(
        try_upgrade(cx, &client, &base).await?.is_err(),
        "upgraded beside a reader"
    );
    let (request, control) = cx.upgrade_of(&base).await?;
    let upgrading = cx.wait_with(&client, request, control).await?;
    upgrading.abandon(cx, &client).await?;
    cx.ensure_holders("a", 2, "an upgrade was given up").await?;
    // Nobody is left in the queue before it.
    cx.grant_in(&other, "a", Shared).await?.release().await?;
    reader.release().await?;
    cx.ensure_refused(&other, "a", Exclusive).await?;
    if !client.capabilities().session_renewal {
        ensure!(
            base.renew(cx.long_ttl().await).await?,
            "its upgrade was given up, and its renewal said that it was lost"
        );
    }
    ensure!(base.is_live(), "its upgrade was given up, and nobody believes in it");
    base.release().await?;
    cx.until_free("a", "all readers have released").await
}

/// An upgrade that was granted when its caller had gone is undone: the hold that it replaced is back, and nobody wrote
/// meanwhile. By capability.
pub(crate) async fn an_upgrade_that_was_granted_is_given_back(cx: &RawCx) -> Verdict {
    let client = cx.client_with(Capability::Upgradable).await?;
    let other = cx.connected().await?;
    let base = cx.grant_in(&client, "a", Upgradable).await?;
    for _ in 0..2 {
        let upgraded = cx.grant_to(&client, cx.upgrade_of(&base).await?).await?;
        cx.abandoned(&client, &upgraded.request).await?;
        cx.ensure_refused(&other, "a", Exclusive).await?;
        cx.grant_in(&other, "a", Shared).await?.release().await?;
        cx.ensure_holders("a", 1, "an upgrade was undone").await?;
    }
    let writing = cx.wait_in(&other, "a", Exclusive).await?;
    ensure_waiting(&[&writing], "while the hold that was given back was held").await?;
    if !client.capabilities().session_renewal {
        ensure!(
            base.renew(cx.long_ttl().await).await?,
            "its upgrade was undone, and its renewal said that it was lost"
        );
    }
    base.release().await?;
    let what = "the writer to be granted after the hold that was given back";
    writing.grant_soon(cx, what).await?.release().await?;
    cx.until_free("a", "an upgrade was undone").await
}

/// An upgrade ends as lost when the hold that it replaces has ended, be it before or while it waits, and leaves nothing.
pub(crate) async fn an_upgrade_whose_hold_ended_ends(cx: &RawCx) -> Verdict {
    let ttl = cx.ttl();
    let client = cx.client_with(Capability::Upgradable).await?;
    let reader = cx.grant_in(&cx.connected().await?, "a", Shared).await?;
    let base = cx.grant_in_for(&client, "a", Upgradable, ttl).await?;
    let (request, control) = cx.upgrade_of(&base).await?;
    // On a machine that is too busy, the hold ends before this comes to wait.
    let upgrading = cx.go_on_waiting(&client, request, control);
    if client.capabilities().session_renewal {
        // Where a session keeps it, it ends no other way while its client lives.
        base.release().await?;
    }
    let what = "an upgrade to end, whose first hold has expired";
    ensure_lost(upgrading.ended(cx, cx.freed_by(ttl), what).await?)?;
    cx.ensure_holders("a", 1, "an upgrade ended with the hold that it replaces")
        .await?;
    let (request, control) = cx.upgrade_of(&base).await?;
    let late = cx.go_on_waiting(&client, request, control);
    let what = "an upgrade to end, whose first hold had expired";
    ensure_lost(late.ended(cx, cx.patience(), what).await?)?;
    // A place that is left would stop it.
    cx.grant_in(&client, "a", Shared).await?.release().await?;
    reader.release().await?;
    cx.until_free("a", "an upgrade had ended").await
}

fn ensure_lost(ended: lock_core::Result<Attempt>) -> Verdict {
    match ended {
        Err(error) if error.kind() == ErrorKind::Lost => Ok(()),
        other => Err(Stop::assertion(format!(
            "an upgrade of a hold that has ended came to {other:?}"
        ))),
    }
}

/// Of those who wait to be the one that may upgrade, one enters after the other, beside the readers.
pub(crate) async fn a_waiting_upgradable_enters_beside_readers(cx: &RawCx) -> Verdict {
    let client = cx.client_with(Capability::Upgradable).await?;
    let other = cx.connected().await?;
    let reader = cx.grant_in(&other, "a", Shared).await?;
    let first = cx.grant_in(&client, "a", Upgradable).await?;
    let second = cx.wait_in(&other, "a", Upgradable).await?;
    ensure_waiting(&[&second], "while one that may upgrade held it").await?;
    first.release().await?;
    let what = "the next one that may upgrade to be granted";
    second.grant_soon(cx, what).await?.release().await?;
    reader.release().await
}
