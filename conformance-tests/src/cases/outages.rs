//! The effects of an outage on those who hold, wait, try and release.

use std::convert::Infallible;
use std::time::Duration;

use lock_core::{Error, ErrorKind};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use super::errors::{ensure_explained, ensure_unavailable};
use super::support::{LITTLE, ensure_pending, refused, side_by_side};
use crate::context::{Cx, RawCx};
use crate::link::Link;
use crate::verdict::{OrFail, Stop, Verdict, ensure};

/// A server that cannot be reached is no reason to say busy.
pub(crate) async fn an_outage_is_not_busy(cx: &Cx) -> Verdict {
    let link = Link::new();
    let client = cx.subject_through(&link).await;
    let ask = cx.ask("a").await;
    cx.hold(&client, &ask).await?.released().await?;
    link.cut();
    match cx
        .soon("a try in an outage", client.acquire(&ask.clone().trying()))
        .await?
    {
        Ok(None) => return Err(Stop::assertion("busy, says a client that cannot reach the server")),
        Ok(Some(_)) => return Err(Stop::assertion("acquired from a server that cannot be reached")),
        Err(error) => ensure_unavailable(&error, "a try in an outage")?,
    }
    match cx.soon("a status in an outage", client.status("a")).await? {
        Ok(status) => {
            return Err(Stop::assertion(format!(
                "a server that cannot be reached said {status:?}"
            )));
        }
        Err(error) => ensure_unavailable(&error, "a status in an outage")?,
    }
    link.heal();
    cx.hold(&client, &ask).await?.released().await
}

/// The raw backend says so as well: an unknown outcome is an error, and the next request finds the way again.
pub(crate) async fn a_lost_connection_is_an_error_and_mended(cx: &RawCx) -> Verdict {
    let link = Link::new();
    let client = cx.backend_through(&link).await;
    cx.grant(&client, "a").await?.release().await?;
    link.cut();
    let (request, _control) = cx.trying("a", cx.long_ttl().await)?;
    match cx.soon("a try in an outage", client.acquire(&request)).await? {
        Ok(attempt) => {
            return Err(Stop::assertion(format!(
                "a server that cannot be reached answered {attempt:?}"
            )));
        }
        Err(error) => ensure_unavailable(&error, "a try in an outage")?,
    }
    link.heal();
    let mended = async {
        while client.acquire(&request).await.is_err() {
            sleep(Duration::from_millis(20)).await;
        }
    };
    cx.soon("the connection to come back", mended).await?;
    client.abandon(&request).await.or_fail("abandon")?;
    cx.until_free("a", "the abandon").await
}

/// A waiter outlasts an outage, and gets the lock after it.
pub(crate) async fn a_waiter_outlasts_an_outage(cx: &Cx) -> Verdict {
    let link = Link::new();
    let (holder, waiter) = (cx.subject().await, cx.subject_through(&link).await);
    let ask = cx.ask("a").await;
    cx.hold(&waiter, &ask).await?.released().await?;
    let guard = cx.hold(&holder, &ask).await?;
    let mut waiting = Box::pin(waiter.acquire(&ask));
    ensure_pending(&mut waiting, Duration::from_millis(100), "while it was held").await?;
    link.cut();
    ensure_pending(&mut waiting, cx.ttl(), "in an outage").await?;
    link.heal();
    guard.released().await?;
    let acquired = cx
        .soon("the waiter to be granted after the outage", waiting)
        .await?
        .or_fail("wait")?;
    let acquired = acquired.ok_or_else(|| Stop::assertion("a waiter was told busy"))?;
    acquired.released().await?;
    cx.until_free_by("a", cx.freed_by(cx.ttl()), "the outage").await
}

/// If the connection of a waiter is cut, its wait ends at its deadline as unavailable, not as a lock that is taken.
pub(crate) async fn a_wait_ends_in_an_outage(cx: &Cx) -> Verdict {
    let error = a_wait_that_is_told(cx, Duration::from_secs(3), Link::cut).await?;
    ensure_explained(&error, "a wait whose connection was cut")
}

