//! Several renewals under way: what one answer says does not outlast what a later one says.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use lock_core::backend::{
    AcquireRequest, Attempt, Capabilities, DistributedLock, Hold, Lease, LockStatus, ReleaseOptions, ReleaseOutcome,
    Renewal, SentAt,
};
use lock_core::{Error, ErrorKind, FencingToken, HoldState, LockName, Locker, MemoryBackend, Result};
use tokio::time::sleep;

use super::{TTL, seconds};

/// What becomes of a renewal, counted from when it is sent.
#[derive(Clone, Copy, Debug)]
enum Late {
    Answered(Duration),
    Fails(Duration),
    Panics,
}

/// The memory backend, whose renewals are answered late.
#[derive(Clone, Debug, Default)]
struct LateAnswers(MemoryBackend, Arc<Mutex<VecDeque<Late>>>);

#[async_trait]
impl DistributedLock for LateAnswers {
    fn capabilities(&self) -> Capabilities {
        Capabilities::default()
    }

    async fn connect(&self) -> Result<()> {
        self.0.connect().await
    }

    async fn acquire(&self, request: &AcquireRequest) -> Result<Attempt> {
        Ok(match self.0.acquire(request).await? {
            Attempt::Granted(hold, armed) => {
                let lease = request.lease().clone();
                let renewals = self.1.clone();
                Attempt::Granted(Arc::new(LateHold { hold, lease, renewals }), armed)
            }
            busy => busy,
        })
    }

    async fn abandon(&self, request: &AcquireRequest) -> Result<()> {
        self.0.abandon(request).await
    }

    async fn status(&self, name: &LockName) -> Result<LockStatus> {
        self.0.status(name).await
    }
}

#[derive(Debug)]
struct LateHold {
    hold: Arc<dyn Hold>,
    lease: Lease,
    renewals: Arc<Mutex<VecDeque<Late>>>,
}

#[async_trait]
impl Hold for LateHold {
    fn token(&self) -> FencingToken {
        self.hold.token()
    }

    async fn renew(&self, ttl: Duration) -> Result<Renewal> {
        let sent = SentAt::now();
        let late = self.renewals.lock().unwrap().pop_front();
        match late.unwrap_or(Late::Answered(Duration::ZERO)) {
            Late::Answered(time) => {
                sleep(time).await;
                Ok(Renewal::Renewed(self.lease.arm(sent, ttl)?))
            }
            Late::Fails(time) => {
                sleep(time).await;
                Err(Error::new(ErrorKind::Unavailable, "scripted failure"))
            }
            Late::Panics => panic!("planned"),
        }
    }

    async fn release(&self, how: ReleaseOptions) -> Result<ReleaseOutcome> {
        self.hold.release(how).await
    }
}

async fn held(renewals: impl IntoIterator<Item = Late>) -> lock_core::Guard {
    let backend = LateAnswers(
        MemoryBackend::new(),
        Arc::new(Mutex::new(renewals.into_iter().collect())),
    );
    Locker::new(backend).with_ttl(TTL).lock("a").acquire().await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn the_success_after_a_failure_ends_the_suspicion() {
    // Sent after 3 and 4.5 seconds; over after 5 and 5.5.
    let guard = held([Late::Fails(seconds(2)), Late::Answered(seconds(1))]).await;
    sleep(seconds(5)).await;
    assert_eq!(guard.state(), HoldState::Suspect);
    sleep(seconds(1)).await;
    assert_eq!(
        (guard.state(), guard.valid_for()),
        (HoldState::Held, TTL * 9 / 10 - TTL / 6)
    );
}

#[tokio::test(start_paused = true)]
async fn a_renewal_that_panics_takes_no_other_along() {
    // Sent after 3, 4.5, 5.25 and 6.75 seconds; answered after 7, if anybody listens.
    let unanswered = Late::Fails(seconds(60));
    let guard = held([Late::Answered(seconds(4)), Late::Panics, unanswered, unanswered]).await;
    sleep(Duration::from_millis(7_100)).await;
    assert_eq!(
        guard.valid_for(),
        seconds(3) + TTL * 9 / 10 - Duration::from_millis(7_100)
    );
}
