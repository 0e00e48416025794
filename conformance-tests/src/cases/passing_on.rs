//! A lock passes from one of a client's callers to the next: not for ever while others wait elsewhere, and whatever
//! becomes of either of them.

use std::sync::{Arc, Mutex, PoisonError};

use lock_core::FencingToken;
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::cancel::ensure_enough;
use super::support::{Began, LITTLE, Polls, counts, ensure_pending, granted};
use crate::context::Cx;
use crate::link::Link;
use crate::subject::{Ask, Subject};
use crate::verdict::{Capability, Stop, Verdict, ensure, ensure_safe};

/// More polls than any release takes.
const MANY: u32 = 100;

/// While somebody waits elsewhere, so many pass it on among themselves at the most, where waiters are served in order;
/// elsewhere the one who waits has it in the end. Tokens grow over all of them.
pub(crate) async fn passes_are_bounded(cx: &Cx) -> Verdict {
    let (client, other) = (cx.subject().await, cx.subject().await);
    let ask = cx.ask("a").await;
    let guard = cx.hold(&client, &ask).await?;
    let grants = Arc::new(Mutex::new(vec![(true, guard.token())]));
    let mut turns = JoinSet::new();
    let at_most = client.passes();
    for _ in 0..3 * at_most + 5 {
        let waiting = Began::acquire(&client, &ask).await;
        turns.spawn(turn(waiting, grants.clone(), true));
    }
    turns.spawn(turn(Began::acquire(&other, &ask).await, grants.clone(), false));
    cx.until_places("a", 1).await?;
    guard.released().await?;
    while let Some(turn) = cx
        .within(2 * cx.patience(), "all to have their turn", turns.join_next())
        .await?
    {
        turn.map_err(|panic| Stop::assertion(panic.to_string()))??;
    }
    let grants = grants.lock().unwrap_or_else(PoisonError::into_inner).clone();
    for pair in grants.windows(2) {
        ensure_safe!(
            pair[0].1 < pair[1].1,
            "token {} was followed by {}",
            pair[0].1,
            pair[1].1
        );
    }
    let bypass = grants.iter().skip(1).take_while(|(is_local, _)| *is_local).count();
    ensure!(
        !Capability::Fifo.is_in(client.capabilities()) || bypass <= at_most as usize,
        "one who waited elsewhere was passed {bypass} times, but {at_most} was to be the most"
    );
    cx.until_free("a", "all have had their turn").await
}

/// Whose, and which, in the order of the grants.
type Grants = Arc<Mutex<Vec<(bool, FencingToken)>>>;

async fn turn(waiting: Began, grants: Grants, is_local: bool) -> Verdict {
    let guard = granted(waiting.ended().await?)?;
    grants
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .push((is_local, guard.token()));
    // Nothing is passed on before the clock has reached the next token, and a paused one goes on in sleeps alone.
    sleep(LITTLE).await;
    guard.released().await
}

/// A lock that was passed on and is then taken away is lost to whoever has it, and released by those who had it before.
pub(crate) async fn a_loss_after_passes_is_the_last_holders(cx: &Cx) -> Verdict {
    let client = cx.subject().await;
    // With a ttl that can be waited out: the loss may be found by a renewal.
    let ask = cx.lasting("a").await;
    let mut guard = cx.hold(&client, &ask).await?;
    for _ in 0..3 {
        let next = Began::acquire(&client, &ask).await;
        guard.released().await?;
        guard = next.granted(cx, "the next one to be granted").await?;
    }
    cx.take_away("a").await;
    cx.within(cx.freed_by(ask.ttl), "the loss to be told", guard.lost())
        .await?;
    let Err(error) = cx.soon("the release", guard.release()).await? else {
        return Err(Stop::assertion(
            "a lock that had been taken away was released without an error",
        ));
    };
    ensure!(error.is_lost(), "it failed as {:?}: {error}", error.kind());
    cx.until_free("a", "it was taken away").await
}

