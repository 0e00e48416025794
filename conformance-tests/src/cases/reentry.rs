//! Whoever has the key of a hold shares it, at once and without the server.

use std::sync::Arc;
use std::time::Duration;

use lock_core::{ErrorKind, ReentryKey, Release};
use tokio::time::sleep;

use super::support::{Began, ensure_pending, in_one_of};
use crate::context::Cx;
use crate::link::Link;
use crate::subject::{Ask, State, Subject, SubjectGuard};
use crate::verdict::{Capability, OrFail, Stop, Verdict, ensure, ensure_or_explained, ensure_safe};

/// Acquires what this key holds already: soon, with the hold's token.
async fn share(
    cx: &Cx,
    client: &Arc<dyn Subject>,
    ask: &Ask,
    guard: &dyn SubjectGuard,
) -> Result<Box<dyn SubjectGuard>, Stop> {
    let what = "an acquire with the key of the hold";
    let shared = cx.soon(what, client.acquire(ask)).await?.or_fail(what)?;
    let shared = shared.ok_or_else(|| Stop::assertion("busy for the key that holds it"))?;
    ensure!(
        shared.token() == guard.token(),
        "shared with token {}, but the hold's is {}",
        shared.token(),
        guard.token()
    );
    Ok(shared)
}

async fn let_go(guard: Box<dyn SubjectGuard>) -> Verdict {
    let release = guard.release().await.or_fail("release one of several guards")?;
    ensure!(
        release == Release::StillShared,
        "others go on holding, and the release answered {release:?}"
    );
    Ok(())
}

/// An acquire and a try with the key of a hold share it; the hold ends with the last of its guards.
pub(crate) async fn a_key_shares_its_hold(cx: &Cx) -> Verdict {
    let (client, other, key) = (cx.subject().await, cx.subject().await, ReentryKey::new());
    let stranger = cx.ask("a").await;
    let ask = stranger.clone().reentrant(&key);
    let outer = cx.hold(&client, &ask).await?;
    let inner = share(cx, &client, &ask, &*outer).await?;
    let tried = share(cx, &client, &ask.clone().trying(), &*outer).await?;
    for guard in [inner, tried] {
        let_go(guard).await?;
        cx.ensure_busy(&other, &stranger).await?;
        ensure!(outer.believes(), "an inner release left it {:?}", outer.state());
    }
    outer.released().await?;
    cx.until_free("a", "the last guard was released").await?;
    // The key is good for another hold.
    let again = cx.hold(&client, &ask).await?;
    share(cx, &client, &ask, &*again)
        .await?
        .release()
        .await
        .or_fail("release")?;
    again.released().await
}

/// In whatever order its guards go, released or dropped, the hold ends with the last one and not before.
pub(crate) async fn a_shared_hold_ends_with_its_last_guard(cx: &Cx) -> Verdict {
    let (client, key) = (cx.subject().await, ReentryKey::new());
    let stranger = cx.ask("a").await;
    let ask = stranger.clone().reentrant(&key);
    for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
        let first = cx.hold(&client, &ask).await?;
        let second = share(cx, &client, &ask, &*first).await?;
        let third = share(cx, &client, &ask, &*second).await?;
        let mut guards = [Some(first), Some(second), Some(third)];
        for (step, index) in order.into_iter().enumerate() {
            let Some(guard) = guards[index].take() else {
                return Err(Stop::assertion("an order names a guard twice"));
            };
            match (step, order[0] == 1) {
                (2, true) => drop(guard),
                (2, false) => guard.released().await?,
                (_, true) => let_go(guard).await?,
                (_, false) => drop(guard),
            }
            for left in guards.iter().flatten() {
                ensure!(left.believes(), "one of those left is {:?}", left.state());
            }
            if step < 2 {
                cx.ensure_busy(cx.observer().await, &stranger).await?;
            }
        }
        let after = format!("its guards were let go in the order {order:?}");
        cx.until_free("a", &after).await?;
    }
    Ok(())
}

