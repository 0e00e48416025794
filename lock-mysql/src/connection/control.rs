//! The connections for what cannot be done on the connection that it is about, such as ending it.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::{Arc, Weak};
use std::time::Duration;

use lock_core::backend::AcquireRequest;
use lock_core::{Error, ErrorKind, Result};
use lock_kit::dial_limiter::{DialLimiter, Turn};
use parking_lot::Mutex;
use tokio::runtime;
use tokio::sync::{Notify, oneshot};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::dial::Dialer;
use super::end::find_connection;
use super::monitor::HoldRegistry;
use super::session::Session;
use crate::error::{ConnectError, RequestError, SqlError};
use crate::protocol::{Answer, Autocommit, Identity, are_fine, used};

/// For how long a new connection waits until the control connection says whether its server has it. On a slow line it waits for as long as
/// it took to connect. After that the control connection is made anew.
const LOOK_LIMIT: Duration = Duration::from_secs(1);

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
    /// Notified when the connection is left: the next one to use it makes it anew.
    left: Notify,
    limiter: DialLimiter<ConnectError>,
    /// The connections of the same runtime that carry holds, which this one monitors.
    holds: Arc<HoldRegistry>,
    /// Ends with this.
    _monitor: JoinSet<()>,
}

/// What the server of a control connection says of another connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Look {
    Found,
    Missing,
    /// It does not say. The control connection is left.
    Unanswered,
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
    /// the address may lead to another server by now: then the control connection is made anew. Returns false if it was.
    ///
    /// # Errors
    /// [`ErrorKind::Misconfigured`] if the server of the new one does not have this one either: it could end no connection and show no
    /// holder.
    ///
    /// # Cancel safety
    /// May be dropped at any point.
    pub(super) async fn check_new(&self, session: &Session) -> Result<bool> {
        let control = self.here()?;
        match control.look_for(&self.dialer, session).await {
            Look::Found => return Ok(true),
            Look::Missing => self.leave(),
            // One that is silent leads to no server either. Those of other runtimes may be fine.
            Look::Unanswered => {}
        }
        let asked = control.session(&self.dialer).await?;
        if finds(&asked, session.identity(), self.dialer.config().response_timeout).await? {
            session.note_found_by(asked.identity());
            return Ok(false);
        }
        let message = "two connections to the MySQL server reached different servers: a proxy spreads them, or leads reads elsewhere; \
                       have it lead all of this user's to the server that takes writes";
        Err(Error::new(ErrorKind::Misconfigured, message).not_executed())
    }

    /// Returns whether this connection and the control connection reach the same server. Asks only if this control connection has not
    /// found this one before.
    ///
    /// # Cancel safety
    /// May be dropped at any point.
    pub(super) async fn is_of_server(&self, session: &Session) -> Result<bool> {
        let control = self.here()?;
        if control.live().is_some_and(|live| session.was_found_by(live.identity())) {
            return Ok(true);
        }
        Ok(control.look_for(&self.dialer, session).await == Look::Found)
    }

    /// Makes those of all runtimes anew when they are next used.
    pub(crate) fn leave(&self) {
        let by_runtime = self.by_runtime.lock();
        let left: Vec<_> = by_runtime.values().map(|control| control.forget_if(|_| true)).collect();
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
                left: Notify::new(),
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

    /// Leaves this connection: it broke, or does not answer.
    fn forget(&self, session: &Arc<Session>) {
        drop(self.forget_if(|kept| Arc::ptr_eq(kept, session)));
    }

    /// Leaves the connection if `is_left`, and returns it.
    fn forget_if(&self, is_left: impl FnOnce(&Arc<Session>) -> bool) -> Option<Arc<Session>> {
        let left = self.session.lock().take_if(|kept| is_left(kept));
        if left.is_some() {
            self.left.notify_waiters();
        }
        left
    }

    /// Looks for this connection for a bounded time. If there is no answer, leaves the control connection.
    ///
    /// # Cancel safety
    /// May be dropped at any point: the look goes on, so that callers with less time do not meet a silent connection again and again.
    async fn look_for(self: &Arc<Self>, dialer: &Arc<Dialer>, session: &Session) -> Look {
        // What is left from here on ends the look.
        let left = self.left.notified();
        let Some(asked) = self.live() else {
            return Look::Unanswered;
        };
        let (by, patience) = (asked.identity(), LOOK_LIMIT.max(session.connected_in()));
        let (found, look) = oneshot::channel();
        let (control, dialer, identity) = (self.clone(), dialer.clone(), session.identity());
        tokio::spawn(async move {
            let mut looking = pin!(finds(&asked, identity, dialer.config().response_timeout));
            let looked = timeout(patience, &mut looking).await;
            if let Ok(Ok(is_found)) = looked {
                // It fails if the caller has left.
                let _ = found.send(is_found);
                return;
            }
            control.forget(&asked);
            dialer.suspect_outage();
            drop(found);
            if looked.is_err() {
                // It may only be slow, and others may wait for its answers. In the end this aborts it.
                drop(looking.await);
            }
        });
        let found = tokio::select! {
            biased;
            found = look => found.ok(),
            () = left => None,
        };
        match found {
            Some(true) => {
                session.note_found_by(by);
                Look::Found
            }
            Some(false) => Look::Missing,
            None => Look::Unanswered,
        }
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

/// Asks the server of the control connection `asked` whether it has this connection.
async fn finds(asked: &Session, identity: Identity, limit: Duration) -> Result<bool> {
    let found = find_connection(identity, async |sql| {
        let answer = asked.run(sql, None, limit).await?;
        Ok(answer.results.into_iter().next().unwrap_or_default())
    });
    let found = found.await;
    drop(asked.set_idle());
    Ok(found?.is_some())
}
