//! Every grant's token is larger than every earlier one's of the name.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use lock_core::FencingToken;
use lock_core::backend::Attempt;
use lock_core::backend::request::Terms;
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::context::{Cx, LOOK_AGAIN, RawCx};
use crate::harness::Data;
use crate::link::Link;
use crate::raw::granted;
use crate::verdict::{Capability, OrFail, Stop, Verdict, ensure, ensure_safe, ensure_safe_by_ttl};

fn ensure_grows(last: &mut Option<FencingToken>, token: FencingToken, over: &str) -> Verdict {
    ensure_safe!(
        last.is_none_or(|last| token > last),
        "over {over}, {last:?} was followed by {token}"
    );
    *last = Some(token);
    Ok(())
}

/// From release to grant, whoever the clients are.
pub(crate) async fn tokens_grow_over_a_release(cx: &RawCx) -> Verdict {
    let clients = [cx.backend().await, cx.backend().await];
    let mut last = None;
    for round in 0..12 {
        let grant = cx.grant(&clients[round % 2], "a").await?;
        ensure_grows(&mut last, grant.token(), "a release")?;
        grant.release().await?;
    }
    Ok(())
}

/// When a hold expired instead.
pub(crate) async fn tokens_grow_over_an_expiry(cx: &RawCx) -> Verdict {
    let (link, ttl) = (Link::new(), cx.ttl());
    let (silent, other) = (cx.backend_through(&link).await, cx.backend().await);
    let mut last = None;
    for _ in 0..3 {
        let grant = cx.grant(&other, "a").await?;
        ensure_grows(&mut last, grant.token(), "a release")?;
        grant.release().await?;
    }
    let expiring = cx.grant_for(&silent, "a", ttl).await?;
    ensure_grows(&mut last, expiring.token(), "a release")?;
    link.stall();
    let next = cx.start_waiting(&other, "a", cx.long_ttl().await)?;
    let next = next.grant(cx, cx.freed_by(ttl), "the successor to be granted").await?;
    ensure_grows(&mut last, next.token(), "an expiry")?;
    next.release().await
}

/// When it was taken away, or rolled back.
pub(crate) async fn tokens_grow_over_a_taking_away(cx: &RawCx) -> Verdict {
    let client = cx.backend().await;
    let mut last = None;
    for _ in 0..4 {
        let grant = cx.grant(&client, "a").await?;
        ensure_grows(&mut last, grant.token(), "a taking away")?;
        cx.take_away("a").await;
    }
    Ok(())
}

/// A token is of the moment of the grant, not of the moment when it was first asked for.
pub(crate) async fn a_token_is_of_the_grant(cx: &RawCx) -> Verdict {
    let (holder, early, between) = (cx.backend().await, cx.backend().await, cx.backend().await);
    let first = cx.grant(&holder, "a").await?;
    let (request, control) = cx.trying("a", cx.long_ttl().await)?;
    let busy = cx
        .soon("the early try", early.acquire(&request))
        .await?
        .or_fail("try")?;
    ensure_safe_by_ttl!(matches!(busy, Attempt::Busy(_)), "granted while another held it");
    first.release().await?;
    let second = cx.grant(&between, "a").await?;
    second.release().await?;
    let again = cx
        .soon("the same request again", early.acquire(&request))
        .await?
        .or_fail("try again")?;
    let third = granted(again, request, control)?.map_err(|busy| Stop::assertion(format!("free, yet {busy:?}")))?;
    let mut last = Some(first.token());
    ensure_grows(&mut last, second.token(), "a release")?;
    ensure_grows(&mut last, third.token(), "a grant between asking and getting")?;
    third.release().await
}

/// Under contention, in the order of the grants.
pub(crate) async fn tokens_grow_under_contention(cx: &Cx) -> Verdict {
    let (seen, ask) = (Arc::new(Mutex::new(Vec::new())), cx.ask("a").await);
    let mut tasks = JoinSet::new();
    for _ in 0..4 {
        let (client, seen, ask) = (cx.subject().await, seen.clone(), ask.clone());
        tasks.spawn(async move {
            for _ in 0..6 {
                let Some(guard) = client.acquire(&ask).await.or_fail("acquire")? else {
                    return Err(Stop::assertion("an acquire that waits for ever was busy"));
                };
                seen.lock().unwrap_or_else(PoisonError::into_inner).push(guard.token());
                guard.released().await?;
            }
            Ok(())
        });
    }
    while let Some(task) = cx
        .within(2 * cx.patience(), "four clients to take turns", tasks.join_next())
        .await?
    {
        task.map_err(|panic| Stop::assertion(panic.to_string()))??;
    }
    let mut last = None;
    for token in seen.lock().unwrap_or_else(PoisonError::into_inner).iter() {
        ensure_grows(&mut last, *token, "contention")?;
    }
    Ok(())
}

