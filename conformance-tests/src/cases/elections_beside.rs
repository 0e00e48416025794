//! Elections beside plain locks of the same name.

use super::elections::{Leading, NAME, candidate};
use super::support::Began;
use crate::context::Cx;
use crate::subject::ElectionState;
use crate::verdict::{Verdict, ensure, ensure_safe, ensure_safe_by_ttl};

/// A plain lock and an election of one name exclude each other, among clients and within one, and their tokens grow over both.
/// The status shows the label of whichever holds the name.
pub(crate) async fn a_lock_and_an_election_exclude_each_other(cx: &Cx) -> Verdict {
    let (one, two) = (cx.subject().await, cx.subject().await);
    let ask = cx.ask(NAME).await.label("a lock");
    for locking in [&one, &two] {
        let locked = cx.hold(locking, &ask).await?;
        let candidate = candidate(&two, ask.ttl, "a leader")?;
        let mut leads = Leading::begin(&candidate);
        ensure_safe_by_ttl!(leads.is_waiting().await, "a candidate leads while the name is locked");
        ensure_labelled(cx, "a lock").await?;
        let state = candidate.state().await;
        ensure!(
            !matches!(state, ElectionState::Leading(_)),
            "the name is locked, and the candidate's state is {state:?}"
        );
        let token = locked.token();
        locked.released().await?;
        let what = "the candidate to be elected when the lock is released";
        let term = leads.elected_soon(cx, what).await?;
        ensure_safe!(term > token, "term {term} after token {token}");
        cx.ensure_busy(locking, &ask).await?;
        ensure_labelled(cx, "a leader").await?;
        let waiting = Began::acquire(locking, &ask).await;
        ensure_safe_by_ttl!(leads.is_waiting().await, "one term began in another one");
        waiting.ensure_waiting("while a candidate leads")?;
        leads.resign();
        let what = "the lock to be granted when the leader resigns";
        let next = waiting.granted(cx, what).await?;
        ensure_safe!(next.token() > term, "token {} after term {term}", next.token());
        ensure_labelled(cx, "a lock").await?;
        ensure_safe_by_ttl!(leads.is_waiting().await, "a candidate leads while the name is locked");
        drop(leads);
        next.released().await?;
    }
    cx.until_free(NAME, "the release").await
}

async fn ensure_labelled(cx: &Cx, expected: &str) -> Verdict {
    let status = cx.status(NAME).await?;
    let labels: Vec<_> = status.holders.iter().map(|holder| holder.label.as_deref()).collect();
    ensure!(
        // Not every server shows labels.
        matches!(labels.as_slice(), [label] if label.is_none_or(|label| label == expected)),
        "{expected:?} holds the name, and the status is {status:?}"
    );
    Ok(())
}
