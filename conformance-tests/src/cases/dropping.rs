//! Dropping a guard, wherever it happens, and shutting down.

use std::time::Duration;

use lock_core::ErrorKind;
use tokio::time::sleep;

use super::support::{ensure_pending, granted, on_a_thread, refused};
use crate::context::Cx;
use crate::verdict::{OrFail, Stop, Verdict, ensure};

/// A dropped guard's lock is free soon.
pub(crate) async fn a_dropped_guard_releases(cx: &Cx) -> Verdict {
    let client = cx.subject().await;
    drop(cx.hold(&client, &cx.ask("a").await).await?);
    cx.until_free("a", "its guard was dropped").await
}

/// A dropped guard's waiter, another client, gets the lock.
pub(crate) async fn a_dropped_guard_wakes_a_waiter(cx: &Cx) -> Verdict {
    let (client, waiter) = (cx.subject().await, cx.subject().await);
    let ask = cx.ask("a").await;
    let guard = cx.hold(&client, &ask).await?;
    let mut waiting = Box::pin(waiter.acquire(&ask));
    ensure_pending(&mut waiting, Duration::from_millis(100), "while it was held").await?;
    drop(guard);
    let what = "the waiter to be granted after the drop";
    granted(cx.within(cx.freed_soon().await, what, waiting).await?)?;
    Ok(())
}

/// A guard that a panic drops releases.
pub(crate) async fn a_guard_dropped_in_a_panic_releases(cx: &Cx) -> Verdict {
    let client = cx.subject().await;
    let guard = cx.hold(&client, &cx.ask("a").await).await?;
    let panicked = tokio::spawn(async move {
        let _guard = guard;
        // Not by `panic!`, whose message would look like a failure in the log.
        std::panic::resume_unwind(Box::new("as planned"));
    })
    .await;
    ensure!(panicked.is_err_and(|error| error.is_panic()), "the task did not panic");
    cx.until_free("a", "its guard was dropped in a panic").await
}

/// A guard that is dropped on a plain thread, outside any runtime, releases as long as its runtime lives.
pub(crate) async fn a_guard_dropped_outside_a_runtime_releases(cx: &Cx) -> Verdict {
    let client = cx.subject().await;
    let guard = cx.hold(&client, &cx.ask("a").await).await?;
    on_a_thread(move || drop(guard))?;
    cx.until_free("a", "its guard was dropped outside a runtime").await
}

/// A guard that is dropped while the client shuts down is released, and the shutdown waits for that.
pub(crate) async fn a_guard_dropped_during_shutdown_releases(cx: &Cx) -> Verdict {
    let client = cx.subject().await;
    let guard = cx.hold(&client, &cx.ask("a").await).await?;
    let dropped_before = cx.hold(&client, &cx.ask("b").await).await?;
    drop(dropped_before);
    let closing = {
        let client = client.clone();
        tokio::spawn(async move { client.shutdown().await })
    };
    tokio::task::yield_now().await;
    drop(guard);
    let closed = cx
        .soon("the shutdown", closing)
        .await?
        .map_err(|panic| Stop::assertion(panic.to_string()))?;
    closed.or_fail("shut down")?;
    ensure!(
        !cx.is_held("b").await?,
        "dropped before the shutdown, and held after it"
    );
    cx.until_free("a", "it was dropped during the shutdown").await
}

/// When a shutdown is done, everything that was dropped before it is free at the server.
pub(crate) async fn a_shutdown_waits_for_dropped_guards(cx: &Cx) -> Verdict {
    let client = cx.subject().await;
    let names = ["a", "b", "c", "d", "e"];
    let mut guards = Vec::new();
    for name in names {
        guards.push(cx.hold(&client, &cx.ask(name).await).await?);
    }
    drop(guards);
    cx.soon("the shutdown", client.shutdown()).await?.or_fail("shut down")?;
    for name in names {
        ensure!(
            !cx.is_held(name).await?,
            "{name:?} was dropped before the shutdown, and is held after it"
        );
    }
    Ok(())
}

/// After a shutdown nothing is acquired any more, and the error says why.
pub(crate) async fn a_shutdown_refuses_acquires(cx: &Cx) -> Verdict {
    let client = cx.subject().await;
    let ask = cx.ask("a").await;
    cx.hold(&client, &ask).await?.released().await?;
    cx.soon("the shutdown", client.shutdown()).await?.or_fail("shut down")?;
    for ask in [ask.clone(), ask.clone().trying(), ask.within(Duration::from_secs(1))] {
        let Err(error) = cx.soon("an acquire after the shutdown", client.acquire(&ask)).await? else {
            return Err(Stop::assertion("acquired after the shutdown"));
        };
        ensure!(
            error.kind() == ErrorKind::ShutDown,
            "refused as {:?}: {error}",
            error.kind()
        );
    }
    cx.until_free("a", "the shutdown").await
}

/// A shutdown ends those who wait, and leaves nothing of them.
pub(crate) async fn a_shutdown_ends_waiters(cx: &Cx) -> Verdict {
    let (holder, client) = (cx.subject().await, cx.subject().await);
    let ask = cx.ask("a").await;
    let guard = cx.hold(&holder, &ask).await?;
    let mut waiters = Vec::new();
    for _ in 0..3 {
        let (client, ask) = (client.clone(), ask.clone());
        waiters.push(tokio::spawn(async move { client.acquire(&ask).await }));
    }
    cx.until_places("a", 1).await?;
    sleep(Duration::from_millis(20)).await;
    cx.soon("the shutdown", client.shutdown()).await?.or_fail("shut down")?;
    for waiter in waiters {
        let waited = cx
            .soon("a waiter to end", waiter)
            .await?
            .map_err(|panic| Stop::assertion(panic.to_string()))?;
        let error = refused(waited, "a wait that a shutdown ends")?;
        ensure!(
            error.kind() == ErrorKind::ShutDown,
            "ended as {:?}: {error}",
            error.kind()
        );
    }
    guard.released().await?;
    cx.until_free("a", "those who waited had been shut down").await
}
