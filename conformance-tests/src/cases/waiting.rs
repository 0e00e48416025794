//! Trying, waiting, and giving up.

use std::time::Duration;

use lock_core::ErrorKind;
use lock_core::backend::request::Terms;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::support::{LITTLE, ensure_pending, granted, in_one_of, refused};
use crate::context::{Cx, RawCx};
use crate::subject::SubjectGuard;
use crate::verdict::{Capability, OrFail, Stop, Verdict, ensure, ensure_or_explained};

/// A try on a free name is granted.
pub(crate) async fn a_try_on_a_free_name_succeeds(cx: &Cx) -> Verdict {
    let client = cx.subject().await;
    let ask = cx.ask("a").await;
    let tried = cx
        .soon("try", client.acquire(&ask.clone().trying()))
        .await?
        .or_fail("try")?;
    let Some(guard) = tried else {
        return Err(Stop::assertion("a free name was busy"));
    };
    cx.ensure_busy(&client, &ask).await?;
    guard.released().await
}

/// A try on a held name says busy, soon, be the holder this client or another one, and leaves nothing behind.
pub(crate) async fn a_try_on_a_held_name_is_busy_at_once(cx: &Cx) -> Verdict {
    let (client, other) = (cx.subject().await, cx.subject().await);
    let ask = cx.ask("a").await;
    let guard = cx.hold(&client, &ask).await?;
    for tried in [&client, &other] {
        // Many, for each of which a moment's wait would be too long.
        let tries = async {
            for _ in 0..5 {
                cx.ensure_busy(tried, &ask).await?;
            }
            Ok(())
        };
        cx.within(cx.patience().min(ask.ttl / 2), "five tries on a held name", tries)
            .await??;
    }
    guard.released().await?;
    cx.until_free("a", "the release, since tries leave no place").await
}

/// A request that does not wait leaves no place at the server.
pub(crate) async fn a_busy_try_leaves_no_place(cx: &RawCx) -> Verdict {
    let (holder, other) = (cx.backend().await, cx.backend().await);
    let grant = cx.grant(&holder, "a").await?;
    for _ in 0..3 {
        cx.ensure_taken(&other, "a").await?;
    }
    let waiting = cx.status("a").await?.waiting.unwrap_or(0);
    ensure!(waiting == 0, "{waiting} wait, but all only tried");
    grant.release().await?;
    cx.until_free("a", "the release").await
}

/// `drop(guard)` and then a try in the same process: the try finds it free.
pub(crate) async fn a_try_after_a_drop_succeeds(cx: &Cx) -> Verdict {
    let client = cx.subject().await;
    let ask = cx.ask("a").await;
    for round in 0..5 {
        drop(cx.hold(&client, &ask).await?);
        let tried = cx
            .soon("try", client.acquire(&ask.clone().trying()))
            .await?
            .or_fail("try")?;
        let Some(guard) = tried else {
            return Err(Stop::assertion(format!("busy right after the drop, in round {round}")));
        };
        guard.released().await?;
    }
    Ok(())
}

/// A waiter gets the lock when its holder, another client, releases it, and not before.
pub(crate) async fn a_release_wakes_a_waiter(cx: &Cx) -> Verdict {
    let (holder, waiter) = (cx.subject().await, cx.subject().await);
    let ask = cx.ask("a").await;
    let guard = cx.hold(&holder, &ask).await?;
    let mut waiting = Box::pin(waiter.acquire(&ask));
    ensure_pending(&mut waiting, cx.ttl(), "while another client held it").await?;
    guard.released().await?;
    let what = "the waiter to be granted after the release";
    let acquired = cx.within(cx.freed_soon().await, what, waiting).await?;
    granted(acquired)?.released().await
}

/// The same within one client.
pub(crate) async fn a_release_wakes_a_waiter_of_the_same_client(cx: &Cx) -> Verdict {
    let client = cx.subject().await;
    let ask = cx.ask("a").await;
    let guard = cx.hold(&client, &ask).await?;
    let mut waiting = Box::pin(client.acquire(&ask));
    let when = "while its own client held it";
    ensure_pending(&mut waiting, Duration::from_millis(100), when).await?;
    guard.released().await?;
    let what = "the waiter to be granted after the release";
    granted(cx.within(cx.freed_soon().await, what, waiting).await?)?;
    Ok(())
}

/// A wait ends at its deadline: never before, and with an error that says who has the lock.
pub(crate) async fn a_wait_times_out_naming_the_holder(cx: &Cx) -> Verdict {
    let (holder, waiter) = (cx.subject().await, cx.subject().await);
    let ask = cx.ask("a").await;
    let guard = cx.hold(&holder, &ask.clone().label("the holder")).await?;
    let (mut time, mut attempts) = (Duration::from_secs(2), 0);
    let error = loop {
        // It has reached the server, and will be answered in time.
        cx.ensure_busy(&waiter, &ask).await?;
        let started = Instant::now();
        let waited = cx
            .within(
                time + cx.patience(),
                "a bounded wait",
                waiter.acquire(&ask.clone().within(time)),
            )
            .await?;
        let took = started.elapsed();
        let error = refused(waited, "a bounded wait")?;
        ensure!(took >= time, "a wait of {time:?} ended after {took:?}");
        attempts += 1;
        // On a busy machine it may not be answered in time.
        if error.kind() != ErrorKind::Unavailable || attempts == 3 {
            break error;
        }
        time *= 4;
    };
    ensure!(
        error.kind() == ErrorKind::TimedOut,
        "a wait that timed out failed as {:?}: {error}",
        error.kind()
    );
    let known = cx.holder_of("a").await?;
    ensure!(
        known.is_none() || error.holder() == known.as_deref(),
        "the server knows the holder as {known:?}, the error says {:?}",
        error.holder()
    );
    guard.released().await
}

