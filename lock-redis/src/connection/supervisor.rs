//! The task that connects and reconnects.

use std::any::Any;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use backon::{BackoffBuilder, ExponentialBuilder};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use lock_core::{Error, ErrorKind};
use redis::{RedisResult, Value, cmd};
use tokio::time::{Instant, MissedTickBehavior, interval_at, sleep, sleep_until, timeout};

use super::dial::Dialed;
use super::session::Session;
use super::signals::Signals;
use super::silence::{Silence, Verdict};
use super::state::{Phase, Shared, State};
use crate::error::{is_answer, is_final};

/// The shortest time between two tries to connect, whoever wants one.
pub(super) const SHORTEST_PAUSE: Duration = Duration::from_millis(50);

/// Keeps a connection up until its reign ends. A server that was never reached is given up when nobody waits for it
/// any more, or when the failure is final; one that was reached once is tried for ever.
pub(super) async fn supervise(reign: Reign) {
    reign.has_begun.store(true, Ordering::SeqCst);
    tokio::select! {
        () = reign.run() => {}
        never = reign.signals.answer() => match never {},
    }
}

/// A supervisor's right to change the state, which a newer one takes away. If a runtime ends under it, it says so.
pub(super) struct Reign {
    pub(super) shared: Arc<Shared>,
    pub(super) number: u64,
    pub(super) signals: Arc<Signals>,
    pub(super) has_begun: Arc<AtomicBool>,
}

impl Reign {
    async fn run(&self) {
        loop {
            self.pause().await;
            let start = Instant::now();
            let goes_on = match self.dial().await {
                Ok(dialed) => match self.begin(&dialed) {
                    Some(session) => {
                        let why = self.watch_over(&session, &dialed, start.elapsed()).await;
                        self.shared.end(&session, &why);
                        self.change(|state| drop(state.leave(Phase::Connecting, why)))
                    }
                    None => false,
                },
                Err(error) => self.note_failure(error),
            };
            if !goes_on {
                return;
            }
        }
    }

    /// Waits after failures until somebody wants a connection. Two tries to connect have a shortest distance all the same.
    async fn pause(&self) {
        let (failures, last_dial) = {
            let state = self.shared.state.borrow();
            (state.failures, state.last_dial)
        };
        tokio::select! {
            () = sleep(reconnect_pause(failures)) => {}
            () = self.signals.wanted() => {}
        }
        if let Some(last_dial) = last_dial {
            sleep_until(last_dial + SHORTEST_PAUSE).await;
        }
    }

    async fn dial(&self) -> Result<Dialed, Error> {
        let shared = &self.shared;
        let mut limit = shared.connect_timeout;
        self.signals.begin_to_serve();
        shared.state.send_if_modified(|state| {
            if state.reign == self.number {
                let now = Instant::now();
                state.dials += 1;
                state.last_dial = Some(now);
                if state.connected.is_none() {
                    limit = state.wanted_until.saturating_duration_since(now);
                }
            }
            // Nobody waits for its beginning.
            false
        });
        let dialing = AssertUnwindSafe(shared.dialer.dial()).catch_unwind();
        match timeout(limit, dialing).await {
            Ok(Ok(dialed)) => dialed,
            Ok(Err(panic)) => {
                let what = format!("connecting to Redis at {} panicked", shared.dialer);
                Err(Error::new(ErrorKind::Unexpected, what).with_source(text(&*panic)))
            }
            Err(_elapsed) => {
                let what = format!("Redis at {} did not answer within {limit:?}", shared.dialer);
                Err(Error::new(ErrorKind::Unavailable, what))
            }
        }
    }

    fn begin(&self, dialed: &Dialed) -> Option<Session> {
        let mut session = None;
        self.change(|state| {
            state.generation += 1;
            state.connected = Some(Instant::now());
            state.trouble = None;
            let new = Session::new(state.generation, dialed);
            state.phase = Phase::Up(new.clone());
            session = Some(new);
        });
        self.shared.inbox.wake_all();
        session
    }

