//! A hold passes to the next request of the same process in one step. By capability.

use std::sync::Arc;

use lock_core::backend::{
    AcquireRequest, Attempt, DistributedLock, HandOver, ReleaseOutcome, Renewal, RequestControl, RequestOptions, Terms,
};
use lock_core::{FencingToken, HoldState};
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use super::belief::{PART_OF_THE_TTL, ensure_ends_first, near};
use super::support::LITTLE;
use crate::context::{RawCx, lock_name};
use crate::link::Link;
use crate::raw::Grant;
use crate::sending::delay_sending;
use crate::verdict::{Capability, OrFail, Stop, Verdict, ensure, ensure_safe};

pub(super) fn or_skip(backend: &Arc<dyn DistributedLock>) -> Verdict {
    Capability::HandOver.or_skip(backend.capabilities())
}

/// Passes the hold on, and what the next one has.
async fn hand_over(
    cx: &RawCx,
    giver: &Grant,
    (next, control): (AcquireRequest, RequestControl),
) -> Result<Grant, Stop> {
    match cx
        .soon("a hand-over", giver.hold.hand_over(&next))
        .await?
        .or_fail("hand over")?
    {
        HandOver::Granted(hold, _) => {
            ensure!(
                next.lease().state() != HoldState::Released,
                "a hand-over came with a lease that nothing armed"
            );
            Ok(Grant::new(hold, next, control))
        }
        other => Err(Stop::assertion(format!(
            "a hand-over of a live hold answered {other:?}"
        ))),
    }
}

/// Repeats a hand-over until it is answered.
pub(super) async fn answered(cx: &RawCx, giver: &Grant, next: &AcquireRequest) -> Result<HandOver, Stop> {
    let handing_over = async {
        loop {
            match giver.hold.hand_over(next).await {
                Ok(answer) => return answer,
                Err(_unknown) => sleep(LITTLE).await,
            }
        }
    };
    cx.soon("a hand-over to be answered", handing_over).await
}

/// The next one has it, the server knows no other, and it is as good as any hold. Where it is not declared, a
/// hand-over is a release.
pub(crate) async fn a_hand_over_passes_the_hold_on(cx: &RawCx) -> Verdict {
    let (client, other) = (cx.backend().await, cx.backend().await);
    let giver = cx.grant(&client, "a").await?;
    let (next, control) = cx.request("a", cx.long_ttl().await)?;
    if !Capability::HandOver.is_in(client.capabilities()) {
        let answer = cx.soon("a hand-over", giver.hold.hand_over(&next)).await?;
        let answer = answer.or_fail("hand over")?;
        ensure!(
            matches!(answer, HandOver::Yielded),
            "hand-over is not declared, yet it answered {answer:?}"
        );
        ensure!(
            next.lease().state() == HoldState::Released,
            "yielded, and the next one's lease is armed"
        );
        cx.until_free("a", cx.patience(), "a hand-over that was a release")
            .await?;
        return or_skip(&client);
    }
    let heir = hand_over(cx, &giver, (next, control)).await?;
    cx.ensure_taken(&other, "a").await?;
    ensure!(heir.is_live(), "handed over, and not held");
    if !client.capabilities().session_renewal {
        ensure!(
            heir.renew(cx.long_ttl().await).await?,
            "a renewal of what was handed over said that it was lost"
        );
    }
    heir.release().await?;
    cx.until_free("a", cx.patience(), "the next one's release").await
}

/// Whoever passed it on has nothing any more, and can do the next one no harm. By capability.
pub(crate) async fn a_giver_has_nothing_any_more(cx: &RawCx) -> Verdict {
    let (client, other, ttl) = (cx.backend().await, cx.backend().await, cx.long_ttl().await);
    or_skip(&client)?;
    // One that does not wait, so that its id can be asked for again.
    let giver = cx.try_once(&client, "a").await?;
    let giver = giver.map_err(|busy| Stop::assertion(format!("free, yet {busy:?}")))?;
    let heir = hand_over(cx, &giver, cx.request("a", ttl)?).await?;
    let renewed = cx.soon("the giver's renewal", giver.hold.renew(ttl)).await?;
    ensure!(
        !matches!(renewed, Ok(Renewal::Renewed(_))),
        "renewed after it was passed on"
    );
    let again = cx
        .soon("the giver's acquire again", client.acquire(&giver.request))
        .await?;
    ensure!(
        !matches!(again, Ok(Attempt::Granted(..))),
        "passed on, and granted again to the same id"
    );
    let released = giver.released(cx).await?;
    cx.ensure_taken(&other, "a").await?;
    ensure!(
        released == ReleaseOutcome::AlreadyLost,
        "passed on, and then {released:?}"
    );
    cx.soon("the giver's abandon", client.abandon(&giver.request))
        .await?
        .or_fail("abandon")?;
    cx.ensure_taken(&other, "a").await?;
    ensure!(heir.is_live(), "the giver's end cost the next one its hold");
    heir.release().await
}

