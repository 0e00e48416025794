//! The connections for holds and waiters: as many as are allowed, kept for a while when they are not needed.

use std::collections::VecDeque;
use std::sync::Arc;

use lock_core::backend::AcquireRequest;
use lock_core::{Error, ErrorKind, Result};
use parking_lot::Mutex;
use tokio::time::timeout;

use super::control::ControlConnections;
use super::dial::Dialer;
use super::monitor::HoldRegistry;
use super::permits::{PoolPermit, PoolPermits, WaitPermit};
use super::session::Session;
use crate::error::ConnectError;
use crate::protocol::Autocommit;

#[derive(Debug)]
pub(crate) struct Pool {
    dialer: Arc<Dialer>,
    control: Arc<ControlConnections>,
    permits: Arc<PoolPermits>,
    /// The last one used is at the back.
    idle: Mutex<VecDeque<Arc<Session>>>,
}

/// A connection in use. If it is dropped, the connection is ended: what is under way on it is unknown.
#[derive(Debug)]
pub(crate) struct PooledSession {
    /// `None` once it was taken out.
    session: Option<Arc<Session>>,
    /// True if it was used before, so that the server may have closed it meanwhile.
    pub(crate) is_reused: bool,
}

impl Pool {
    pub(crate) fn new(connections: usize, dialer: Arc<Dialer>, control: Arc<ControlConnections>) -> Self {
        Self {
            dialer,
            control,
            permits: PoolPermits::new(connections),
            idle: Mutex::default(),
        }
    }

    /// An idle connection or a new one. If all are in use, a request that may wait does so for a bounded time; if the server
    /// cannot be reached any more, for as long as it may.
    ///
    /// # Cancel safety
    /// May be dropped at any point.
    pub(crate) async fn take(&self, request: &AcquireRequest) -> Result<PooledSession> {
        self.dialer
            .retry_while_waiting(request, || self.take_once(request))
            .await
    }

    async fn take_once(&self, request: &AcquireRequest) -> Result<PooledSession, ConnectError> {
        let permit = self.permit(request).await.map_err(ConnectError::Permanent)?;
        let holds = self.control.open().await?;
        let (session, is_reused) = match self.pop_checked().await? {
            Some(session) => (session, true),
            None => {
                let session = self.open_monitored(holds).await?;
                self.check_new(&session).await?;
                (session, false)
            }
        };
        session.take_permit(permit);
        Ok(PooledSession {
            session: Some(session),
            is_reused,
        })
    }

    /// An idle connection, if the control connection reaches the same server. If it does not, no idle one is used any more.
    async fn pop_checked(&self) -> Result<Option<Arc<Session>>> {
        let Some(session) = self.pop() else {
            return Ok(None);
        };
        if self.control.is_of_server(&session).await? {
            return Ok(Some(session));
        }
        // It may have ended with its server, or be one to a server that was replaced, and so may the others.
        self.forget_idle();
        Ok(None)
    }

    /// Makes sure that the control connection reaches the same server as this connection, which was just made. If the control
    /// connection has to be made anew for that, the idle ones may reach its former server, and are not used any more.
    ///
    /// # Errors
    /// See [`ControlConnections::check_new`].
    ///
    /// # Cancel safety
    /// May be dropped at any point.
    pub(crate) async fn check_new(&self, session: &Session) -> Result<()> {
        if !self.control.check_new(session).await? {
            self.forget_idle();
        }
        Ok(())
    }

    /// A new connection for locks, which counts against no limit yet.
    ///
    /// # Cancel safety
    /// May be dropped at any point.
    pub(crate) async fn open(&self) -> Result<Arc<Session>, ConnectError> {
        let holds = self.control.open().await?;
        self.open_monitored(holds).await
    }

    async fn open_monitored(&self, holds: Arc<HoldRegistry>) -> Result<Arc<Session>, ConnectError> {
        let session = self.dialer.open(Autocommit::Off).await?;
        session.monitor_by(holds);
        Ok(session)
    }

    /// Keeps a connection on which nothing is under way.
    pub(crate) fn give_back(&self, session: Arc<Session>) {
        // The permit is kept until the connection is among the idle ones: another caller would open a new one.
        let _permit = session.set_idle();
        let mut idle = self.idle.lock();
        // Those that were idle for longest end first.
        while idle.front().is_some_and(|session| session.has_ended()) {
            idle.pop_front();
        }
        idle.push_back(session);
    }

    /// Keeps a connection that nobody had asked for, unless there are others.
    pub(crate) fn offer(&self, session: Arc<Session>) {
        if self.idle.lock().is_empty() {
            self.give_back(session);
        }
    }

    /// The right to wait for a row on a connection of this pool, unless waiters have all that they may have.
    pub(crate) fn try_wait(&self) -> Option<WaitPermit> {
        self.permits.try_wait()
    }

    /// A connection broke, perhaps with all others: forgets the idle ones, and dials one at a time until one succeeds.
    pub(crate) fn suspect_outage(&self) {
        self.forget_idle();
        self.dialer.suspect_outage();
    }

    fn forget_idle(&self) {
        self.idle.lock().clear();
    }

    async fn permit(&self, request: &AcquireRequest) -> Result<PoolPermit> {
        if let Some(permit) = self.permits.try_take() {
            return Ok(permit);
        }
        let message = format!(
            "all {} connections for locks are in use: raise max_connections",
            self.permits.all()
        );
        let exhausted = Error::new(ErrorKind::Unavailable, message).not_executed();
        if !request.waits() {
            return Err(exhausted);
        }
        request.note_unreachable(exhausted.clone());
        let limit = self.dialer.config().connect_timeout;
        tokio::select! {
            biased;
            permit = timeout(limit, self.permits.take()) => permit.map_err(|_| exhausted),
            () = request.given_up() => Err(exhausted),
        }
    }

    /// The idle connection of this runtime that was used last. If there is none, the oldest ones of other runtimes make
    /// room for a new one.
    fn pop(&self) -> Option<Arc<Session>> {
        let mut idle = self.idle.lock();
        let usable = idle
            .iter()
            .rposition(|session| session.is_here() && !session.has_ended());
        if let Some(at) = usable {
            return idle.remove(at);
        }
        while !idle.is_empty() && idle.len() + self.permits.taken() > self.permits.all() {
            idle.pop_front();
        }
        None
    }
}

impl PooledSession {
    pub(crate) fn session(&self) -> &Arc<Session> {
        self.session
            .as_ref()
            .expect("taken out only by `into_session`, which takes self")
    }

    /// Leaves the connection in use. The caller gives it back or ends it.
    pub(crate) fn into_session(mut self) -> Arc<Session> {
        self.session.take().expect("taken out only here, and this takes self")
    }
}

impl Drop for PooledSession {
    fn drop(&mut self) {
        if let Some(session) = &self.session {
            session.abort();
        }
    }
}
