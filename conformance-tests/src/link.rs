//! The way between a client and its server, and what can go wrong with it.

use std::collections::HashSet;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

/// Controls the way between a client and its server: a [`FaultProxy`](crate::FaultProxy) obeys it for TCP, and
/// [`Linked`](crate::Linked) for a backend within the process. Clones control the same way.
///
/// A *message* is a request or a reply; on TCP, what one read yields.
#[derive(Clone, Default)]
pub struct Link(Arc<Inner>);

#[derive(Default)]
struct Inner {
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct State {
    cut: bool,
    /// Counts the times that all connections were ended.
    breaks: u64,
    requests_held: bool,
    /// The number of replies that pass before the others are held back. `None`: all pass.
    replies_left: Option<u64>,
    /// The n-th reply from now gets lost.
    swallow: Option<u64>,
    /// Whether the link is cut after these replies.
    ends_then: bool,
    /// The connections on which a request passed since it was said that a reply is to be lost.
    asked: HashSet<u64>,
    /// The number of connections so far.
    connections: u64,
    delay: Duration,
    waiting: usize,
}

/// Which way a message goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// To the server.
    Request,
    /// From the server.
    Reply,
}

/// The message did not arrive, and its connection has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Broken;

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the link is broken")
    }
}

impl std::error::Error for Broken {}

/// A connection. It has ended when connections were broken since it was made.
#[derive(Clone, Copy, Debug)]
pub struct Connection {
    number: u64,
    /// The number of breaks of all connections before this one was made.
    breaks: u64,
}

impl Connection {
    /// Whether this connection had ended before the other one was made.
    pub(crate) fn ended_before(self, other: Self) -> bool {
        self.breaks < other.breaks
    }
}

impl Link {
    /// A way on which nothing goes wrong yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Ends all connections and refuses new ones.
    pub fn cut(&self) {
        self.change(|state| {
            state.cut = true;
            state.breaks += 1;
        });
    }

    /// Ends all connections; new ones are fine.
    pub fn reset(&self) {
        self.change(|state| state.breaks += 1);
    }

    /// Lets nothing through either way, while connections stay open.
    pub fn stall(&self) {
        self.change(|state| {
            state.requests_held = true;
            state.replies_left = Some(0);
        });
    }

    /// Holds requests back; replies pass.
    pub fn hold_requests(&self) {
        self.change(|state| state.requests_held = true);
    }

    /// Lets this many more replies through, then holds them back; requests pass.
    pub fn hold_replies_after(&self, passing: u64) {
        self.change(|state| state.replies_left = Some(passing));
    }

    /// Loses the n-th reply from now, from 1, and ends its connection; the request has arrived. Counts replies only on
    /// connections on which a request passed since: an answer that is on its way already is no reply to what is sent next.
    pub fn swallow_reply(&self, n: u64) {
        self.change(|state| {
            (state.swallow, state.ends_then) = (Some(n), false);
            state.asked.clear();
        });
    }

    /// Loses the n-th reply from now, from 1, and is [cut](Self::cut) from then on, as if the client had died: the request has
    /// arrived, and no later one does.
    pub fn cut_at_reply(&self, n: u64) {
        self.change(|state| (state.swallow, state.ends_then) = (Some(n), true));
    }

    /// Makes every message take this much longer.
    pub fn delay(&self, delay: Duration) {
        self.change(|state| state.delay = delay);
    }

    /// Lets everything through again, what was held back first. Ended connections stay ended.
    pub fn heal(&self) {
        self.change(|state| {
            state.cut = false;
            state.requests_held = false;
            state.replies_left = None;
            state.swallow = None;
            state.delay = Duration::ZERO;
        });
    }

    /// Waits until a message is being held back.
    ///
    /// # Cancel safety
    /// Dropping it changes nothing.
    pub async fn holding(&self) {
        self.until(|state| (state.waiting > 0).then_some(())).await;
    }

    /// Waits until the reply that was to be swallowed has been.
    ///
    /// # Cancel safety
    /// Dropping it changes nothing.
    pub async fn swallowed(&self) {
        self.until(|state| state.swallow.is_none().then_some(())).await;
    }

