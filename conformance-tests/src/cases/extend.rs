//! Keeping a hold for longer by hand, and never shorter. By capability.

use std::time::Duration;

use lock_core::ErrorKind;
use tokio::time::{Instant, sleep};

use super::support::{LITTLE, ensure_pending_beside};
use crate::context::{Cx, RawCx};
use crate::link::Link;
use crate::raw::Grant;
use crate::subject::{State, SubjectGuard};
use crate::verdict::{Capability, OrFail, Stop, Verdict, ensure};

async fn extendable(cx: &Cx, link: &Link, ttl: Duration) -> Result<Box<dyn SubjectGuard>, Stop> {
    let client = cx.subject_through(link).await;
    // Twice the ttl: it must not be over before the extend.
    let guard = cx.hold(&client, &cx.ask("a").await.ttl(cx.ttls(2).await)).await?;
    let extended = cx.soon("extend", guard.extend(ttl)).await?;
    if !Capability::Extend.is_in(client.capabilities()) {
        return Err(cx.undeclared(Capability::Extend, extended));
    } else {
        extended.or_fail("extend")?;
    }
    Ok(guard)
}

/// An extend holds for as long as it says, even if the client goes silent right after. By capability.
pub(crate) async fn an_extend_holds_for_longer(cx: &Cx) -> Verdict {
    let (link, ttl) = (Link::new(), cx.ttl());
    let guard = extendable(cx, &link, 5 * ttl).await?;
    link.stall();
    ensure!(
        guard.valid_for() > 2 * ttl,
        "extended by {:?}, believed in for {:?}",
        5 * ttl,
        guard.valid_for()
    );
    let (waiter, ask) = (cx.subject().await, cx.ask("a").await);
    let mut waiting = Box::pin(waiter.acquire(&ask));
    ensure_pending_beside(&*guard, &mut waiting, 3 * ttl, "long before the end of the extend").await?;
    let what = "the waiter to be granted at the end of the extend";
    let next = cx.within(cx.freed_by(5 * ttl), what, waiting).await?.or_fail(what)?;
    guard.ensure_over()?;
    ensure!(next.is_some(), "a waiter was told busy");
    Ok(())
}

/// The renewals after an extend do not undo it. By capability.
pub(crate) async fn renewals_do_not_undo_an_extend(cx: &Cx) -> Verdict {
    let (link, ttl) = (Link::new(), cx.ttl());
    let guard = extendable(cx, &link, 6 * ttl).await?;
    sleep(ttl * 3 / 2).await;
    link.stall();
    let (waiter, ask) = (cx.subject().await, cx.ask("a").await);
    let mut waiting = Box::pin(waiter.acquire(&ask));
    ensure_pending_beside(&*guard, &mut waiting, 3 * ttl, "long before the end of the extend").await?;
    ensure!(guard.state() != State::Lost, "lost long before the end of the extend");
    Ok(())
}

/// An extend ends with its holder. The next task of the client has the name for its own ttl: if the client falls silent, the name
/// is free by then. By capability.
pub(crate) async fn an_extend_is_not_passed_on(cx: &Cx) -> Verdict {
    let (link, ask) = (Link::new(), cx.ask("a").await.ttl(cx.ttls(2).await));
    let client = cx.subject_through(&link).await;
    let guard = cx.hold(&client, &ask).await?;
    // Longer than the case waits for the end of the next hold.
    let long = (2 * cx.freed_by(ask.ttl)).min(client.capabilities().longest_ttl);
    let bound = cx.freed_by(ask.ttl).min(long * 3 / 4);
    let extended = cx.soon("extend", guard.extend(long)).await?;
    if !Capability::Extend.is_in(client.capabilities()) {
        return Err(cx.undeclared(Capability::Extend, extended));
    }
    extended.or_fail("extend")?;
    let mut waiting = Box::pin(client.acquire(&ask));
    ensure_pending_beside(&*guard, &mut waiting, LITTLE, "while it was held").await?;
    guard.released().await?;
    let what = "the next task of the client to be granted";
    let next = cx.soon(what, waiting).await?.or_fail(what)?;
    ensure!(next.is_some(), "a waiter was told busy");
    link.stall();
    cx.until_free_by("a", bound, "the client fell silent").await
}

