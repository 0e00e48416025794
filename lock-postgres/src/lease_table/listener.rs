//! The connection over which waiters are woken: there only while anybody waits, since each notification wakes all listening
//! sessions of a database. It stays for two to three seconds after a wait: a call that comes before a new one listens is lost.

use std::sync::{Arc, Weak};
use std::time::Duration;

use lock_core::Result;
use lock_core::backend::HolderId;
use lock_kit::backoff::pauses;
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::time::{Instant, sleep, timeout};

use super::waits::Waits;
use crate::connection::{Connection, Dialer, OnCall};

/// How often it looks whether anybody waits still.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// So long after anybody was last known to wait, it goes on.
const KEPT: Duration = Duration::from_secs(2);
/// How long the server may take to answer that it is there.
const SILENT_AFTER: Duration = Duration::from_secs(5);

/// Listens at a channel of its own.
#[derive(Debug)]
pub(super) struct Listener {
    /// `None`: there is nowhere to listen.
    dialer: Option<Arc<Dialer>>,
    channel: String,
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    is_running: bool,
    hears: bool,
    /// When anybody was last known to wait.
    needed: Option<Instant>,
    /// The number of the task that runs: an earlier one may end late.
    run: u64,
}

impl Listener {
    pub(super) fn new(dialer: Option<Arc<Dialer>>) -> Self {
        Self {
            dialer,
            channel: format!("polylock_{}", HolderId::random()),
            state: Arc::default(),
        }
    }

    /// The channel of calls for this process; empty if nobody listens.
    pub(super) fn channel(&self) -> &str {
        match self.dialer {
            Some(_) => &self.channel,
            None => "",
        }
    }

    /// Whether it listens at this moment.
    pub(super) fn hears(&self) -> bool {
        self.state.lock().hears
    }

    /// Whether there is anywhere to listen.
    pub(super) fn may_hear(&self) -> bool {
        self.dialer.is_some()
    }

    /// Begins to listen, in the background and as long as any of these waits. To be called for each wait.
    pub(super) fn start(&self, waits: &Arc<Waits>) {
        let (Some(dialer), Ok(runtime)) = (self.dialer.clone(), Handle::try_current()) else {
            return;
        };
        let mut state = self.state.lock();
        state.needed = Some(Instant::now());
        if state.is_running {
            return;
        }
        state.is_running = true;
        state.run += 1;
        let end = StopOnDrop(self.state.clone(), state.run);
        // A runtime that shuts down drops the task within `spawn`, and the drop of `StopOnDrop` takes this lock.
        drop(state);
        let (listen, waits) = (format!("LISTEN \"{}\"", self.channel), Arc::downgrade(waits));
        runtime.spawn(async move {
            let of_calls = waits.clone();
            let dial = move || {
                let (dialer, waits) = (dialer.clone(), of_calls.clone());
                async move { dialer.dial_with(|| on_call(waits.clone())).await }
            };
            listen_on(&listen, &waits, end, dial).await;
        });
    }
}

/// Wakes the waiter that a notification names.
fn on_call(waits: Weak<Waits>) -> OnCall {
    Box::new(move |payload: &str| {
        if let Some(waits) = waits.upgrade() {
            waits.called(payload);
        }
    })
}

/// Listens by this statement, over one connection after the other.
async fn listen_on<F>(listen: &str, waits: &Weak<Waits>, end: StopOnDrop, dial: impl Fn() -> F)
where
    F: Future<Output = Result<Arc<Connection>>>,
{
    let pauses = || pauses(Duration::from_millis(50), Duration::from_secs(2));
    let mut failures = pauses();
    while end.goes_on(is_needed(waits)) {
        if let Ok(connection) = dial().await
            && connection.run(listen, Some(SILENT_AFTER)).await.is_ok()
        {
            failures = pauses();
            end.note(true);
            if let Some(waits) = waits.upgrade() {
                // Earlier calls may have been missed.
                waits.wake_all();
            }
            watch(&connection, waits, &end).await;
            end.note(false);
        }
        sleep(failures.next().unwrap_or(LOOK_EVERY)).await;
    }
}