/// The same among tasks of one client.
pub(crate) async fn a_wait_behind_the_own_client_times_out(cx: &Cx) -> Verdict {
    let client = cx.subject().await;
    let ask = cx.ask("a").await;
    let guard = cx.hold(&client, &ask.clone().label("the holder")).await?;
    let time = Duration::from_millis(300);
    let started = Instant::now();
    let waited = cx
        .within(
            time + cx.patience(),
            "a bounded wait",
            client.acquire(&ask.clone().within(time)),
        )
        .await?;
    let took = started.elapsed();
    let error = refused(waited, "a wait behind the own client")?;
    ensure!(
        error.kind() == ErrorKind::TimedOut,
        "a wait that timed out failed as {:?}: {error}",
        error.kind()
    );
    ensure!(
        error.holder() == Some("the holder"),
        "the holder is ours, yet the error names {:?}",
        error.holder()
    );
    ensure!(took >= time, "a wait of {time:?} ended after {took:?}");
    guard.released().await
}

/// Tasks of one client wait with one limit for what another client holds, which the server has said: all time out. One whose
/// time is up before the server has answered it was not refused by a server that has gone.
pub(crate) async fn waits_with_one_limit_all_time_out(cx: &Cx) -> Verdict {
    const TASKS: u32 = 20;
    let (holder, client) = (cx.subject().await, cx.subject().await);
    let ask = cx.ask("a").await;
    let guard = cx.hold(&holder, &ask).await?;
    for gap in [Duration::ZERO, Duration::from_millis(5)] {
        let (mut time, mut attempts) = (Duration::from_secs(2), 0);
        let error = loop {
            cx.ensure_busy(&client, &ask).await?;
            let mut tasks = JoinSet::new();
            for number in 0..TASKS {
                let (client, ask) = (client.clone(), ask.clone().within(time));
                tasks.spawn(async move {
                    sleep(gap * number).await;
                    client.acquire(&ask).await
                });
            }
            let waits = async {
                let mut other = None;
                while let Some(waited) = tasks.join_next().await {
                    let waited = waited.map_err(|panic| Stop::assertion(panic.to_string()))?;
                    let error = refused(waited, "a wait with the limit of others")?;
                    if error.kind() != ErrorKind::TimedOut {
                        other = Some(error);
                    }
                }
                Ok(other)
            };
            let error = cx.within(time + cx.patience(), "waits with one limit", waits).await??;
            attempts += 1;
            // On a busy machine the server may not have answered any of them in time.
            if error.is_none() || attempts == 3 {
                break error;
            }
            time *= 4;
        };
        if let Some(error) = error {
            let kind = error.kind();
            return Err(Stop::assertion(format!(
                "of {TASKS} waits for a name that is taken, one failed as {kind:?}: {error}"
            )));
        }
    }
    guard.released().await
}

/// A wait of no time at all is one try: granted on a free lock, timed out on a taken one, by whomever.
pub(crate) async fn a_wait_of_zero_is_one_try(cx: &Cx) -> Verdict {
    let (holder, other) = (cx.subject().await, cx.subject().await);
    let ask = cx.ask("a").await.within(Duration::ZERO).label("the holder");
    // Also as the first thing that a client does.
    let guard = match cx.soon("a wait of zero", holder.acquire(&ask)).await? {
        Ok(Some(guard)) => guard,
        other => return Err(Stop::assertion(format!("a wait of zero on a free lock: {other:?}"))),
    };
    let known = cx.holder_of("a").await?;
    for client in [&holder, &other] {
        let what = "a wait of zero on a held lock";
        let error = refused(cx.soon(what, client.acquire(&ask)).await?, what)?;
        ensure!(
            error.kind() == ErrorKind::TimedOut,
            "a wait of zero on a held lock failed as {:?}: {error}",
            error.kind()
        );
        ensure!(
            known.is_none() || error.holder() == known.as_deref(),
            "the server knows the holder as {known:?}, the error says {:?}",
            error.holder()
        );
    }
    guard.released().await?;
    cx.until_free("a", "the release, since tries leave no place").await?;
    cx.hold(&other, &ask).await?.released().await
}

