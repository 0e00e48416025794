//! The ways in which a holder learns that it lost its lock.

use std::time::Duration;

use lock_core::backend::Mode;
use lock_core::{ErrorKind, Guard, Locker, Lost, LostCause};
use tokio::time::sleep;

use super::errors::{ensure_explained, ensure_unavailable};
use super::support::{granted, in_one_of, is_pending};
use crate::child::Child;
use crate::context::{Cx, RawCx};
use crate::job::Job;
use crate::link::Link;
use crate::subject::{End, State, SubjectGuard};
use crate::verdict::{OrFail, Stop, Verdict, ensure, ensure_or_explained, ensure_safe};
use crate::yielding::Yielding;

/// Waits until the guard says that it is lost, in each of its ways.
async fn ensure_lost(cx: &Cx, guard: &dyn SubjectGuard, within: Duration, why: &str) -> Verdict {
    cx.within(within, why, guard.lost()).await?;
    ensure!(
        guard.state() == State::Lost,
        "it told its loss, and its state is {:?}",
        guard.state()
    );
    ensure!(
        guard.valid_for().is_zero(),
        "lost, and valid for {:?} more",
        guard.valid_for()
    );
    let end = cx.soon("the watch of a lost lock to end", guard.watch()).await?;
    ensure!(end == End::Lost, "the watch of a lost lock says {end:?}");
    Ok(())
}

/// A lock that is taken away at the server is lost by the next renewal at the latest.
pub(crate) async fn a_lock_taken_away_is_lost(cx: &Cx) -> Verdict {
    let client = cx.subject().await;
    let ask = cx.lasting("a").await;
    let guard = cx.hold(&client, &ask).await?;
    ensure!(
        is_pending(&mut Box::pin(guard.lost()), Duration::from_millis(50)).await,
        "lost while it was held"
    );
    cx.take_away("a").await;
    ensure_lost(
        cx,
        &*guard,
        cx.freed_by(ask.ttl),
        "a holder to learn that its lock was taken away",
    )
    .await
}

/// When the server falls silent, the holder's own clock tells it before anybody else gets the lock.
pub(crate) async fn the_own_clock_tells_before_another_gets_it(cx: &Cx) -> Verdict {
    let (link, ttl) = (Link::new(), cx.ttl());
    let (silent, waiter) = (cx.subject_through(&link).await, cx.subject().await);
    let guard = cx.hold(&silent, &cx.brief("a")).await?;
    sleep(ttl / 2).await;
    link.stall();
    let ask = cx.ask("a").await;
    let what = "another to be granted when the ttl is over";
    let next = cx
        .within(cx.freed_by(ttl), what, waiter.acquire(&ask))
        .await?
        .or_fail(what)?;
    guard.ensure_over()?;
    ensure!(next.is_some(), "a waiter was told busy");
    ensure_lost(cx, &*guard, cx.patience(), "the loss to be told").await
}

/// A server that has gone while a lock is held: first suspect or held, lost when the ttl is over, without any network.
pub(crate) async fn a_server_that_goes_is_a_loss_in_the_end(cx: &Cx) -> Verdict {
    let (link, ttl) = (Link::new(), cx.ttl());
    let client = cx.subject_through(&link).await;
    let guard = cx.hold(&client, &cx.brief("a")).await?;
    link.cut();
    ensure_lost(
        cx,
        &*guard,
        ttl + cx.patience(),
        "the loss of a lock whose server has gone",
    )
    .await
}

/// A server that is back in time costs nothing, unless the connection was the hold: then the loss is told.
pub(crate) async fn a_broken_connection_is_survived_or_told(cx: &Cx) -> Verdict {
    let link = Link::new();
    let client = cx.subject_through(&link).await;
    let guard = cx.hold(&client, &cx.brief("a")).await?;
    link.reset();
    // By then the connection is up again and renewed over, or its end was noticed.
    sleep(2 * cx.ttl()).await;
    if guard.believes() {
        let second = cx.subject().await;
        match cx.ensure_busy_beside(&*guard, &second, &cx.ask("a").await).await {
            // It was lost meanwhile, before the second one was granted.
            Err(Stop::Failed(failure)) if failure.asserted && !failure.safety => {}
            verdict => {
                verdict?;
                return guard.released().await;
            }
        }
    }
    match guard.state() {
        State::Lost => {
            ensure_lost(cx, &*guard, cx.patience(), "the loss to be told").await?;
            cx.until_free_by("a", cx.freed_by(cx.ttl()), "it was lost").await
        }
        state => Err(Stop::assertion(format!("{state:?}, and not told of a loss"))),
    }
}