/// Label and ttl at the server are the next one's. By capability.
pub(crate) async fn a_hand_over_is_on_the_next_ones_terms(cx: &RawCx) -> Verdict {
    let (client, other, ttl) = (cx.backend().await, cx.backend().await, cx.ttl());
    or_skip(&client)?;
    let giver = cx.grant_for(&client, "a", ttl).await?;
    let terms = Terms::new(cx.long_ttl().await).label("the next one");
    let heir = hand_over(cx, &giver, RequestOptions::new(lock_name("a")?, terms).start()).await?;
    let status = cx.status("a").await?;
    let [holder] = status.holders.as_slice() else {
        return Err(Stop::assertion(format!("one holds it, and {status:?}")));
    };
    let label = holder.label.as_deref();
    ensure!(
        label.is_none_or(|label| label == "the next one"),
        "its label became {label:?}"
    );
    ensure!(
        holder.token.is_none_or(|token| token == heir.token()),
        "its token {} became {:?}",
        heir.token(),
        holder.token
    );
    sleep(ttl * 5 / 4).await;
    cx.ensure_taken(&other, "a").await?;
    ensure!(heir.is_live(), "lost with the giver's ttl");
    heir.release().await
}

/// The next one's ttl, and belief in it, count from before the hand-over, whatever the giver's was. By capability.
pub(crate) async fn belief_in_a_hand_over_counts_from_before_it(cx: &RawCx) -> Verdict {
    let (link, ttl) = (Link::new(), cx.ttl());
    let (far, waiter) = (cx.backend_through(&link).await, cx.backend().await);
    or_skip(&far)?;
    let giver = cx.grant(&far, "a").await?;
    let waiting = cx.wait_for(&waiter, "a", cx.long_ttl().await).await?;
    link.delay(ttl / 8);
    let sent = Instant::now();
    let heir = hand_over(cx, &giver, cx.request("a", ttl)?).await?;
    link.stall();
    let successor = waiting
        .grant(
            cx,
            cx.freed_by(ttl),
            "the waiter to be granted when the next one's ttl is over",
        )
        .await?;
    let took = sent.elapsed();
    ensure!(
        !heir.is_live(),
        "two believe that they hold it: {:?} is left of the first",
        heir.lease().valid_for()
    );
    ensure!(
        took >= ttl,
        "handed over for {ttl:?}, and somebody else had it after {took:?}"
    );
    successor.release().await
}

/// Nor later than before the request took effect. By capability.
pub(crate) async fn belief_in_a_hand_over_counts_from_before_its_effect(cx: &RawCx) -> Verdict {
    let (link, client) = near(cx).await?;
    or_skip(&client)?;
    let giver = cx.grant(&client, "a").await?;
    delay_sending(cx.ttl() / PART_OF_THE_TTL);
    let heir = hand_over(cx, &giver, cx.request("a", cx.ttl())?).await?;
    ensure_ends_first(cx, &link, &heir).await
}

/// Nobody who waits or tries elsewhere gets it in between. By capability.
pub(crate) async fn nobody_gets_in_between_a_hand_over(cx: &RawCx) -> Verdict {
    let (client, waiter, trier) = (cx.backend().await, cx.backend().await, cx.backend().await);
    or_skip(&client)?;
    let ttl = cx.long_ttl().await;
    let mut holding = cx.grant(&client, "a").await?;
    let waiting = cx.wait_for(&waiter, "a", ttl).await?;
    let (tried, mut tries) = watch::channel(0);
    let trying = async move {
        loop {
            cx.ensure_taken(&trier, "a").await?;
            tried.send_modify(|tries| *tries += 1);
            if *tried.borrow() % 20 == 0 {
                // Paused time stands still while somebody tries on and on.
                sleep(LITTLE).await;
            }
        }
    };
    let passing_on = async {
        for _ in 0..12 {
            holding = hand_over(cx, &holding, cx.request("a", ttl)?).await?;
            // When the one who tries has gone, its own failure says why.
            let _ = tries.changed().await;
        }
        Ok(())
    };
    tokio::select! {
        failed = trying => failed,
        passed_on = passing_on => passed_on,
    }?;
    ensure!(waiting.is_waiting(), "a waiter elsewhere got in between");
    holding.release().await?;
    waiting
        .grant(cx, cx.patience(), "the waiter elsewhere to be granted")
        .await?
        .release()
        .await
}

