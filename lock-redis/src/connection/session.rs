//! One established connection, and how it fares.

use std::mem::discriminant;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use lock_core::Error;
use redis::aio::MultiplexedConnection;
use redis::{Cmd, RedisResult, Value};
use tokio::sync::watch;

use super::dial::Dialed;
use crate::error::is_answer;

/// One established connection. A clone is the same.
#[derive(Clone)]
pub(crate) struct Session(Arc<Inner>);

struct Inner {
    generation: u64,
    connection: MultiplexedConnection,
    /// Whether anything came from the server since the last look.
    heard: Arc<AtomicBool>,
    health: watch::Sender<Health>,
}

/// How a connection fares.
#[derive(Clone, Debug)]
pub(crate) enum Health {
    Well,
    /// The server was asked and has not answered for a while, as the error says.
    Silent(Error),
    /// It has ended, or nothing more is to be sent over it, for this reason.
    Over(Error),
}

impl Session {
    pub(super) fn new(generation: u64, dialed: &Dialed) -> Self {
        Self(Arc::new(Inner {
            generation,
            connection: dialed.connection.clone(),
            heard: dialed.heard.clone(),
            health: watch::Sender::new(Health::Well),
        }))
    }

    /// Which one it is. What was sent over one generation is executed in that order; but a script that the server has
    /// forgotten is sent once more, behind what was sent meanwhile.
    pub(crate) fn generation(&self) -> u64 {
        self.0.generation
    }

    /// Its health, now and later.
    pub(crate) fn health(&self) -> watch::Receiver<Health> {
        self.0.health.subscribe()
    }

    /// The reason why it is silent or over, if it is.
    pub(crate) fn trouble(&self) -> Option<Error> {
        match &*self.0.health.borrow() {
            Health::Well => None,
            Health::Silent(why) | Health::Over(why) => Some(why.clone()),
        }
    }

    pub(crate) fn is_over(&self) -> bool {
        matches!(*self.0.health.borrow(), Health::Over(_))
    }

    /// Waits until it is over, and returns the reason.
    pub(super) async fn over(&self) -> Error {
        let mut health = self.health();
        loop {
            if let Health::Over(why) = &*health.borrow_and_update() {
                return why.clone();
            }
            // Cannot fail: the sender is ours.
            let _ = health.changed().await;
        }
    }

    /// Marks it as over. False if it was over already.
    pub(super) fn end(&self, why: Error) -> bool {
        self.change(Health::Over(why))
    }

    /// Reports to its waiters that the server does not answer, or that it answers again.
    pub(super) fn set_silent(&self, why: Option<Error>) {
        self.change(why.map_or(Health::Well, Health::Silent));
    }

    fn change(&self, new: Health) -> bool {
        self.0.health.send_if_modified(|health| {
            let is_news = !matches!(health, Health::Over(_)) && discriminant(health) != discriminant(&new);
            if is_news {
                *health = new;
            }
            is_news
        })
    }

    /// Whether anything came from the server since the last call.
    pub(super) fn was_heard(&self) -> bool {
        self.0.heard.swap(false, Ordering::Relaxed)
    }

    /// Sends a command and waits for its answer, however long that takes.
    ///
    /// # Errors
    /// The reason why the connection was over before the answer came. The driver's errors are inside the `Ok`; those that
    /// the server sent are told by [`is_answer`].
    ///
    /// # Cancel safety
    /// Dropped, it may still be executed, in its place in the order.
    pub(super) async fn send(&self, command: &Cmd) -> Result<RedisResult<Value>, Error> {
        let mut connection = self.0.connection.clone();
        let answer = tokio::select! {
            biased;
            answer = connection.send_packed_command(command) => answer.and_then(Value::extract_error),
            why = self.over() => return Err(why),
        };
        if answer.as_ref().err().is_none_or(is_answer) {
            self.0.heard.store(true, Ordering::Relaxed);
        }
        Ok(answer)
    }
}
