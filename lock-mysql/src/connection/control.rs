//! The connections for what cannot be done on the connection that it is about, such as ending it.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use lock_core::backend::AcquireRequest;
use lock_core::{Error, ErrorKind, Result};
use lock_kit::dial_limiter::{DialLimiter, Turn};
use parking_lot::Mutex;
use tokio::runtime;
use tokio::task::JoinSet;

use super::dial::Dialer;
use super::end::find_connection;
use super::monitor::HoldRegistry;
use super::session::Session;
use crate::error::{ConnectError, RequestError, SqlError};
use crate::protocol::{Answer, Autocommit, Identity, are_fine, used};

/// One control connection for each runtime that needs one: nobody may depend on a runtime that is not driven.
#[derive(Debug)]
pub(crate) struct ControlConnections {
    dialer: Arc<Dialer>,
    by_runtime: Mutex<HashMap<runtime::Id, Arc<ControlConnection>>>,
}

/// A connection that is made before the first one for locks, and shared.
#[derive(Debug)]
struct ControlConnection {
    session: Mutex<Option<Arc<Session>>>,
    /// The last one that had its server [checked](ControlConnections::check_new).
    checked: Mutex<Option<Identity>>,
    limiter: DialLimiter<ConnectError>,
    /// The connections of the same runtime that carry holds, which this one monitors.
    holds: Arc<HoldRegistry>,
    /// Ends with this.
    _monitor: JoinSet<()>,
}

impl ControlConnections {
    pub(crate) fn new(dialer: Arc<Dialer>) -> Self {
        Self {
            dialer,
            by_runtime: Mutex::default(),
        }
    }

    /// Opens the control connection of this runtime, if it is not open. Before any connection for locks: a server that has
    /// no connection left by the time something must be ended would refuse it. Returns the registry of the holds that it
    /// monitors.
    ///
    /// # Cancel safety
    /// May be dropped at any point.
    pub(super) async fn open(&self) -> Result<Arc<HoldRegistry>, ConnectError> {
        let no_runtime = || ConnectError::Permanent(SqlError::NoRuntime.into_connect_lock_error());
        let control = self.of_this_runtime().ok_or_else(no_runtime)?;
        if control.live().is_none() {
            control.session(&self.dialer).await?;
        }
        Ok(control.holds.clone())
    }

    /// Runs idempotent statements. If the control connection turns out to be gone, they run again on a new one: on behalf
    /// of a request for as long as that waits.
    ///
    /// # Cancel safety
    /// May be dropped at any point.
    pub(crate) async fn execute(&self, sql: String, request: Option<&AcquireRequest>) -> Result<Answer, RequestError> {
        let limit = self.dialer.config().response_timeout;
        let run = |session: Arc<Session>| {
            let sql = sql.clone();
            async move { session.run(sql, None, limit).await }
        };
        self.run(request, run).await
    }

    /// Makes sure that the control connection is one to the same server as this connection for locks, which was just made. If it is not,
    /// the address may lead to another server by now: then the control connection is made anew.
    ///
    /// # Errors
    /// [`ErrorKind::Misconfigured`] if the server of the new one does not have this one either: it could end no connection and show no
    /// holder.
    ///
    /// # Cancel safety
    /// May be dropped at any point.
    pub(crate) async fn check_new(&self, session: &Session) -> Result<()> {
        let control = self.here()?;
        // One that is silent leads to no server either.
        if matches!(self.finds(&control, session).await, Ok(true)) {
            return Ok(());
        }
        self.leave();
        match self.finds(&control, session).await? {
            true => Ok(()),
            false => {
                let message = "two connections to the MySQL server reached different servers: a proxy spreads them, or leads \
                               reads elsewhere; have it lead all of this user's to the server that takes writes";
                Err(Error::new(ErrorKind::Misconfigured, message).not_executed())
            }
        }
    }

    /// Returns whether this connection and the control connection reach the same server. True if the latter was
    /// [checked](Self::check_new) before.
    ///
    /// # Cancel safety
    /// May be dropped at any point.
    pub(super) async fn is_of_server(&self, session: &Session) -> Result<bool> {
        let control = self.here()?;
        let asked = control.live().map(|live| live.identity());
        if asked.is_some() && *control.checked.lock() == asked {
            return Ok(true);
        }
        self.finds(&control, session).await
    }

    /// Asks the server of the control connection whether it has this connection.
    async fn finds(&self, control: &ControlConnection, session: &Session) -> Result<bool> {
        let asked = control.live().map(|live| live.identity());
        let found = find_connection(session.identity(), async |sql| {
            let answer = self.execute(sql, None).await?;
            Ok(answer.results.into_iter().next().unwrap_or_default())
        });
        let is_found = found.await?.is_some();
        if is_found {
            // If it was made anew meanwhile, nobody knows which of both has answered.
            *control.checked.lock() = asked;
        }
        Ok(is_found)
    }

    /// Makes those of all runtimes anew when they are next used.
    pub(crate) fn leave(&self) {
        let by_runtime = self.by_runtime.lock();
        let left: Vec<_> = by_runtime
            .values()
            .map(|control| control.session.lock().take())
            .collect();
        drop(by_runtime);
        // Outside the lock.
        drop(left);
    }

