//! A line on which every answer takes a large part of the ttl.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use lock_core::backend::request::{RequestOptions, Terms};
use lock_core::backend::{
    AcquireRequest, Attempt, Capabilities, DistributedLock, Hold, Lease, LockStatus, ReleaseOptions, ReleaseOutcome,
    Renewal, SentAt,
};
use lock_core::{Error, FencingToken, HoldState, LockName, Locker, MemoryBackend, Result};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::{TTL, scripted, seconds};
use crate::scripted::{Answer, Request};

/// The memory backend at the other end of a slow line.
#[derive(Clone, Debug)]
struct Slow {
    server: MemoryBackend,
    one_way: Duration,
}

impl Slow {
    async fn carry<T>(&self, request: impl Future<Output = Result<T>>) -> Result<T> {
        sleep(self.one_way).await;
        let answer = request.await;
        sleep(self.one_way).await;
        answer
    }
}

#[async_trait]
impl DistributedLock for Slow {
    fn capabilities(&self) -> Capabilities {
        Capabilities::default()
    }

    async fn connect(&self) -> Result<()> {
        self.carry(self.server.connect()).await
    }

    async fn acquire(&self, request: &AcquireRequest) -> Result<Attempt> {
        let sent = request.sending();
        // With a lease of its own, as the memory backend arms it on arrival.
        let (arriving, _control) = RequestOptions::new(request.name().clone(), Terms::new(request.ttl())).start();
        match self.carry(self.server.acquire(&arriving)).await? {
            Attempt::Granted(hold, _armed) => {
                let (line, lease) = (self.clone(), request.lease().clone());
                let armed = lease.arm(sent, request.ttl())?;
                Ok(Attempt::Granted(Arc::new(SlowHold { line, hold, lease }), armed))
            }
            busy => Ok(busy),
        }
    }

    async fn abandon(&self, _request: &AcquireRequest) -> Result<()> {
        panic!("nothing is cancelled here")
    }

    async fn status(&self, name: &LockName) -> Result<LockStatus> {
        self.server.status(name).await
    }
}

struct SlowHold {
    line: Slow,
    hold: Arc<dyn Hold>,
    lease: Lease,
}

#[async_trait]
impl Hold for SlowHold {
    fn token(&self) -> FencingToken {
        self.hold.token()
    }

    async fn renew(&self, ttl: Duration) -> Result<Renewal> {
        let sent = SentAt::now();
        match self.line.carry(self.hold.renew(ttl)).await? {
            Renewal::Renewed(_armed) => Ok(Renewal::Renewed(self.lease.arm(sent, ttl)?)),
            lost => Ok(lost),
        }
    }

    async fn release(&self, how: ReleaseOptions) -> Result<ReleaseOutcome> {
        self.line.carry(self.hold.release(how)).await
    }
}

impl fmt::Debug for SlowHold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SlowHold")
    }
}

#[tokio::test(start_paused = true)]
async fn a_hold_survives_a_round_trip_of_two_fifths_of_its_ttl() {
    for tenths in 0..=4 {
        let one_way = TTL * tenths / 20;
        let server = MemoryBackend::new();
        let line = Slow {
            server: server.clone(),
            one_way,
        };
        let locks = Locker::new(line).with_ttl(TTL).with_operation_timeout(2 * TTL);
        let guard = locks.lock("a").acquire().await.unwrap();
        let lost = timeout(20 * TTL, guard.lost()).await;
        assert!(lost.is_err(), "at a round trip of {:?}: {lost:?}", 2 * one_way);
        guard.release().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_late_answer_counts_from_when_its_renewal_was_sent() {
    let started = Instant::now();
    let at = |hundredths: u32| sleep_until(started + TTL * hundredths / 100);
    let line = Slow {
        server: MemoryBackend::new(),
        one_way: TTL * 15 / 100,
    };
    let locks = Locker::new(line).with_ttl(TTL);
    let guard = locks.lock("a").acquire().await.unwrap();
    // Renewed at 1/3 and, as that is unanswered, at 1/2; answered at 0.633 and 0.8.
    at(49).await;
    assert_eq!(guard.state(), HoldState::Held);
    at(51).await;
    assert_eq!((guard.state(), guard.valid_for()), (HoldState::Suspect, TTL * 39 / 100));
    at(64).await;
    assert_eq!(guard.state(), HoldState::Held);
    assert_eq!(guard.valid_for(), TTL / 3 + TTL * 9 / 10 - TTL * 64 / 100);
    at(81).await;
    assert_eq!(guard.valid_for(), TTL / 2 + TTL * 9 / 10 - TTL * 81 / 100);
    guard.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn all_renewals_end_with_the_release() {
    let (backend, locks) = scripted();
    let guard = locks.lock("a").acquire().await.unwrap();
    backend.next(Request::Renew, [Answer::Hang, Answer::Hang]);
    sleep(TTL / 3 + TTL / 6 + seconds(1)).await;
    assert_eq!(backend.hung(), 2);
    guard.release().await.unwrap();
    assert_eq!(backend.hung(), 0);
    sleep(2 * TTL).await;
    assert_eq!(backend.renewals().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn without_any_answer_the_hold_is_lost_when_its_lease_ends() {
    let (backend, locks) = scripted();
    let guard = locks.lock("a").acquire().await.unwrap();
    backend.next(Request::Renew, [Answer::Hang; 10]);
    let started = Instant::now();
    guard.lost().await;
    assert_eq!(started.elapsed(), TTL - TTL / 10);
    let sent = backend.renewals();
    assert_eq!(sent, [TTL / 3, TTL / 2, TTL * 2 / 3, TTL * 5 / 6]);
    tokio::task::yield_now().await;
    assert_eq!(backend.hung(), 0, "nobody listens any more");
    assert!(matches!(
        guard.release().await.map_err(|error: Error| error.is_lost()),
        Err(true)
    ));
}
