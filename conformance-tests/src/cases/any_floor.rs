//! Tokens that somebody else has counted, at the edges: floors far away, the exact token, the clock, and who may raise one. By
//! capability.

use std::sync::Arc;
use std::time::Duration;

use lock_core::backend::request::{RequestOptions, Terms};
use lock_core::backend::{DistributedLock, Mode};
use lock_core::{ErrorKind, FencingToken};
use tokio::time::{Instant, sleep};

use crate::context::RawCx;
use crate::raw::{Grant, is_renewed};
use crate::verdict::{Capability, OrFail, Skip, Stop, Verdict, ensure, ensure_safe};

/// Further than a server counts by itself in a year, be it by the microsecond.
const FAR: u64 = 1 << 50;

fn ahead(of: FencingToken, distance: u64) -> Result<FencingToken, Stop> {
    let token = of.as_u64().checked_add(distance).and_then(FencingToken::new);
    token.ok_or_else(|| Stop::assertion(format!("{of} leaves no room for larger tokens")))
}

async fn grant_with(
    cx: &RawCx,
    client: &Arc<dyn DistributedLock>,
    terms: impl FnOnce(RequestOptions) -> RequestOptions,
) -> Result<Grant, Stop> {
    let options = cx.options("a", Terms::new(cx.long_ttl().await))?;
    cx.grant_to(client, terms(options).start()).await
}

/// Two clients of a backend that declares it. Otherwise the case is skipped.
async fn two_clients(cx: &RawCx) -> Result<[Arc<dyn DistributedLock>; 2], Stop> {
    Ok([cx.client_with(Capability::AnyFloor).await?, cx.backend().await])
}

async fn raise(cx: &RawCx, grant: &Grant, token: FencingToken) -> Verdict {
    let what = "raise a live hold's token";
    cx.soon(what, grant.hold.raise_token(token)).await?.or_fail(what)
}

/// Whoever is granted the name next has a larger token.
async fn ensure_next_is_above(cx: &RawCx, client: &Arc<dyn DistributedLock>, last: FencingToken) -> Verdict {
    let next = cx.grant(client, "a").await?;
    ensure_safe!(next.token() > last, "{last} was followed by {}", next.token());
    next.release().await
}

/// However far it is, and for all later grants.
pub(crate) async fn a_floor_far_ahead_is_honoured(cx: &RawCx) -> Verdict {
    let [client, other] = two_clients(cx).await?;
    for floor in [1 << 60, 1 << 62].into_iter().filter_map(FencingToken::new) {
        let above = grant_with(cx, &client, |options| options.token_above(floor)).await?;
        ensure!(above.token() > floor, "asked for above {floor}, got {}", above.token());
        above.release().await?;
        for client in [&other, &client] {
            ensure_next_is_above(cx, client, above.token()).await?;
        }
    }
    Ok(())
}

/// A token that is larger than all earlier ones is the grant's own, and counts for all later ones.
pub(crate) async fn a_larger_token_is_adopted_as_it_is(cx: &RawCx) -> Verdict {
    let [client, other] = two_clients(cx).await?;
    let first = cx.grant(&client, "a").await?;
    first.release().await?;
    let mut last = first.token();
    for client in [&client, &other] {
        let wanted = ahead(last, FAR)?;
        let adopted = grant_with(cx, client, |options| options.token_at_least(wanted)).await?;
        ensure!(adopted.token() == wanted, "asked for {wanted}, got {}", adopted.token());
        cx.ensure_granted_again(client, &adopted).await?;
        adopted.release().await?;
        ensure_next_is_above(cx, &other, wanted).await?;
        last = wanted;
    }
    Ok(())
}

/// A token that is equal to the last one, or smaller, gives the next one; without what a clock has counted since.
pub(crate) async fn a_token_that_was_reached_is_not_adopted(cx: &RawCx) -> Verdict {
    let [client, other] = two_clients(cx).await?;
    let first = cx.grant(&client, "a").await?;
    let granted = Instant::now();
    first.release().await?;
    // A clock counts on meanwhile.
    sleep(Duration::from_secs(1)).await;
    let mut last = first.token();
    let smaller = FencingToken::new(1).ok_or_else(|| Stop::assertion("1 is no token"))?;
    for wanted in [last, smaller] {
        let next = grant_with(cx, &other, |options| options.token_at_least(wanted)).await?;
        ensure_safe!(next.token() > last, "{last} was followed by {}", next.token());
        let counted = next.token().as_u64() - last.as_u64();
        // A server may count the changes of all names. No server makes one in 32 us.
        let micros = u64::try_from(granted.elapsed().as_micros()).unwrap_or(u64::MAX);
        ensure!(
            counted < micros / 2,
            "asked for {wanted} after {last}, got {}: the server's clock was heeded",
            next.token()
        );
        next.release().await?;
        last = next.token();
    }
    Ok(())
}

