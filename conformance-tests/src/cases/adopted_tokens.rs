//! Holds of several servers have one token: a grant adopts it, and a hold is raised to it. By capability.

use std::sync::Arc;

use lock_core::backend::DistributedLock;
use lock_core::backend::request::Terms;
use lock_core::{ErrorKind, FencingToken};

use crate::context::RawCx;
use crate::raw::{Grant, granted};
use crate::verdict::{Capability, OrFail, Stop, Verdict, ensure, ensure_safe};

/// About as far as another server's tokens are.
const FAR: u64 = 1 << 50;

fn plus(token: FencingToken, distance: u64) -> Result<FencingToken, Stop> {
    let token = token.as_u64().checked_add(distance).and_then(FencingToken::new);
    token.ok_or_else(|| Stop::assertion("there is no room for larger tokens"))
}

async fn adopting(cx: &RawCx, client: &Arc<dyn DistributedLock>, token: FencingToken) -> Result<Grant, Stop> {
    let options = cx.options("a", Terms::new(cx.long_ttl().await))?.waits(false);
    let (request, control) = options.token_at_least(token).start();
    let attempt = cx.soon("acquire", client.acquire(&request)).await?.or_fail("acquire")?;
    granted(attempt, request, control)?.map_err(|busy| Stop::assertion(format!("free, yet {busy:?}")))
}

/// A grant has the token that it is asked for, or the next of the name if that is larger. Tokens go on from there.
pub(crate) async fn a_token_is_adopted(cx: &RawCx) -> Verdict {
    // Some tokens may be reserved for passes.
    const NEAR: u64 = 1 << 20;
    let clients = [cx.backend().await, cx.backend().await];
    Capability::AnyFloor.or_skip(clients[0].capabilities())?;
    let first = cx.grant(&clients[0], "a").await?;
    first.release().await?;
    let mut last = first.token();
    for asked in [plus(last, FAR)?, plus(last, FAR)?, first.token(), plus(last, 2 * FAR)?] {
        let adopted = adopting(cx, &clients[1], asked).await?;
        let nearest = asked.max(plus(last, 1)?);
        ensure!(
            (nearest..=plus(nearest, NEAR)?).contains(&adopted.token()),
            "asked for {asked} after {last}, got {}",
            adopted.token()
        );
        last = adopted.token();
        adopted.release().await?;
    }
    for client in &clients {
        let next = cx.grant(client, "a").await?;
        ensure_safe!(next.token() > last, "{last} was followed by {}", next.token());
        last = next.token();
        next.release().await?;
    }
    Ok(())
}

/// Every grant after a raised hold has a larger token. Raising again, or to less, changes nothing.
pub(crate) async fn a_raised_token_is_remembered(cx: &RawCx) -> Verdict {
    let (client, other) = (cx.backend().await, cx.backend().await);
    Capability::AnyFloor.or_skip(client.capabilities())?;
    let raised = cx.grant(&client, "a").await?;
    let (own, most) = (raised.token(), plus(raised.token(), FAR)?);
    for token in [most, most, own] {
        let raising = raised.hold.raise_token(token);
        cx.soon("raise", raising).await?.or_fail("raise")?;
    }
    ensure!(raised.token() == own, "a hold's own token changed");
    raised.release().await?;
    let next = cx.grant(&other, "a").await?;
    ensure_safe!(next.token() > most, "{most} was followed by {}", next.token());
    next.release().await
}

/// A hold that has ended cannot raise the tokens of those after it.
pub(crate) async fn a_lost_hold_raises_nothing(cx: &RawCx) -> Verdict {
    let (client, other) = (cx.backend().await, cx.backend().await);
    Capability::AnyFloor.or_skip(client.capabilities())?;
    let lost = cx.grant(&client, "a").await?;
    let far = plus(lost.token(), FAR)?;
    cx.take_away("a").await;
    match cx.soon("raise", lost.hold.raise_token(far)).await? {
        Err(error) => ensure!(
            error.kind() == ErrorKind::Lost,
            "a lost hold cannot be raised: {error:?}"
        ),
        Ok(()) => return Err(Stop::assertion("a lost hold was raised")),
    }
    let next = cx.grant(&other, "a").await?;
    ensure!(
        next.token() < far,
        "a lost hold has raised the next token to {}",
        next.token()
    );
    next.release().await
}