/// Lost is for good: an answer that comes late revives nothing.
pub(crate) async fn a_late_answer_revives_nothing(cx: &Cx) -> Verdict {
    let (link, ttl) = (Link::new(), cx.ttl());
    let client = cx.subject_through(&link).await;
    let guard = cx.hold(&client, &cx.brief("a")).await?;
    link.hold_replies_after(0);
    cx.within(ttl + cx.patience(), "an answer to be on its way", link.holding())
        .await?;
    link.stall();
    ensure_lost(
        cx,
        &*guard,
        ttl + cx.patience(),
        "the loss of a lock whose server does not answer",
    )
    .await?;
    link.heal();
    for _ in 0..10 {
        sleep(ttl / 10).await;
        ensure!(guard.state() == State::Lost, "after its loss it is {:?}", guard.state());
        ensure!(
            guard.valid_for().is_zero(),
            "after its loss it is valid for {:?}",
            guard.valid_for()
        );
    }
    let Err(error) = guard.release().await else {
        return Err(Stop::assertion("a lost lock was released without an error"));
    };
    ensure!(
        error.kind() == ErrorKind::Lost,
        "released as {:?}: {error}",
        error.kind()
    );
    cx.until_free_by("a", cx.freed_by(2 * ttl), "it was lost").await
}

/// Releasing is no loss: whoever watches is told of a release, and nobody of a loss.
pub(crate) async fn a_release_is_no_loss(cx: &Cx) -> Verdict {
    let client = cx.subject().await;
    let ask = cx.ask("a").await;
    for round in 0..5 {
        let guard = cx.hold(&client, &ask).await?;
        let watching = tokio::spawn(guard.watch());
        tokio::task::yield_now().await;
        if round % 2 == 0 {
            guard.released().await?;
        } else {
            drop(guard);
        }
        let end = cx
            .soon("the watch to end", watching)
            .await?
            .map_err(|panic| Stop::assertion(panic.to_string()))?;
        ensure!(end == End::Released, "released, and the watch says {end:?}");
    }
    Ok(())
}

/// A watch outlives its guard, keeps nothing alive, and never ends while the lock is held.
pub(crate) async fn a_watch_keeps_nothing_alive(cx: &Cx) -> Verdict {
    let (client, other) = (cx.subject().await, cx.subject().await);
    let ask = cx.ask("a").await;
    let guard = cx.hold(&client, &ask).await?;
    let mut watch = guard.watch();
    ensure!(
        is_pending(&mut watch, Duration::from_millis(100)).await,
        "it ended while the lock was held"
    );
    drop(guard);
    // The watch is still there, and the lock is free.
    let what = "the lock whose guard was dropped";
    let next = cx.within(cx.freed_soon().await, what, other.acquire(&ask)).await?;
    granted(next)?.released().await?;
    let end = cx.soon("the watch to end", watch).await?;
    ensure!(end == End::Released, "dropped, and the watch says {end:?}");
    Ok(())
}

/// Work that runs under the lock is done while it is held, and stops when it is lost.
pub(crate) async fn work_stops_with_the_lock(cx: &Cx) -> Verdict {
    let client = cx.subject().await;
    let ask = cx.lasting("a").await;
    let guard = cx.hold(&client, &ask).await?;
    ensure!(
        guard
            .run(Box::pin(async { sleep(Duration::from_millis(20)).await }))
            .await,
        "stopped while it was held"
    );
    let (done, mut gone) = tokio::sync::oneshot::channel::<()>();
    let endless = Box::pin(async move {
        let _done = done;
        std::future::pending().await
    });
    cx.take_away("a").await;
    let finished = cx
        .within(cx.freed_by(ask.ttl), "the work to be stopped", guard.run(endless))
        .await?;
    ensure!(!finished, "work without an end was finished");
    ensure!(gone.try_recv().is_err(), "the work was not dropped");
    let again = cx.soon("work under a lost lock", guard.run(Box::pin(async {}))).await?;
    ensure!(!again, "work was begun under a lock that is lost");
    Ok(())
}

/// The same client can acquire the lock that it lost.
pub(crate) async fn a_lost_lock_can_be_acquired_again(cx: &Cx) -> Verdict {
    let client = cx.subject().await;
    let lasting = cx.lasting("a").await;
    let lost = cx.hold(&client, &lasting).await?;
    cx.take_away("a").await;
    // A client that does not know of the loss yet may be granted the name beside its own guard.
    ensure_lost(cx, &*lost, cx.freed_by(lasting.ttl), "the loss to be told").await?;
    let ask = cx.ask("a").await;
    let what = "the lock that was lost";
    let guard = cx
        .within(cx.freed_by(cx.ttl()), what, client.acquire(&ask))
        .await?
        .or_fail(what)?;
    let guard = guard.ok_or_else(|| Stop::assertion("an acquire that waits for ever was busy"))?;
    ensure_safe!(
        guard.token() > lost.token(),
        "token {} after {}",
        guard.token(),
        lost.token()
    );
    drop(lost);
    sleep(cx.ttl() / 2).await;
    ensure!(
        guard.believes(),
        "the end of the lost one made its successor {:?}",
        guard.state()
    );
    guard.released().await
}

