//! Waits that a late server fails.

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use async_trait::async_trait;
use lock_core::backend::{AcquireRequest, Attempt, Capabilities, DistributedLock, LockStatus};
use lock_core::{Error, ErrorKind, LockName, MemoryBackend, Result};

use super::{FrugalHarness, Kind, LONGEST_TTL, case};
use crate::case::{Body, Case};
use crate::context::RawCx;
use crate::harness::Timing;
use crate::reference::ReferenceHarness;
use crate::run::execute;
use crate::verdict::{Outcome, Verdict};

/// A client that fails so many waits once it has reported that the name is taken, as one whose server is late.
#[derive(Debug)]
struct Late(MemoryBackend, AtomicUsize);

#[async_trait]
impl DistributedLock for Late {
    fn capabilities(&self) -> Capabilities {
        self.0.capabilities()
    }

    async fn connect(&self) -> Result<()> {
        self.0.connect().await
    }

    async fn acquire(&self, request: &AcquireRequest) -> Result<Attempt> {
        let mut acquiring = self.0.acquire(request);
        loop {
            let noted = request.changed();
            if request.last_busy().is_some() && self.1.load(SeqCst) > 0 {
                self.1.fetch_sub(1, SeqCst);
                return Err(Error::new(ErrorKind::Unavailable, "the answer was late"));
            }
            tokio::select! {
                attempt = &mut acquiring => return attempt,
                () = noted => {}
            }
        }
    }

    async fn abandon(&self, request: &AcquireRequest) -> Result<()> {
        self.0.abandon(request).await
    }

    async fn status(&self, name: &LockName) -> Result<LockStatus> {
        self.0.status(name).await
    }
}

async fn waits(cx: &RawCx, failures: usize) -> Verdict {
    let server = MemoryBackend::new();
    let holder: Arc<dyn DistributedLock> = Arc::new(server.clone());
    let late: Arc<dyn DistributedLock> = Arc::new(Late(server, AtomicUsize::new(failures)));
    let grant = cx.grant(&holder, "a").await?;
    let waiting = cx.wait_for(&late, "a", cx.long_ttl().await).await?;
    grant.release().await?;
    waiting
        .grant_soon(cx, "the waiter to be granted")
        .await?
        .release()
        .await
}

/// A busy machine explains that. An error that stays fails the case, and so does any on paused time, where nothing is late.
#[test]
fn a_wait_that_a_late_server_fails_is_repeated() {
    static ONCE: LazyLock<Case> = LazyLock::new(|| case(Body::Raw(|cx| Box::pin(waits(cx, 1)))));
    static ALWAYS: LazyLock<Case> = LazyLock::new(|| case(Body::Raw(|cx| Box::pin(waits(cx, usize::MAX)))));
    let outcome = |case: &'static Case, timing| {
        let harness = FrugalHarness::new(ReferenceHarness::default(), Kind::Plain, LONGEST_TTL);
        execute(case, Arc::new(harness.with_timing(timing)), case.name)
    };
    let timing = Timing::default();
    let passed = outcome(&ONCE, timing);
    assert!(matches!(passed, Outcome::Passed), "{passed}");
    for failed in [
        outcome(&ALWAYS, timing.with_patience(Duration::from_secs(1))),
        outcome(&ONCE, Timing::paused()),
    ] {
        let is_told = failed.to_string().contains("the answer was late");
        assert!(matches!(failed, Outcome::Failed(_)) && is_told, "{failed}");
    }
}
