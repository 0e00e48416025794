//! Forced release, guarded by the token. By capability.

use std::sync::Arc;
use std::time::Duration;

use lock_core::backend::{Attempt, DistributedLock, Revoke, Revoked};
use lock_core::{ErrorKind, FencingToken, Guarantee, Locker, Lost, LostCause};
use tokio::time::Instant;

use crate::context::{RawCx, lock_name};
use crate::verdict::{Capability, OrFail, Stop, Verdict, ensure, ensure_safe, ensure_safe_by_ttl};

/// Both ways, and what a backend declares for each.
pub(super) const WAYS: [(Revoke, Capability); 2] = [
    (Revoke::AtLeaseEnd, Capability::Revoke),
    (Revoke::Now, Capability::RevokeNow),
];

/// Revokes what this token names.
pub(super) async fn revoke(
    cx: &RawCx,
    client: &Arc<dyn DistributedLock>,
    token: FencingToken,
    how: Revoke,
) -> Result<Revoked, Stop> {
    let name = lock_name("a")?;
    let revoked = cx.soon("a revoke", client.revoke(&name, token, how)).await?;
    revoked.or_fail("revoke")
}

/// Revokes a live hold, and how long its lease would have lasted.
pub(super) async fn revoked(
    cx: &RawCx,
    client: &Arc<dyn DistributedLock>,
    token: FencingToken,
    how: Revoke,
) -> Result<Option<Duration>, Stop> {
    match revoke(cx, client, token, how).await? {
        Revoked::Done { lease_left, .. } => Ok(lease_left),
        other => Err(Stop::assertion(format!(
            "a live hold was revoked ({how:?}) by its token {token}, and the answer is {other:?}"
        ))),
    }
}

/// The waiter enters when the lease would have ended, and not before. Meanwhile nobody does. By capability.
pub(crate) async fn a_revoked_hold_keeps_the_name_until_its_lease_ends(cx: &RawCx) -> Verdict {
    let client = cx.client_with(Capability::Revoke).await?;
    let (operator, other) = (cx.connected().await?, cx.connected().await?);
    let (asked, ttl) = (Instant::now(), 2 * cx.ttl());
    let grant = cx.grant_for(&client, "a", ttl).await?;
    let lease_left = revoked(cx, &operator, grant.token(), Revoke::AtLeaseEnd).await?;
    ensure!(
        lease_left.is_none_or(|left| left <= ttl + Duration::from_secs(2)),
        "of a ttl of {ttl:?}, {lease_left:?} are left"
    );
    let waiter = cx.wait_out(&other, cx.request("a", cx.long_ttl().await)?).await?;
    let what = "the waiter to be granted when the lease has ended";
    let next = waiter.grant_after(&grant, cx, cx.freed_by(ttl), what).await?;
    let took = asked.elapsed();
    // The server's clock and ours need not agree to the last millisecond.
    ensure_safe_by_ttl!(
        took >= ttl - ttl / 10,
        "revoked at the end of a lease of {ttl:?}, and granted after {took:?}"
    );
    ensure_safe!(
        next.token() > grant.token(),
        "{} was followed by {}",
        grant.token(),
        next.token()
    );
    next.release().await?;
    cx.until_free("a", "the next one's release").await
}

/// However it was revoked, the holder's next renewal tells it, by its cause if the server can tell. By capability.
pub(crate) async fn a_revoked_holder_is_told_with_its_next_renewal(cx: &RawCx) -> Verdict {
    let client = cx.connected().await?;
    let ways = WAYS.iter().filter(|(_, way)| way.is_in(client.capabilities()));
    let ways: Vec<_> = ways.map(|(how, _)| *how).collect();
    if ways.is_empty() {
        return Capability::RevokeNow.or_skip(client.capabilities());
    }
    for how in ways {
        let grant = cx.grant(&client, "a").await?;
        revoked(cx, &client, grant.token(), how).await?;
        cx.ensure_not_renewed(&client, &grant, &format!("after it was revoked: {how:?}"))
            .await?;
        // Core does the same after a loss: it releases a hold that has ended.
        grant.released(cx).await?;
        if how == Revoke::AtLeaseEnd {
            continue_without(cx, &client, grant.token()).await?;
        }
        ensure_told(cx, &client, how).await?;
    }
    Ok(())
}

/// The same through core, whose holder is told by a renewal, and not by its own clock when nobody told it.
async fn ensure_told(cx: &RawCx, client: &Arc<dyn DistributedLock>, how: Revoke) -> Verdict {
    // Where a hold ends with its connection, a revoke may end both.
    let ends_with_it = !client.keeps(Guarantee::ConnectionLoss).is_yes();
    let mut left = if cx.timing().paused { 1 } else { 3 };
    loop {
        left -= 1;
        // On a busy machine the lease may be over before the revoke, or before the renewal, but not each time.
        let Some(lost) = loss_of_a_revoked_guard(cx, client, how).await? else {
            ensure!(left > 0, "a live hold was revoked ({how:?}), and is not held");
            continue;
        };
        match lost.cause() {
            LostCause::Revoked | LostCause::NotHeld => return Ok(()),
            LostCause::Disconnected if ends_with_it => return Ok(()),
            LostCause::Expired if left > 0 => {}
            _ => return Err(Stop::assertion(format!("revoked ({how:?}), and {lost}"))),
        }
    }
}