/// If the connection of a waiter falls silent for long enough, so does it.
pub(crate) async fn a_wait_ends_in_a_silence(cx: &Cx) -> Verdict {
    let error = a_wait_that_is_told(cx, 3 * cx.ttl(), Link::stall).await?;
    ensure_explained(&error, "a wait whose connection is silent")
}

/// The error of a wait whose connection fails. On a busy machine the client may notice the failure too late; then the
/// wait is repeated.
async fn a_wait_that_is_told(cx: &Cx, time: Duration, fail: fn(&Link)) -> Result<Error, Stop> {
    for _ in 0..2 {
        let error = a_wait_behind(cx, time, fail).await?;
        if error.kind() != ErrorKind::TimedOut {
            return Ok(error);
        }
    }
    a_wait_behind(cx, time, fail).await
}

/// The error of a wait for a lock that is taken, if the connection fails meanwhile.
async fn a_wait_behind(cx: &Cx, time: Duration, fail: fn(&Link)) -> Result<Error, Stop> {
    let link = Link::new();
    let (holder, waiter) = (cx.subject().await, cx.subject_through(&link).await);
    let ask = cx.ask("a").await;
    let guard = cx.hold(&holder, &ask).await?;
    cx.ensure_busy(&waiter, &ask).await?;
    let started = Instant::now();
    let limited = ask.within(time);
    let mut waiting = Box::pin(waiter.acquire(&limited));
    ensure_pending(&mut waiting, Duration::from_millis(100), "while it was held").await?;
    fail(&link);
    let what = "a wait in an outage";
    let error = refused(cx.within(time + cx.patience(), what, waiting).await?, what)?;
    let took = started.elapsed();
    ensure!(took >= time, "a wait of {time:?} ended after {took:?}: {error}");
    link.heal();
    guard.released().await?;
    cx.until_free_by("a", cx.freed_by(cx.ttl()), "the outage").await?;
    Ok(error)
}

/// A client that has reached its server tells a server that has gone from a lock that is taken.
pub(crate) async fn a_server_that_has_gone_is_unavailable(cx: &Cx) -> Verdict {
    for error in acquires_of_a_free_lock(cx, Link::cut).await? {
        ensure_explained(&error, "a server that has gone")?;
    }
    Ok(())
}

/// And a server that has fallen silent.
pub(crate) async fn a_server_that_has_fallen_silent_is_unavailable(cx: &Cx) -> Verdict {
    for error in acquires_of_a_free_lock(cx, Link::stall).await? {
        ensure_unavailable(&error, "a server that has fallen silent")?;
    }
    Ok(())
}

/// The errors of a try and of a wait, if the client's connection has failed before.
async fn acquires_of_a_free_lock(cx: &Cx, fail: fn(&Link)) -> Result<Vec<Error>, Stop> {
    let ask = cx.ask("a").await;
    let mut errors = Vec::new();
    for limited in [ask.clone().trying(), ask.clone().within(Duration::from_secs(2))] {
        let link = Link::new();
        let client = cx.subject_through(&link).await;
        cx.hold(&client, &ask).await?.released().await?;
        fail(&link);
        let Err(error) = cx.soon("an acquire in an outage", client.acquire(&limited)).await? else {
            let wait = limited.wait;
            return Err(Stop::assertion(format!("{wait:?} in an outage: busy, or granted")));
        };
        errors.push(error);
        link.heal();
        cx.until_free("a", "an acquire in an outage").await?;
    }
    Ok(errors)
}

