//! One established connection, and its health.

use std::mem::discriminant;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use lock_core::Error;
use redis::aio::MultiplexedConnection;
use redis::{Cmd, RedisResult, Value};
use tokio::sync::watch;

use super::dial::Dialed;
use crate::error::is_reply;

/// One established connection. A clone is the same.
#[derive(Clone)]
pub(crate) struct Session(Arc<Inner>);

struct Inner {
    generation: u64,
    connection: MultiplexedConnection,
    #[cfg(feature = "tls")]
    _driver: Option<super::tls::Driver>,
    /// Whether anything came from the server since the last heartbeat.
    heard: Arc<AtomicBool>,
    health: watch::Sender<Health>,
}

/// Whether the server can be asked over a connection.
#[derive(Clone, Debug)]
pub(crate) enum Health {
    Healthy,
    /// The server was asked and has not replied for a while, as the error says.
    Silent(Error),
    /// The connection has ended, or nothing more is to be sent over it, for this reason.
    Ended(Error),
}

impl Session {
    pub(super) fn new(generation: u64, dialed: &Dialed) -> Self {
        Self(Arc::new(Inner {
            generation,
            connection: dialed.connection.clone(),
            #[cfg(feature = "tls")]
            _driver: dialed.driver.clone(),
            heard: dialed.heard.clone(),
            health: watch::Sender::new(Health::Healthy),
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

    /// The reason why it is silent or has ended, if it is or has.
    pub(crate) fn failure(&self) -> Option<Error> {
        match &*self.0.health.borrow() {
            Health::Healthy => None,
            Health::Silent(why) | Health::Ended(why) => Some(why.clone()),
        }
    }

    pub(crate) fn has_ended(&self) -> bool {
        matches!(*self.0.health.borrow(), Health::Ended(_))
    }

    /// Waits until it has ended, and returns the reason.
    pub(super) async fn ended(&self) -> Error {
        let mut health = self.health();
        loop {
            if let Health::Ended(why) = &*health.borrow_and_update() {
                return why.clone();
            }
            // Cannot fail: the sender is ours.
            let _ = health.changed().await;
        }
    }

    /// Marks it as ended. Returns false if it had ended already.
    pub(super) fn end(&self, why: Error) -> bool {
        self.change(Health::Ended(why))
    }

    /// Reports to its users that the server does not reply, or that it replies again.
    pub(super) fn set_silent(&self, why: Option<Error>) {
        self.change(why.map_or(Health::Healthy, Health::Silent));
    }

    fn change(&self, new: Health) -> bool {
        self.0.health.send_if_modified(|health| {
            let is_change = !matches!(health, Health::Ended(_)) && discriminant(health) != discriminant(&new);
            if is_change {
                *health = new;
            }
            is_change
        })
    }

    /// Whether anything came from the server since the last call.
    pub(super) fn take_heard(&self) -> bool {
        self.0.heard.swap(false, Ordering::Relaxed)
    }

    /// Sends a command and waits for its reply, however long that takes.
    ///
    /// # Errors
    /// The reason why the connection ended before the reply came. The driver's errors are inside the `Ok`; [`is_reply`] is
    /// true of those that the server sent.
    ///
    /// # Cancel safety
    /// If dropped, the server may still execute the command, in the order in which it was sent.
    pub(super) async fn send(&self, command: &Cmd) -> Result<RedisResult<Value>, Error> {
        let mut connection = self.0.connection.clone();
        let reply = tokio::select! {
            biased;
            reply = connection.send_packed_command(command) => reply.and_then(Value::extract_error),
            why = self.ended() => return Err(why),
        };
        if reply.as_ref().err().is_none_or(is_reply) {
            self.0.heard.store(true, Ordering::Relaxed);
        }
        Ok(reply)
    }
}
