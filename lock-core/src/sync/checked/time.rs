//! Time that passes when a test says so.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;
use std::ops::{Add, Sub};
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use super::point;

/// As the time since the test began.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Instant(Duration);

#[derive(Default)]
struct Clock {
    now: Duration,
    sleepers: BTreeMap<(Instant, u64), Waker>,
    last_number: u64,
}

thread_local! {
    /// Shuttle runs all tasks of a test on one thread.
    static CLOCK: RefCell<Clock> = RefCell::default();
}

/// Begins a test.
pub fn begin() {
    let before = CLOCK.replace(Clock::default());
    drop(before);
}

/// Lets this much time pass, and wakes the tasks that slept until then.
pub fn pass(time: Duration) {
    point();
    let due = CLOCK.with_borrow_mut(|clock| {
        clock.now += time;
        let later = Instant(clock.now + Duration::from_nanos(1));
        let later = clock.sleepers.split_off(&(later, 0));
        std::mem::replace(&mut clock.sleepers, later)
    });
    for sleeper in due.into_values() {
        sleeper.wake();
    }
}

impl Instant {
    pub(crate) fn now() -> Self {
        Self(CLOCK.with_borrow(|clock| clock.now))
    }

    pub(crate) fn checked_add(self, time: Duration) -> Option<Self> {
        self.0.checked_add(time).map(Self)
    }

    pub(crate) fn checked_sub(self, time: Duration) -> Option<Self> {
        self.0.checked_sub(time).map(Self)
    }

    pub(crate) fn saturating_duration_since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

impl Add<Duration> for Instant {
    type Output = Self;

    fn add(self, time: Duration) -> Self {
        Self(self.0 + time)
    }
}

impl Sub for Instant {
    type Output = Duration;

    fn sub(self, earlier: Self) -> Duration {
        self.saturating_duration_since(earlier)
    }
}

pub(crate) fn sleep(time: Duration) -> Sleep {
    let end = Instant::now().checked_add(time);
    sleep_until(end.unwrap_or(Instant(Duration::MAX)))
}

pub(crate) fn sleep_until(end: Instant) -> Sleep {
    let number = CLOCK.with_borrow_mut(|clock| {
        clock.last_number += 1;
        clock.last_number
    });
    Sleep(end, number)
}

#[must_use]
pub(crate) struct Sleep(Instant, u64);

impl Future for Sleep {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        point();
        let key = (self.0, self.1);
        CLOCK.with_borrow_mut(|clock| match key.0 <= Instant(clock.now) {
            true => Poll::Ready(()),
            false => {
                clock.sleepers.insert(key, context.waker().clone());
                Poll::Pending
            }
        })
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        CLOCK.with_borrow_mut(|clock| clock.sleepers.remove(&(self.0, self.1)));
    }
}

pub(crate) async fn timeout<F: Future>(limit: Duration, future: F) -> Result<F::Output, Elapsed> {
    tokio::select! {
        biased;
        output = future => Ok(output),
        () = sleep(limit) => Err(Elapsed),
    }
}

pub(crate) async fn timeout_at<F: Future>(end: Instant, future: F) -> Result<F::Output, Elapsed> {
    tokio::select! {
        biased;
        output = future => Ok(output),
        () = sleep_until(end) => Err(Elapsed),
    }
}

#[derive(Debug)]
pub(crate) struct Elapsed;

impl fmt::Display for Elapsed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("deadline has elapsed")
    }
}

impl std::error::Error for Elapsed {}