/// Once the server is back, the first try asks it, however long it was away.
pub(crate) async fn a_try_after_an_outage_asks_the_server(cx: &Cx) -> Verdict {
    let link = Link::new();
    let client = cx.subject_through(&link).await;
    let ask = cx.ask("a").await;
    cx.hold(&client, &ask).await?.released().await?;
    for length in [100, 1000, 3000].map(Duration::from_millis) {
        link.cut();
        let outage = async {
            loop {
                // A connection that fails again and again is dialled less and less often.
                let _unavailable = client.acquire(&ask.clone().trying()).await;
                sleep(LITTLE).await;
            }
        };
        let _ended: Result<Infallible, _> = timeout(length, outage).await;
        link.heal();
        match cx
            .soon("a try after an outage", client.acquire(&ask.clone().trying()))
            .await?
        {
            Ok(Some(guard)) => guard.released().await?,
            Ok(None) => return Err(Stop::assertion("busy after an outage, but nobody holds it")),
            Err(error) => {
                let message = format!("the server is back after {length:?}, and a try failed: {error:?}");
                return Err(Stop::assertion(message));
            }
        }
    }
    cx.until_free("a", "the last release").await
}

/// Releasing in an outage fails as unavailable; the lock is free when its ttl is over, or before.
pub(crate) async fn a_release_in_an_outage_is_told(cx: &Cx) -> Verdict {
    let link = Link::new();
    let client = cx.subject_through(&link).await;
    let guard = cx.hold(&client, &cx.brief("a")).await?;
    link.cut();
    if let Err(error) = cx
        .within(cx.ttl() + cx.patience(), "a release in an outage", guard.release())
        .await?
    {
        ensure!(
            matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Lost),
            "a release in an outage failed as {:?}: {error}",
            error.kind()
        );
    }
    cx.until_free_by("a", cx.freed_by(cx.ttl()), "a release in an outage")
        .await
}

/// So many tasks acquire during an outage, so often each.
const CROWD: usize = 100;
const CANCELS: usize = 4;

/// Many acquires are cancelled while the server is silent. Once it answers, as many new ones are granted soon, and what was
/// cancelled holds nothing: undoing it neither keeps others waiting nor is forgotten.
pub(crate) async fn cancelled_acquires_do_not_prolong_an_outage(cx: &Cx) -> Verdict {
    let link = Link::new();
    let client = cx.subject_through(&link).await;
    let ask = cx.ask("a").await;
    cx.hold(&client, &ask).await?.released().await?;
    link.stall();
    let mut tasks = JoinSet::new();
    for task in 0..CROWD {
        let (client, mut ask) = (client.clone(), ask.clone());
        tasks.spawn(async move {
            for round in 0..CANCELS {
                ask.name = cancelled(task, round);
                drop(timeout(Duration::from_millis(10), client.acquire(&ask)).await);
            }
        });
    }
    cx.soon("acquires that are cancelled", tasks.join_all()).await?;
    link.heal();
    let mut tasks = JoinSet::new();
    for task in 0..CROWD {
        let (client, mut ask) = (client.clone(), ask.clone());
        ask.name = new_name(task);
        tasks.spawn(async move {
            let acquired = client.acquire(&ask).await.or_fail("acquire after an outage")?;
            // Not awaited: on a slow machine, a release behind hundreds of requests takes longer than its call waits.
            acquired.map(drop).ok_or_else(|| Stop::assertion("a new lock was busy"))
        });
    }
    // On a busy machine, hundreds of requests take long.
    let limit = 3 * cx.patience();
    let granted = cx.within(limit, "as many new locks, once the server answers", tasks.join_all());
    granted.await?.into_iter().collect::<Verdict>()?;
    let names = (0..CROWD).flat_map(|task| {
        (0..CANCELS)
            .map(move |round| cancelled(task, round))
            .chain([new_name(task)])
    });
    let freed = names.map(|name| async move {
        let free = async {
            while cx.is_held(&name).await? {
                sleep(LITTLE).await;
            }
            Ok::<_, Stop>(())
        };
        let what = "each of them to be undone or released";
        cx.within(cx.freed_soon().await, what, free).await?
    });
    side_by_side(freed).await
}

fn new_name(task: usize) -> String {
    format!("{task}/new")
}

fn cancelled(task: usize, round: usize) -> String {
    format!("{task}/{round}")
}
