//! Permits: never more than the limit, and each request gets all of its own or none. By capability.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use lock_core::backend::Mode;
use lock_core::backend::Mode::{Exclusive, Shared};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::support::all_end;
use crate::context::RawCx;
use crate::link::Link;
use crate::raw::{drive, granted, limit, permits, request_in};
use crate::verdict::{Capability, OrFail, Stop, Verdict, ensure, ensure_safe, ensure_safe_by_ttl};

/// The time for which a permit is used.
const A_LITTLE: Duration = Duration::from_millis(10);

/// However many ask at once, never more permits are out than there are, and all who ask get theirs in the end.
pub(crate) async fn never_more_than_the_limit(cx: &RawCx) -> Verdict {
    const ROUNDS: usize = 5;
    let (taken, together) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicBool::new(false)));
    let by = Instant::now() + cx.patience();
    let ttl = cx.long_ttl().await;
    let mut clients = Vec::new();
    for _ in 0..6 {
        clients.push(cx.client_with(Capability::Permits).await?);
    }
    let limit = limit(&clients[0], 2..=3)?;
    let mut tasks = JoinSet::new();
    for (client, take) in clients.into_iter().zip([1, 1, 1, 1, 2, 2]) {
        // None takes all: another one can always be beside it.
        let take = take.min(limit - 1);
        let (mode, taken, together) = (permits(take, limit)?, taken.clone(), together.clone());
        tasks.spawn(async move {
            for _ in 0..ROUNDS {
                let (request, control) = request_in("a", mode, ttl)?;
                let attempt = drive(&*client, &request).await.or_fail("take permits")?;
                let Ok(grant) = granted(attempt, request, control)? else {
                    return Err(Stop::assertion("a request that waits for ever was busy"));
                };
                let out = taken.fetch_add(take, Ordering::SeqCst) + take;
                ensure_safe_by_ttl!(out <= limit, "{out} permits were out, of {limit}");
                together.fetch_or(out > take, Ordering::SeqCst);
                sleep(A_LITTLE).await;
                // The first one stays until there is another one beside it, however long the server takes for a grant.
                while !together.load(Ordering::SeqCst) && Instant::now() < by {
                    sleep(A_LITTLE).await;
                }
                taken.fetch_sub(take, Ordering::SeqCst);
                grant.release().await?;
            }
            Ok(())
        });
    }
    all_end(cx, "six clients to take permits", tasks).await?;
    ensure!(
        together.load(Ordering::SeqCst),
        "six clients shared {limit} permits, and never two at a time"
    );
    cx.until_free("a", "all permits have been released").await
}

/// A request for several permits gets all of them at once, and while they are not there, none of them.
pub(crate) async fn several_permits_or_none(cx: &RawCx) -> Verdict {
    let client = cx.client_with(Capability::Permits).await?;
    let other = cx.connected().await?;
    let limit = limit(&client, 3..=5)?;
    // Two requests for most of them do not fit together.
    let take = limit / 2 + 1;
    let (most, rest) = (permits(take, limit)?, permits(limit - take, limit)?);
    let first = cx.grant_in(&client, "a", most).await?;
    for another in [&client, &other] {
        cx.ensure_refused(another, "a", most).await?;
    }
    // The refused ones have none of those that are left.
    let second = cx.grant_in(&other, "a", rest).await?;
    cx.ensure_holders("a", 2, "two requests hold all permits").await?;
    cx.ensure_refused(&client, "a", permits(1, limit)?).await?;
    ensure_safe!(
        second.token() > first.token(),
        "{} was followed by {}",
        first.token(),
        second.token()
    );
    first.release().await?;
    // One release has returned all that it took.
    let third = cx.grant_in(&client, "a", most).await?;
    for grant in [second, third] {
        grant.release().await?;
    }
    cx.until_free("a", "all permits have been released").await
}

/// Permits exclude writers and readers, who exclude them: a name is used in one way at a time.
pub(crate) async fn permits_exclude_other_modes(cx: &RawCx) -> Verdict {
    let client = cx.client_with(Capability::Permits).await?;
    let other = cx.connected().await?;
    let one = permits(1, limit(&client, 2..=5)?)?;
    let mut modes = vec![Exclusive];
    if Capability::Shared.is_in(client.capabilities()) {
        modes.push(Shared);
    }
    let taken = cx.grant_in(&client, "a", one).await?;
    for mode in &modes {
        cx.ensure_refused(&other, "a", *mode).await?;
    }
    cx.ensure_busy(&cx.subject().await, &cx.ask("a").await).await?;
    taken.release().await?;
    for mode in modes {
        let held = cx.grant_in(&client, "a", mode).await?;
        cx.ensure_refused(&other, "a", one).await?;
        held.release().await?;
    }
    cx.grant_in(&other, "a", one).await?.release().await
}

