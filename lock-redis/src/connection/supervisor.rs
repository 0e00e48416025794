//! The task that connects and reconnects.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::future::BoxFuture;
use lock_core::{Error, ErrorKind};
use lock_kit::backoff::{DIAL_SPACING, pauses};
use lock_kit::panics::catch;
use lock_kit::runtime::RuntimeCheck;
use redis::{RedisResult, Value};
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval_at, sleep, sleep_until, timeout};

use super::dial::Dialed;
use super::gatherer::gather;
use super::heartbeat::{Beat, Heartbeat, Since};
use super::session::Session;
use super::state::{Phase, Shared, State};
use crate::error::{is_permanent, is_reply};

/// Keeps a connection up until a newer supervisor takes over. A server that was never reached is given up when nobody waits
/// for it any more, or when the failure is permanent; one that was reached once is tried for ever.
pub(super) async fn supervise(supervisor: Supervisor) {
    supervisor.has_begun.store(true, Ordering::SeqCst);
    let task = async {
        tokio::select! {
            () = supervisor.run() => {}
            never = supervisor.shared.dialer.watch() => match never {},
        }
    };
    supervisor.runtime_check.watch(task).await;
}

/// A supervisor may change the state as long as its epoch is the newest. If its runtime ends, it reports that.
pub(super) struct Supervisor {
    pub(super) shared: Arc<Shared>,
    pub(super) epoch: u64,
    pub(super) runtime_check: Arc<RuntimeCheck>,
    /// Notified to connect at once.
    pub(super) dial_requested: Arc<Notify>,
    pub(super) has_begun: Arc<AtomicBool>,
}

impl Supervisor {
    async fn run(&self) {
        loop {
            self.pause().await;
            let start = Instant::now();
            let go_on = match self.dial().await {
                Ok(dialed) => match self.begin_session(&dialed) {
                    Some(session) => {
                        let why = self.monitor(&session, &dialed, start.elapsed()).await;
                        self.shared.end(&session, &why);
                        self.change(|state| drop(state.disconnect(Phase::Connecting, why)))
                    }
                    None => false,
                },
                Err(error) => self.note_failure(error),
            };
            if !go_on {
                return;
            }
        }
    }

    /// Waits after failures, until somebody requests a connection or the server is another one. In any case it waits for the
    /// shortest pause between two tries.
    async fn pause(&self) {
        let (failures, last_dial) = {
            let state = self.shared.state.borrow();
            (state.failures, state.last_dial)
        };
        tokio::select! {
            () = sleep(reconnect_pause(failures)) => {}
            () = self.dial_requested.notified() => {}
            () = self.shared.dialer.moved() => {}
        }
        if let Some(last_dial) = last_dial {
            sleep_until(last_dial + DIAL_SPACING).await;
        }
    }

    async fn dial(&self) -> Result<Dialed, Error> {
        let shared = &self.shared;
        // While nobody has reached the server, the callers' time is the limit. If that is too short for this dial, why the one
        // before it failed says more.
        let mut limit = shared.connect_timeout;
        let mut cut_short = None;
        // This try is for all requests until now.
        pin!(self.dial_requested.notified()).enable();
        shared.state.send_if_modified(|state| {
            if state.epoch == self.epoch {
                let now = Instant::now();
                state.dials += 1;
                state.last_dial = Some(now);
                if state.connected.is_none() {
                    limit = state.wanted_until.saturating_duration_since(now);
                    let earlier = state.last_error.clone().filter(|_| state.failures > 0);
                    cut_short = Some(earlier.unwrap_or_else(|| self.unanswered("in time")));
                }
            }
            // Nobody waits for the beginning of a try.
            false
        });
        if limit.is_zero()
            && let Some(why) = cut_short
        {
            return Err(why);
        }
        match timeout(limit, catch(shared.dialer.dial())).await {
            Ok(Ok(dialed)) => dialed,
            Ok(Err(panic)) => {
                let what = format!("connecting to Redis at {} panicked", shared.dialer);
                Err(Error::new(ErrorKind::Unexpected, what).with_source(panic))
            }
            Err(_elapsed) => Err(cut_short.unwrap_or_else(|| self.unanswered(&format!("within {limit:?}")))),
        }
    }

    fn unanswered(&self, when: &str) -> Error {
        let what = format!("Redis at {} did not answer {when}", self.shared.dialer);
        Error::new(ErrorKind::Unavailable, what)
    }

    fn begin_session(&self, dialed: &Dialed) -> Option<Session> {
        let mut session = None;
        self.change(|state| {
            state.generation = 1 + self.shared.generations.fetch_add(1, Ordering::Relaxed);
            state.connected = Some(Instant::now());
            state.last_error = None;
            let new = Session::new(state.generation, dialed);
            state.phase = Phase::Up(new.clone());
            session = Some(new);
        });
        self.shared.inbox.wake_all();
        session
    }