/// It needs no round trip: it works while the server is cut off.
pub(crate) async fn a_nested_acquire_asks_no_server(cx: &Cx) -> Verdict {
    let (link, key) = (Link::new(), ReentryKey::new());
    let client = cx.subject_through(&link).await;
    let ask = cx.ask("a").await.reentrant(&key);
    let outer = cx.hold(&client, &ask).await?;
    link.stall();
    let inner = share(cx, &client, &ask, &*outer).await?;
    let tried = share(cx, &client, &ask.clone().trying(), &*outer).await?;
    for guard in [inner, tried] {
        cx.soon("a release that ends nothing", let_go(guard)).await??;
    }
    link.heal();
    outer.released().await?;
    cx.until_free_by("a", cx.freed_by(cx.ttl()), "the last guard was released")
        .await
}

/// While a hold is suspect, its own key does not wait for it.
pub(crate) async fn a_nested_acquire_while_suspect_is_no_deadlock(cx: &Cx) -> Verdict {
    // A session has a time of its own.
    let attempts = match cx.observer().await.capabilities().session_renewal {
        true => 3,
        false => 1,
    };
    in_one_of(attempts, cx, |name| nested_while_suspect(cx, name)).await
}

async fn nested_while_suspect(cx: &Cx, name: &str) -> Verdict {
    let (link, key) = (Link::new(), ReentryKey::new());
    let client = cx.subject_through(&link).await;
    // Long enough for a busy machine to look between the first unanswered renewal and the end.
    let ask = cx.ask(name).await.ttl(cx.ttls(6).await).reentrant(&key);
    let outer = cx.hold(&client, &ask).await?;
    link.stall();
    let suspected = async {
        while outer.state() == State::Held {
            sleep(cx.ttl() / 100).await;
        }
        outer.state()
    };
    let state = cx
        .within(cx.freed_by(ask.ttl), "the hold to become suspect", suspected)
        .await?;
    ensure_or_explained!(
        state == State::Suspect,
        "cut off, and {state:?} without ever being suspect"
    );
    let shared = async {
        let inner = share(cx, &client, &ask, &*outer).await?;
        ensure!(inner.state() == outer.state(), "one hold, and two states");
        Ok(inner)
    };
    let inner = shared
        .await
        .map_err(|stop: Stop| stop.explained_if(!outer.believes()))?;
    link.heal();
    drop(inner);
    drop(outer);
    cx.until_free_by(name, cx.freed_by(ask.ttl), "the last guard was dropped")
        .await
}

/// Two acquires with one key that are joined have both the lock, on a free name and on one that was held.
pub(crate) async fn two_acquires_with_one_key_are_no_deadlock(cx: &Cx) -> Verdict {
    let (client, other) = (cx.subject().await, cx.subject().await);
    let stranger = cx.ask("a").await;
    for held in [false, true] {
        let ask = stranger.clone().reentrant(&ReentryKey::new());
        let holder = match held {
            true => Some(cx.hold(&other, &stranger).await?),
            false => None,
        };
        let releasing = async {
            let Some(holder) = holder else { return Ok(()) };
            cx.until_places("a", 1).await?;
            holder.released().await
        };
        let joined = async { tokio::join!(client.acquire(&ask), client.acquire(&ask), releasing) };
        let what = "two joined acquires with one key";
        let (first, second, released) = cx.soon(what, joined).await?;
        released?;
        let (Some(first), Some(second)) = (first.or_fail(what)?, second.or_fail(what)?) else {
            return Err(Stop::assertion("an acquire that waits for ever was busy"));
        };
        ensure!(
            first.token() == second.token(),
            "one key, and two holds: tokens {} and {}",
            first.token(),
            second.token()
        );
        let_go(first).await?;
        cx.ensure_busy(&other, &stranger).await?;
        second.released().await?;
        cx.until_free("a", "both were released").await?;
    }
    Ok(())
}

