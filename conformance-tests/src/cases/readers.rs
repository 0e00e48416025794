//! Readers hold a name together, and a writer holds it alone. By capability.

use std::collections::BTreeSet;

use lock_core::backend::Mode::{Exclusive, Shared};
use lock_core::backend::{Attempt, Renewal};

use crate::context::RawCx;
use crate::link::Link;
use crate::verdict::{Capability, Verdict, ensure, ensure_safe};

/// Readers hold a name together, of one client and of several.
pub(crate) async fn readers_hold_together(cx: &RawCx) -> Verdict {
    let client = cx.client_with(Capability::Shared).await?;
    let other = cx.connected().await?;
    let mut readers = Vec::new();
    for reader in [&client, &other, &client] {
        readers.push(cx.grant_in(reader, "a", Shared).await?);
    }
    for reader in &readers {
        ensure!(reader.is_live(), "a reader lost it when another one came");
        reader.release().await?;
    }
    cx.until_free("a", "all readers have released").await
}

/// A writer gets a name only when all readers have released it, and then nobody else does, of its own client neither.
pub(crate) async fn a_writer_is_alone(cx: &RawCx) -> Verdict {
    let client = cx.client_with(Capability::Shared).await?;
    let other = cx.connected().await?;
    let readers = [
        cx.grant_in(&client, "a", Shared).await?,
        cx.grant_in(&other, "a", Shared).await?,
    ];
    for reader in &readers {
        for writer in [&client, &other] {
            cx.ensure_refused(writer, "a", Exclusive).await?;
        }
        reader.release().await?;
    }
    let writer = cx.grant_in(&client, "a", Exclusive).await?;
    for other in [&client, &other] {
        cx.ensure_refused(other, "a", Exclusive).await?;
    }
    writer.release().await
}

/// A reader is refused while a writer holds the name, and granted after it.
pub(crate) async fn a_reader_is_refused_beside_a_writer(cx: &RawCx) -> Verdict {
    let client = cx.client_with(Capability::Shared).await?;
    let other = cx.connected().await?;
    let writer = cx.grant_in(&client, "a", Exclusive).await?;
    for reader in [&client, &other] {
        cx.ensure_refused(reader, "a", Shared).await?;
    }
    ensure!(writer.is_live(), "a refused reader ended the writer's hold");
    writer.release().await?;
    cx.grant_in(&other, "a", Shared).await?.release().await
}

/// An exclusive lock of a user is the write side: it excludes readers, and readers exclude it.
pub(crate) async fn an_exclusive_lock_is_the_write_side(cx: &RawCx) -> Verdict {
    let client = cx.client_with(Capability::Shared).await?;
    let (user, ask) = (cx.subject().await, cx.ask("a").await);
    let guard = cx.hold(&user, &ask).await?;
    cx.ensure_refused(&client, "a", Shared).await?;
    guard.released().await?;
    let reader = cx.grant_in(&client, "a", Shared).await?;
    cx.ensure_busy(&user, &ask).await?;
    reader.release().await?;
    cx.hold(&user, &ask).await?.released().await
}

/// The end of one reader's hold ends no other, and frees nothing.
pub(crate) async fn the_first_reader_to_leave_frees_nothing(cx: &RawCx) -> Verdict {
    let client = cx.client_with(Capability::Shared).await?;
    let other = cx.connected().await?;
    let first = cx.grant_in(&client, "a", Shared).await?;
    let second = cx.grant_in(&other, "a", Shared).await?;
    first.release().await?;
    // As one whose answer got lost does.
    first.released(cx).await?;
    cx.ensure_refused(&client, "a", Exclusive).await?;
    if !other.capabilities().session_renewal {
        ensure!(
            second.renew(cx.long_ttl().await).await?,
            "one reader released, and another one's renewal said that its hold was lost"
        );
    }
    second.release().await?;
    cx.until_free("a", "all readers have released").await
}

/// A reader that asks again has the same hold, whose token stays, and which one release ends.
pub(crate) async fn a_repeated_shared_acquire_is_one_hold(cx: &RawCx) -> Verdict {
    let client = cx.client_with(Capability::Shared).await?;
    let beside = cx.grant_in(&cx.connected().await?, "a", Shared).await?;
    let grant = cx.grant_in(&client, "a", Shared).await?;
    for _ in 0..2 {
        cx.ensure_granted_again(&client, &grant).await?;
    }
    cx.ensure_holders("a", 2, "two readers hold it, one of which asked again")
        .await?;
    grant.release().await?;
    cx.ensure_holders("a", 1, "one of two readers released").await?;
    beside.release().await?;
    cx.until_free("a", "one release of each reader").await
}

