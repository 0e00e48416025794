//! The connection over which waiters are woken: there only while anybody waits, since each notification wakes all listening
//! sessions of a database. It stays for two to three seconds after a wait: a call that comes before a new one listens is lost.

use std::sync::Arc;
use std::time::Duration;

use lock_core::backend::HolderId;
use lock_kit::backoff::pauses;
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::time::{Instant, sleep, timeout};

use super::{Connection, Dialer};

/// How often it looks whether anybody waits still.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// So long after anybody was last known to wait, it goes on.
const KEPT: Duration = Duration::from_secs(2);
/// How long the server may take to answer that it is there.
const SILENT_AFTER: Duration = Duration::from_secs(5);

/// Who is woken.
pub(crate) trait Listening: Clone + Send + Sync + 'static {
    /// A notification came with this payload.
    fn called(&self, payload: &str);
    /// From here on notifications come. Earlier ones may have been missed.
    fn hears(&self);
    /// Whether anybody waits.
    fn is_needed(&self) -> bool;
}

/// Listens at a channel of its own.
#[derive(Debug)]
pub(crate) struct Listener {
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
    pub(crate) fn new(dialer: Option<Arc<Dialer>>) -> Self {
        Self {
            dialer,
            channel: format!("polylock_{}", HolderId::random()),
            state: Arc::default(),
        }
    }

    /// The channel of calls for this process; empty if nobody listens.
    pub(crate) fn channel(&self) -> &str {
        match self.dialer {
            Some(_) => &self.channel,
            None => "",
        }
    }

    /// Whether it listens at this moment.
    pub(crate) fn hears(&self) -> bool {
        self.state.lock().hears
    }

    /// Whether there is anywhere to listen.
    pub(crate) fn may_hear(&self) -> bool {
        self.dialer.is_some()
    }

    /// Begins to listen, in the background and as long as anybody waits. To be called for each wait.
    pub(crate) fn start(&self, listening: impl Listening) {
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
        let listen = format!("LISTEN \"{}\"", self.channel);
        runtime.spawn(async move {
            let end = end;
            let mut pauses = pauses(Duration::from_millis(50), Duration::from_secs(2));
            while end.goes_on(&listening) {
                let calls = listening.clone();
                let dialled = dialer.dial_with(move || {
                    let calls = calls.clone();
                    Box::new(move |payload: &str| calls.called(payload))
                });
                if let Ok(connection) = dialled.await
                    && connection.run(&listen, Some(SILENT_AFTER)).await.is_ok()
                {
                    end.note(true);
                    listening.hears();
                    watch(&connection, &listening, &end).await;
                    end.note(false);
                }
                sleep(pauses.next().unwrap_or(LOOK_EVERY)).await;
            }
        });
    }
}

/// Until the connection has ended, is silent, or nobody has waited for a while.
async fn watch(connection: &Connection, listening: &impl Listening, end: &StopOnDrop) {
    loop {
        sleep(LOOK_EVERY).await;
        if !end.goes_on(listening) || connection.has_ended() {
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
    fn goes_on(&self, listening: &impl Listening) -> bool {
        let mut state = self.0.lock();
        if state.run != self.1 {
            return false;
        }
        if listening.is_needed() {
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
    use tokio::time::advance;

    use super::*;

    /// Whether anybody waits.
    #[derive(Clone)]
    struct Waiting(bool);

    impl Listening for Waiting {
        fn called(&self, _payload: &str) {}

        fn hears(&self) {}

        fn is_needed(&self) -> bool {
            self.0
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
        assert!(end.goes_on(&Waiting(true)));
        advance(KEPT - Duration::from_millis(1)).await;
        assert!(end.goes_on(&Waiting(false)), "somebody may wait again");
        state.lock().needed = Some(Instant::now());
        advance(LOOK_EVERY).await;
        assert!(end.goes_on(&Waiting(false)), "somebody has waited since");
        advance(LOOK_EVERY).await;
        assert!(!end.goes_on(&Waiting(false)) && !state.lock().is_running);
        state.lock().run = 2;
        assert!(!end.goes_on(&Waiting(true)), "there is another one");
    }
}