/// The next one is dropped while it is being given the lock: the one behind it has it.
pub(crate) async fn a_waiter_is_dropped_during_a_release(cx: &Cx) -> Verdict {
    let (client, ask) = (cx.subject().await, cx.ask("a").await);
    for polls in 0..MANY {
        let guard = cx.hold(&client, &ask).await?;
        let next_ask = with_another_label(&ask);
        let mut next = Box::pin(client.acquire(&next_ask));
        ensure_pending(&mut next, LITTLE, "while it was held").await?;
        let behind = Began::acquire(&client, &ask).await;
        let mut releasing = Box::pin(guard.released());
        let done = cx.soon("a release", Polls::new(&mut releasing, polls)).await?;
        drop(next);
        let is_done = done.is_some();
        match done {
            Some(released) => released?,
            None => cx.soon("the rest of the release", releasing).await??,
        }
        let what = format!("the one behind, after {polls} polls of the release");
        behind.granted(cx, &what).await?.released().await?;
        cx.until_free("a", "the next one was dropped during a release").await?;
        if is_done {
            return ensure_disturbed(&client, polls);
        }
    }
    Err(Stop::assertion(format!("a release takes more than {MANY} polls")))
}

/// The release is dropped while it gives the lock to the next one, who has it all the same.
pub(crate) async fn a_release_is_dropped_before_a_waiter(cx: &Cx) -> Verdict {
    let (client, ask) = (cx.subject().await, cx.ask("a").await);
    for polls in 1..MANY {
        let guard = cx.hold(&client, &ask).await?;
        let next = Began::acquire(&client, &with_another_label(&ask)).await;
        let done = cx.soon("a release", Polls::new(guard.released(), polls)).await?;
        let what = format!("the next one, after a release was dropped that had {polls} polls");
        next.granted(cx, &what).await?.released().await?;
        cx.until_free("a", "a release was dropped").await?;
        if let Some(released) = done {
            released?;
            return ensure_disturbed(&client, polls);
        }
    }
    Err(Stop::assertion(format!("a release takes more than {MANY} polls")))
}

/// On other terms than the holder's, a lock is released: what is passed on as it is takes no request.
fn with_another_label(ask: &Ask) -> Ask {
    ask.clone().label("the next one")
}

fn ensure_disturbed(client: &Arc<dyn Subject>, polls: u32) -> Verdict {
    println!("a release to a local waiter is done after {polls} polls; it was disturbed after each of them");
    ensure_enough(client, polls, "a release was done")
}

/// A release that took effect but whose answer got lost counts, and the next one has the lock, once.
pub(crate) async fn a_release_whose_reply_is_lost_frees_the_next(cx: &Cx) -> Verdict {
    let link = Link::new();
    let client = cx.subject_through(&link).await;
    let ask = cx.ask("a").await;
    for _ in 0..2 {
        let guard = cx.hold(&client, &ask).await?;
        let first = guard.token();
        let next = Began::acquire(&client, &with_another_label(&ask)).await;
        let behind = Began::acquire(&client, &ask).await;
        link.swallow_reply(1);
        let released = cx.soon("the release", guard.release()).await?;
        ensure!(counts(&released), "it took effect, and answered {released:?}");
        let next = next.granted(cx, "the next one to be granted").await?;
        ensure_safe!(next.token() > first, "token {} after {first}", next.token());
        behind.ensure_waiting("while the next one held it")?;
        cx.ensure_busy(cx.observer().await, &ask).await?;
        next.released().await?;
        behind
            .granted(cx, "the one behind to be granted")
            .await?
            .released()
            .await?;
        cx.until_free("a", "all have had their turn").await?;
    }
    Ok(())
}

/// The next one is dropped while the release before it is not answered, be it late or lost: nothing is left.
pub(crate) async fn a_waiter_is_dropped_before_a_release_is_answered(cx: &Cx) -> Verdict {
    for is_lost in [false, true] {
        let link = Link::new();
        let client = cx.subject_through(&link).await;
        let ask = cx.ask("a").await;
        let guard = cx.hold(&client, &ask).await?;
        let next_ask = with_another_label(&ask);
        let mut next = Box::pin(client.acquire(&next_ask));
        ensure_pending(&mut next, LITTLE, "while it was held").await?;
        link.hold_replies_after(0);
        let releasing = tokio::spawn(guard.release());
        cx.soon("an answer to be on its way", link.holding()).await?;
        sleep(LITTLE).await;
        drop(next);
        sleep(LITTLE).await;
        if is_lost {
            link.reset();
        }
        link.heal();
        let released = cx.soon("the release", releasing).await?;
        let released = released.map_err(|panic| Stop::assertion(panic.to_string()))?;
        // Where the connection is the hold, a lost one may be all that it learns.
        ensure!(
            is_lost || released.is_ok(),
            "a release whose answer was late failed: {released:?}"
        );
        cx.until_free("a", "the next one was dropped before it was answered")
            .await?;
    }
    Ok(())
}
