//! Only the holder releases, and it is told how that went.

use std::task::Poll;
use std::time::Duration;

use lock_core::ErrorKind;
use lock_core::backend::{ReleaseOptions, ReleaseOutcome};
use tokio::task::coop;
use tokio::time::{sleep, timeout};

use super::support::{LITTLE, Polls, counts, in_one_of};
use crate::context::{Cx, RawCx};
use crate::link::Link;
use crate::raw::Grant;
use crate::verdict::{Capability, OrFail, Stop, Verdict, ensure};

const A_WHILE: Duration = Duration::from_secs(1);

/// When a release has been answered, the name is free.
pub(crate) async fn a_release_has_freed_the_name(cx: &RawCx) -> Verdict {
    let (client, other) = (cx.backend().await, cx.backend().await);
    for round in 0..5 {
        cx.grant(&client, "a").await?.release().await?;
        match cx.try_once(&other, "a").await? {
            Ok(grant) => grant.release().await?,
            Err(busy) => {
                return Err(Stop::assertion(format!(
                    "released, and then {busy:?}, in round {round}"
                )));
            }
        }
    }
    Ok(())
}

/// An acquire that is sent after a release need not wait for its answer. By capability.
pub(crate) async fn an_acquire_follows_a_release(cx: &RawCx) -> Verdict {
    let client = cx.backend().await;
    Capability::Ordered.or_skip(client.capabilities())?;
    for round in 0..10 {
        let first = cx.grant(&client, "a").await?;
        // As core polls it: a budget that is used up must not keep it from being sent.
        let mut releasing = Box::pin(coop::unconstrained(first.hold.release(ReleaseOptions::default())));
        // Sent with its first poll, and not waited for.
        let sent = std::future::poll_fn(|context| Poll::Ready(releasing.as_mut().poll(context))).await;
        let second = match cx.try_once(&client, "a").await? {
            Ok(second) => second,
            Err(busy) => {
                return Err(Stop::assertion(format!(
                    "sent after the release, and {busy:?}, in round {round}"
                )));
            }
        };
        let released = match sent {
            Poll::Ready(released) => released,
            Poll::Pending => cx.soon("the release", releasing).await?,
        };
        let released = released.or_fail("release")?;
        ensure!(
            released == ReleaseOutcome::Released,
            "a release of a live hold answered {released:?}"
        );
        second.release().await?;
    }
    Ok(())
}

async fn ensure_nothing_touched(cx: &RawCx, stale: &Grant, successor: &Grant) -> Verdict {
    let outcome = stale.released(cx).await?;
    cx.ensure_taken(&cx.backend().await, "a").await?;
    ensure!(
        outcome == ReleaseOutcome::AlreadyLost,
        "a hold with a successor was released: {outcome:?}"
    );
    successor.release().await
}

/// A holder whose ttl was over before it released does not end its successor's hold.
pub(crate) async fn an_expired_holder_releases_no_successor(cx: &RawCx) -> Verdict {
    let (link, ttl) = (Link::new(), cx.ttl());
    let (silent, waiter) = (cx.backend_through(&link).await, cx.backend().await);
    let stale = cx.grant_for(&silent, "a", ttl).await?;
    link.stall();
    let waiting = cx.start_waiting(&waiter, "a", cx.long_ttl().await)?;
    let successor = waiting
        .grant(cx, cx.freed_by(ttl), "the successor to be granted")
        .await?;
    link.heal();
    ensure_nothing_touched(cx, &stale, &successor).await
}

/// Nor does one whose hold was taken away, even when its successor is the same client.
pub(crate) async fn a_robbed_holder_releases_no_successor(cx: &RawCx) -> Verdict {
    let client = cx.backend().await;
    let stale = cx.grant(&client, "a").await?;
    cx.take_away("a").await;
    let successor = cx.grant(&client, "a").await?;
    ensure_nothing_touched(cx, &stale, &successor).await
}

/// Nor does a second release by one who has released already, whatever it is answered.
pub(crate) async fn a_second_release_touches_nothing(cx: &RawCx) -> Verdict {
    let (client, other) = (cx.backend().await, cx.backend().await);
    let first = cx.grant(&client, "a").await?;
    first.release().await?;
    first.released(cx).await?;
    let successor = cx.grant(&other, "a").await?;
    first.released(cx).await?;
    cx.ensure_taken(&client, "a").await?;
    successor.release().await
}

/// A robbed holder's release of a name that is free says that it was lost.
pub(crate) async fn a_robbed_holders_release_says_so(cx: &RawCx) -> Verdict {
    let client = cx.backend().await;
    let grant = cx.grant(&client, "a").await?;
    cx.take_away("a").await;
    let outcome = grant.released(cx).await?;
    ensure!(
        outcome == ReleaseOutcome::AlreadyLost,
        "a hold that was taken away was released: {outcome:?}"
    );
    cx.until_free("a", "it was taken away").await
}

