//! Limits how often a server is dialled by many callers.
//!
//! A server that is down must not be flooded with dials, and one that is back must be noticed soon. Those who wait for a dial share
//! its failure.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use crate::backoff::DIAL_SPACING;

/// After this a dial without an outcome does not keep others from dialling: its packets may be lost, or nobody drives
/// the runtime that it began on.
const DIAL_HANGS_AFTER: Duration = Duration::from_secs(1);

/// Decides who dials, and when. `E` is the failure of a dial.
///
/// # Examples
/// ```
/// # use std::convert::Infallible;
/// # use lock_kit::dial_limiter::{DialLimiter, Turn};
/// # async fn connect() -> Result<u32, String> { Ok(7) }
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), String> {
/// let limiter = DialLimiter::parallel();
/// let Turn::Dial(attempt) = limiter.turn(|| None::<Infallible>).await?;
/// let connected = connect().await;
/// attempt.finish(connected.as_ref().map(drop).map_err(Clone::clone));
/// # connected.map(drop) }
/// ```
#[derive(Debug)]
pub struct DialLimiter<E> {
    state: Mutex<State<E>>,
    changed: Notify,
}

#[derive(Debug)]
struct State<E> {
    /// True if all callers may dial at once while the server is there.
    parallel: bool,
    /// True if the last dial made a connection, and none broke since.
    reached: bool,
    /// The number of dials that have begun.
    begun: u64,
    last_begun: Option<Instant>,
    /// The dial that the others wait for.
    probe: Option<u64>,
    /// The last dial that succeeded.
    succeeded: u64,
    /// The last dial that failed, unless a later one succeeded.
    failure: Option<(u64, E)>,
}

/// What a caller does next.
#[derive(Debug)]
pub enum Turn<'a, T, E: Clone> {
    /// Dial.
    Dial(DialAttempt<'a, E>),
    /// Use what another dial has brought.
    Served(T),
}

/// A dial under way. If it is dropped without an outcome, another may begin.
#[derive(Debug)]
#[must_use]
pub struct DialAttempt<'a, E: Clone> {
    limiter: &'a DialLimiter<E>,
    number: u64,
}

#[derive(Debug)]
enum Step<E> {
    Dial(u64),
    Wait(Instant),
    Failed(E),
}

impl<E: Clone> DialLimiter<E> {
    /// One dial at a time until the server was reached, and again after each failure; else any number.
    pub fn parallel() -> Self {
        Self::new(true)
    }

    /// One dial at a time, always.
    pub fn serial() -> Self {
        Self::new(false)
    }

    fn new(parallel: bool) -> Self {
        Self {
            state: Mutex::new(State::new(parallel)),
            changed: Notify::new(),
        }
    }

    /// Waits until the caller may dial, or is `served` by the dial of another caller.
    ///
    /// # Errors
    /// The failure of another caller's dial that began during this call.
    ///
    /// # Cancel safety
    /// May be dropped at any point.
    pub async fn turn<T>(&self, served: impl Fn() -> Option<T>) -> Result<Turn<'_, T, E>, E> {
        let before = self.state.lock().begun;
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            if let Some(served) = served() {
                return Ok(Turn::Served(served));
            }
            let step = self.state.lock().step(before, Instant::now());
            match step {
                Step::Dial(number) => return Ok(Turn::Dial(DialAttempt { limiter: self, number })),
                Step::Failed(failure) => return Err(failure),
                Step::Wait(until) => tokio::select! {
                    () = changed => {}
                    () = sleep_until(until) => {}
                },
            }
        }
    }

    /// Has dials go out one at a time until one succeeds. To be called when a connection broke, perhaps with all others.
    pub fn suspect_outage(&self) {
        self.state.lock().reached = false;
    }

    /// Why the server was not reached when it was last dialled.
    pub fn failure(&self) -> Option<E> {
        self.state.lock().failure.as_ref().map(|(_, failure)| failure.clone())
    }
}

impl<E: Clone> State<E> {
    fn new(parallel: bool) -> Self {
        Self {
            parallel,
            reached: false,
            begun: 0,
            last_begun: None,
            probe: None,
            succeeded: 0,
            failure: None,
        }
    }

    /// The next step of a caller that has waited since `before` dials had begun.
    fn step(&mut self, before: u64, now: Instant) -> Step<E> {
        if let Some((number, failure)) = &self.failure
            && *number > before
        {
            return Step::Failed(failure.clone());
        }
        if self.parallel && self.reached {
            return Step::Dial(self.begin(now));
        }
        let pause = match (self.probe, &self.failure) {
            (Some(_), _) => DIAL_HANGS_AFTER,
            (None, Some(_)) => DIAL_SPACING,
            (None, None) => Duration::ZERO,
        };
        match self.last_begun.map(|begun| begun + pause) {
            Some(free) if now < free => Step::Wait(free),
            _ => {
                let number = self.begin(now);
                self.probe = Some(number);
                Step::Dial(number)
            }
        }
    }

    fn begin(&mut self, now: Instant) -> u64 {
        self.begun += 1;
        self.last_begun = Some(now);
        self.begun
    }

