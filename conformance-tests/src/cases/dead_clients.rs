//! Clients that die in the middle of a request: nobody else loses a hold, and no name is lost.

use std::sync::Arc;
use std::time::Duration;

use lock_core::FencingToken;
use lock_core::backend::DistributedLock;
use tokio::time::sleep;

use crate::child::Child;
use crate::context::{Cx, RawCx};
use crate::job::Job;
use crate::link::Link;
use crate::raw::{Grant, is_renewed};
use crate::verdict::{OrFail, Stop, Verdict, ensure, ensure_safe};

/// More replies than any client gets that asks for two names.
const MANY: u64 = 300;
/// So many processes are killed, a few at a time.
const BATCHES: u32 = 4;
const AT_A_TIME: u32 = 3;

/// Clients die before their first reply, before their second, and so on, while they ask for a name that is held and for
/// one that is free. The holder keeps its hold, and the free names are free again within the ttl.
pub(crate) async fn a_client_that_dies_in_a_request_costs_no_name(cx: &RawCx) -> Verdict {
    let (holder, other) = (cx.connected().await?, cx.connected().await?);
    let held = cx.grant(&holder, "held").await?;
    let mut own_names = Vec::new();
    for reply in 1.. {
        ensure!(reply < MANY, "a client that asks for two names gets {MANY} replies");
        let (link, own) = (Link::new(), format!("own {reply}"));
        let client = cx.backend_through(&link).await;
        cx.connect(&client).await?;
        link.cut_at_reply(reply);
        let is_dead = tokio::select! {
            () = link.swallowed() => true,
            // Its error may come first.
            asked = ask_for_both(cx, &client, &own) => link.connect().is_err() || asked.map(|()| false)?,
        };
        let death = format!("a client died before its reply {reply}");
        ensure_still_held(cx, &held, &other, &death).await?;
        if !is_dead {
            ensure!(reply > 1, "a client that asks for two names is done without a reply");
            println!(
                "a client that asks for two names is done after {} replies; one died before each",
                reply - 1
            );
            break;
        }
        own_names.push((own, death));
    }
    for (own, death) in &own_names {
        cx.until_free_by(own, cx.freed_by(cx.ttl()), death).await?;
    }
    held.release().await?;
    // One ttl for a dead waiter's queue entry, one for its hold.
    let after = "the release to waiters that had died";
    cx.until_free_by("held", cx.freed_by(2 * cx.ttl()), after).await
}

/// Everything that a client asks for on a name that is held, and on one that is free.
async fn ask_for_both(cx: &RawCx, client: &Arc<dyn DistributedLock>, own: &str) -> Verdict {
    cx.ensure_taken(client, "held").await?;
    let waiter = cx.wait_for(client, "held", cx.ttl()).await?;
    waiter.abandon(cx, client).await?;
    let grant = cx.grant_for(client, own, cx.ttl()).await?;
    if is_renewed(client) {
        grant.hold.renew(cx.ttl()).await.or_fail("renew")?;
    }
    grant.released(cx).await.map(drop)
}

async fn ensure_still_held(cx: &RawCx, held: &Grant, other: &Arc<dyn DistributedLock>, death: &str) -> Verdict {
    cx.ensure_taken(other, "held").await?;
    ensure!(held.is_live(), "{death}, and the holder of another hold lost it");
    if !other.capabilities().session_renewal {
        let renewed = held.renew(cx.long_ttl().await).await?;
        ensure!(
            renewed,
            "{death}, and the server does not know the hold of another client any more"
        );
    }
    Ok(())
}

/// Processes are killed at any moment of their requests. The holder keeps its hold, and the names that they had are free
/// again within the ttl, for larger tokens.
pub(crate) async fn processes_killed_in_a_request_cost_no_name(cx: &Cx) -> Verdict {
    let (holder, other) = (cx.subject().await, cx.subject().await);
    cx.address()?;
    let held = cx.ask("held").await;
    let guard = cx.hold(&holder, &held).await?;
    let mut own_names = Vec::new();
    for batch in 0..BATCHES {
        let mut children = Vec::new();
        for number in 0..AT_A_TIME {
            let own = format!("own-{batch}-{number}");
            let job = Job::Ask {
                held: "held".to_owned(),
                own: own.clone(),
                ttl: cx.ttl(),
            };
            children.push((own, Child::start(cx, &job)?));
        }
        for (number, (own, mut child)) in (batch * AT_A_TIME..).zip(children) {
            let token = token_of(&child.says(cx, "asking", cx.patience()).await?)?;
            // At another moment each time.
            sleep(Duration::from_micros(u64::from(number) * 173)).await;
            child.kill()?;
            child.had_nothing_of_others(cx).await?;
            cx.ensure_busy(&other, &held).await?;
            own_names.push((own, token));
        }
        ensure!(
            guard.believes(),
            "other processes were killed, and the holder says {:?}",
            guard.state()
        );
    }
    for (own, theirs) in own_names {
        let what = format!("acquire {own:?}, the name of a killed process");
        let acquiring = cx
            .within(cx.freed_by(cx.ttl()), &what, other.acquire(&cx.ask(&own).await))
            .await?;
        let Some(own_guard) = acquiring.or_fail(&what)? else {
            return Err(Stop::assertion("an acquire that waits for ever was busy"));
        };
        ensure_safe!(own_guard.token() > theirs, "token {} after {theirs}", own_guard.token());
        own_guard.released().await?;
    }
    guard.released().await?;
    // One ttl for a killed waiter's queue entry, one for its hold.
    let after = "the release to waiters that had been killed";
    cx.until_free_by("held", cx.freed_by(2 * cx.ttl()), after).await
}

fn token_of(said: &str) -> Result<FencingToken, Stop> {
    let token = said.parse().ok().and_then(FencingToken::new);
    token.ok_or_else(|| Stop::assertion(format!("not a token: {said:?}")))
}