/// A process that is paused for longer than its ttl knows that it lost the lock before it does anything else.
pub(crate) async fn a_paused_process_knows_its_loss(cx: &Cx) -> Verdict {
    let (client, ttl) = (cx.subject().await, cx.ttl());
    let mut child = Child::start(
        cx,
        &Job::Hold {
            name: "a".to_owned(),
            ttl,
            minimum: None,
        },
    )?;
    child.says(cx, "held", cx.patience()).await?;
    child.pause()?;
    let ask = cx.ask("a").await;
    let what = "the paused process's lock";
    let guard = cx
        .within(cx.freed_by(ttl), what, client.acquire(&ask))
        .await?
        .or_fail(what)?;
    let guard = guard.ok_or_else(|| Stop::assertion("a waiter was told busy"))?;
    child.tell("check")?;
    child.resume()?;
    child.says(cx, "lost", cx.patience()).await?;
    child.tell("release")?;
    child.says(cx, "failed Lost", cx.patience()).await?;
    ensure!(
        guard.believes(),
        "the paused process's release made ours {:?}",
        guard.state()
    );
    guard.released().await
}

/// A loss carries the error of the connection, or of the last renewal, and says when the server last confirmed the hold.
pub(crate) async fn a_loss_says_why(cx: &RawCx) -> Verdict {
    in_one_of(3, cx, |name| losses_say_why(cx, name)).await
}

async fn losses_say_why(cx: &RawCx, name: &str) -> Verdict {
    let [cut, silent, taken] = ["cut", "silent", "taken"].map(|how| format!("{name}_{how}"));
    let link = Link::new();
    let ttl = cx.ttl();
    let guard = held_through(cx, &link, &cut, ttl).await?;
    link.cut();
    let lost = ensure_dated(cx, &guard, ttl, "its connection was cut").await?;
    ensure_or_explained!(lost.cause() != LostCause::NotHeld, "cut off from the server: {lost}");
    let is_late = |lost: &Lost| lost.cause() == LostCause::Expired;
    let Some(error) = lost.error() else {
        let stop = Stop::assertion(format!("cut off, and its loss has no error: {lost}"));
        return Err(stop.explained_if(is_late(&lost)));
    };
    ensure_explained(error, "a loss whose connection was cut")?;

    let link = Link::new();
    let guard = held_through(cx, &link, &silent, ttl).await?;
    link.stall();
    let lost = ensure_dated(cx, &guard, ttl, "its connection fell silent").await?;
    let Some(error) = lost.error() else {
        let stop = Stop::assertion(format!("unanswered, and its loss has no error: {lost}"));
        return Err(stop.explained_if(is_late(&lost)));
    };
    ensure_unavailable(error, "a loss whose connection fell silent")?;

    let ttl = cx.lasting_ttl().await;
    let guard = held_through(cx, &Link::new(), &taken, ttl).await?;
    cx.take_away(&taken).await;
    let lost = ensure_dated(cx, &guard, ttl, "it was taken away").await?;
    if lost.cause() == LostCause::NotHeld || lost.error().is_some() {
        return Ok(());
    }
    let stop = Stop::assertion(format!("taken away, and its loss says neither that nor why: {lost}"));
    Err(stop.explained_if(is_late(&lost)))
}

/// A hold of a client behind this link.
async fn held_through(cx: &RawCx, link: &Link, name: &str, ttl: Duration) -> Result<Guard, Stop> {
    let locks = Locker::new(Yielding::new(cx.backend_through(link).await));
    let lock = match cx.alone() {
        Mode::Permits(permits) => locks.semaphore(name, permits.of()).permits(permits.take()),
        _ => locks.lock(name),
    };
    let lock = lock.ttl(ttl);
    cx.soon("a free lock", lock.acquire()).await?.or_fail("acquire")
}

/// The loss of this hold of this ttl, which says how old the server's last word is.
async fn ensure_dated(cx: &RawCx, guard: &Guard, ttl: Duration, why: &str) -> Result<Lost, Stop> {
    let lost = cx.within(cx.freed_by(ttl), why, guard.lost()).await?;
    ensure!(
        lost.last_confirmed().is_some(),
        "{why}, and the loss does not say when the hold was last confirmed: {lost}"
    );
    // A loss of another cause may be noticed after the end of the lease, too.
    let is_right = match (lost.lease_ended(), lost.last_confirmed()) {
        (Some(ended), Some(confirmed)) => ended < confirmed && confirmed - ended <= ttl,
        _ => lost.cause() != LostCause::Expired,
    };
    ensure!(
        is_right,
        "{why}, and its lease ended {:?} before: {lost}",
        lost.lease_ended()
    );
    Ok(lost)
}
