//! The sessions of this process, and which one serves a request.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use lock_core::backend::AcquireRequest;
use lock_core::{Error, ErrorKind, Result};
use lock_kit::dial_limiter::Turn;
use lock_kit::requests::unless_given_up;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;

use super::carrier::Session;
use super::{Shared, heartbeat, within};
use crate::connection::Connection;
use crate::error::{SERVER, SqlError};
use crate::protocol::answers::{column, duration};
use crate::protocol::session_setup::told;

impl Shared {
    /// The session of a connection.
    ///
    /// # Errors
    /// [`ErrorKind::Misconfigured`] if it is not the client's own.
    pub(super) fn session_of(
        self: &Arc<Self>,
        connection: Arc<Connection>,
        permit: Option<OwnedSemaphorePermit>,
    ) -> Result<Arc<Session>> {
        let session = {
            let mut sessions = self.sessions.lock();
            let is_it = |session: &&Arc<Session>| session.connection.number == connection.number;
            if let Some(known) = sessions.iter().find(is_it) {
                return Ok(known.clone());
            }
            let told = told(&connection.answer_to_set_up, &connection.mark, &self.config)?;
            if self.config.sessions.max_holds.is_none() {
                let most = (told.lock_entries / 10).max(1);
                self.most_holds.store(most, Ordering::Relaxed);
            }
            let timeout = self.config.sessions.timeout;
            let session = Arc::new(Session::new(connection, told.identity, timeout, permit));
            sessions.push(session.clone());
            session
        };
        let (shared, weak) = (Arc::downgrade(self), Arc::downgrade(&session));
        session.connection.on_end(Box::new(move || {
            let Some(session) = weak.upgrade() else {
                return;
            };
            // One that carried nothing is closed by this process.
            let was_used = session.idle_for().is_none();
            session.end();
            if let Some(shared) = shared.upgrade() {
                if was_used {
                    shared.dials.suspect_outage();
                }
                let mut sessions = shared.sessions.lock();
                let at = sessions.iter().position(|known| Arc::ptr_eq(known, &session));
                let removed = at.map(|at| sessions.swap_remove(at));
                drop(sessions);
                drop(removed);
            }
        }));
        heartbeat::start(&session, self);
        Ok(session)
    }

    /// A session that can ask for this name, reserved for the request.
    pub(super) async fn session_to_ask(self: &Arc<Self>, request: &AcquireRequest) -> Result<Arc<Session>> {
        let reserved = |session: &Arc<Session>| session.reserve(request.name(), request.holder(), false);
        let connection = unless_given_up(request, SERVER, self.carrier.connection()).await?;
        let carrier = self.session_of(connection, None)?;
        if reserved(&carrier) {
            return Ok(carrier);
        }
        // It has the name, so that another one has to ask.
        if let Some(other) = self.usable().into_iter().find(reserved) {
            return Ok(other);
        }
        let Some(session) = self.further_session(request).await? else {
            let message = "all connections of max_connections are taken, and each waits or has this name: raise it";
            return Err(Error::new(ErrorKind::Unavailable, message).not_executed());
        };
        match reserved(&session) {
            true => Ok(session),
            false => Err(SqlError::NotConnected.into_lock_error()),
        }
    }

    /// A session that carries nothing, reserved for a request that waits in it. `None` if no more are allowed.
    pub(super) async fn session_to_wait(self: &Arc<Self>, request: &AcquireRequest) -> Result<Option<Arc<Session>>> {
        let reserved = |session: &Arc<Session>| session.reserve(request.name(), request.holder(), true);
        let carrier = unless_given_up(request, SERVER, self.carrier.connection())
            .await?
            .number;
        let idle = self
            .usable()
            .into_iter()
            .find(|session| session.connection.number != carrier && reserved(session));
        if idle.is_some() {
            return Ok(idle);
        }
        let further = self.further_session(request).await?;
        Ok(further.filter(reserved))
    }

    /// Those whose answers this runtime would get.
    fn usable(&self) -> Vec<Arc<Session>> {
        let sessions = self.sessions.lock();
        let is_usable = |session: &&Arc<Session>| session.connection.is_here() && !session.connection.is_silent();
        sessions.iter().filter(is_usable).cloned().collect()
    }

    /// A new session besides the carrier; `None` if no more are allowed.
    async fn further_session(self: &Arc<Self>, request: &AcquireRequest) -> Result<Option<Arc<Session>>> {
        let Ok(permit) = self.further.clone().try_acquire_owned() else {
            return Ok(None);
        };
        let connection = unless_given_up(request, SERVER, self.dial_further()).await?;
        self.session_of(connection, Some(permit)).map(Some)
    }

    /// Any number at a time, as long as the server lets them in. At first, and after a failure or the end of a session that carried
    /// locks, one at a time.
    async fn dial_further(&self) -> Result<Arc<Connection>> {
        let Turn::Dial(attempt) = self.dials.turn(|| None::<Infallible>).await?;
        let dialled = self.dialer.dial().await;
        attempt.finish(dialled.as_ref().map(drop).map_err(Clone::clone));
        dialled
    }

    /// Refuses to ask a server that was started or promoted so recently that clients which are cut off may count on locks that ended
    /// with the old one.
    pub(super) async fn check_age(&self, session: &Session) -> Result<()> {
        let delay = self.config.sessions.restart_delay();
        let from = match session.grants_from.get() {
            Some(from) => *from,
            None if delay.is_zero() => return Ok(()),
            None => {
                let age = self.age(session).await?;
                *session
                    .grants_from
                    .get_or_init(|| Instant::now() + delay.saturating_sub(age))
            }
        };
        let left = from.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(());
        }
        let message = format!(
            "the PostgreSQL server was started or promoted less than restart_delay ago, or has a new or emptied table of tokens \
             since a promotion, and grants no locks for {left:.1?}: clients that it cannot reach may still count on theirs"
        );
        Err(Error::new(ErrorKind::Unavailable, message).not_executed())
    }

    /// For how long the server has run as a primary.
    async fn age(&self, session: &Session) -> Result<Duration> {
        let ask = async |statement| within(self.limit(), session.connection.query(statement, &[], None)).await;
        let mut statements = self.statements().await?;
        let mut rows = ask(&statements.age).await;
        if rows.as_ref().is_err_and(SqlError::is_missing_table) {
            statements = self.prepare().await?;
            rows = ask(&statements.age).await;
        }
        // Any other refusal may hide that the server was just promoted.
        if rows.as_ref().is_err_and(SqlError::is_hidden) {
            rows = ask(&statements.age_of_process).await;
        }
        let age = rows.and_then(|rows| {
            let row = rows.first().ok_or(SqlError::UnexpectedAnswer("age"))?;
            column::<i64>(row, 0, "age")
        });
        age.map(duration)
            .map_err(|error| error.into_lock_error().not_executed())
    }
}
