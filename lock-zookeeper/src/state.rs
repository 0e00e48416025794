//! The state of the connections, for programs that want to know it without a lock.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::watch;

/// The state of a backend's sessions: the worst of them counts. See
/// [`watch_state`](crate::ZooKeeperBackend::watch_state).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConnectionState {
    /// No session was made yet.
    #[default]
    Unconnected,
    /// All sessions are connected, and the server answers.
    Connected,
    /// A session has lost its connection, or the server has not answered it for half of the session timeout. Its holds are
    /// suspect. It may recover.
    Suspended,
    /// A session has ended, and no new one is there yet. Its holds are lost.
    Lost,
}

/// The state of one session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum SessionState {
    /// It was not made, or was closed while it carried nothing.
    #[default]
    Absent,
    Connected,
    Suspended,
    Ended,
}

/// Reports the state of one session.
#[derive(Clone, Debug)]
pub(crate) struct StateReporter {
    states: Arc<States>,
    /// Its index among the backend's sessions.
    session: usize,
}

impl StateReporter {
    pub(crate) fn new(states: &Arc<States>, session: usize) -> Self {
        let states = states.clone();
        Self { states, session }
    }

    pub(crate) fn set(&self, state: SessionState) {
        self.states.set(self.session, state);
    }
}

/// The states of all sessions in one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Summary {
    state: ConnectionState,
    /// The number of sessions that have ended.
    ended: u64,
}

/// The states of a backend's sessions.
#[derive(Debug)]
pub(crate) struct States {
    sessions: Mutex<Vec<SessionState>>,
    summary: watch::Sender<Summary>,
}

impl States {
    pub(crate) fn new(sessions: usize) -> Self {
        Self {
            sessions: Mutex::new(vec![SessionState::default(); sessions]),
            summary: watch::Sender::default(),
        }
    }

    fn set(&self, session: usize, state: SessionState) {
        // Every critical section leaves it whole.
        let mut sessions = self.sessions.lock();
        let before = std::mem::replace(&mut sessions[session], state);
        let has_ended = state == SessionState::Ended && before != state;
        let state = summarize(&sessions);
        self.summary.send_if_modified(|summary| {
            let is_news = has_ended || summary.state != state;
            summary.state = state;
            summary.ended += u64::from(has_ended);
            is_news
        });
    }

    pub(crate) fn state(&self) -> ConnectionState {
        self.summary.borrow().state
    }

    pub(crate) fn watch(&self) -> StateWatch {
        let summary = self.summary.subscribe();
        let seen = *summary.borrow();
        StateWatch { summary, seen }
    }
}

fn summarize(sessions: &[SessionState]) -> ConnectionState {
    let any = |state| sessions.contains(&state);
    if any(SessionState::Ended) {
        ConnectionState::Lost
    } else if any(SessionState::Suspended) {
        ConnectionState::Suspended
    } else if any(SessionState::Connected) {
        ConnectionState::Connected
    } else {
        ConnectionState::Unconnected
    }
}

/// Watches the [state](ConnectionState) of a backend. It does not keep the backend alive.
#[derive(Clone, Debug)]
pub struct StateWatch {
    summary: watch::Receiver<Summary>,
    seen: Summary,
}

impl StateWatch {
    /// The state at this moment.
    pub fn state(&self) -> ConnectionState {
        self.summary.borrow().state
    }

    /// Waits for the next state, and returns it; `None` when the backend and all its holds are gone. It returns
    /// [`Lost`](ConnectionState::Lost) once after a session has ended, even if a new one is there by then. Other states that
    /// passed meanwhile are left out.
    ///
    /// # Cancel safety
    /// May be dropped at any point: the next call returns the state.
    pub async fn changed(&mut self) -> Option<ConnectionState> {
        loop {
            let now = *self.summary.borrow_and_update();
            if now.ended != self.seen.ended {
                self.seen = Summary {
                    state: ConnectionState::Lost,
                    ended: now.ended,
                };
                return Some(ConnectionState::Lost);
            }
            if now.state != self.seen.state {
                self.seen = now;
                return Some(now.state);
            }
            self.summary.changed().await.ok()?;
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[test]
    fn the_worst_session_counts() {
        use SessionState::{Absent, Connected, Ended, Suspended};
        assert_eq!(summarize(&[Absent, Absent]), ConnectionState::Unconnected);
        assert_eq!(summarize(&[Absent, Connected]), ConnectionState::Connected);
        assert_eq!(summarize(&[Suspended, Connected]), ConnectionState::Suspended);
        assert_eq!(summarize(&[Suspended, Ended]), ConnectionState::Lost);
    }

    #[test]
    fn no_end_of_a_session_is_missed() {
        let states = States::new(2);
        let mut watch = states.watch();
        assert_eq!(watch.changed().now_or_never(), None);
        states.set(0, SessionState::Connected);
        states.set(1, SessionState::Connected);
        assert_eq!(watch.changed().now_or_never(), Some(Some(ConnectionState::Connected)));
        assert_eq!(watch.changed().now_or_never(), None);
        states.set(1, SessionState::Suspended);
        states.set(1, SessionState::Ended);
        states.set(1, SessionState::Connected);
        assert_eq!(watch.state(), ConnectionState::Connected);
        assert_eq!(watch.changed().now_or_never(), Some(Some(ConnectionState::Lost)));
        assert_eq!(watch.changed().now_or_never(), Some(Some(ConnectionState::Connected)));
        // Twice in a row, and once while it was lost already.
        states.set(0, SessionState::Ended);
        assert_eq!(watch.changed().now_or_never(), Some(Some(ConnectionState::Lost)));
        states.set(1, SessionState::Ended);
        assert_eq!(watch.changed().now_or_never(), Some(Some(ConnectionState::Lost)));
        assert_eq!(watch.changed().now_or_never(), None);
        drop(states);
        assert_eq!(watch.changed().now_or_never(), Some(None));
    }
}
