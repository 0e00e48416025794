//! Undoing a request, whatever became of it.

use lock_core::HoldState;
use lock_core::backend::Attempt;

use crate::context::RawCx;
use crate::verdict::{OrFail, Verdict, ensure, ensure_safe_by_ttl};

/// An abandoned grant is no hold any more.
pub(crate) async fn an_abandoned_grant_frees_the_name(cx: &RawCx) -> Verdict {
    let client = cx.backend().await;
    let grant = cx.grant(&client, "a").await?;
    cx.soon("the abandon", client.abandon(&grant.request))
        .await?
        .or_fail("abandon")?;
    cx.until_free("a", "its grant was abandoned").await
}

/// Abandoning twice, or what was never asked for, is fine.
pub(crate) async fn an_abandon_can_be_repeated(cx: &RawCx) -> Verdict {
    let client = cx.backend().await;
    let (never, _control) = cx.request("a", cx.long_ttl().await)?;
    let grant = cx.grant(&client, "b").await?;
    for request in [&never, &never, &grant.request, &grant.request] {
        cx.soon("the abandon", client.abandon(request))
            .await?
            .or_fail("abandon")?;
    }
    cx.until_free("a", "an abandon").await?;
    cx.until_free("b", "its grant was abandoned").await
}

/// An abandon touches nobody else: neither the holder nor those who wait.
pub(crate) async fn an_abandon_touches_nobody_else(cx: &RawCx) -> Verdict {
    let (holder, other, waiter) = (cx.backend().await, cx.backend().await, cx.backend().await);
    let ttl = cx.long_ttl().await;
    let robbed = cx.grant(&other, "a").await?;
    cx.take_away("a").await;
    let grant = cx.grant(&holder, "a").await?;
    let waiting = cx.wait_for(&waiter, "a", ttl).await?;
    let (tried, _control) = cx.trying("a", ttl)?;
    let busy = other.acquire(&tried).await.or_fail("try")?;
    ensure_safe_by_ttl!(matches!(busy, Attempt::Busy(_)), "granted while another held it");
    for request in [&robbed.request, &tried] {
        cx.soon("the abandon", other.abandon(request))
            .await?
            .or_fail("abandon")?;
    }
    cx.ensure_taken(&other, "a").await?;
    waiting.ensure_waiting("while another held it")?;
    grant.release().await?;
    waiting
        .grant_soon(cx, "the waiter to be granted")
        .await?
        .release()
        .await
}

/// An abandoned id is dead: an acquire of it that comes later takes nothing.
pub(crate) async fn an_abandoned_request_stays_dead(cx: &RawCx) -> Verdict {
    let client = cx.backend().await;
    for abandoned_first in [true, false] {
        let (request, control) = cx.request("a", cx.long_ttl().await)?;
        if !abandoned_first {
            let granted = cx.soon("acquire", client.acquire(&request)).await?.or_fail("acquire")?;
            ensure!(
                matches!(granted, Attempt::Granted(..)),
                "a free name answered {granted:?}"
            );
        }
        control.give_up();
        cx.soon("the abandon", client.abandon(&request))
            .await?
            .or_fail("abandon")?;
        let late = cx
            .soon("an acquire of an abandoned request", client.acquire(&request))
            .await?;
        ensure!(
            !matches!(late, Ok(Attempt::Granted(..))),
            "an abandoned request was granted"
        );
        ensure!(
            !cx.is_held("a").await?,
            "an abandoned request holds the name; its acquire was answered {late:?}"
        );
    }
    cx.until_free("a", "its requests were abandoned").await
}

/// A grant whose answer never came is found and undone by an abandon over a new connection.
pub(crate) async fn an_unanswered_grant_is_undone(cx: &RawCx) -> Verdict {
    let link = crate::link::Link::new();
    let client = cx.backend_through(&link).await;
    cx.connect(&client).await?;
    link.hold_replies_after(0);
    let waiter = cx.start_waiting(&client, "a", cx.long_ttl().await)?;
    cx.soon("the reply to be on its way", link.holding()).await?;
    link.reset();
    link.heal();
    ensure!(
        waiter.request.lease().state() != HoldState::Suspect,
        "suspect before it was ever held"
    );
    waiter.control.give_up();
    cx.abandoned(&client, &waiter.request).await?;
    cx.until_free("a", "its unanswered request was abandoned").await
}
