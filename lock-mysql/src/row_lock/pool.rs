//! The connections for holds and waiters: as many as are allowed, kept for a while when they are not needed.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lock_core::backend::AcquireRequest;
use lock_core::{Error, ErrorKind, Result};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use crate::server::Server;
use crate::session::{Commits, Session};

#[derive(Debug)]
pub(super) struct Pool {
    seats: Arc<Semaphore>,
    /// The last one used is at the back.
    idle: Mutex<VecDeque<Arc<Session>>>,
}

/// A connection that somebody uses. Dropped half-way it is ended: nobody knows what is under way on it.
#[derive(Debug)]
pub(super) struct InUse {
    /// `None` once it was taken out.
    session: Option<Arc<Session>>,
    /// Whether it was used before, so that the server may have closed it meanwhile.
    pub(super) used_before: bool,
}

impl Pool {
    pub(super) fn new(connections: usize) -> Self {
        Self {
            seats: Arc::new(Semaphore::new(connections)),
            idle: Mutex::default(),
        }
    }

    /// An idle connection or a new one, waiting a bounded time when all are in use.
    ///
    /// # Cancel safety
    /// May be dropped at any point.
    pub(super) async fn take(&self, server: &Server, request: &AcquireRequest) -> Result<InUse> {
        let seat = self.seat(server, request).await?;
        if let Some(session) = self.pop() {
            session.take_seat(seat);
            return Ok(InUse {
                session: Some(session),
                used_before: true,
            });
        }
        let session = server.open(Commits::WhenTold, request.given_up()).await?;
        session.take_seat(seat);
        Ok(InUse {
            session: Some(session),
            used_before: false,
        })
    }

    /// Keeps a connection on which nothing is under way.
    pub(super) fn give_back(&self, session: Arc<Session>) {
        // Only when it is among the idle ones may somebody else come in, who would open another.
        let _seat = session.rest();
        let mut idle = self.idle();
        // Those that were idle for longest end first.
        while idle.front().is_some_and(|session| session.has_ended()) {
            idle.pop_front();
        }
        idle.push_back(session);
    }

    /// Keeps a connection that nobody had asked for, unless there are others.
    pub(super) fn offer(&self, session: Arc<Session>) {
        if self.idle().is_empty() {
            self.give_back(session);
        }
    }

    /// Forgets the idle connections: one of them was broken.
    pub(super) fn purge(&self) {
        self.idle().clear();
    }

    async fn seat(&self, server: &Server, request: &AcquireRequest) -> Result<OwnedSemaphorePermit> {
        if let Ok(seat) = self.seats.clone().try_acquire_owned() {
            return Ok(seat);
        }
        let limit = server.config().connect_timeout();
        let seat = tokio::select! {
            seat = timeout(limit, self.seats.clone().acquire_owned()) => seat.ok().and_then(|seat| seat.ok()),
            () = request.given_up() => None,
        };
        seat.ok_or_else(|| {
            let message = format!(
                "all {} connections for locks are in use: raise max_connections",
                server.config().max_connections()
            );
            Error::new(ErrorKind::Unavailable, message)
        })
    }

    fn pop(&self) -> Option<Arc<Session>> {
        let mut idle = self.idle();
        while let Some(session) = idle.pop_back() {
            if session.is_here() && !session.has_ended() {
                return Some(session);
            }
        }
        None
    }

    fn idle(&self) -> MutexGuard<'_, VecDeque<Arc<Session>>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl InUse {
    pub(super) fn session(&self) -> &Arc<Session> {
        self.session
            .as_ref()
            .expect("taken out only by `keep`, which takes self")
    }

    /// It goes on being used, by somebody who knows how to end it.
    pub(super) fn keep(mut self) -> Arc<Session> {
        self.session.take().expect("taken out only here, and this takes self")
    }
}

impl Drop for InUse {
    fn drop(&mut self) {
        if let Some(session) = &self.session {
            session.abort();
        }
    }
}
