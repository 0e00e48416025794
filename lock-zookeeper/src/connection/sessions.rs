//! The sessions of a backend: which of them a name gets.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use lock_core::{Error, LockName, Result};
use tokio::task::yield_now;

use super::granted::GrantedTimeout;
use super::room::Room;
use super::session::Session;
use super::supervisor::Supervisor;
use crate::config::ZooKeeperConfig;
use crate::error;
use crate::state::{StateReporter, States};

/// The number of names in the first session before others are spread.
const IN_FIRST: usize = 8;
/// Over how many sessions names are spread. The others serve when these are full.
const SPREAD: usize = 4;

/// Up to `sessions` sessions, each with a supervisor of its own. Each begins when it is first needed.
#[derive(Debug)]
pub(crate) struct Sessions {
    supervisors: Vec<Supervisor>,
    states: Arc<States>,
}

impl Sessions {
    pub(crate) fn new(config: &Arc<ZooKeeperConfig>) -> Self {
        let states = Arc::new(States::new(config.sessions()));
        let granted = Arc::new(GrantedTimeout::default());
        let supervisors = (0..config.sessions()).map(|index| {
            let reporter = StateReporter::new(&states, index);
            Supervisor::new(config.clone(), granted.clone(), reporter)
        });
        Self {
            supervisors: supervisors.collect(),
            states,
        }
    }

    /// Room for a node in the directory of this name, in a connected session, within the connect timeout.
    ///
    /// # Errors
    /// Nothing was sent.
    pub(crate) async fn reserve(&self, name: &LockName, directory: &str) -> Result<Room> {
        'choose: loop {
            let mut has_closed = false;
            let first = self.first(name);
            for supervisor in self.candidates(first, directory) {
                if supervisor.current().is_some_and(|session| !session.has_room(directory)) {
                    continue;
                }
                let session = supervisor.session().await?;
                // Others that waited for the first session as well may have filled it with their names.
                if first == 0 && self.first(name) != 0 && !session.carries(directory) {
                    continue 'choose;
                }
                match session.reserve(directory) {
                    Some(room) => return Ok(room),
                    None => has_closed |= session.is_closed(),
                }
            }
            if !has_closed {
                return Err(error::sessions_full(self.supervisors.len()));
            }
            yield_now().await;
        }
    }

    /// A connected session, within the connect timeout.
    ///
    /// # Errors
    /// Nothing was sent.
    pub(crate) async fn any(&self) -> Result<Arc<Session>> {
        let is_connected =
            |supervisor: &&Supervisor| supervisor.current().is_some_and(|session| session.is_connected());
        let connected = self.supervisors.iter().find(is_connected);
        connected.unwrap_or(&self.supervisors[0]).session().await
    }

    /// Why there is no session to send requests for this name over, where that is known.
    pub(crate) fn outage(&self, name: &LockName) -> Option<Error> {
        self.supervisors[self.first(name)].outage()
    }

    /// The states of the sessions.
    pub(crate) fn states(&self) -> &States {
        &self.states
    }

    /// Closes the sessions that carry nothing, and waits for the server's answers. The next request makes new ones.
    pub(crate) async fn close(&self) -> Result<()> {
        let closing = self.supervisors.iter().map(Supervisor::close);
        join_all(closing).await.into_iter().collect()
    }

    /// The session timeout that the server granted, if there is a session.
    pub(crate) fn session_timeout(&self) -> Option<Duration> {
        let session = self.supervisors.iter().find_map(Supervisor::current)?;
        Some(session.timeout)
    }

    /// Returns when no task will serve this session again: it has ended and its tasks had time to notice, or its runtime
    /// is not driven and this stops it.
    pub(crate) async fn unserved(&self, session: &Session) {
        tokio::select! {
            () = session.ended() => {}
            () = session.runtime_check.undriven() => {
                self.supervisors.iter().for_each(|supervisor| supervisor.stop(session));
                return;
            }
        }
        session.runtime_check.undriven().await;
    }

    /// The supervisors to ask, in order. Those whose session has nodes of this name come first, so that a release and the
    /// next acquire are sent in one session, in order.
    fn candidates(&self, first: usize, directory: &str) -> impl Iterator<Item = &Supervisor> {
        let carries = |supervisor: &&Supervisor| supervisor.current().is_some_and(|session| session.carries(directory));
        let in_order = order(first, self.supervisors.len()).map(|index| &self.supervisors[index]);
        self.supervisors
            .iter()
            .filter(carries)
            .collect::<Vec<_>>()
            .into_iter()
            .chain(in_order)
    }

    /// The session for this name, unless it is full.
    fn first(&self, name: &LockName) -> usize {
        let first = self.supervisors[0].current();
        match first.is_none_or(|session| session.names() < IN_FIRST) {
            true => 0,
            false => home(name, self.supervisors.len()),
        }
    }
}

/// The session of a name, while there are many. Always the same within a process.
fn home(name: &LockName, sessions: usize) -> usize {
    let mut hasher = DefaultHasher::new();
    name.as_str().hash(&mut hasher);
    let spread = sessions.min(SPREAD) as u64;
    // Below `SPREAD`.
    (hasher.finish() % spread) as usize
}

/// All sessions: those over which names are spread, from the first one on, and then the others.
fn order(first: usize, sessions: usize) -> impl Iterator<Item = usize> {
    let spread = sessions.min(SPREAD);
    (0..spread)
        .map(move |index| (first + index) % spread)
        .chain(spread..sessions)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_spread_over_the_first_sessions() {
        let mut counts = [0; 8];
        for number in 0..1000 {
            let name = LockName::new(format!("orders/{number}")).unwrap();
            let home = home(&name, counts.len());
            assert_eq!(home, self::home(&name, counts.len()));
            counts[home] += 1;
        }
        // Evenly, within what chance does: a quarter each is 250.
        assert!(
            counts[..SPREAD].iter().all(|count| (200..300).contains(count)),
            "{counts:?}"
        );
        assert_eq!(counts[SPREAD..], [0; 4]);
        assert_eq!(home(&LockName::new("a").unwrap(), 1), 0);
    }

    #[test]
    fn the_next_session_is_tried_until_none_is_left() {
        assert_eq!(order(0, 1).collect::<Vec<_>>(), [0]);
        assert_eq!(order(1, 3).collect::<Vec<_>>(), [1, 2, 0]);
        assert_eq!(order(3, 6).collect::<Vec<_>>(), [3, 0, 1, 2, 4, 5]);
    }
}