    /// Waits until the connection has ended or is to be replaced, and returns the reason. Replies come in order, so a server
    /// that was asked and sends nothing at all replies to nobody.
    async fn monitor(&self, session: &Session, dialed: &Dialed, dialing: Duration) -> Error {
        let server = &self.shared.dialer;
        let mut heartbeat = Heartbeat::new(self.shared.response_timeout, dialing);
        let mut beats = interval_at(Instant::now() + heartbeat.interval(), heartbeat.interval());
        beats.set_missed_tick_behavior(MissedTickBehavior::Delay);
        // It ends with this future.
        let mut tasks = JoinSet::new();
        tasks.spawn(gather(self.shared.clone(), session.clone()));
        let mut ping: Option<BoxFuture<'_, Result<RedisResult<Value>, Error>>> = None;
        let mut unsubscribing: Option<BoxFuture<'_, ()>> = None;
        loop {
            let pong = async {
                match &mut ping {
                    Some(ping) => ping.await,
                    None => std::future::pending().await,
                }
            };
            let unsubscribed = async {
                match &mut unsubscribing {
                    Some(unsubscribing) => unsubscribing.await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = dialed.ended.notified() => {
                    let what = format!("Redis at {server} closed the connection");
                    return Error::new(ErrorKind::Unavailable, what);
                }
                () = server.moved() => {
                    let what = format!("Redis at {server} is to be replaced by another server, its Sentinels say");
                    return Error::new(ErrorKind::Unavailable, what);
                }
                why = session.ended() => return why,
                Some(ended) = tasks.join_next() => {
                    let what = format!("the task that sends requests to Redis at {server} has ended");
                    let error = Error::new(ErrorKind::Unavailable, what);
                    return match ended {
                        Ok(()) => error,
                        Err(panic) => error.with_source(panic),
                    };
                }
                reply = pong => {
                    ping = None;
                    match reply {
                        Ok(Err(error)) if !is_reply(&error) => return self.shared.lock_error(error),
                        Ok(_) => {}
                        Err(why) => return why,
                    }
                }
                () = unsubscribed => unsubscribing = None,
                _ = beats.tick() => {
                    if unsubscribing.is_none() {
                        let idle = session.channels().idle();
                        unsubscribing = (!idle.is_empty()).then(|| Box::pin(session.unsubscribe(idle)) as _);
                    }
                    match heartbeat.beat(self.since(session, ping.is_some())) {
                        Beat::Heard => session.set_silent(None),
                        Beat::Quiet if ping.is_none() => {
                            ping = Some(Box::pin(async { session.ping().await }));
                        }
                        Beat::Quiet | Beat::Idle => {}
                        Beat::Silent => session.set_silent(Some(self.silence_error("does not answer"))),
                        Beat::TimedOut => {
                            return self.silence_error(&format!("has not answered for {:?}", heartbeat.silence()));
                        }
                    }
                }
            }
        }
    }

    fn since(&self, session: &Session, is_asked: bool) -> Since {
        let was_used = session.take_used();
        Since {
            was_heard: session.take_heard(),
            is_asked,
            is_used: was_used || self.shared.is_needed(),
        }
    }

    fn silence_error(&self, what: &str) -> Error {
        let what = format!("Redis at {} {what}: is it overloaded or cut off?", self.shared.dialer);
        Error::new(ErrorKind::Unavailable, what)
    }

    /// Returns whether the supervisor goes on.
    fn note_failure(&self, error: Error) -> bool {
        let mut go_on = true;
        let in_charge = self.change(|state| {
            state.failures = state.failures.saturating_add(1);
            state.failed_dial = state.dials;
            let is_given_up = is_permanent(&error) || state.wanted_until <= Instant::now();
            if state.connected.is_none() && is_given_up {
                state.phase = Phase::Idle;
                state.failures = 0;
                go_on = false;
            }
            state.last_error = Some(error);
        });
        in_charge && go_on
    }

    /// Changes the state if this epoch is the newest, and returns whether it is.
    fn change(&self, change: impl FnOnce(&mut State)) -> bool {
        self.shared.state.send_if_modified(|state| {
            let in_charge = state.epoch == self.epoch;
            if in_charge {
                change(state);
            }
            in_charge
        })
    }
}

impl Drop for Supervisor {
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
        let mut lost = None;
        self.change(|state| {
            if !matches!(state.phase, Phase::Idle) {
                lost = state.disconnect(Phase::Idle, why.clone());
            }
        });
        if let Some(session) = lost {
            self.shared.end(&session, &why);
        }
    }
}

/// The pause before the next dial after `failures` in a row, unless a caller requests a connection earlier. None after
/// no failure, then from 20 ms up to half a second. Jitter adds up to as much again.
fn reconnect_pause(failures: u32) -> Duration {
    const FIRST: Duration = Duration::from_millis(20);
    const LONGEST: Duration = Duration::from_millis(500);
    // After so many it is at its longest.
    const STEPS: u32 = 10;
    let Some(earlier) = failures.checked_sub(1) else {
        return Duration::ZERO;
    };
    let pause = pauses(FIRST, LONGEST).nth(earlier.min(STEPS) as usize);
    pause.unwrap_or(LONGEST)
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
