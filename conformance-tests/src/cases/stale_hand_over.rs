//! Hand-overs by one who has nothing any more, and those of which nobody knows what became. By capability.

use std::time::Duration;

use lock_core::HoldState;
use lock_core::backend::HandOver;
use tokio::time::sleep;

use super::hand_over::{answered, or_skip};
use crate::context::RawCx;
use crate::link::Link;
use crate::raw::Grant;
use crate::verdict::{Verdict, ensure};

/// A holder whose ttl was over hands nothing over, and touches no successor. By capability.
pub(crate) async fn an_expired_holder_hands_nothing_over(cx: &RawCx) -> Verdict {
    let (link, ttl) = (Link::new(), cx.ttl());
    let (silent, waiter) = (cx.backend_through(&link).await, cx.backend().await);
    or_skip(&silent)?;
    let stale = cx.grant_for(&silent, "a", ttl).await?;
    link.stall();
    let waiting = cx.start_waiting(&waiter, "a", cx.long_ttl().await)?;
    let successor = waiting
        .grant(cx, cx.freed_by(ttl), "the successor to be granted")
        .await?;
    link.heal();
    ensure_nothing_handed_over(cx, &stale).await?;
    cx.ensure_taken(&silent, "a").await?;
    successor.release().await
}

/// Nor does one whose hold was taken away, although the name is free. By capability.
pub(crate) async fn a_robbed_holder_hands_nothing_over(cx: &RawCx) -> Verdict {
    let client = cx.backend().await;
    or_skip(&client)?;
    let stale = cx.grant(&client, "a").await?;
    cx.take_away("a").await;
    ensure_nothing_handed_over(cx, &stale).await?;
    cx.until_free("a", cx.patience(), "it was taken away").await
}

async fn ensure_nothing_handed_over(cx: &RawCx, stale: &Grant) -> Verdict {
    let (next, _control) = cx.request("a", cx.long_ttl().await)?;
    let answer = answered(cx, stale, &next).await?;
    ensure!(
        matches!(answer, HandOver::AlreadyLost),
        "handed over by one that has nothing: {answer:?}"
    );
    ensure!(
        next.lease().state() == HoldState::Released,
        "nothing handed over, and its lease is {:?}",
        next.lease().state()
    );
    Ok(())
}

/// A hand-over whose answer never came is undone by the giver's release and the next one's abandon, in this order.
/// By capability.
pub(crate) async fn an_unanswered_hand_over_is_undone(cx: &RawCx) -> Verdict {
    undone(cx, |link| link.hold_replies_after(0)).await
}

/// So is one that had not reached the server by then. By capability.
pub(crate) async fn a_hand_over_that_arrives_late_is_undone(cx: &RawCx) -> Verdict {
    undone(cx, Link::hold_requests).await
}

async fn undone(cx: &RawCx, break_down: impl Fn(&Link)) -> Verdict {
    for reset in [true, false] {
        let link = Link::new();
        let client = cx.backend_through(&link).await;
        or_skip(&client)?;
        let giver = cx.grant(&client, "a").await?;
        let (next, control) = cx.request("a", cx.long_ttl().await)?;
        break_down(&link);
        let (hold, asked) = (giver.hold.clone(), next.clone());
        let handing_over = tokio::spawn(async move { hold.hand_over(&asked).await.map(drop) });
        cx.soon("the hand-over to be on its way", link.holding()).await?;
        if reset {
            link.reset();
        }
        // Nobody waits for its answer, and all the same it is driven to its end.
        control.give_up();
        let undoing = async {
            giver.released(cx).await?;
            cx.abandoned(&client, &next).await
        };
        let healing = async {
            sleep(Duration::from_millis(50)).await;
            link.heal();
            Ok(())
        };
        tokio::try_join!(undoing, healing)?;
        cx.until_free("a", cx.patience(), "both ids of a hand-over were undone")
            .await?;
        // Answered or not, it brings nothing back.
        drop(cx.soon("the hand-over to come to its end", handing_over).await?);
        let late = cx.soon("the hand-over again", giver.hold.hand_over(&next)).await?;
        ensure!(
            !matches!(late, Ok(HandOver::Granted(..))),
            "both ids were undone, and a late hand-over was granted"
        );
        ensure!(
            !cx.is_held("a").await?,
            "both ids were undone, and a late hand-over holds the name; it was answered {late:?}"
        );
        cx.until_free("a", cx.patience(), "a hand-over between dead ids")
            .await?;
    }
    Ok(())
}