    /// Waits until the server answers, in one round trip for all who ask at the same time.
    ///
    /// # Cancel safety
    /// May be dropped at any point.
    pub(crate) async fn ping(&self) -> Result<(), RequestError> {
        let limit = self.dialer.config().response_timeout;
        let ping = |session: Arc<Session>| async move { session.ping(limit).await };
        self.run(None, ping).await
    }

    async fn run<T, F>(
        &self,
        request: Option<&AcquireRequest>,
        ask: impl Fn(Arc<Session>) -> F,
    ) -> Result<T, RequestError>
    where
        F: Future<Output = Result<T, SqlError>>,
    {
        let control = self.of_this_runtime().ok_or(SqlError::NoRuntime)?;
        control.run(&self.dialer, request, ask).await
    }

    fn here(&self) -> Result<Arc<ControlConnection>> {
        self.of_this_runtime()
            .ok_or_else(|| SqlError::NoRuntime.into_lock_error())
    }

    /// `None` outside a runtime.
    fn of_this_runtime(&self) -> Option<Arc<ControlConnection>> {
        let here = runtime::Handle::try_current().ok()?.id();
        let mut by_runtime = self.by_runtime.lock();
        if let Some(control) = by_runtime.get(&here) {
            return Some(control.clone());
        }
        // Those of runtimes that have gone.
        by_runtime.retain(|_, control| Arc::strong_count(control) > 1 || control.is_needed());
        let control = ControlConnection::new(self.dialer.clone());
        by_runtime.insert(here, control.clone());
        Some(control)
    }
}

impl ControlConnection {
    /// Monitors the holds of this runtime from now on, which must be one.
    fn new(dialer: Arc<Dialer>) -> Arc<Self> {
        Arc::new_cyclic(|this: &Weak<Self>| {
            let (this, holds) = (this.clone(), Arc::<HoldRegistry>::default());
            let mut monitor = JoinSet::new();
            let monitored = holds.clone();
            monitor.spawn(async move {
                let ask = |identities: Vec<Identity>| {
                    let (this, dialer) = (this.clone(), dialer.clone());
                    async move { this.upgrade()?.are_fine(&dialer, &identities).await }
                };
                monitored.monitor(ask).await;
            });
            Self {
                session: Mutex::default(),
                checked: Mutex::default(),
                limiter: DialLimiter::serial(),
                holds,
                _monitor: monitor,
            }
        })
    }

    /// For each of these connections, whether the server has it and takes writes; `None` if the server does not say.
    async fn are_fine(&self, dialer: &Dialer, identities: &[Identity]) -> Option<Vec<bool>> {
        let (sql, limit) = (used(identities), dialer.config().response_timeout);
        let run = |session: Arc<Session>| {
            let sql = sql.clone();
            async move { session.run(sql, None, limit).await }
        };
        let answer = self.run(dialer, None, run).await.ok()?;
        are_fine(&answer).ok()
    }

    async fn run<T, F>(
        &self,
        dialer: &Dialer,
        request: Option<&AcquireRequest>,
        ask: impl Fn(Arc<Session>) -> F,
    ) -> Result<T, RequestError>
    where
        F: Future<Output = Result<T, SqlError>>,
    {
        if let Some(session) = self.live() {
            match ask(session.clone()).await {
                Err(error) if error.is_disconnect() => {
                    self.forget(&session);
                    dialer.suspect_outage();
                }
                answer => {
                    drop(session.set_idle());
                    return Ok(answer?);
                }
            }
        }
        let session = match request {
            Some(request) => dialer.retry_while_waiting(request, || self.session(dialer)).await?,
            None => self.session(dialer).await.map_err(Error::from)?,
        };
        let answer = ask(session.clone()).await;
        drop(session.set_idle());
        Ok(answer?)
    }

    /// True if anybody may still use it: each connection for locks keeps the registry by which its holds are monitored.
    fn is_needed(&self) -> bool {
        // This one's and the monitor's.
        const OURS: usize = 2;
        self.live().is_some() || Arc::strong_count(&self.holds) > OURS
    }

    /// The connection, if it is there.
    fn live(&self) -> Option<Arc<Session>> {
        self.session.lock().clone().filter(|session| !session.has_ended())
    }

    /// This connection broke.
    fn forget(&self, session: &Arc<Session>) {
        self.session.lock().take_if(|kept| Arc::ptr_eq(kept, session));
    }

    /// The connection, or a new one.
    ///
    /// # Cancel safety
    /// May be dropped at any point.
    async fn session(&self, dialer: &Dialer) -> Result<Arc<Session>, ConnectError> {
        let attempt = match self.limiter.turn(|| self.live()).await? {
            Turn::Served(session) => return Ok(session),
            Turn::Dial(attempt) => attempt,
        };
        let opened = dialer.open(Autocommit::On).await;
        if let Ok(session) = &opened {
            session.keep_open();
            drop(session.set_idle());
            *self.session.lock() = Some(session.clone());
        }
        attempt.finish(opened.as_ref().map(|_| ()).map_err(Clone::clone));
        opened
    }
}
