//! Requests of several runtimes on one connection.

use futures_util::FutureExt;
use lock_core::backend::DistributedLock;
use tokio::runtime::{Builder, Runtime};

use super::{ask_all, connected, holds, requests};
use crate::support::{Fixture, TTL, eventually, request};

fn idle() -> Runtime {
    Builder::new_current_thread().enable_all().build().expect("a runtime")
}

/// What a runtime has asked for goes out though nobody drives it any more, and keeps nobody waiting.
#[testbed::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_runtime_that_stands_still_delays_no_call() {
    let fixture = Fixture::new().await;
    let backend = connected(&fixture).await;
    let all = requests(0..4);
    let mut first = Box::pin(backend.acquire(&all[0].0));
    assert!(first.as_mut().now_or_never().is_none());
    let elsewhere = idle();
    let mut still = Box::pin({
        let backend = backend.clone();
        async move { backend.acquire(&request("still", TTL).0).await.map(drop) }
    });
    tokio::task::block_in_place(|| {
        elsewhere.block_on(async { assert!(still.as_mut().now_or_never().is_none()) });
    });
    holds(ask_all(&backend, &all[1..]).await);
    holds(vec![first.await]);
    eventually("it was sent", async || fixture.exists("still").await).await;
    tokio::task::block_in_place(|| elsewhere.block_on(still)).expect("a grant");
    elsewhere.shutdown_background();
}

/// Its request is dropped with it, perhaps before it was sent.
#[testbed::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_runtime_that_ends_takes_no_other_request_along() {
    let fixture = Fixture::new().await;
    let backend = connected(&fixture).await;
    let all = requests(0..4);
    let mut first = Box::pin(backend.acquire(&all[0].0));
    assert!(first.as_mut().now_or_never().is_none());
    let elsewhere = idle();
    elsewhere.spawn({
        let backend = backend.clone();
        async move { backend.acquire(&request("gone", TTL).0).await.map(drop) }
    });
    // It asks in its first turn.
    tokio::task::block_in_place(|| elsewhere.block_on(tokio::task::yield_now()));
    let mut others = Box::pin(ask_all(&backend, &all[1..]));
    assert!(others.as_mut().now_or_never().is_none());
    tokio::task::block_in_place(|| drop(elsewhere));
    holds(others.await);
    holds(vec![first.await]);
}