/// Another key, none, or the same one in another client are strangers: they wait, and a try is busy.
pub(crate) async fn another_key_waits(cx: &Cx) -> Verdict {
    let (client, other, key) = (cx.subject().await, cx.subject().await, ReentryKey::new());
    let plain = cx.ask("a").await;
    let ask = plain.clone().reentrant(&key);
    let strange = plain.clone().reentrant(&ReentryKey::new());
    let guard = cx.hold(&client, &ask).await?;
    for (client, ask) in [(&client, &strange), (&client, &plain), (&other, &ask)] {
        cx.ensure_busy(client, ask).await?;
        let mut waiting = Box::pin(client.acquire(ask));
        let when = "without the key of the hold";
        ensure_pending(&mut waiting, Duration::from_millis(50), when).await?;
    }
    let waiting = Began::acquire(&client, &strange).await;
    guard.released().await?;
    let next = waiting.granted(cx, "the other key to be granted").await?;
    cx.ensure_busy(&client, &ask).await?;
    next.released().await
}

/// Asking for what the hold is not is an error, and costs the hold nothing.
pub(crate) async fn contradicting_options_are_refused(cx: &Cx) -> Verdict {
    let (client, key) = (cx.subject().await, ReentryKey::new());
    let ask = cx.ask("a").await.reentrant(&key);
    let mut contradicting = vec![ask.clone().ttl(ask.ttl + Duration::from_secs(1))];
    let capabilities = client.capabilities();
    if Capability::FixedLease.is_in(capabilities) {
        contradicting.push(ask.clone().fixed());
    }
    if Capability::MinimumHold.is_in(capabilities) {
        contradicting.push(ask.clone().hold_at_least(Duration::from_secs(1)));
    }
    let guard = cx.hold(&client, &ask).await?;
    for other in contradicting.iter().flat_map(|ask| [ask.clone(), ask.clone().trying()]) {
        let what = "an acquire that contradicts its key's hold";
        let Err(error) = cx.soon(what, client.acquire(&other)).await? else {
            return Err(Stop::assertion(format!("held as {ask:?}, and acquired as {other:?}")));
        };
        ensure!(
            error.kind() == ErrorKind::Misconfigured,
            "refused as {:?}: {error}",
            error.kind()
        );
    }
    ensure!(guard.believes(), "the refusal cost the lock: {:?}", guard.state());
    guard.released().await?;
    cx.until_free("a", "the release").await
}

/// A hold that was lost is not shared: a caller with its key waits like others, and gets a hold of its own.
pub(crate) async fn a_lost_hold_is_not_shared(cx: &Cx) -> Verdict {
    let (client, other, key) = (cx.subject().await, cx.subject().await, ReentryKey::new());
    let stranger = cx.ask("a").await;
    let ask = cx.lasting("a").await.reentrant(&key);
    let lost = cx.hold(&client, &ask).await?;
    cx.take_away("a").await;
    cx.within(cx.freed_by(ask.ttl), "the loss to be told", lost.lost())
        .await?;
    let guard = cx.hold(&other, &stranger).await?;
    cx.ensure_busy(&client, &ask).await?;
    let waiting = Began::acquire(&client, &ask).await;
    cx.until_places("a", 1).await?;
    waiting.ensure_waiting("while the next one held what the key had lost")?;
    guard.released().await?;
    let next = waiting.granted(cx, "the key's next hold").await?;
    ensure_safe!(
        next.token() > lost.token(),
        "token {} after {}",
        next.token(),
        lost.token()
    );
    let Err(error) = lost.release().await else {
        return Err(Stop::assertion("what was lost was released without an error"));
    };
    ensure!(
        error.kind() == ErrorKind::Lost,
        "it failed as {:?}: {error}",
        error.kind()
    );
    cx.ensure_busy_beside(&*next, &other, &stranger).await?;
    next.released().await
}
