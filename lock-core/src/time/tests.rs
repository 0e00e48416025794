use std::cell::Cell;
use std::ops::ControlFlow;

use super::*;
use crate::sync::{Arc, Mutex};
use crate::{Ended, Guard, HoldState, Locker, LostCause, MemoryBackend};

thread_local! {
    /// The time for which this thread's machine was suspended, and the part of it that was noticed.
    static SUSPENDED: Cell<(Duration, Duration)> = const { Cell::new((Duration::ZERO, Duration::ZERO)) };
}

/// As if the machine had been suspended for so long, for this thread.
pub(crate) fn suspend(time: Duration) {
    let (suspended, seen) = SUSPENDED.get();
    SUSPENDED.set((suspended + time, seen));
}

pub(super) fn look() -> Duration {
    let (suspended, _) = SUSPENDED.get();
    SUSPENDED.set((suspended, suspended));
    suspended
}

pub(super) fn seen() -> Duration {
    SUSPENDED.get().1
}

const HOUR: Duration = Duration::from_secs(3600);

#[tokio::test(start_paused = true)]
async fn paused_time_is_exact_and_suspended_time_is_added() {
    let start = LeaseInstant::now();
    assert_eq!(LeaseInstant::now(), start);
    tokio::time::advance(HOUR).await;
    assert_eq!(LeaseInstant::now().saturating_duration_since(start), HOUR);
    suspend(HOUR);
    assert_eq!(LeaseInstant::now().saturating_duration_since(start), 2 * HOUR);
}

#[tokio::test(start_paused = true)]
async fn early_until_somebody_looks() {
    let start = LeaseInstant::now();
    suspend(HOUR);
    assert_eq!(LeaseInstant::now_or_earlier(), start);
    let now = LeaseInstant::now();
    assert_eq!(LeaseInstant::now_or_earlier(), now);
    assert_eq!(start.by_runtime(), Instant::now() - HOUR);
    assert_eq!(now.by_runtime(), Instant::now());
}

/// This machine is not suspended meanwhile, as tests hope.
#[test]
fn the_system_s_own_count_stands_still() {
    let start = system::look(Instant::now());
    for _ in 0..100_000 {
        assert_eq!(system::look(Instant::now()), start);
    }
    assert_eq!(system::seen(), start);
}

const fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

async fn hold(server: &MemoryBackend) -> Guard {
    let locks = Locker::new(server.clone()).with_ttl(secs(30));
    locks.lock("a").acquire().await.unwrap()
}

/// Lets every other task run until it waits.
async fn settle() {
    tokio::time::sleep(Duration::from_millis(1)).await;
}

#[tokio::test(start_paused = true)]
async fn a_loss_in_suspension_is_told_soon_after_it() {
    let guard = Arc::new(hold(&MemoryBackend::new()).await);
    let ended = tokio::spawn({
        let watch = guard.watch();
        async move { watch.ended().await }
    });
    let work = tokio::spawn({
        let guard = guard.clone();
        async move { guard.run(std::future::pending::<()>()).await }
    });
    settle().await;
    suspend(HOUR);
    let resumed = Instant::now();
    assert!(matches!(guard.state(), HoldState::Lost(_)));
    assert_eq!(guard.valid_for(), Duration::ZERO);
    assert!(matches!(ended.await.unwrap(), Ended::Lost(_)));
    assert_eq!(work.await.unwrap().unwrap_err().cause(), LostCause::Expired);
    assert_eq!(guard.lost().await.cause(), LostCause::Expired);
    assert!(resumed.elapsed() <= LOOK_EVERY, "{:?}", resumed.elapsed());
}

/// Nobody asks: it is the keeper that finds out.
#[tokio::test(start_paused = true)]
async fn a_loss_in_suspension_is_told_to_who_only_waits() {
    let guard = hold(&MemoryBackend::new()).await;
    settle().await;
    let suspended = Instant::now();
    tokio::spawn(async { suspend(HOUR) });
    assert_eq!(guard.lost().await.cause(), LostCause::Expired);
    assert!(suspended.elapsed() <= LOOK_EVERY, "{:?}", suspended.elapsed());
}

#[tokio::test(start_paused = true)]
async fn what_was_not_lost_is_renewed_at_once() {
    let guard = hold(&MemoryBackend::new()).await;
    settle().await;
    suspend(secs(20));
    assert_eq!(guard.valid_for(), secs(7) - Duration::from_millis(1));
    tokio::time::sleep(LOOK_EVERY).await;
    assert!(guard.valid_for() > secs(25), "{:?}", guard.valid_for());
    assert_eq!(guard.state(), HoldState::Held);
}

#[tokio::test(start_paused = true)]
async fn a_fixed_lease_ends_when_its_time_is_over() {
    let locks = Locker::new(MemoryBackend::new()).with_ttl(secs(30));
    let guard = locks.lock("a").fixed_lease().acquire().await.unwrap();
    let started = Instant::now();
    tokio::spawn(async { suspend(secs(20)) });
    assert_eq!(guard.lost().await.cause(), LostCause::Expired);
    assert_eq!(started.elapsed(), secs(7));
}

#[tokio::test(start_paused = true)]
async fn a_margin_is_kept_after_a_suspension() {
    let locks = Locker::new(MemoryBackend::new()).with_ttl(secs(30));
    let election = locks.election("a").margin(secs(10)).hold_at_most(secs(25));
    let started = Instant::now();
    let dropped = Arc::new(Mutex::new(None));
    let leads = election.lead(|_| {
        let stopped = Stopped(dropped.clone());
        async move {
            // Once the election waits.
            tokio::spawn(async { suspend(secs(5)) });
            std::future::pending::<()>().await;
            drop(stopped);
            ControlFlow::Break(())
        }
    });
    assert!(
        tokio::time::timeout(secs(60), leads).await.is_err(),
        "it campaigns again"
    );
    let dropped = dropped.lock().expect("the first term has ended");
    assert_eq!(
        dropped - started,
        secs(10),
        "25 s, less a margin of 10 s and 5 s of suspension"
    );
}

/// Notes when it was dropped first.
struct Stopped(Arc<Mutex<Option<Instant>>>);

impl Drop for Stopped {
    fn drop(&mut self) {
        self.0.lock().get_or_insert_with(Instant::now);
    }
}

#[tokio::test(start_paused = true)]
async fn a_minimum_hold_counts_suspended_time() {
    let server = MemoryBackend::new();
    let locks = Locker::new(server.clone()).with_ttl(secs(90));
    let guard = locks.lock("a").hold_at_least(secs(60)).acquire().await.unwrap();
    suspend(secs(50));
    guard.release().await.unwrap();
    let waited = Instant::now();
    let _next = locks.lock("a").acquire().await.unwrap();
    assert_eq!(waited.elapsed(), secs(10));
}