/// A request may ask for a token above any other one, as after a move from another lock server. Tokens go on from there,
/// for every client and also without a floor.
pub(crate) async fn a_token_is_above_what_was_asked(cx: &RawCx) -> Verdict {
    let (client, other) = (cx.backend().await, cx.backend().await);
    let grant = cx.grant(&client, "a").await?;
    grant.release().await?;
    let mut last = grant.token();
    // Near, and about as far as another server's tokens are.
    for distance in [1_000_000, 1 << 50] {
        let floor = FencingToken::new(last.as_u64() + distance)
            .ok_or_else(|| Stop::assertion(format!("{last} leaves no room for larger tokens")))?;
        let terms = Terms::new(cx.long_ttl().await);
        let options = cx.options("a", terms)?.waits(false);
        let (request, control) = options.token_above(floor).start();
        let attempt = cx.soon("acquire", client.acquire(&request)).await?.or_fail("acquire")?;
        let above =
            granted(attempt, request, control)?.map_err(|busy| Stop::assertion(format!("free, yet {busy:?}")))?;
        ensure!(
            above.token() > floor,
            "asked for a token above {floor}, got {}",
            above.token()
        );
        last = above.token();
        above.release().await?;
        for client in [&other, &client] {
            let next = cx.grant(client, "a").await?;
            ensure_safe!(next.token() > last, "{last} was followed by {}", next.token());
            last = next.token();
            next.release().await?;
        }
    }
    Ok(())
}

async fn over_a_restart(cx: &Cx, data: Data) -> Verdict {
    let client = cx.subject().await;
    let ask = cx.ask("a").await;
    let mut last = None;
    for _ in 0..5 {
        let guard = cx.hold(&client, &ask).await?;
        ensure_grows(&mut last, guard.token(), "a release")?;
        guard.released().await?;
    }
    let canary = match data {
        Data::Lost => Some(cx.hold(&client, &cx.ask(CANARY).await).await?),
        Data::Kept => None,
    };
    // By then the server's clock has passed the last token, where tokens follow its clock.
    sleep(Duration::from_millis(20)).await;
    cx.restart(data).await;
    for client in [cx.subject().await, client] {
        let guard = cx.hold(&client, &ask).await?;
        ensure_grows(&mut last, guard.token(), "a restart of the server")?;
        guard.released().await?;
    }
    match canary {
        Some(_held) => ensure_canary_lost(cx).await,
        None => Ok(()),
    }
}

/// The name of a hold that ends with the server's data.
const CANARY: &str = "canary";

/// Without a loss of data the case shows nothing.
async fn ensure_canary_lost(cx: &Cx) -> Verdict {
    let observer = cx.observer().await;
    let asked = async {
        loop {
            match observer.status(CANARY).await {
                // Its connection may have ended with the server.
                Err(error) if error.is_retryable() => sleep(LOOK_AGAIN).await,
                answer => return answer,
            }
        }
    };
    let status = cx.soon("a status after the restart", asked).await?;
    let status = status.or_fail("ask for the status")?;
    ensure!(
        !status.is_held(),
        "a name that was held before the server lost its data is held still: `restart` of the harness has lost nothing. If it cannot \
         restart the server, `start` returns `NoServer::Offline` for `ServerUse::Own`"
    );
    Ok(())
}

/// When the server was killed and started again; and its clients find it again.
pub(crate) async fn tokens_grow_over_a_restart(cx: &Cx) -> Verdict {
    over_a_restart(cx, Data::Kept).await
}

/// Even when it has lost all its data. By capability.
pub(crate) async fn tokens_grow_over_a_loss_of_data(cx: &Cx) -> Verdict {
    Capability::DurableTokens.or_skip(cx.observer().await.capabilities())?;
    over_a_restart(cx, Data::Lost).await
}
