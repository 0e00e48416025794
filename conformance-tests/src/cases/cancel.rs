//! An acquire may be dropped anywhere, and leaves nothing.

use std::sync::Arc;
use std::time::Duration;

use lock_core::backend::DistributedLock;
use tokio::time::{sleep, timeout};

use super::support::{Began, LITTLE, Polls, ensure_pending, refused};
use crate::context::{Cx, RawCx};
use crate::link::Link;
use crate::subject::{LockerSubject, Subject, WaitLimit};
use crate::verdict::{OrFail, Stop, Verdict, ensure};
use crate::watched::Watched;

/// More polls than any acquire of a free lock takes.
const MANY: u32 = 1000;

/// Drops an acquire after so many polls, each time one more, until it comes to its end.
///
/// Each time it is a new client, so that connecting is cut short as well, and each time the lock is free afterwards.
async fn dropped_after_every_poll(cx: &Cx, wait: WaitLimit) -> Verdict {
    let mut ask = cx.ask("a").await;
    ask.wait = wait;
    for polls in 1..MANY {
        let client = cx.subject().await;
        match cx
            .soon("an acquire of a free lock", Polls::new(client.acquire(&ask), polls))
            .await?
        {
            Some(acquired) => {
                let Some(guard) = acquired.or_fail("acquire")? else {
                    return Err(Stop::assertion("a free lock was busy"));
                };
                guard.released().await?;
                println!("an acquire of a free lock is done after {polls} polls; it was dropped after each of them");
                return ensure_enough(&client, polls, "an acquire was done");
            }
            None => {
                let dropped = format!("an acquire was dropped after {polls} polls");
                cx.until_free("a", &dropped).await?;
            }
        }
    }
    Err(Stop::assertion(format!(
        "an acquire of a free lock takes more than {MANY} polls"
    )))
}

/// Fails if it was dropped in fewer places than the client has: then it has shown too little.
pub(super) fn ensure_enough(client: &Arc<dyn Subject>, polls: u32, what: &str) -> Verdict {
    let least = client.least_polls();
    ensure!(
        polls >= least,
        "{what} after {polls} polls, and takes at least {least}: too few to show anything"
    );
    Ok(())
}

/// While the lock is free and the acquire would wait.
pub(crate) async fn an_acquire_is_dropped_after_every_poll(cx: &Cx) -> Verdict {
    dropped_after_every_poll(cx, WaitLimit::Forever).await
}

/// The same for a try.
pub(crate) async fn a_try_is_dropped_after_every_poll(cx: &Cx) -> Verdict {
    dropped_after_every_poll(cx, WaitLimit::Try).await
}

/// While another client holds the lock: nothing of the waiter is left, neither at once nor after the release.
pub(crate) async fn a_wait_is_dropped_after_every_poll(cx: &Cx) -> Verdict {
    let (holder, ask) = (cx.subject().await, cx.ask("a").await);
    let (mut reached, mut rest) = (0, Duration::from_millis(300));
    let least = holder.least_polls();
    while reached + 1 < MANY {
        let polls = reached + 1;
        let guard = cx.hold(&holder, &ask).await?;
        let client = cx.subject().await;
        // It waits for ever where it has come to rest: then there are no more polls.
        let mut waiting = Box::pin(Polls::new(client.acquire(&ask), polls));
        let waited = timeout(rest, &mut waiting).await;
        let is_at_rest = waited.is_err() && polls >= least && has_a_place(cx, rest).await?;
        drop(waiting);
        // Before the release: a guard that it was given would keep the name.
        if let Ok(Some(acquired)) = waited {
            let error = refused(acquired, "a wait while it was held")?;
            return Err(Stop::error("wait", &error));
        }
        guard.released().await?;
        let dropped = format!("a wait was dropped after {polls} polls and its holder had released");
        cx.until_free("a", &dropped).await?;
        match waited {
            Ok(_) => reached = polls,
            // Nothing rests so early: the next poll takes longer on a busy machine.
            Err(_) if polls < least && rest < cx.patience() => rest *= 4,
            // The next poll may only take longer here, too.
            Err(_) if !is_at_rest && 16 * rest <= cx.patience() => rest *= 4,
            Err(_) => break,
        }
    }
    println!("a wait was dropped after up to {reached} polls");
    ensure_enough(&holder, reached + 1, "a wait was at rest")
}

/// Whether one who has not moved for this time waits at the server. A server that does not count shows it by the time alone.
async fn has_a_place(cx: &Cx, rest: Duration) -> Result<bool, Stop> {
    let places = cx.status("a").await?.waiting;
    Ok(places.map_or(rest >= Duration::from_secs(1), |places| places > 0))
}

/// While the grant is on its way to it: the lock goes to the next one.
pub(crate) async fn a_wait_is_dropped_while_it_is_granted(cx: &Cx) -> Verdict {
    let (holder, ask) = (cx.subject().await, cx.ask("a").await);
    for polls in 1..8 {
        let guard = cx.hold(&holder, &ask).await?;
        let client = cx.subject().await;
        let mut waiting = Box::pin(client.acquire(&ask));
        ensure_pending(&mut waiting, Duration::from_millis(100), "while it was held").await?;
        guard.released().await?;
        // A grant that comes within so few polls is dropped as a guard: as good.
        drop(cx.soon("the waiter to be woken", Polls::new(waiting, polls)).await?);
        cx.until_free("a", "a waiter was dropped while it was woken").await?;
    }
    Ok(())
}