/// It is its holder's as before, who renews and releases it.
pub(crate) async fn a_raise_leaves_the_hold_as_it_is(cx: &RawCx) -> Verdict {
    let [client, other] = two_clients(cx).await?;
    let grant = cx.grant(&client, "a").await?;
    let token = grant.token();
    raise(cx, &grant, ahead(token, FAR)?).await?;
    ensure!(grant.token() == token, "token {token} became {}", grant.token());
    ensure!(grant.is_live(), "raised, and no longer held");
    cx.ensure_taken(&other, "a").await?;
    if is_renewed(&client) {
        ensure!(
            grant.renew(cx.long_ttl().await).await?,
            "a renewal of a raised hold said that it was lost"
        );
    }
    grant.release().await
}

/// Neither one that was taken away and has a successor, nor one that was released: the raise is an error, and the next token is as if
/// nobody had asked.
pub(crate) async fn a_former_holder_raises_nothing(cx: &RawCx) -> Verdict {
    let [client, other] = two_clients(cx).await?;
    let robbed = cx.grant(&client, "a").await?;
    cx.take_away("a").await;
    let far = ahead(robbed.token(), FAR)?;
    let successor = cx.grant(&other, "a").await?;
    ensure!(
        successor.token() < far,
        "a lost hold has raised the token to {}",
        successor.token()
    );
    ensure_raises_nothing(cx, &robbed, far, "somebody else's").await?;
    successor.release().await?;
    ensure_raises_nothing(cx, &successor, far, "released").await?;
    let last = cx.grant(&client, "a").await?;
    ensure!(
        last.token() < far,
        "a lost hold has raised the token to {}",
        last.token()
    );
    last.release().await
}

async fn ensure_raises_nothing(cx: &RawCx, grant: &Grant, token: FencingToken, why: &str) -> Verdict {
    match cx
        .soon("the raise of a lost hold", grant.hold.raise_token(token))
        .await?
    {
        Err(error) if error.kind() == ErrorKind::Lost => Ok(()),
        other => Err(Stop::assertion(format!(
            "the raise of a hold that was {why} answered {other:?}"
        ))),
    }
}

/// Of one of several readers, who hold the name on.
pub(crate) async fn a_raised_readers_token_is_remembered(cx: &RawCx) -> Verdict {
    let [client, other] = two_clients(cx).await?;
    Capability::Shared.or_skip(client.capabilities())?;
    let first = cx.grant_in(&client, "a", Mode::Shared).await?;
    let second = cx.grant_in(&other, "a", Mode::Shared).await?;
    let raised = ahead(second.token(), FAR)?;
    raise(cx, &first, raised).await?;
    cx.ensure_holders("a", 2, "after a raise").await?;
    let third = cx.grant_in(&other, "a", Mode::Shared).await?;
    ensure_safe!(third.token() > raised, "{raised} was followed by {}", third.token());
    for reader in [&first, &second] {
        reader.release().await?;
    }
    match cx
        .soon("the raise of a lost hold", first.hold.raise_token(raised))
        .await?
    {
        Err(error) if error.kind() == ErrorKind::Lost => {}
        other => {
            return Err(Stop::assertion(format!(
                "the raise of a released reader answered {other:?}"
            )));
        }
    }
    third.release().await?;
    let writer = cx.grant_in(&client, "a", Mode::Exclusive).await?;
    ensure_safe!(
        writer.token() > third.token(),
        "{} was followed by {}",
        third.token(),
        writer.token()
    );
    writer.release().await
}

/// A backend that does not declare it says so, and the hold stays.
pub(crate) async fn without_it_a_raise_is_unsupported(cx: &RawCx) -> Verdict {
    let client = cx.connected().await?;
    if Capability::AnyFloor.is_in(client.capabilities()) {
        return Ok(());
    }
    let grant = cx.grant(&client, "a").await?;
    match cx.soon("the raise", grant.hold.raise_token(grant.token())).await? {
        Err(error) if error.kind() == ErrorKind::Unsupported => {}
        other => return Err(Stop::assertion(format!("undeclared, and a raise answered {other:?}"))),
    }
    grant.release().await?;
    Err(Stop::Skipped(Skip::Undeclared(Capability::AnyFloor)))
}
