//! The waiters of one client share one place at the server, which lives as long as any of them waits.

use std::time::Duration;

use tokio::time::sleep;

use super::support::{Began, LITTLE, ensure_pending_beside, in_one_of, refused};
use crate::context::Cx;
use crate::link::Link;
use crate::subject::SubjectGuard;
use crate::verdict::{Capability, Stop, Verdict, ensure, ensure_safe};

/// Fifty waiters of a client cost the server one entry, where it counts them, and all have their turn, in order.
pub(crate) async fn local_waiters_share_one_place(cx: &Cx) -> Verdict {
    const WAITERS: usize = 50;
    let (holder, client) = (cx.subject().await, cx.subject().await);
    let ask = cx.ask("a").await;
    let guard = cx.hold(&holder, &ask).await?;
    let mut waiting = Vec::new();
    for _ in 0..WAITERS {
        waiting.push(Began::acquire(&client, &ask).await);
    }
    cx.until_places("a", 1).await?;
    let places = cx.status("a").await?.waiting.unwrap_or(1);
    ensure!(
        places == 1,
        "{WAITERS} waiters of one client take {places} places at the server"
    );
    guard.released().await?;
    let mut last = None;
    for number in 0..WAITERS {
        let next = waiting
            .remove(0)
            .granted(cx, &format!("waiter {number} to be granted"))
            .await?;
        let token = Some(next.token());
        ensure_safe!(token > last, "token {token:?} after {last:?}");
        last = token;
        for behind in &waiting {
            behind.ensure_waiting(&format!("while waiter {number} held it"))?;
        }
        next.released().await?;
    }
    cx.until_free("a", "all have had their turn").await
}

/// When all who waited have gone, so has their place.
pub(crate) async fn no_place_outlives_its_waiters(cx: &Cx) -> Verdict {
    let (holder, client) = (cx.subject().await, cx.subject().await);
    let ask = cx.ask("a").await;
    let guard = cx.hold(&holder, &ask).await?;
    let mut waiting = Vec::new();
    for _ in 0..6 {
        waiting.push(Began::acquire(&client, &ask).await);
    }
    cx.until_places("a", 1).await?;
    for waiter in waiting {
        waiter.drop_it().await;
    }
    let gone = async {
        while cx.status("a").await?.waiting.is_some_and(|places| places > 0) {
            sleep(LITTLE).await;
        }
        Ok::<_, Stop>(())
    };
    cx.soon("the place of those who have gone to be given back", gone)
        .await??;
    ensure!(cx.is_held("a").await?, "those who only waited ended the hold");
    guard.released().await?;
    cx.until_free("a", "those who waited had gone").await
}

/// That the first one's time is up does not cost the others their place before another client. By capability.
pub(crate) async fn a_place_outlives_a_timeout(cx: &Cx) -> Verdict {
    place_outlives(cx, Some(Duration::from_secs(12))).await
}

/// Nor does it when the first one is dropped. By capability.
pub(crate) async fn a_place_outlives_a_cancel(cx: &Cx) -> Verdict {
    place_outlives(cx, None).await
}

/// The first one waits so long, or is dropped.
async fn place_outlives(cx: &Cx, time: Option<Duration>) -> Verdict {
    let (holder, client, other) = (cx.subject().await, cx.subject().await, cx.subject().await);
    Capability::Fifo.or_skip(client.capabilities())?;
    let ask = cx.ask("a").await;
    let guard = cx.hold(&holder, &ask).await?;
    // It has reached the server, and has its place in time.
    cx.ensure_busy(&client, &ask).await?;
    let first = match time {
        Some(time) => Began::acquire(&client, &ask.clone().within(time)).await,
        None => Began::acquire(&client, &ask).await,
    };
    cx.until_places("a", 1).await?;
    let second = Began::acquire(&client, &ask).await;
    let elsewhere = Began::acquire(&other, &ask).await;
    cx.until_places("a", 2).await?;
    match time {
        Some(time) => {
            let what = "the first one's time to be up";
            let ended = cx.within(time + cx.patience(), what, first.ended()).await??;
            refused(ended, what)?;
        }
        None => first.drop_it().await,
    }
    // By then the server has received all requests.
    sleep(Duration::from_millis(50)).await;
    guard.released().await?;
    let next = second.granted(cx, "the one behind the first one to be granted").await?;
    elsewhere.ensure_waiting("while the one behind the first one held it")?;
    next.released().await?;
    elsewhere
        .granted(cx, "the client that came later to be granted")
        .await?
        .released()
        .await
}

/// A grant is on the terms of the one who gets it, whoever waited first: for longer than that one, and for less.
pub(crate) async fn the_winner_has_its_own_terms(cx: &Cx) -> Verdict {
    let long = cx.long_ttl().await;
    for terms in [(cx.ttl(), long), (long, cx.ttl())] {
        own_terms(cx, terms).await?;
    }
    Ok(())
}

/// The ttl of the one who leaves, and of the one who wins.
async fn own_terms(cx: &Cx, terms: (Duration, Duration)) -> Verdict {
    // A request may be on its way when its waiter leaves, and show the former terms. Not each time.
    in_one_of(5, cx, |name| won_on_own_terms(cx, name, terms)).await
}