/// The same hand-over again, as after a lost reply, is the same grant: one token, one hold. Where the connection is the hold,
/// it is lost with the connection, and nothing is left. By capability.
pub(crate) async fn a_repeated_hand_over_is_the_same_grant(cx: &RawCx) -> Verdict {
    let (link, ttl) = (Link::new(), cx.long_ttl().await);
    let client = cx.backend_through(&link).await;
    or_skip(&client)?;
    for lost in [false, true] {
        let giver = cx.grant(&client, "a").await?;
        let (next, _control) = cx.request("a", ttl)?;
        if lost {
            link.swallow_reply(1);
        }
        let mut tokens: Vec<FencingToken> = Vec::new();
        for _ in 0..3 {
            match answered(cx, &giver, &next).await? {
                HandOver::Granted(hold, _) => tokens.push(hold.token()),
                HandOver::AlreadyLost if lost && tokens.is_empty() => break,
                other => return Err(Stop::assertion(format!("a repeated hand-over answered {other:?}"))),
            }
        }
        if tokens.is_empty() {
            ensure!(
                next.lease().state() == HoldState::Released,
                "its connection was lost, and its lease is {:?}",
                next.lease().state()
            );
            cx.until_free("a", cx.patience(), "a hold whose connection was lost")
                .await?;
            continue;
        }
        ensure!(
            tokens.iter().all(|token| *token == tokens[0] && *token > giver.token()),
            "one hand-over after {}, and {tokens:?}",
            giver.token()
        );
        ensure!(
            next.lease().state() == HoldState::Held,
            "handed over, and {:?}",
            next.lease().state()
        );
        let again = answered(cx, &giver, &next).await?;
        let HandOver::Granted(hold, _) = again else {
            return Err(Stop::assertion(format!("a repeated hand-over answered {again:?}")));
        };
        let released = hold.release(Default::default()).await.or_fail("release")?;
        ensure!(
            released == ReleaseOutcome::Released,
            "handed over, and then {released:?}"
        );
        cx.until_free("a", cx.patience(), "one release").await?;
    }
    Ok(())
}

/// Each has a larger token than the one before, also than what a request asks for. By capability.
pub(crate) async fn tokens_grow_over_a_hand_over(cx: &RawCx) -> Verdict {
    let (client, other, ttl) = (cx.backend().await, cx.backend().await, cx.long_ttl().await);
    or_skip(&client)?;
    for _ in 0..3 {
        let mut holding = cx.grant(&client, "a").await?;
        for round in 0..6 {
            let last = holding.token();
            let floor = last.as_u64() + if round == 3 { 1_000_000 } else { 0 };
            let floor = FencingToken::new(floor)
                .ok_or_else(|| Stop::assertion(format!("{last} leaves no room for larger tokens")))?;
            let options = RequestOptions::new(lock_name("a")?, Terms::new(ttl));
            holding = hand_over(cx, &holding, options.token_above(floor).start()).await?;
            ensure_safe!(
                holding.token() > floor,
                "{last} was followed by {}, asked for above {floor}",
                holding.token()
            );
        }
        holding.release().await?;
        let after = cx.grant(&other, "a").await?;
        ensure_safe!(
            after.token() > holding.token(),
            "{} was followed by {}",
            holding.token(),
            after.token()
        );
        after.release().await?;
    }
    Ok(())
}

/// A hand-over to one who yields releases the name if somebody waits at the server, who then has it; otherwise it passes the
/// hold on. By capability.
pub(crate) async fn a_hand_over_yields_to_those_who_wait(cx: &RawCx) -> Verdict {
    let (client, waiter, ttl) = (cx.backend().await, cx.backend().await, cx.long_ttl().await);
    or_skip(&client)?;
    let yielding = || Ok::<_, Stop>(RequestOptions::new(lock_name("a")?, Terms::new(ttl)).yields().start());
    let giver = cx.grant(&client, "a").await?;
    let heir = hand_over(cx, &giver, yielding()?).await?;
    let waiting = cx.wait_for(&waiter, "a", ttl).await?;
    cx.until_places("a", 1).await?;
    let (next, _control) = yielding()?;
    let answer = cx.soon("a hand-over", heir.hold.hand_over(&next)).await?;
    let answer = answer.or_fail("hand over")?;
    ensure!(
        matches!(answer, HandOver::Yielded),
        "one waits at the server, and a hand-over that yields answered {answer:?}"
    );
    ensure!(
        next.lease().state() == HoldState::Released,
        "yielded, and the next one's lease is armed"
    );
    let what = "the waiter to be granted after a hand-over that yielded";
    waiting.grant(cx, cx.patience(), what).await?.release().await?;
    cx.until_free("a", cx.patience(), "a hand-over that yielded").await
}
