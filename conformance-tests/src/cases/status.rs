//! Who has a lock.

use std::time::Duration;

use lock_core::ErrorKind;
use lock_core::backend::LockStatus;

use crate::context::{Cx, RawCx};
use crate::verdict::{OrFail, Stop, Verdict, ensure};

/// The status, of which a case of this topic hides few errors: a busy machine answers late, but not each time.
async fn asked(cx: &Cx, name: &str) -> Result<LockStatus, Stop> {
    let observer = cx.observer().await;
    let mut left = if cx.timing().paused { 0 } else { 2 };
    loop {
        match observer.status(name).await {
            Err(error) if error.is_retryable() && left > 0 => left -= 1,
            status => return status.or_fail("ask for the status"),
        }
    }
}

/// A name that nobody ever held, and one that is held no more, are free. A server that knows how many wait for a name knows that
/// nobody waits for these.
pub(crate) async fn a_free_name_has_no_holder(cx: &Cx) -> Verdict {
    let client = cx.subject().await;
    let never = asked(cx, "a").await?;
    let guard = cx.hold(&client, &cx.ask("a").await).await?;
    let held = asked(cx, "a").await?;
    let nobody = held.waiting.map(|_| 0);
    ensure!(held.waiting == nobody, "held, nobody waits, and {held:?}");
    guard.released().await?;
    let no_more = asked(cx, "a").await?;
    for (when, status) in [("never held", never), ("released", no_more)] {
        ensure!(!status.is_held(), "{when}, and {status:?}");
        ensure!(
            status.waiting == nobody,
            "{when}, and {status:?}; while it was held, the number of waiters was known: {}",
            nobody.is_some()
        );
    }
    Ok(())
}

/// The holder is shown with what the server knows of it: the right label, token and time.
pub(crate) async fn the_holder_is_shown(cx: &Cx) -> Verdict {
    let client = cx.subject().await;
    let ask = cx.ask("a").await.label("worker 7 / \"é\" / 日本");
    let guard = cx.hold(&client, &ask).await?;
    // Its own client sees the same as another one.
    for status in [
        asked(cx, "a").await?,
        client.status("a").await.or_fail("ask for the status")?,
    ] {
        let [holder] = status.holders.as_slice() else {
            return Err(Stop::assertion(format!("one holds it, and {status:?}")));
        };
        ensure!(
            holder.label.is_none() || holder.label == ask.label,
            "its label became {:?}",
            holder.label
        );
        let token = guard.token();
        ensure!(
            holder.token.is_none_or(|shown| shown == token),
            "its token {token} became {:?}",
            holder.token
        );
        let rest = holder.expires_in.unwrap_or(ask.ttl);
        ensure!(
            rest <= ask.ttl + Duration::from_secs(1),
            "of a ttl of {:?}, {rest:?} are left",
            ask.ttl
        );
    }
    ensure!(!asked(cx, "b").await?.is_held(), "another name is held too");
    guard.released().await
}

/// Asking for the status changes nothing.
pub(crate) async fn a_status_changes_nothing(cx: &RawCx) -> Verdict {
    let (holder, other) = (cx.backend().await, cx.backend().await);
    for _ in 0..3 {
        asked(cx, "a").await?;
    }
    let grant = cx.grant(&holder, "a").await?;
    for _ in 0..3 {
        ensure!(asked(cx, "a").await?.is_held(), "held, and shown as free");
    }
    cx.ensure_taken(&other, "a").await?;
    grant.release().await?;
    cx.until_free("a", "the release").await
}

/// A busy answer names the holder, where the server knows it.
pub(crate) async fn a_busy_answer_names_the_holder(cx: &RawCx) -> Verdict {
    let (holder, other) = (cx.subject().await, cx.backend().await);
    let guard = cx.hold(&holder, &cx.ask("a").await.label("the holder")).await?;
    let known = asked(cx, "a")
        .await?
        .holders
        .first()
        .and_then(|holder| holder.label.clone());
    let Err(busy) = cx.try_once(&other, "a").await? else {
        return Err(Stop::by_ttl("granted while another held it"));
    };
    ensure!(
        busy.holder.is_none() || busy.holder.as_deref() == Some("the holder"),
        "the holder is named {:?}",
        busy.holder
    );
    ensure!(
        busy.holder.is_some() || known.is_none(),
        "the server knows {known:?}, the busy answer nobody"
    );
    guard.released().await
}

/// The status of what cannot be a name is an error.
pub(crate) async fn the_status_of_no_name_is_an_error(cx: &Cx) -> Verdict {
    let client = cx.subject().await;
    let Err(error) = client.status("").await else {
        return Err(Stop::assertion("an empty name has a status"));
    };
    ensure!(
        error.kind() == ErrorKind::InvalidName,
        "refused as {:?}: {error}",
        error.kind()
    );
    Ok(())
}
