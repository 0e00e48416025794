//! The connections over which a client sends its requests.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use lock_core::backend::Lease;
use lock_core::{Error, ErrorKind, LockName, LostCause, Result};
use tokio::time::{Instant, timeout};

use super::server::ReferenceServer;
use crate::link::{Connection, Link};
use crate::linked::{connected, round_trip_over};
use crate::mutant::Mutant;

/// The longest sleep of a waiter, since it may miss a wake-up.
pub(super) const LOOK_AGAIN: Duration = Duration::from_millis(100);
/// The time to wait for an answer before its outcome counts as unknown.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(5);
/// The time for which the mutant that fails without asking does so.
const BACK_OFF: Duration = Duration::from_millis(700);

/// The way to a server. Clones are the same client's.
#[derive(Clone, Debug)]
pub(super) struct Client {
    pub(super) server: Arc<ReferenceServer>,
    link: Link,
    mutant: Option<Mutant>,
    /// When it last found no connection; only the one that fails without asking looks at it.
    failed: Arc<Mutex<Option<Instant>>>,
    /// Only those whose holds end with their connection or with the server look at it.
    held: Arc<Mutex<Held>>,
}

/// The holds of a client, the connection over which the first of them was granted, and how often the server had started then.
#[derive(Debug, Default)]
struct Held {
    over: Option<(Connection, u64)>,
    holds: Vec<(LockName, Lease)>,
}

impl Client {
    pub(super) fn new(server: Arc<ReferenceServer>, link: Link, mutant: Option<Mutant>) -> Self {
        Self {
            server,
            link,
            mutant,
            failed: Arc::default(),
            held: Arc::default(),
        }
    }

    pub(super) fn mutant(&self) -> Option<Mutant> {
        self.mutant
    }

    pub(super) fn has(&self, mutant: Mutant) -> bool {
        self.mutant == Some(mutant)
    }

    /// A connection, or an error that states that nothing was sent.
    pub(super) fn connect(&self) -> Result<Connection> {
        let mut failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
        if self.has(Mutant::FailsWithoutAsking) && failed.is_some_and(|failed| failed.elapsed() < BACK_OFF) {
            return Err(Error::new(ErrorKind::Unavailable, "no connection a moment ago").not_executed());
        }
        let connection = connected(&self.link).map_err(|error| {
            *failed = Some(Instant::now());
            match self.has(Mutant::RefusalIsUnknown) {
                true => Error::new(error.kind(), error.to_string()),
                false => error,
            }
        })?;
        if self.ends_with_its_connection() || self.has(Mutant::SessionEndsWithTheServer) {
            self.end_what_was_held_before(connection);
        }
        Ok(connection)
    }

    /// For the mutants whose holds end with their connection or with the server.
    pub(super) fn note_held(&self, name: &LockName, lease: &Lease) {
        if let Ok(connection) = connected(&self.link) {
            let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
            held.over.get_or_insert((connection, self.server.restarts()));
            held.holds.push((name.clone(), lease.clone()));
        }
    }

    fn ends_with_its_connection(&self) -> bool {
        self.has(Mutant::HoldEndsWithItsConnection) || self.has(Mutant::SessionEndsWithItsConnection)
    }

    fn end_what_was_held_before(&self, connection: Connection) {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        let has_ended = held
            .over
            .is_some_and(|(over, restarts)| match self.ends_with_its_connection() {
                true => over.ended_before(connection),
                false => restarts < self.server.restarts(),
            });
        if has_ended {
            let before = std::mem::take(&mut *held);
            for (name, lease) in &before.holds {
                self.server.take_away(name);
                if !self.has(Mutant::HoldEndsWithItsConnection) {
                    lease.lose(LostCause::Disconnected);
                }
            }
        }
    }

    /// One question over this connection, and its answer.
    pub(super) async fn ask<T: Send + 'static>(
        &self,
        connection: Connection,
        question: impl FnOnce(&ReferenceServer) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let server = self.server.clone();
        let asking = round_trip_over(&self.link, connection, async move { question(&server) });
        let answer = timeout(RESPONSE_TIMEOUT, asking).await.unwrap_or_else(|_| {
            let message = format!("the server did not answer within {RESPONSE_TIMEOUT:?}");
            Err(Error::new(ErrorKind::Unavailable, message))
        });
        match self.has(Mutant::UnknownIsNotExecuted) {
            true => answer.map_err(Error::not_executed),
            false => answer,
        }
    }

    /// The same over whatever connection there is.
    pub(super) async fn put<T: Send + 'static>(
        &self,
        question: impl FnOnce(&ReferenceServer) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        self.ask(self.connect()?, question).await
    }
}
