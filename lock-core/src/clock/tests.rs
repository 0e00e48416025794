use std::cell::Cell;

use super::*;

thread_local! {
    /// How long this thread's machine was suspended, and what of that was seen.
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
    let start = Time::now();
    assert_eq!(Time::now(), start);
    tokio::time::advance(HOUR).await;
    assert_eq!(Time::now().saturating_duration_since(start), HOUR);
    suspend(HOUR);
    assert_eq!(Time::now().saturating_duration_since(start), 2 * HOUR);
}

#[tokio::test(start_paused = true)]
async fn early_until_somebody_looks() {
    let start = Time::now();
    suspend(HOUR);
    assert_eq!(Time::now_or_earlier(), start);
    let now = Time::now();
    assert_eq!(Time::now_or_earlier(), now);
    assert_eq!(start.by_runtime(), Instant::now() - HOUR);
    assert_eq!(now.by_runtime(), Instant::now());
}

/// This machine is not suspended meanwhile, as tests hope.
#[test]
fn the_system_s_own_count_stands_still() {
    let start = system::look();
    for _ in 0..100_000 {
        assert_eq!(system::look(), start);
    }
    assert_eq!(system::seen(), start);
}