/// Whether anybody waits.
fn is_needed(waits: &Weak<Waits>) -> bool {
    waits.upgrade().is_some_and(|waits| !waits.is_empty())
}

/// Until the connection has ended, is silent, or nobody has waited for a while.
async fn watch(connection: &Connection, waits: &Weak<Waits>, end: &StopOnDrop) {
    loop {
        sleep(LOOK_EVERY).await;
        if !end.goes_on(is_needed(waits)) || connection.has_ended() {
            return;
        }
        if !matches!(timeout(SILENT_AFTER, connection.run("", None)).await, Ok(Ok(_))) {
            return;
        }
    }
}

/// Its drop says that nobody listens.
struct StopOnDrop(Arc<Mutex<State>>, u64);

impl StopOnDrop {
    /// Whether it goes on: somebody waits, or did a moment ago. If not, the next waiter starts a new one.
    fn goes_on(&self, is_needed: bool) -> bool {
        let mut state = self.0.lock();
        if state.run != self.1 {
            return false;
        }
        if is_needed {
            state.needed = Some(Instant::now());
        }
        state.is_running = state.needed.is_some_and(|needed| needed.elapsed() < KEPT);
        state.is_running
    }

    fn note(&self, hears: bool) {
        let mut state = self.0.lock();
        if state.run == self.1 {
            state.hears = hears;
        }
    }
}

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        if state.run == self.1 {
            (state.is_running, state.hears) = (false, false);
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::runtime::Builder;
    use tokio::time::advance;

    use super::*;
    use crate::config::PostgresConfig;
    use crate::connection::scripted::{connection, message};

    #[test]
    fn a_runtime_that_shuts_down_holds_up_nobody() {
        let ended = Builder::new_current_thread().build().unwrap();
        let handle = ended.handle().clone();
        drop(ended);
        let _within = handle.enter();
        let config = PostgresConfig::from_url("postgres://app@127.0.0.1:1/app").unwrap();
        let listener = Listener::new(Some(Arc::new(Dialer::new(config))));
        listener.start(&Arc::default());
        assert!(!listener.state.lock().is_running, "the next waiter starts it");
    }

    /// A long-lived listener meets many restarts.
    #[tokio::test(start_paused = true)]
    async fn breaks_long_ago_put_off_no_dial() {
        const BREAKS: usize = 7;
        let listener = Listener::new(None);
        let waits = Arc::<Waits>::default();
        drop(waits.refused(HolderId::random(), Duration::ZERO));
        {
            let mut state = listener.state.lock();
            (state.is_running, state.run) = (true, 1);
        }
        let dials = Mutex::new(Vec::new());
        let dial = || {
            dials.lock().push(Instant::now());
            let answer = [message(b'C', b"LISTEN\0"), message(b'Z', b"I")].concat();
            async { Ok(connection(answer).await) }
        };
        let end = StopOnDrop(listener.state.clone(), 1);
        let weak = Arc::downgrade(&waits);
        let broken = async {
            while dials.lock().len() <= BREAKS {
                sleep(LOOK_EVERY).await;
            }
        };
        tokio::select! {
            () = listen_on("LISTEN", &weak, end, dial) => panic!("somebody waits"),
            () = broken => {}
        }
        for pair in dials.lock().windows(2) {
            let took = pair[1] - pair[0];
            assert!(took <= LOOK_EVERY + Duration::from_millis(120), "{took:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn it_stays_for_those_who_wait_again_and_again() {
        let state = Arc::new(Mutex::new(State {
            is_running: true,
            run: 1,
            ..State::default()
        }));
        let end = StopOnDrop(state.clone(), 1);
        assert!(end.goes_on(true));
        advance(KEPT - Duration::from_millis(1)).await;
        assert!(end.goes_on(false), "somebody may wait again");
        state.lock().needed = Some(Instant::now());
        advance(LOOK_EVERY).await;
        assert!(end.goes_on(false), "somebody has waited since");
        advance(LOOK_EVERY).await;
        assert!(!end.goes_on(false) && !state.lock().is_running);
        state.lock().run = 2;
        assert!(!end.goes_on(true), "there is another one");
    }
}
