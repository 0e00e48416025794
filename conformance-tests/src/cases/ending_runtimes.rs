//! Calls on a runtime that is shutting down.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::{Arc, mpsc};
use std::task::{Context, Waker};
use std::thread;

use lock_core::backend::{AcquireRequest, Attempt, DistributedLock, ReleaseOptions};
use tokio::runtime::Builder;
use tokio::task::coop::unconstrained;

use crate::context::RawCx;
use crate::raw::drive;
use crate::verdict::{OrFail, Stop, Verdict};

/// A call on a runtime that is shutting down returns, whatever it answers, and the client serves others afterwards. A backend that
/// makes a connection again and again, though every task of it is dropped at once, would keep the process from ending.
pub(crate) async fn a_call_on_an_ending_runtime_returns(cx: &RawCx) -> Verdict {
    let (client, ttl) = (cx.backend().await, cx.long_ttl().await);
    let (request, _control) = cx.request("a", ttl)?;
    let (has_returned, returned) = mpsc::channel();
    let (called, asked) = (client.clone(), request.clone());
    thread::spawn(move || {
        let calls = calls_on_an_ended_runtime(&called, &asked);
        // If this takes longer than the case waits, nobody receives it.
        let _ = has_returned.send(calls);
    });
    // Blocks this thread: a paused clock would not wait for the other one.
    let calls = returned.recv_timeout(cx.patience());
    calls.map_err(|_| Stop::assertion("a call on a runtime that has ended does not return"))??;
    cx.abandoned(&client, &request).await?;
    cx.until_free_by("a", cx.freed_by(ttl), "its runtime had ended").await?;
    cx.grant(&client, "a").await?.release().await?;
    cx.until_free("a", "its release").await
}

/// Acquires on a runtime, ends it, and polls each call once as if on a worker of it.
fn calls_on_an_ended_runtime(client: &Arc<dyn DistributedLock>, request: &AcquireRequest) -> Result<(), Stop> {
    let runtime = Builder::new_current_thread()
        .enable_all()
        .build()
        .or_fail("build a runtime")?;
    let attempt = runtime.block_on(drive(&**client, request)).or_fail("acquire")?;
    let Attempt::Granted(hold, _) = attempt else {
        return Err(Stop::assertion(format!("a free lock was {attempt:?}")));
    };
    let handle = runtime.handle().clone();
    drop(runtime);
    let _within = handle.enter();
    poll_once(hold.release(ReleaseOptions::default()));
    poll_once(client.abandon(request));
    poll_once(client.acquire(request));
    Ok(())
}

/// Without Tokio's budget, as core does in the background.
fn poll_once(call: impl Future) {
    let poll = || drop(pin!(unconstrained(call)).poll(&mut Context::from_waker(Waker::noop())));
    // Tokio's timers panic on a runtime that has ended.
    drop(catch_unwind(AssertUnwindSafe(poll)));
}