/// A renewal for less than is left changes nothing. By capability.
pub(crate) async fn a_shorter_renewal_changes_nothing(cx: &RawCx) -> Verdict {
    let (client, other, ttl) = (cx.backend().await, cx.backend().await, cx.ttl());
    let grant = renewed_for(cx, cx.grant_for(&client, "a", 2 * ttl).await?, 4 * ttl).await?;
    let (asked, before) = (Instant::now(), grant.lease().valid_for());
    ensure!(
        grant.renew(ttl).await?,
        "a renewal of a live hold said that it was lost"
    );
    let after = grant.lease().valid_for();
    // On a busy machine the answer itself may take a while.
    let took = asked.elapsed();
    ensure!(
        after + took + ttl > before,
        "a renewal for {ttl:?} left {after:?} after {took:?} where {before:?} were"
    );
    sleep(2 * ttl).await;
    cx.ensure_taken_beside(&grant, &other, "a").await?;
    ensure!(grant.is_live(), "lost long before the end of the extend");
    grant.release().await
}

async fn renewed_for(cx: &RawCx, grant: Grant, ttl: Duration) -> Result<Grant, Stop> {
    if !Capability::Extend.is_in(cx.observer().await.capabilities()) {
        // Core rejects these already, which the cases above the raw layer check.
        let client = cx.subject().await;
        let guard = cx.hold(&client, &cx.brief("b")).await?;
        return Err(cx.undeclared(Capability::Extend, guard.extend(ttl).await));
    }
    ensure!(
        grant.renew(ttl).await?,
        "an extend of a live hold said that it was lost"
    );
    Ok(grant)
}

/// An extend whose reply never came is not shortened by what comes after it. By capability.
pub(crate) async fn an_extend_whose_reply_is_lost_is_not_shortened(cx: &RawCx) -> Verdict {
    let (link, ttl) = (Link::new(), cx.ttl());
    let (client, other) = (cx.backend_through(&link).await, cx.backend().await);
    let grant = renewed_for(cx, cx.grant_for(&client, "a", 2 * ttl).await?, 2 * ttl).await?;
    link.hold_replies_after(0);
    let hold = grant.hold.clone();
    let extending = tokio::spawn(async move { hold.renew(5 * ttl).await });
    let taken_effect = async {
        link.holding().await;
        // Where the server says how long a hold lasts, the reply that is held back may be another one.
        while let Some(rest) = cx
            .status("a")
            .await?
            .holders
            .first()
            .and_then(|holder| holder.expires_in)
            && rest < 3 * ttl
        {
            sleep(ttl / 50).await;
        }
        Ok::<_, Stop>(())
    };
    cx.soon("the extend to take effect at the server", taken_effect)
        .await??;
    extending.abort();
    extending.await.ok();
    link.heal();
    let renewing = async {
        while grant.hold.renew(ttl).await.is_err() {
            sleep(ttl / 50).await;
        }
    };
    cx.soon("a renewal after the extend", renewing).await?;
    sleep(5 * ttl / 2).await;
    cx.ensure_taken_beside(&grant, &other, "a").await
}

/// An extend of a lock that is lost fails, and brings nothing back. By capability.
pub(crate) async fn an_extend_of_a_lost_lock_fails(cx: &Cx) -> Verdict {
    let link = Link::new();
    let guard = extendable(cx, &link, 4 * cx.ttl()).await?;
    cx.take_away("a").await;
    let error = match cx.soon("extend", guard.extend(5 * cx.ttl())).await? {
        Ok(()) => return Err(Stop::assertion("extended after it had been taken away")),
        Err(error) => error,
    };
    ensure!(
        error.kind() == ErrorKind::Lost,
        "an extend of a lost lock failed as {:?}: {error}",
        error.kind()
    );
    cx.until_free("a", "it had been taken away").await
}

/// A fixed lease cannot be extended. By capability.
pub(crate) async fn a_fixed_lease_is_not_extended(cx: &Cx) -> Verdict {
    let client = cx.subject().await;
    let acquired = cx
        .soon("acquire a fixed lease", client.acquire(&cx.ask("a").await.fixed()))
        .await?;
    if !Capability::FixedLease.is_in(client.capabilities()) {
        return Err(cx.undeclared(Capability::FixedLease, acquired));
    }
    let Some(guard) = acquired.or_fail("acquire a fixed lease")? else {
        return Err(Stop::assertion("an acquire that waits for ever was busy"));
    };
    let Err(error) = guard.extend(cx.long_ttl().await).await else {
        return Err(Stop::assertion("a fixed lease was extended"));
    };
    ensure!(
        error.kind() == ErrorKind::Unsupported,
        "refused as {:?}: {error}",
        error.kind()
    );
    ensure!(guard.believes(), "the refusal cost the lock: {:?}", guard.state());
    guard.released().await
}