/// To the user, releasing what was lost is an error, for good.
pub(crate) async fn a_release_of_a_lost_lock_is_an_error(cx: &Cx) -> Verdict {
    let client = cx.subject().await;
    let ask = cx.lasting("a").await;
    let guard = cx.hold(&client, &ask).await?;
    cx.take_away("a").await;
    // Where the connection is the hold, a release before that can only learn that its outcome is unknown.
    cx.within(cx.freed_by(ask.ttl), "the loss to be told", guard.lost())
        .await?;
    let Err(error) = cx.soon("the release", guard.release()).await? else {
        return Err(Stop::assertion(
            "a lock that had been taken away was released without an error",
        ));
    };
    ensure!(
        error.kind() == ErrorKind::Lost,
        "it failed as {:?}: {error}",
        error.kind()
    );
    ensure!(!error.is_retryable(), "it is lost for good, yet {error} is retryable");
    cx.until_free("a", "it was taken away").await
}

/// A release that took effect but whose answer got lost is repeated, and counts.
pub(crate) async fn a_release_whose_reply_is_lost_counts(cx: &Cx) -> Verdict {
    let link = Link::new();
    let client = cx.subject_through(&link).await;
    let guard = cx.hold(&client, &cx.ask("a").await).await?;
    link.swallow_reply(1);
    let released = cx.soon("the release", guard.release()).await?;
    ensure!(counts(&released), "it took effect, and answered {released:?}");
    cx.until_free("a", "the release").await
}

/// A release that was never sent excuses nothing: if the hold was taken away meanwhile, it is lost, not released.
pub(crate) async fn a_release_that_was_never_sent_is_no_release(cx: &Cx) -> Verdict {
    in_one_of(3, cx, |name| never_sent(cx, name)).await
}

async fn never_sent(cx: &Cx, name: &str) -> Verdict {
    let link = Link::new();
    let (client, successor) = (cx.subject_through(&link).await, cx.subject().await);
    let ask = cx.ask(name).await;
    let guard = cx.hold(&client, &ask).await?;
    // Its holder does not learn of it.
    link.stall();
    cx.take_away(name).await;
    let next = cx.hold(&successor, &ask).await?;
    link.cut();
    cx.until_cut_off(&client).await?;
    // Where the connection is the hold, its end is a loss. Before it is noticed, a release may be sent over it.
    let _lost = timeout(A_WHILE, guard.lost()).await;
    let releasing = tokio::spawn(guard.release());
    // Time to fail once, for want of a connection.
    sleep(A_WHILE).await;
    link.heal();
    let released = cx.soon("the release", releasing).await?;
    match released.map_err(|panic| Stop::assertion(panic.to_string()))? {
        Err(error) if error.kind() == ErrorKind::Lost => {}
        other => {
            // On a slow machine it goes on in the background.
            let is_unknown = matches!(&other, Err(error) if error.is_retryable());
            let message = format!("a successor holds it, and its release answered {other:?}");
            return Err(Stop::assertion(message).explained_if(is_unknown));
        }
    }
    cx.ensure_busy(&client, &ask).await?;
    next.released().await
}

/// A try that follows a drop succeeds, also if the release has to be sent once more, or waits for a connection. By
/// capability.
pub(crate) async fn a_try_follows_a_release_that_is_sent_again(cx: &Cx) -> Verdict {
    let link = Link::new();
    let client = cx.subject_through(&link).await;
    Capability::Ordered.or_skip(client.capabilities())?;
    let ask = cx.ask("a").await;
    // On other terms, or the hold is passed on as it is, and nothing is sent.
    let next = ask.clone().label("the next one").trying();
    let break_down: [fn(&Link); 3] = [Link::reset, |link| link.swallow_reply(1), Link::cut];
    for fail in break_down {
        let guard = cx.hold(&client, &ask).await?;
        fail(&link);
        drop(guard);
        let trying = async {
            loop {
                // An outage is told; what may not be told is that the name is taken.
                match client.acquire(&next).await {
                    Ok(Some(guard)) => return guard.released().await,
                    Ok(None) => return Err(Stop::assertion("busy after the drop, but nobody else holds it")),
                    Err(_outage) => sleep(LITTLE).await,
                }
                link.heal();
            }
        };
        cx.soon("a try after a drop", trying).await??;
        link.heal();
    }
    cx.until_free("a", "the release").await
}

/// A release that is dropped half-way is finished in the background.
pub(crate) async fn a_release_dropped_half_way_is_finished(cx: &Cx) -> Verdict {
    let client = cx.subject().await;
    let ask = cx.ask("a").await;
    for polls in 1..6 {
        let guard = cx.hold(&client, &ask).await?;
        // The release may or may not have ended.
        let _unknown = Polls::new(guard.release(), polls).await;
        cx.until_free("a", "its release was dropped").await?;
    }
    Ok(())
}