    /// Whether nothing passes in either direction, while connections stay open.
    pub(crate) fn is_stalled(&self) -> bool {
        let state = self.lock();
        state.requests_held && state.replies_left == Some(0)
    }

    /// A connection made now, or none while the way is cut.
    ///
    /// # Errors
    /// [`Broken`] while the way is cut.
    pub fn connect(&self) -> Result<Connection, Broken> {
        let mut state = self.lock();
        if state.cut {
            return Err(Broken);
        }
        state.connections += 1;
        Ok(Connection {
            number: state.connections,
            breaks: state.breaks,
        })
    }

    /// Waits until this connection has ended.
    ///
    /// # Cancel safety
    /// Dropping it changes nothing.
    pub async fn broken(&self, connection: Connection) {
        self.until(|state| (state.breaks > connection.breaks).then_some(()))
            .await;
    }

    /// Takes one message over, as late as the link will have it.
    ///
    /// # Errors
    /// [`Broken`] when the message did not arrive.
    ///
    /// # Cancel safety
    /// Dropping it loses the message.
    pub async fn pass(&self, connection: Connection, direction: Direction) -> Result<(), Broken> {
        self.pass_from(Instant::now(), connection, direction).await
    }

    /// The same for one that arrived at the link then: a delay is the way's, and not each message's turn to wait.
    pub(crate) async fn pass_from(
        &self,
        arrived: Instant,
        connection: Connection,
        direction: Direction,
    ) -> Result<(), Broken> {
        let at_once = self.look(|state| state.decide(connection, direction));
        match at_once {
            Some(decision) => decision?,
            None => {
                let _waiting = Waiting::new(self);
                self.until(|state| state.decide(connection, direction)).await?;
            }
        }
        let delay = self.lock().delay;
        if delay.is_zero() {
            return Ok(());
        }
        tokio::select! {
            () = sleep_until(arrived + delay) => Ok(()),
            () = self.broken(connection) => Err(Broken),
        }
    }

    async fn until<T>(&self, mut check: impl FnMut(&mut State) -> Option<T>) -> T {
        loop {
            let changed = self.0.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            match self.look(&mut check) {
                Some(value) => return value,
                None => changed.await,
            }
        }
    }

    /// Checks, which may use up the swallowing.
    fn look<T>(&self, check: impl FnOnce(&mut State) -> Option<T>) -> Option<T> {
        let mut state = self.lock();
        let swallow = state.swallow;
        let value = check(&mut state);
        let swallowed = state.swallow != swallow;
        drop(state);
        if swallowed {
            self.0.changed.notify_waiters();
        }
        value
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.lock());
        self.0.changed.notify_waiters();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// `None`: not yet.
    fn decide(&mut self, connection: Connection, direction: Direction) -> Option<Result<(), Broken>> {
        if self.breaks > connection.breaks {
            return Some(Err(Broken));
        }
        if direction == Direction::Request {
            if self.requests_held {
                return None;
            }
            if self.swallow.is_some() {
                self.asked.insert(connection.number);
            }
            return Some(Ok(()));
        }
        match &mut self.replies_left {
            Some(0) => return None,
            Some(left) => *left -= 1,
            None => {}
        }
        let counts = self.ends_then || self.asked.contains(&connection.number);
        match &mut self.swallow {
            Some(_) if !counts => {}
            Some(1) => {
                self.swallow = None;
                if self.ends_then {
                    self.cut = true;
                    self.breaks += 1;
                }
                return Some(Err(Broken));
            }
            Some(left) => *left -= 1,
            None => {}
        }
        Some(Ok(()))
    }
}

/// Counts a message that is held back.
struct Waiting<'a>(&'a Link);

impl<'a> Waiting<'a> {
    fn new(link: &'a Link) -> Self {
        link.change(|state| state.waiting += 1);
        Self(link)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.change(|state| state.waiting -= 1);
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Link").field(&*self.lock()).finish()
    }
}