    fn end(&mut self, number: u64, outcome: Option<Result<(), E>>) {
        if self.probe == Some(number) {
            self.probe = None;
        }
        match outcome {
            None => {}
            Some(Ok(())) => {
                self.reached = true;
                self.succeeded = self.succeeded.max(number);
                self.failure = None;
            }
            // It hung: the server has answered a dial that began after it.
            Some(Err(_)) if number < self.succeeded => {}
            Some(Err(failure)) => {
                self.reached = false;
                self.failure = Some((number, failure));
            }
        }
    }
}

impl<E: Clone> DialAttempt<'_, E> {
    /// Notes the outcome of the dial, which those who wait for it share.
    pub fn finish(self, outcome: Result<(), E>) {
        self.limiter.state.lock().end(self.number, Some(outcome));
        // Its drop wakes the others.
    }
}

impl<E: Clone> Drop for DialAttempt<'_, E> {
    fn drop(&mut self) {
        self.limiter.state.lock().end(self.number, None);
        self.limiter.changed.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use futures_util::FutureExt;

    use super::*;

    const DOWN: &str = "down";

    fn limiter(parallel: bool) -> State<&'static str> {
        State::new(parallel)
    }

    fn dialled(step: Step<&str>) -> u64 {
        match step {
            Step::Dial(number) => number,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn one_dial_at_a_time_until_the_server_was_reached() {
        let (mut limiter, now) = (limiter(true), Instant::now());
        let first = dialled(limiter.step(0, now));
        assert!(matches!(limiter.step(0, now), Step::Wait(until) if until == now + DIAL_HANGS_AFTER));
        limiter.end(first, Some(Ok(())));
        dialled(limiter.step(1, now));
        dialled(limiter.step(1, now));
        limiter.reached = false;
        dialled(limiter.step(3, now));
        assert!(matches!(limiter.step(3, now), Step::Wait(_)));
    }

    #[test]
    fn a_failure_is_for_those_who_came_before_its_dial_and_spaces_the_next() {
        let (mut limiter, now) = (limiter(true), Instant::now());
        let first = dialled(limiter.step(0, now));
        limiter.end(first, Some(Err(DOWN)));
        assert!(matches!(limiter.step(0, now), Step::Failed(_)));
        // A later caller has not asked yet.
        assert!(matches!(limiter.step(first, now), Step::Wait(until) if until == now + DIAL_SPACING));
        let second = dialled(limiter.step(first, now + DIAL_SPACING));
        limiter.end(second, Some(Ok(())));
        dialled(limiter.step(second, now + DIAL_SPACING));
    }

    #[test]
    fn a_dial_that_hangs_or_was_dropped_makes_way() {
        let (mut limiter, now) = (limiter(true), Instant::now());
        let hangs = dialled(limiter.step(0, now));
        let second = dialled(limiter.step(0, now + DIAL_HANGS_AFTER));
        limiter.end(hangs, None);
        assert!(matches!(limiter.step(0, now + DIAL_HANGS_AFTER), Step::Wait(_)));
        limiter.end(second, None);
        dialled(limiter.step(0, now + DIAL_HANGS_AFTER));
    }

    #[test]
    fn a_failure_does_not_outlive_the_success_of_a_later_dial() {
        let (mut limiter, now) = (limiter(true), Instant::now());
        let hangs = dialled(limiter.step(0, now));
        let later = now + DIAL_HANGS_AFTER;
        let second = dialled(limiter.step(0, later));
        limiter.end(second, Some(Ok(())));
        limiter.end(hangs, Some(Err(DOWN)));
        assert_eq!(limiter.failure, None);
        // All callers dial at once, also those who came before both dials.
        let third = dialled(limiter.step(0, later));
        dialled(limiter.step(second, later));
        limiter.end(third, Some(Err(DOWN)));
        assert_eq!(limiter.failure, Some((third, DOWN)));
    }

    #[test]
    fn a_serial_limiter_never_dials_in_parallel() {
        let (mut limiter, now) = (limiter(false), Instant::now());
        let first = dialled(limiter.step(0, now));
        limiter.end(first, Some(Ok(())));
        dialled(limiter.step(first, now));
        assert!(matches!(limiter.step(first, now), Step::Wait(_)));
    }

    #[tokio::test]
    async fn those_who_wait_share_an_outcome() {
        let limiter = DialLimiter::serial();
        let nothing = || None::<Infallible>;
        let Ok(Turn::Dial(attempt)) = limiter.turn(nothing).await else {
            panic!("it is free");
        };
        let connection = Mutex::new(None);
        let waiting = limiter.turn(|| *connection.lock());
        tokio::pin!(waiting);
        assert!(waiting.as_mut().now_or_never().is_none());
        *connection.lock() = Some(7);
        attempt.finish(Ok(()));
        assert!(matches!(waiting.await, Ok(Turn::Served(7))));

        let Ok(Turn::Dial(attempt)) = limiter.turn(nothing).await else {
            panic!("it is free");
        };
        let waiting = limiter.turn(nothing);
        tokio::pin!(waiting);
        assert!(waiting.as_mut().now_or_never().is_none());
        attempt.finish(Err(DOWN));
        // It began before the second came: that one dials itself.
        assert!(matches!(waiting.await, Ok(Turn::Dial(_))));
    }
}