/// A request is granted by the limit that it states itself, whatever limits those state who hold permits.
pub(crate) async fn a_limit_binds_who_states_it(cx: &RawCx) -> Verdict {
    let client = cx.client_with(Capability::Permits).await?;
    let other = cx.connected().await?;
    let high = limit(&client, 2..=5)?;
    let low = (high - 2).max(1);
    let full = cx.grant_in(&client, "a", permits(low, low)?).await?;
    cx.ensure_refused(&other, "a", permits(1, low)?).await?;
    let raised = cx.grant_in(&other, "a", permits(1, high)?).await?;
    cx.ensure_refused(&client, "a", permits(1, high - 1)?).await?;
    full.release().await?;
    cx.ensure_refused(&client, "a", permits(1, 1)?).await?;
    let lowered = cx.grant_in(&client, "a", permits(1, 2)?).await?;
    for grant in [raised, lowered] {
        grant.release().await?;
    }
    cx.until_free("a", "all permits have been released").await
}

/// A request that is repeated takes no second permit, and one release returns what it took.
pub(crate) async fn a_repeat_takes_no_second_permit(cx: &RawCx) -> Verdict {
    let client = cx.client_with(Capability::Permits).await?;
    let other = cx.connected().await?;
    let one = permits(1, 2)?;
    let grant = cx.grant_in(&client, "a", one).await?;
    for _ in 0..2 {
        cx.ensure_granted_again(&client, &grant).await?;
    }
    let second = cx.grant_in(&other, "a", one).await?;
    cx.ensure_refused(&other, "a", one).await?;
    grant.release().await?;
    // A second release, as after a lost answer, returns nothing more.
    grant.released(cx).await?;
    let third = cx.grant_in(&other, "a", one).await?;
    cx.ensure_refused(&client, "a", one).await?;
    for grant in [second, third] {
        grant.release().await?;
    }
    cx.until_free("a", "all permits have been released").await
}

/// A request that was cut short leaves no permit: not one that it was given, nor one that it never learned of.
pub(crate) async fn a_cancelled_acquire_leaves_no_permit(cx: &RawCx) -> Verdict {
    let link = Link::new();
    let client = cx.client_through(&link, Capability::Permits).await?;
    let other = cx.connected().await?;
    let (one, both) = (permits(1, 2)?, permits(2, 2)?);
    let grant = cx.grant_in(&client, "a", both).await?;
    for _ in 0..2 {
        cx.abandoned(&client, &grant.request).await?;
    }
    let stays = cx.grant_in(&other, "a", one).await?;
    cx.ensure_holders("a", 1, "a grant was abandoned").await?;
    link.hold_replies_after(0);
    let (request, control) = cx.request_in("a", one).await?;
    let waiter = cx.go_on_waiting(&client, request, control);
    cx.soon("the reply to be on its way", link.holding()).await?;
    link.reset();
    link.heal();
    waiter.control.give_up();
    cx.abandoned(&client, &waiter.request).await?;
    let bound = cx.before_expiry(cx.freed_by(cx.ttl())).await;
    cx.until_holders(
        "a",
        1,
        bound,
        "the permit of a request that was never answered to come back",
    )
    .await?;
    let second = cx.grant_in(&other, "a", one).await?;
    // They came back once.
    cx.ensure_refused(&client, "a", one).await?;
    for grant in [stays, second] {
        grant.release().await?;
    }
    cx.until_free("a", "all permits have been released").await
}

/// A permit of which many are there is a name's hold like any other: it has a token, which grows from grant to grant.
pub(crate) async fn tokens_grow_over_permits(cx: &RawCx) -> Verdict {
    let client = cx.client_with(Capability::Permits).await?;
    let limit = limit(&client, 2..=9)?;
    let several = (limit / 2).min(3);
    let modes: [Mode; 3] = [permits(1, limit)?, permits(several, limit)?, Exclusive];
    let mut last = None;
    for _ in 0..2 {
        for mode in modes {
            let mut grants = vec![cx.grant_in(&client, "a", mode).await?];
            if mode != Exclusive {
                grants.push(cx.grant_in(&client, "a", mode).await?);
            }
            for grant in grants {
                let token = Some(grant.token());
                ensure_safe!(last < token, "{mode:?} has the token {token:?} after {last:?}");
                last = token;
                grant.release().await?;
            }
        }
    }
    Ok(())
}