    /// Waits until the connection has ended or is to be replaced, and returns the reason. Replies come in order, so a server
    /// that was asked and says nothing at all answers nobody.
    async fn watch_over(&self, session: &Session, dialed: &Dialed, dialing: Duration) -> Error {
        let server = &self.shared.dialer;
        let mut silence = Silence::new(self.shared.response_timeout, dialing);
        let mut beats = interval_at(Instant::now() + silence.beat(), silence.beat());
        beats.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut ping: Option<BoxFuture<'_, Result<RedisResult<Value>, Error>>> = None;
        loop {
            let answered = async {
                match &mut ping {
                    Some(ping) => ping.await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = dialed.ended.notified() => {
                    let what = format!("Redis at {server} closed the connection");
                    return Error::new(ErrorKind::Unavailable, what);
                }
                why = session.over() => return why,
                answer = answered => {
                    ping = None;
                    match answer {
                        Ok(Err(error)) if !is_answer(&error) => return self.shared.explain(error),
                        Ok(_) => {}
                        Err(why) => return why,
                    }
                }
                _ = beats.tick() => match silence.judge(session.was_heard(), ping.is_some()) {
                    Verdict::Heard => session.set_silent(None),
                    Verdict::Quiet if ping.is_none() => {
                        ping = Some(Box::pin(async { session.send(&cmd("PING")).await }));
                    }
                    Verdict::Quiet => {}
                    Verdict::Trouble => session.set_silent(Some(self.silent("does not answer"))),
                    Verdict::Over => {
                        return self.silent(&format!("has not answered for {:?}", silence.lasts()));
                    }
                }
            }
        }
    }

    fn silent(&self, what: &str) -> Error {
        let what = format!("Redis at {} {what}: is it overloaded or cut off?", self.shared.dialer);
        Error::new(ErrorKind::Unavailable, what)
    }

    /// False where the supervisor has to end.
    fn note_failure(&self, error: Error) -> bool {
        let mut goes_on = true;
        let in_charge = self.change(|state| {
            state.failures = state.failures.saturating_add(1);
            state.failed_dial = state.dials;
            let is_given_up = is_final(&error) || state.wanted_until <= Instant::now();
            if state.connected.is_none() && is_given_up {
                state.phase = Phase::Idle;
                state.failures = 0;
                goes_on = false;
            }
            state.trouble = Some(error);
        });
        in_charge && goes_on
    }

    /// Whether the reign lasts still, and the change was made.
    fn change(&self, change: impl FnOnce(&mut State)) -> bool {
        self.shared.state.send_if_modified(|state| {
            let in_charge = state.reign == self.number;
            if in_charge {
                change(state);
            }
            in_charge
        })
    }
}

impl Drop for Reign {
    fn drop(&mut self) {
        // A runtime that is ending drops it inside `spawn`, while the caller holds the lock of the state.
        if !self.has_begun.load(Ordering::SeqCst) {
            return;
        }
        let what = format!(
            "the tokio runtime of the connection to Redis at {} has ended",
            self.shared.dialer
        );
        let why = Error::new(ErrorKind::Unavailable, what);
        let mut left = None;
        self.change(|state| {
            if !matches!(state.phase, Phase::Idle) {
                left = state.leave(Phase::Idle, why.clone());
            }
        });
        if let Some(session) = left {
            self.shared.end(&session, &why);
        }
    }
}

/// The message of a panic.
fn text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
    text.unwrap_or("a panic without a text").to_owned()
}

/// How long to wait before connecting again after `failures` in a row if nobody wants a connection meanwhile: not at all
/// after none, then from 20 ms up to half a second, and with jitter up to as much again.
fn reconnect_pause(failures: u32) -> Duration {
    const FIRST: Duration = Duration::from_millis(20);
    const LONGEST: Duration = Duration::from_millis(500);
    // After so many it is at its longest.
    const STEPS: u32 = 10;
    let Some(earlier) = failures.checked_sub(1) else {
        return Duration::ZERO;
    };
    let mut pauses = ExponentialBuilder::default()
        .with_min_delay(FIRST)
        .with_max_delay(LONGEST)
        .with_jitter()
        .without_max_times()
        .build();
    pauses.nth(earlier.min(STEPS) as usize).unwrap_or(LONGEST)
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn reconnects_at_once_and_then_less_and_less_often() {
        assert_eq!(reconnect_pause(0), ms(0));
        for (failures, least) in [(1, 20), (2, 39), (4, 159), (6, 499), (u32::MAX, 499)] {
            let pause = reconnect_pause(failures);
            assert!(
                (ms(least)..=ms(2 * least + 2)).contains(&pause),
                "{failures}: {pause:?}"
            );
        }
    }
}