/// The loss of a hold that is revoked, or `None` if it had ended before.
async fn loss_of_a_revoked_guard(
    cx: &RawCx,
    client: &Arc<dyn DistributedLock>,
    how: Revoke,
) -> Result<Option<Lost>, Stop> {
    let locks = Locker::from_backend(client.clone()).with_ttl(cx.ttl());
    let guard = cx
        .soon("acquire", locks.lock("a").acquire())
        .await?
        .or_fail("acquire")?;
    let operator = Locker::from_backend(cx.backend().await).with_operation_timeout(cx.patience());
    let done = cx.soon("a revoke", operator.revoke("a", guard.token(), how)).await?;
    let is_done = matches!(done.or_fail("revoke")?, Revoked::Done { .. });
    let lost = cx
        .within(cx.freed_by(cx.ttl()), "the loss to be noticed", guard.lost())
        .await?;
    drop(guard);
    cx.until_free_by("a", cx.freed_by(cx.ttl()), "a revoke").await?;
    Ok(is_done.then_some(lost))
}

/// Ends what a revoke has left to nobody, if that can be done at once; the case would wait for a long lease otherwise.
async fn continue_without(cx: &RawCx, client: &Arc<dyn DistributedLock>, token: FencingToken) -> Verdict {
    match Capability::RevokeNow.is_in(client.capabilities()) {
        true => revoked(cx, client, token, Revoke::Now).await.map(drop),
        false => {
            cx.take_away("a").await;
            Ok(())
        }
    }
}

/// The waiter enters at once, and the former holder's renewals do nothing. By capability.
pub(crate) async fn a_hold_that_is_revoked_at_once_frees_the_name(cx: &RawCx) -> Verdict {
    let client = cx.client_with(Capability::RevokeNow).await?;
    let (operator, other) = (cx.connected().await?, cx.connected().await?);
    let grant = cx.grant(&client, "a").await?;
    let waiter = cx.wait_for(&other, "a", cx.long_ttl().await).await?;
    revoked(cx, &operator, grant.token(), Revoke::Now).await?;
    let next = waiter.grant_soon(cx, "the waiter to be granted after a revoke");
    let next = next.await?;
    ensure_safe!(
        next.token() > grant.token(),
        "{} was followed by {}",
        grant.token(),
        next.token()
    );
    cx.ensure_not_renewed(&client, &grant, "beside the next holder").await?;
    ensure_safe_by_ttl!(
        cx.is_kept(&other, &next).await?,
        "the next holder lost its hold to the former one"
    );
    next.release().await?;
    cx.until_free("a", "the next one's release").await
}

/// A token that no hold has, be it an earlier one, a later one or that of a free name, changes nothing. By capability.
pub(crate) async fn an_old_token_revokes_nothing(cx: &RawCx) -> Verdict {
    let (client, other) = (cx.connected().await?, cx.connected().await?);
    let ways = WAYS.iter().filter(|(_, way)| way.is_in(client.capabilities()));
    let ways: Vec<_> = ways.map(|(how, _)| *how).collect();
    if ways.is_empty() {
        return Capability::RevokeNow.or_skip(client.capabilities());
    }
    let earlier = cx.grant(&client, "a").await?;
    earlier.release().await?;
    for how in &ways {
        let free = revoke(cx, &other, earlier.token(), *how).await?;
        ensure!(free == Revoked::NotHeld, "the name is free, and {free:?}");
    }
    let grant = cx.grant(&client, "a").await?;
    let later = FencingToken::new(grant.token().as_u64() + 1_000_000_000).or_else(|| FencingToken::new(u64::MAX >> 1));
    for token in [Some(earlier.token()), later].into_iter().flatten() {
        for how in &ways {
            let revoked = revoke(cx, &other, token, *how).await?;
            ensure!(
                revoked == Revoked::NotHeld,
                "held with token {}, revoked by {token} ({how:?}): {revoked:?}",
                grant.token()
            );
            ensure!(
                cx.is_kept(&client, &grant).await?,
                "a revoke with another token ended the hold"
            );
            cx.ensure_taken(&other, "a").await?;
        }
    }
    grant.release().await?;
    cx.until_free("a", "the release").await
}

/// A revoke at the lease's end, whose answer may be lost, finds the hold again; and so does one at once. By capability.
pub(crate) async fn a_revoke_can_be_repeated(cx: &RawCx) -> Verdict {
    let client = cx.client_with(Capability::Revoke).await?;
    let grant = cx.grant(&client, "a").await?;
    for _ in 0..2 {
        revoked(cx, &client, grant.token(), Revoke::AtLeaseEnd).await?;
        cx.ensure_taken(&client, "a").await?;
    }
    if !Capability::RevokeNow.is_in(client.capabilities()) {
        cx.take_away("a").await;
        return cx.until_free("a", "it was taken away").await;
    }
    revoked(cx, &client, grant.token(), Revoke::Now).await?;
    let next = cx.grant(&client, "a").await?;
    let again = revoke(cx, &client, grant.token(), Revoke::Now).await?;
    ensure!(again == Revoked::NotHeld, "revoked and followed, and {again:?}");
    next.release().await?;
    cx.until_free("a", "the release").await
}

/// If revoking is not declared, it is rejected and ends nothing.
pub(crate) async fn without_it_a_revoke_is_unsupported(cx: &RawCx) -> Verdict {
    let client = cx.connected().await?;
    let grant = cx.grant(&client, "a").await?;
    let locks = Locker::from_backend(client.clone());
    for (how, capability) in WAYS {
        if capability.is_in(client.capabilities()) {
            continue;
        }
        let refused = cx.soon("a revoke", locks.revoke("a", grant.token(), how)).await?;
        ensure!(
            refused
                .as_ref()
                .is_err_and(|error| error.kind() == ErrorKind::Unsupported),
            "{how:?} is not declared, and {refused:?}"
        );
    }
    let again = cx.soon("the repeated acquire", client.acquire(&grant.request)).await?;
    ensure!(
        matches!(again.or_fail("acquire again")?, Attempt::Granted(hold, _) if hold.token() == grant.token()),
        "a revoke that is not declared ended the hold"
    );
    grant.release().await
}