async fn won_on_own_terms(cx: &Cx, name: &str, (left, won): (Duration, Duration)) -> Verdict {
    let (holder, client) = (cx.subject().await, cx.subject().await);
    let ask = cx.ask(name).await;
    let guard = cx.hold(&holder, &ask).await?;
    let first = Began::acquire(&client, &ask.clone().ttl(left).label("who left")).await;
    ensure_placed(cx, name, &first).await?;
    // A try of the same client is answered only when the server has refused the first one.
    cx.ensure_busy_beside(&*guard, &client, &ask).await?;
    let winner = Began::acquire(&client, &ask.clone().ttl(won).label("the winner")).await;
    first.drop_it().await;
    sleep(LITTLE).await;
    guard.released().await?;
    let guard = winner.granted(cx, "the one who is still there to be granted").await?;
    let former = |message| Stop::explained(message);
    ensure_winners_terms(former, cx, name, &*guard, (left, won)).await?;
    guard.released().await
}

/// Waits until the first one waits at the server, as it must: another one holds the name, whose ttl does not end meanwhile.
async fn ensure_placed(cx: &Cx, name: &str, first: &Began) -> Verdict {
    let placed = cx.until_places(name, 1).await;
    first.ensure_waiting("while another client held it")?;
    placed
}

/// `former`: the failure if it has other terms than its own. The ttls are of the one who left, and of the winner.
async fn ensure_winners_terms(
    former: impl Fn(String) -> Stop,
    cx: &Cx,
    name: &str,
    guard: &dyn SubjectGuard,
    (left, won): (Duration, Duration),
) -> Verdict {
    let status = cx.status(name).await?;
    let [holder] = status.holders.as_slice() else {
        let stop = Stop::assertion(format!("one holds it, and {status:?}"));
        return Err(stop.explained_if(!guard.believes()));
    };
    let label = holder.label.as_deref();
    if label.is_some_and(|label| label != "the winner") {
        return Err(former(format!("the winner's label became {label:?}")));
    }
    ensure!(
        holder.token.is_none_or(|token| token == guard.token()),
        "the winner's token {} became {:?}",
        guard.token(),
        holder.token
    );
    if cx.observer().await.capabilities().session_renewal {
        return Ok(());
    }
    // A server may count in coarse steps, far smaller than what tells the two apart.
    let longest = won + cx.timing().tick + Duration::from_millis(100);
    for (whose, rest) in [
        ("the server's", holder.expires_in),
        ("the guard's", Some(guard.valid_for())),
    ] {
        if rest.is_some_and(|rest| rest > longest || rest <= left && left <= won) {
            return Err(former(format!(
                "of the winner's ttl of {won:?}, {rest:?} are left by {whose} clock; that of the one who left was {left:?}"
            )));
        }
    }
    Ok(())
}

/// A grant that was under way on the terms of one who has gone meanwhile is the next one's. Where a hold can be handed
/// over, it ends up on the next one's terms; elsewhere to acquire anew would cost the place, and the old ones may show.
pub(crate) async fn a_grant_to_one_who_left_is_the_next_ones(cx: &Cx) -> Verdict {
    in_one_of(3, cx, |name| granted_after_one_who_left(cx, name)).await
}

async fn granted_after_one_who_left(cx: &Cx, name: &str) -> Verdict {
    let link = Link::new();
    let (holder, client) = (cx.subject().await, cx.subject_through(&link).await);
    let ask = cx.ask(name).await;
    let (left, won) = (cx.long_ttl().await, cx.ttl());
    let guard = cx.hold(&holder, &ask).await?;
    let first = Began::acquire(&client, &ask.clone().ttl(left).label("who left")).await;
    ensure_placed(cx, name, &first).await?;
    let winner = Began::acquire(&client, &ask.clone().ttl(won).label("the winner")).await;
    link.hold_replies_after(0);
    guard.released().await?;
    cx.soon("an answer of the server to be on its way", link.holding())
        .await?;
    first.drop_it().await;
    sleep(LITTLE).await;
    link.heal();
    let guard = winner.granted(cx, "the one who is still there to be granted").await?;
    cx.ensure_busy_beside(&*guard, &holder, &ask).await?;
    let others = |message| Stop::assertion(message);
    ensure_winners_terms(others, cx, name, &*guard, (left, won)).await?;
    guard.released().await?;
    cx.until_free(name, "the release").await
}

/// The same of one who asked for less time: the hold does not end with the ttl for which it was granted.
pub(crate) async fn a_grant_to_one_who_left_lasts_for_the_next_one(cx: &Cx) -> Verdict {
    let link = Link::new();
    let (client, other) = (cx.subject_through(&link).await, cx.subject().await);
    let ask = cx.ask("a").await;
    // It is connected then, so that the server grants the next request by one answer.
    cx.hold(&client, &ask).await?.released().await?;
    link.hold_replies_after(0);
    // The winner's renewals would hide that it has this ttl if they came before its end.
    let left = (2 * cx.ttl()).min(ask.ttl / 4).max(client.capabilities().shortest_ttl);
    let first = Began::acquire(&client, &ask.clone().ttl(left)).await;
    let held = async {
        while !cx.is_held("a").await? {
            sleep(LITTLE).await;
        }
        Ok::<_, Stop>(())
    };
    cx.soon("the server to grant it", held).await??;
    let winner = Began::acquire(&client, &ask).await;
    first.drop_it().await;
    sleep(LITTLE).await;
    link.heal();
    let guard = winner.granted(cx, "the one who is still there to be granted").await?;
    let mut waiting = Box::pin(other.acquire(&ask));
    ensure_pending_beside(&*guard, &mut waiting, 3 * cx.ttl(), "while the winner's ttl lasts").await?;
    ensure!(guard.believes(), "{:?} with the ttl of one who had left", guard.state());
    drop(waiting);
    guard.released().await?;
    cx.until_free("a", "the release").await
}
