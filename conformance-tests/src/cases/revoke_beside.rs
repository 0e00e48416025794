//! Forced release beside whatever else happens to the hold. By capability.

use lock_core::backend::request::{RequestOptions, Terms};
use lock_core::backend::{Capabilities, Lease, Mode, ReleaseOptions, ReleaseOutcome, Renewal, Revoke, Revoked};

use super::revoke::{WAYS, revoke, revoked};
use crate::context::{RawCx, lock_name};
use crate::raw::is_renewed;
use crate::verdict::{Capability, OrFail, Skip, Stop, Verdict, ensure, ensure_safe_by_ttl};

/// Some way to revoke that is declared.
fn some_way(capabilities: Capabilities) -> Result<Revoke, Stop> {
    let way = WAYS.iter().find(|(_, way)| way.is_in(capabilities));
    way.map(|(how, _)| *how)
        .ok_or(Stop::Skipped(Skip::Undeclared(Capability::RevokeNow)))
}

/// A renewal that succeeds beside a revoke counts: nobody else enters before the lease that it armed has ended. By capability.
pub(crate) async fn a_revoke_beside_a_renewal_cuts_nothing_off(cx: &RawCx) -> Verdict {
    let client = cx.client_with(Capability::Revoke).await?;
    let (operator, other) = (cx.connected().await?, cx.connected().await?);
    Capability::Extend.or_skip(client.capabilities())?;
    let (short, long) = (2 * cx.ttl(), 3 * cx.ttl());
    let grant = cx.grant_for(&client, "a", short).await?;
    let waiter = cx.wait_out(&other, cx.request("a", cx.long_ttl().await)?).await?;
    let both = async {
        tokio::join!(
            revoke(cx, &operator, grant.token(), Revoke::AtLeaseEnd),
            grant.hold.renew(long)
        )
    };
    let (revoked, renewed) = cx.soon("a revoke beside a renewal", both).await?;
    let renewed = matches!(renewed.or_fail("renew")?, Renewal::Renewed(_));
    ensure!(
        matches!(revoked?, Revoked::Done { .. }),
        "a live hold was revoked, and is not held"
    );
    let what = "the waiter to be granted when the lease has ended";
    let next = waiter.grant(cx, cx.freed_by(long), what).await?;
    grant.ensure_over(&format!(
        "granted to the next one, where the renewal beside the revoke succeeded: {renewed}"
    ))?;
    ensure!(!grant.renew(long).await?, "renewed after it was revoked and followed");
    next.release().await?;
    cx.until_free("a", "the next one's release").await
}

/// The former holder, which knows nothing of it, releases what is another's by then. By capability.
pub(crate) async fn a_release_after_a_revoke_leaves_the_next_alone(cx: &RawCx) -> Verdict {
    let client = cx.client_with(Capability::RevokeNow).await?;
    let other = cx.connected().await?;
    let grant = cx.grant(&client, "a").await?;
    revoked(cx, &other, grant.token(), Revoke::Now).await?;
    let next = cx.grant(&other, "a").await?;
    for _ in 0..2 {
        let outcome = grant.released(cx).await?;
        ensure!(
            outcome == ReleaseOutcome::AlreadyLost,
            "revoked and followed, and released: {outcome:?}"
        );
    }
    cx.abandoned(&client, &grant.request).await?;
    ensure_safe_by_ttl!(
        cx.is_kept(&other, &next).await?,
        "the former holder's release ended the next one's hold"
    );
    cx.ensure_taken(&client, "a").await?;
    next.release().await?;
    cx.until_free("a", "the next one's release").await
}

/// Whichever comes first, one hold ends, and that of the next one does not. By capability.
pub(crate) async fn a_revoke_beside_a_release_leaves_the_next_alone(cx: &RawCx) -> Verdict {
    const ROUNDS: u32 = 10;
    let client = cx.client_with(Capability::RevokeNow).await?;
    let (operator, other) = (cx.connected().await?, cx.connected().await?);
    for round in 0..ROUNDS {
        let grant = cx.grant(&client, "a").await?;
        let waiter = cx.wait_for(&other, "a", cx.long_ttl().await).await?;
        let (revoking, releasing) = (revoke(cx, &operator, grant.token(), Revoke::Now), grant.released(cx));
        // Each is polled first in turn.
        let (revoked, released) = match round % 2 {
            0 => tokio::join!(revoking, releasing),
            _ => {
                let (released, revoked) = tokio::join!(releasing, revoking);
                (revoked, released)
            }
        };
        let (revoked, released) = (revoked?, released?);
        let what = "the waiter to be granted after a release and a revoke";
        let next = waiter.grant_soon(cx, what).await?;
        ensure_safe_by_ttl!(
            cx.is_kept(&other, &next).await?,
            "the next one's hold was ended: {revoked:?}, {released:?}"
        );
        cx.ensure_taken(&client, "a").await?;
        ensure!(
            revoked != Revoked::NotHeld || released == ReleaseOutcome::Released,
            "neither the revoke nor the release ended the hold"
        );
        next.release().await?;
    }
    cx.until_free("a", "the last release").await
}