/// With each reply of the server held back in turn: what was sent is undone, whether its answer comes late or never.
pub(crate) async fn an_acquire_is_dropped_before_every_reply(cx: &Cx) -> Verdict {
    for come_late in [true, false] {
        let mut replies = 0;
        while !is_done_or_dropped_before_reply(cx, replies, come_late).await? {
            replies += 1;
            ensure!(replies < u64::from(MANY), "an acquire takes more than {MANY} replies");
        }
        println!("an acquire was dropped before each of its first {replies} replies");
        ensure!(replies >= 1, "no reply was ever held back");
    }
    Ok(())
}

/// Acquires a free lock, and returns whether that was done after `replies` replies. If not, it is dropped then, and the
/// other replies come late or never.
async fn is_done_or_dropped_before_reply(cx: &Cx, replies: u64, come_late: bool) -> Result<bool, Stop> {
    let (link, ask) = (Link::new(), cx.ask("a").await);
    let client = cx.subject_through(&link).await;
    link.hold_replies_after(replies);
    let mut acquiring = Box::pin(client.acquire(&ask));
    let what = format!("an acquire of which {replies} replies arrive");
    let done = cx
        .soon(&what, async {
            tokio::select! {
                biased;
                done = &mut acquiring => Some(done),
                () = link.holding() => None,
            }
        })
        .await?;
    if let Some(acquired) = done {
        link.heal();
        let guard = acquired
            .or_fail("acquire")?
            .ok_or_else(|| Stop::assertion("a free lock was busy"))?;
        guard.released().await?;
        return Ok(true);
    }
    // The request has had its effect, wherever it has one.
    sleep(LITTLE).await;
    drop(acquiring);
    sleep(LITTLE).await;
    if !come_late {
        link.reset();
    }
    link.heal();
    let dropped = format!("an acquire was dropped before reply {}", replies + 1);
    cx.until_free("a", &dropped).await?;
    Ok(false)
}

/// One that is dropped in the queue of its own client does not stop those behind it.
pub(crate) async fn a_dropped_wait_does_not_stop_the_queue(cx: &Cx) -> Verdict {
    let (client, ask) = (cx.subject().await, cx.ask("a").await);
    let guard = cx.hold(&client, &ask).await?;
    let mut waiters = Vec::new();
    for _ in 0..3 {
        waiters.push(Began::acquire(&client, &ask).await);
    }
    for dropped in waiters.drain(..2) {
        dropped.drop_it().await;
    }
    guard.released().await?;
    for last in waiters {
        last.granted(cx, "the waiter behind the dropped ones to have its turn")
            .await?
            .released()
            .await?;
    }
    cx.until_free("a", "the last one had its turn").await
}

/// A request that reaches the server after its waiter gave up, and after what undoes it, ends with its ttl at the
/// latest.
pub(crate) async fn a_request_that_arrives_late_is_undone(cx: &RawCx) -> Verdict {
    let (link, ttl) = (Link::new(), cx.ttl());
    let client = cx.backend_through(&link).await;
    cx.connect(&client).await?;
    link.hold_requests();
    let waiter = cx.start_waiting(&client, "a", ttl)?;
    cx.soon("the request to be on its way", link.holding()).await?;
    let (request, control) = (waiter.request.clone(), waiter.control);
    control.give_up();
    let undone = tokio::spawn(async move {
        while client.abandon(&request).await.is_err() {
            sleep(LITTLE).await;
        }
    });
    sleep(ttl / 10).await;
    link.heal();
    cx.within(cx.freed_by(ttl), "the abandon of a request that was on its way", undone)
        .await?
        .map_err(|panic| Stop::assertion(panic.to_string()))?;
    cx.until_free_by("a", cx.freed_by(ttl), "its request was abandoned")
        .await
}

/// An acquire that never had a connection has left nothing and is not undone: an outage leaves no work for later.
pub(crate) async fn nothing_is_undone_that_was_never_sent(cx: &RawCx) -> Verdict {
    let link = Link::new();
    let (nowhere, never_connected) = watched(cx.backend_nowhere().await);
    let (cut_off, client) = watched(cx.backend_through(&link).await);
    let ask = cx.ask("a").await;
    cx.hold(&client, &ask).await?.released().await?;
    link.cut();
    cx.until_cut_off(&client).await?;
    for _ in 0..5 {
        // It may be sent over a connection of which nobody has noticed yet that it has ended.
        let tried = cx
            .soon("a try in an outage", client.acquire(&ask.clone().trying()))
            .await?;
        ensure!(tried.is_err(), "acquired, or busy, in an outage: {tried:?}");
    }
    cut_off.forget();
    tokio::try_join!(acquire_in_vain(cx, &never_connected), acquire_in_vain(cx, &client))?;
    link.heal();
    for (backend, client) in [(nowhere, never_connected), (cut_off, client)] {
        let closed = cx.soon("the shutdown", client.shutdown()).await?;
        let undone = backend.undone();
        ensure!(
            closed.is_ok() && undone == 0,
            "{undone} requests were undone that were never sent; the shutdown answered {closed:?}"
        );
    }
    cx.until_free("a", "requests that were never sent").await
}

/// A client of a backend whose requests are watched.
fn watched(backend: Arc<dyn DistributedLock>) -> (Arc<Watched>, Arc<dyn Subject>) {
    let watched = Watched::new(backend);
    (watched.clone(), Arc::new(LockerSubject::new(watched)))
}

async fn acquire_in_vain(cx: &Cx, client: &Arc<dyn Subject>) -> Verdict {
    let mut began = Vec::new();
    for name in ["a", "b", "c"] {
        let ask = cx.ask(name).await;
        for ask in [ask.clone().trying(), ask.within(Duration::from_millis(300))] {
            began.push(Began::acquire(client, &ask).await);
        }
    }
    for acquire in began {
        let acquired = acquire.end(cx, "an acquire in an outage").await?;
        ensure!(acquired.is_err(), "acquired, or busy, in an outage: {acquired:?}");
    }
    Ok(())
}
