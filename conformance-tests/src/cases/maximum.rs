//! A hold that is kept for a maximum time, however long its guard lives.

use tokio::time::Instant;

use super::support::{Began, granted};
use crate::context::Cx;
use crate::subject::State;
use crate::verdict::{Verdict, ensure, ensure_safe};

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
    cx.until_free("a", cx.patience(), "the release").await
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
