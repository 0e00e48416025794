//! A hold that is kept for a maximum time, however long its guard lives; and a term likewise.

use lock_core::LostCause;
use tokio::time::Instant;

use super::elections::{Leading, NAME, candidate, long_pause_ttl};
use super::support::{Began, granted};
use crate::context::Cx;
use crate::subject::{ElectionState, State};
use crate::verdict::{OrFail, Verdict, ensure, ensure_safe};

/// A guard that nobody releases is lost at its maximum, and not before. The name is free soon after that, long before its TTL
/// is over, for waiters here and elsewhere.
pub(crate) async fn a_hold_that_lasts_too_long_is_lost(cx: &Cx) -> Verdict {
    let (client, other, maximum) = (cx.subject().await, cx.subject().await, cx.ttl() / 2);
    let ask = cx.ask("a").await;
    for waiter in [&other, &client] {
        let asked = Instant::now();
        let hung = cx.hold(&client, &ask.clone().hold_at_most(maximum)).await?;
        let waiting = Began::acquire(waiter, &ask).await;
        let what = "a hold that lasts too long to be lost";
        cx.within(maximum + cx.patience(), what, hung.lost()).await?;
        let took = asked.elapsed();
        ensure!(
            took >= maximum,
            "to be held for up to {maximum:?}, and lost after {took:?}"
        );
        let what = "the waiter to be granted when the hold has lasted for its maximum";
        let next = granted(waiting.end(cx, what).await?)?;
        ensure!(hung.state() == State::Lost, "lost, and its state is {:?}", hung.state());
        ensure_safe!(
            next.token() > hung.token(),
            "token {} after {}",
            next.token(),
            hung.token()
        );
        let late = hung.release().await;
        let is_told = late.as_ref().is_err_and(lock_core::Error::is_lost);
        ensure!(is_told, "the release of a lost lock was answered {late:?}");
        cx.ensure_busy(&other, &ask).await?;
        next.released().await?;
    }
    cx.until_free("a", "the release").await
}

/// Released before its maximum, it is no loss, and the next hold is its own.
pub(crate) async fn a_release_comes_before_the_maximum(cx: &Cx) -> Verdict {
    let (client, maximum) = (cx.subject().await, cx.ttl());
    let ask = cx.ask("a").await;
    let watch = loop {
        let asked = Instant::now();
        let guard = cx.hold(&client, &ask.clone().hold_at_most(maximum)).await?;
        let watch = guard.watch();
        match guard.released().await {
            // On a busy machine it may be too late.
            Err(_) if asked.elapsed() >= maximum => {}
            released => break released.map(|()| watch)?,
        }
    };
    let next = cx.hold(&client, &ask).await?;
    let end = cx.soon("the watch of a released lock to end", watch).await?;
    ensure!(
        end == crate::subject::End::Released,
        "released in time, and its watch says {end:?}"
    );
    tokio::time::sleep(maximum).await;
    ensure!(
        next.state() != State::Lost,
        "the maximum of an earlier hold has ended this one"
    );
    next.released().await
}

/// A term is lost at its maximum, for this reason, and not before. Another candidate is elected soon after that, long before
/// the TTL of the one that hangs is over.
pub(crate) async fn a_term_that_lasts_too_long_is_lost(cx: &Cx) -> Verdict {
    let (one, two, maximum) = (cx.subject().await, cx.subject().await, cx.ttl() / 2);
    let ttl = cx.long_ttl().await;
    let hangs = candidate(&one, ttl, "one")?.hold_at_most(maximum);
    let asked = Instant::now();
    let hung = cx.soon("campaign", hangs.campaign()).await?.or_fail("campaign")?;
    let mut waiting = Leading::begin(&candidate(&two, ttl, "two")?);
    let what = "a term that lasts too long to be lost";
    cx.within(maximum + cx.patience(), what, hung.lost()).await?;
    let took = asked.elapsed();
    ensure!(
        took >= maximum,
        "a term of up to {maximum:?}, and it was lost after {took:?}"
    );
    let what = "the other candidate to be elected when the term has lasted for its maximum";
    let next = waiting.elected_soon(cx, what).await?;
    ensure_safe!(next > hung.token(), "term {next} after {}", hung.token());
    let state = hangs.state().await;
    ensure!(
        !matches!(state, ElectionState::Leading(_)),
        "its term was lost, and its state is {state:?}"
    );
    let late = hung.release().await;
    let cause = late.as_ref().err().and_then(lock_core::Error::cause);
    ensure!(
        cause.and_then(|cause| cause.downcast_ref()) == Some(&LostCause::MaximumHold),
        "the term was lost at its maximum, and its release was answered {late:?}"
    );
    Ok(())
}

/// Two leaders whose work hangs take turns, one maximum each.
pub(crate) async fn leaders_that_hang_take_turns(cx: &Cx) -> Verdict {
    let (one, two, maximum) = (cx.subject().await, cx.subject().await, cx.ttl() / 2);
    // Whoever has led pauses for longer than a busy machine stands still.
    let ttl = long_pause_ttl(cx).await;
    let limited = |subject, value| Ok(candidate(subject, ttl, value)?.hold_at_most(maximum));
    // Connects it: the other one's first term lasts no longer than its maximum.
    two.status(NAME).await.or_fail("ask for the status")?;
    let asked = Instant::now();
    let mut leader = Leading::begin(&limited(&one, "one")?);
    let what = "the only candidate to be elected";
    let mut term = leader.elected_soon(cx, what).await?;
    let mut waiting = Leading::begin(&limited(&two, "two")?);
    for turns in 1..=2 {
        let next = leader.followed_by(&mut waiting, cx, ttl + cx.patience()).await?;
        // Each term begins with its grant, which comes after the end of the one before.
        let took = asked.elapsed();
        ensure!(
            took >= turns * maximum,
            "{turns} terms of {maximum:?} each have ended after {took:?}"
        );
        ensure_safe!(next > term, "term {next} after {term}");
        term = next;
        std::mem::swap(&mut leader, &mut waiting);
    }
    Ok(())
}