/// A waiter that timed out leaves nothing: the lock is free when its holder releases it.
pub(crate) async fn a_timed_out_wait_leaves_nothing(cx: &Cx) -> Verdict {
    let (holder, waiter) = (cx.subject().await, cx.subject().await);
    let ask = cx.ask("a").await;
    let guard = cx.hold(&holder, &ask).await?;
    for _ in 0..3 {
        let waited = waiter.acquire(&ask.clone().within(Duration::from_millis(150))).await;
        refused(waited, "a wait that times out")?;
    }
    guard.released().await?;
    cx.until_free("a", "the release, since those who waited have gone")
        .await
}

/// A wait for ever outlasts any number of its holder's and its own ttls.
pub(crate) async fn a_wait_for_ever_outlasts_every_ttl(cx: &Cx) -> Verdict {
    let (holder, waiter) = (cx.subject().await, cx.subject().await);
    let guard = cx.hold(&holder, &cx.ask("a").await).await?;
    let brief = cx.brief("a");
    let mut waiting = Box::pin(waiter.acquire(&brief));
    ensure_pending(&mut waiting, 3 * cx.ttl(), "while it was held").await?;
    guard.released().await?;
    let what = "the waiter to be granted";
    granted(cx.within(cx.freed_soon().await, what, waiting).await?)?;
    Ok(())
}

/// A waiter that gives up does not keep the lock from the next one.
pub(crate) async fn a_waiter_that_gives_up_is_passed_over(cx: &RawCx) -> Verdict {
    let (holder, first, second) = (cx.backend().await, cx.connected().await?, cx.connected().await?);
    let ttl = cx.long_ttl().await;
    let grant = cx.grant(&holder, "a").await?;
    let gone = cx.wait_for(&first, "a", ttl).await?;
    let waiting = cx.wait_for(&second, "a", ttl).await?;
    gone.abandon(cx, &first).await?;
    waiting.ensure_waiting("while the name was held")?;
    grant.release().await?;
    let next = waiting.grant_soon(cx, "the second waiter to be granted").await?;
    next.release().await
}

/// A waiting request knows that the name is taken, and ends soon when nobody waits for it any more.
pub(crate) async fn a_request_given_up_ends_soon(cx: &RawCx) -> Verdict {
    let (holder, waiter) = (cx.backend().await, cx.backend().await);
    let grant = cx.grant(&holder, "a").await?;
    let waiting = cx.wait_for(&waiter, "a", cx.long_ttl().await).await?;
    waiting.abandon(cx, &waiter).await?;
    ensure!(cx.is_held("a").await?, "giving up ended somebody else's hold");
    grant.release().await?;
    cx.until_free("a", "the release").await
}

/// Terms may change while a request waits; the hold has those of the moment when it was granted.
pub(crate) async fn the_terms_of_the_grant_count(cx: &RawCx) -> Verdict {
    in_one_of(5, cx, |name| granted_on_new_terms(cx, name)).await
}

async fn granted_on_new_terms(cx: &RawCx, name: &str) -> Verdict {
    let (holder, waiter) = (cx.backend().await, cx.backend().await);
    let grant = cx.grant(&holder, name).await?;
    let ttl = cx.long_ttl().await;
    let former = (ttl / 4).max(waiter.capabilities().shortest_ttl);
    let waiting = cx.wait_for(&waiter, name, former).await?;
    waiting.control.set_terms(Terms::new(ttl).label("the winner"));
    // By then requests with the former terms are answered. The contract has no event for that: a request that was sent before may
    // be granted on the terms with which it was sent.
    sleep(50 * LITTLE).await;
    grant.release().await?;
    let granted = waiting.grant_soon(cx, "the waiter to be granted").await?;
    let label = cx.holder_of(name).await?;
    ensure_or_explained!(
        label.is_none() || label.as_deref() == Some("the winner"),
        "the label of the grant is {label:?}, not the one that the request had by then"
    );
    granted.release().await
}

/// Those who wait longest come first, give or take a pass within a client. By capability.
pub(crate) async fn waiters_are_served_in_order(cx: &Cx) -> Verdict {
    Capability::Fifo.or_skip(cx.observer().await.capabilities())?;
    let ask = cx.ask("a").await;
    let holder = cx.subject().await;
    let guard = cx.hold(&holder, &ask).await?;
    let (say, mut order) = tokio::sync::mpsc::unbounded_channel();
    let mut waiting = Vec::new();
    for number in 0..4 {
        let (client, ask, say) = (cx.subject().await, ask.clone(), say.clone());
        waiting.push(tokio::spawn(async move {
            let guard: Option<Box<dyn SubjectGuard>> = client.acquire(&ask).await.or_fail("wait")?;
            // The case has failed already where nobody listens.
            let _ = say.send(number);
            match guard {
                Some(guard) => guard.released().await,
                None => Err(Stop::assertion("a waiter was told busy")),
            }
        }));
        cx.until_places("a", number + 1).await?;
    }
    guard.released().await?;
    for expected in 0..4 {
        let what = "the next one to be granted";
        let next = cx.within(cx.freed_soon().await, what, order.recv()).await?;
        ensure!(next == Some(expected), "waiter {next:?} came before waiter {expected}");
    }
    for waiter in waiting {
        waiter.await.map_err(|panic| Stop::assertion(panic.to_string()))??;
    }
    Ok(())
}