/// The server knows nothing of passes: all tokens that the grant reserved name the same hold. After a
/// downgrade, the token of the guard that was passed on still names it. By capability.
pub(crate) async fn a_hold_that_was_passed_on_is_revoked_by_any_of_its_tokens(cx: &RawCx) -> Verdict {
    let (client, operator) = (cx.connected().await?, cx.connected().await?);
    let how = some_way(client.capabilities())?;
    Capability::Pass.or_skip(client.capabilities())?;
    let downgrades = Capability::Downgrade.is_in(client.capabilities());
    for (by_the_grants, is_downgraded) in [(true, false), (false, false), (false, true)] {
        if is_downgraded && !downgrades {
            continue;
        }
        let options = RequestOptions::new(lock_name("a")?, Terms::new(cx.long_ttl().await)).reserve(4);
        let grant = cx.grant_to(&client, options.start()).await?;
        let lease = Lease::new(lock_name("a")?);
        let Some(passed) = grant.hold.pass(&lease) else {
            return Err(Stop::assertion("a hold with reserved tokens was not passed on"));
        };
        if is_downgraded {
            let downgraded = cx.soon("a downgrade", passed.downgrade(cx.long_ttl().await)).await?;
            ensure!(
                matches!(downgraded.or_fail("downgrade")?, Renewal::Renewed(_)),
                "a downgrade of a hold that was passed on said that it was lost"
            );
        }
        let token = match by_the_grants {
            true => grant.token(),
            false => passed.token(),
        };
        revoked(cx, &operator, token, how).await?;
        if is_renewed(&client) {
            let renewal = cx.soon("a renewal", passed.renew(cx.long_ttl().await)).await?;
            ensure!(
                matches!(renewal.or_fail("renew")?, Renewal::Lost),
                "revoked by {token} of a hold that has {} now, and renewed",
                passed.token()
            );
        }
        let released = cx.soon("a release", passed.release(ReleaseOptions::default())).await?;
        released.or_fail("release")?;
        if how == Revoke::AtLeaseEnd {
            cx.take_away("a").await;
        }
        cx.until_free("a", "a revoke").await?;
    }
    Ok(())
}

/// The other readers stay, and a writer waits for them. By capability.
pub(crate) async fn a_reader_is_revoked_alone(cx: &RawCx) -> Verdict {
    let client = cx.client_with(Capability::Shared).await?;
    let (other, operator) = (cx.connected().await?, cx.connected().await?);
    let how = some_way(client.capabilities())?;
    let first = cx.grant_in(&client, "a", Mode::Shared).await?;
    let second = cx.grant_in(&other, "a", Mode::Shared).await?;
    revoked(cx, &operator, first.token(), how).await?;
    let long = cx.long_ttl().await;
    cx.ensure_not_renewed(&client, &first, "after it was revoked").await?;
    ensure!(
        cx.is_kept(&other, &second).await?,
        "another reader was revoked, and this one is lost"
    );
    ensure!(
        first.released(cx).await? == ReleaseOutcome::AlreadyLost,
        "released after it was revoked"
    );
    cx.ensure_taken(&operator, "a").await?;
    let both = WAYS.iter().all(|(_, way)| way.is_in(client.capabilities()));
    if both {
        revoked(cx, &operator, first.token(), Revoke::Now).await?;
        cx.ensure_taken(&operator, "a").await?;
        // The last one, so that a writer enters.
        let (request, control) = cx.request_in_for("a", Mode::Exclusive, long)?;
        let writer = cx.wait_with(&client, request, control).await?;
        revoked(cx, &operator, second.token(), Revoke::Now).await?;
        let writer = writer.grant_soon(cx, "the writer to be granted after the last reader was revoked");
        writer.await?.release().await?;
    } else {
        second.release().await?;
        if how == Revoke::AtLeaseEnd {
            cx.take_away("a").await;
        }
    }
    cx.until_free("a", "all were revoked").await
}