/// The end of a reader's request, however often it is asked for, ends that reader's hold and no other.
pub(crate) async fn a_shared_abandon_leaves_the_others(cx: &RawCx) -> Verdict {
    let client = cx.client_with(Capability::Shared).await?;
    let other = cx.connected().await?;
    let abandoned = cx.grant_in(&client, "a", Shared).await?;
    let stays = cx.grant_in(&other, "a", Shared).await?;
    let (never, _control) = cx.request_in("a", Shared).await?;
    abandoned.give_up();
    for request in [&abandoned.request, &abandoned.request, &never] {
        cx.abandoned(&client, request).await?;
        cx.ensure_holders("a", 1, "one of two readers was abandoned").await?;
        cx.ensure_refused(&client, "a", Exclusive).await?;
    }
    let late = cx.soon("a late acquire", client.acquire(&abandoned.request)).await?;
    ensure!(
        !matches!(late, Ok(Attempt::Granted(..))),
        "an abandoned reader was granted"
    );
    stays.release().await?;
    cx.until_free("a", "one reader was abandoned and the other released")
        .await
}

/// A reader whose grant was never answered is undone over a new connection, and no other reader with it.
pub(crate) async fn an_unanswered_reader_is_undone(cx: &RawCx) -> Verdict {
    let link = Link::new();
    let client = cx.client_through(&link, Capability::Shared).await?;
    let beside = cx.grant_in(&cx.connected().await?, "a", Shared).await?;
    link.hold_replies_after(0);
    let (request, control) = cx.request_in("a", Shared).await?;
    let waiter = cx.go_on_waiting(&client, request, control);
    cx.soon("the reply to be on its way", link.holding()).await?;
    link.reset();
    link.heal();
    waiter.control.give_up();
    cx.abandoned(&client, &waiter.request).await?;
    let bound = cx.before_expiry(cx.freed_by(cx.ttl())).await;
    cx.until_holders("a", 1, bound, "the hold that was never answered to end")
        .await?;
    cx.ensure_refused(&client, "a", Exclusive).await?;
    beside.release().await?;
    cx.until_free("a", "the other reader released").await
}

/// Tokens grow over readers, also while they hold the name together, and the next writer's is larger than all of theirs.
pub(crate) async fn readers_tokens_grow_and_the_writers_is_larger(cx: &RawCx) -> Verdict {
    let client = cx.client_with(Capability::Shared).await?;
    let other = cx.connected().await?;
    let mut last = None;
    for _ in 0..2 {
        let mut grants = Vec::new();
        for reader in [&client, &other, &client] {
            grants.push(cx.grant_in(reader, "a", Shared).await?);
        }
        for grant in &grants {
            let token = Some(grant.token());
            ensure_safe!(last < token, "a reader's token {token:?} followed {last:?}");
            last = token;
            grant.release().await?;
        }
        let writer = cx.grant_in(&other, "a", Exclusive).await?;
        let token = Some(writer.token());
        ensure_safe!(last < token, "a writer's token {token:?} followed a reader's, {last:?}");
        last = token;
        writer.release().await?;
    }
    Ok(())
}

/// The status shows each reader, with its own token, and says that it shares the name, where the server knows.
pub(crate) async fn status_names_all_readers(cx: &RawCx) -> Verdict {
    let client = cx.client_with(Capability::Shared).await?;
    let other = cx.connected().await?;
    let mut readers = Vec::new();
    for reader in [&client, &other, &other] {
        readers.push(cx.grant_in(reader, "a", Shared).await?);
    }
    cx.ensure_holders("a", 3, "three readers hold it").await?;
    for holder in cx.status("a").await?.holders {
        ensure!(
            holder.mode.is_none_or(|mode| mode == Shared),
            "a reader is shown as {:?}",
            holder.mode
        );
        ensure!(
            holder
                .token
                .is_none_or(|token| readers.iter().any(|reader| reader.token() == token)),
            "{:?} is no reader's token",
            holder.token
        );
    }
    // The server may know the tokens of some readers only.
    let holders = cx.status("a").await?.holders;
    let tokens: Vec<_> = holders.iter().filter_map(|holder| holder.token).collect();
    let distinct: BTreeSet<_> = tokens.iter().collect();
    ensure!(
        distinct.len() == tokens.len(),
        "two readers are shown with one token: {tokens:?}"
    );
    for reader in &readers {
        reader.release().await?;
    }
    ensure!(!cx.is_held("a").await?, "all readers released, and it is shown as held");
    Ok(())
}

/// A renewal that comes after its reader's release brings nothing back, whether others hold the name or nobody does.
pub(crate) async fn a_late_shared_renewal_revives_nothing(cx: &RawCx) -> Verdict {
    let client = cx.client_with(Capability::Shared).await?;
    let other = cx.connected().await?;
    let long = cx.long_ttl().await;
    let stays = cx.grant_in(&other, "a", Shared).await?;
    let gone = cx.grant_in(&client, "a", Shared).await?;
    gone.release().await?;
    for holders in [1, 0] {
        let renewed = cx.soon("a late renewal", gone.hold.renew(long)).await?;
        ensure!(!matches!(renewed, Ok(Renewal::Renewed(_))), "renewed after its release");
        cx.ensure_holders("a", holders, "a reader that had released renewed")
            .await?;
        if holders > 0 {
            stays.release().await?;
        }
    }
    cx.until_free("a", "all readers have released").await
}
