//! Several locks at once. By [`Subject::acquires_several`].

use std::sync::Arc;
use std::time::Duration;

use lock_core::ErrorKind;

use crate::context::Cx;
use crate::subject::{Ask, Subject, WaitLimit};
use crate::verdict::{OrFail, Skip, Stop, Verdict, ensure, ensure_safe_by_ttl};

/// A client that acquires several at once.
async fn client(cx: &Cx) -> Result<Arc<dyn Subject>, Stop> {
    let client = cx.subject().await;
    match client.acquires_several() {
        true => Ok(client),
        false => Err(Stop::Skipped(Skip::OneAtATime)),
    }
}

async fn asks<const N: usize>(cx: &Cx, names: [&str; N]) -> [Ask; N] {
    let ask = cx.ask("").await;
    names.map(|name| Ask {
        name: name.to_owned(),
        ..ask.clone()
    })
}

/// An acquire of several has all of them; if its time is up before, it has none.
pub(crate) async fn all_or_none(cx: &Cx) -> Verdict {
    let (client, other) = (client(cx).await?, cx.subject().await);
    let asks = asks(cx, ["a", "b", "c"]).await;
    let taken = cx.hold(&other, &asks[1]).await?;
    let (what, mut limit) = ("an acquire of several to time out", Duration::from_secs(1));
    for is_last in [false, false, true] {
        // Connects it: on a busy machine a handshake alone may take longer than the limit.
        cx.ensure_busy(&client, &asks[1]).await?;
        let acquiring = client.acquire_all(&asks, WaitLimit::Within(limit));
        match cx.within(limit + cx.patience(), what, acquiring).await? {
            Err(error) if error.kind() == ErrorKind::TimedOut => break,
            // So may an answer.
            Err(error) if error.kind() == ErrorKind::Unavailable && !is_last => limit *= 4,
            Ok(Some(_)) => return Err(Stop::by_ttl("one was taken, and all were granted")),
            refused => return Err(Stop::assertion(format!("one was taken, and all came to {refused:?}"))),
        }
    }
    for name in ["a", "c"] {
        cx.until_free(name, "an acquire of several timed out").await?;
    }
    taken.released().await?;
    let what = "acquire several that are free";
    let acquired = cx.soon(what, client.acquire_all(&asks, WaitLimit::Forever)).await?;
    let guards = acquired.or_fail(what)?.unwrap_or_default();
    ensure!(guards.len() == asks.len(), "{} guards of {}", guards.len(), asks.len());
    for ask in &asks {
        cx.ensure_busy(&other, ask).await?;
    }
    for guard in guards {
        guard.released().await?;
    }
    for ask in &asks {
        cx.until_free(&ask.name, "all were released").await?;
    }
    Ok(())
}

/// A try for several of which one is taken is busy, and leaves the others free.
pub(crate) async fn a_refused_try_leaves_nothing(cx: &Cx) -> Verdict {
    let (client, other) = (client(cx).await?, cx.subject().await);
    let asks = asks(cx, ["a", "b", "c"]).await;
    let taken = cx.hold(&other, &asks[1]).await?;
    for _ in 0..3 {
        let what = "try several";
        let tried = cx
            .soon(what, client.acquire_all(&asks, WaitLimit::Try))
            .await?
            .or_fail(what)?;
        ensure_safe_by_ttl!(tried.is_none(), "one of them was taken, and the try came to {tried:?}");
        for name in ["a", "c"] {
            cx.until_free(name, "a try for several was refused").await?;
        }
    }
    taken.released().await?;
    cx.until_free("b", "its holder released").await
}

/// Two clients that acquire the same locks in opposite orders never wait for each other.
pub(crate) async fn opposite_orders_end(cx: &Cx) -> Verdict {
    const TIMES: u32 = 20;
    let (first, second) = (client(cx).await?, client(cx).await?);
    let take = async |client: Arc<dyn Subject>, names: [&str; 3]| {
        let asks = asks(cx, names).await;
        for _ in 0..TIMES {
            let what = "one of two that acquire the same locks in opposite orders";
            let acquiring = client.acquire_all(&asks, WaitLimit::Forever);
            let acquired = cx.within(3 * cx.patience(), what, acquiring).await?;
            for guard in acquired.or_fail("acquire several")?.unwrap_or_default() {
                guard.released().await?;
            }
        }
        Ok::<_, Stop>(())
    };
    tokio::try_join!(take(first, ["a", "b", "c"]), take(second, ["c", "b", "a"]))?;
    for name in ["a", "b", "c"] {
        cx.until_free(name, "all were released").await?;
    }
    Ok(())
}
