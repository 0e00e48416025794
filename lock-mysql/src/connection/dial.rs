//! Making connections.

use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use lock_core::backend::AcquireRequest;
use lock_core::{Error, ErrorKind, Result};
use lock_kit::backoff::DIAL_SPACING;
use lock_kit::dial_limiter::{DialLimiter, Turn};
use lock_kit::identify::wrong_server;
use tokio::sync::OnceCell;
use tokio::time::{Instant, timeout};

use super::greeting::{self, SILENCE_LIMIT};
use super::liveness::LastAnswer;
use super::session::{Session, SessionTerms};
use crate::config::MySqlConfig;
use crate::error::{ConnectError, SqlError};
use crate::protocol::Autocommit;

#[derive(Debug)]
pub(crate) struct Dialer {
    config: MySqlConfig,
    terms: SessionTerms,
    /// The same with the roots of the operating system, once they were read.
    with_roots: OnceCell<MySqlConfig>,
    /// True if the server ever was reached. Before, connecting is patient; after, failing fast lets the caller decide.
    reached: AtomicBool,
    limiter: DialLimiter<ConnectError>,
    last_answer: Arc<LastAnswer>,
}

impl Dialer {
    /// `settings`: variables that are set in each session besides, each after a comma.
    pub(crate) fn new(config: MySqlConfig, settings: &'static str, last_answer: Arc<LastAnswer>) -> Self {
        Self {
            terms: SessionTerms {
                settings,
                max_read_only: config.max_read_only,
            },
            config,
            with_roots: OnceCell::new(),
            reached: AtomicBool::new(false),
            limiter: DialLimiter::parallel(),
            last_answer,
        }
    }

    pub(crate) fn config(&self) -> &MySqlConfig {
        &self.config
    }

    fn has_reached(&self) -> bool {
        self.reached.load(Ordering::Relaxed)
    }

    /// A connection broke, perhaps with all others.
    pub(super) fn suspect_outage(&self) {
        self.limiter.suspect_outage();
    }

    /// A new connection. Until the server was reached for the first time it keeps trying until the connect timeout:
    /// the server may just be starting.
    ///
    /// # Cancel safety
    /// May be dropped at any point.
    pub(crate) async fn open(&self, autocommit: Autocommit) -> Result<Arc<Session>, ConnectError> {
        let limit = self.config.connect_timeout;
        if self.has_reached() {
            return self.dial(autocommit, limit).await;
        }
        let deadline = Instant::now() + limit;
        let mut rest = limit;
        loop {
            match timeout(rest, self.dial(autocommit, rest)).await {
                Ok(Err(ConnectError::Transient(_))) if !self.has_reached() => {}
                Ok(opened) => return opened,
                Err(_elapsed) => rest = Duration::ZERO,
            }
            rest = rest.min(deadline.saturating_duration_since(Instant::now()));
            // A dial in less time would say no more than that it had too little.
            if rest < DIAL_SPACING {
                return Err(ConnectError::Transient(self.unreached(&format!("within {limit:?}"))));
            }
        }
    }

    /// Calls `open` on behalf of a request: again and again while the request waits and the server, which was there once,
    /// cannot be reached. Ends early when nobody waits for the request any more.
    ///
    /// # Cancel safety
    /// May be dropped where `open` may.
    pub(super) async fn retry_while_waiting<T, F>(&self, request: &AcquireRequest, open: impl Fn() -> F) -> Result<T>
    where
        F: Future<Output = Result<T, ConnectError>>,
    {
        loop {
            let opened = tokio::select! {
                biased;
                opened = open() => opened,
                () = request.given_up() => return Err(self.unreached("in the time given")),
            };
            match opened {
                // A dial that failed is followed by a pause.
                Err(ConnectError::Transient(error)) if request.waits() && self.has_reached() => {
                    request.note_unreachable(error);
                }
                opened => return Ok(opened?),
            }
        }
    }

    /// The error for those whose time was up while the server was dialled.
    fn unreached(&self, when: &str) -> Error {
        let message = format!("the MySQL server at {} was not reached {when}", self.config.address());
        let error = match self.limiter.failure() {
            // It says what to do.
            Some(failure) => Error::new(ErrorKind::Unavailable, message).with_source(Error::from(failure)),
            None => {
                let message = format!("{message}: check that it runs and its address");
                Error::new(ErrorKind::Unavailable, message)
            }
        };
        error.not_executed()
    }

    async fn dial(&self, autocommit: Autocommit, limit: Duration) -> Result<Arc<Session>, ConnectError> {
        let Turn::Dial(attempt) = self.limiter.turn(|| None::<Infallible>).await?;
        // The last dial before the time is up may have too little of it. Then why the one before it failed says more.
        let earlier = self.limiter.failure().filter(|_| limit < self.config.connect_timeout);
        let opened = self.open_once(autocommit, limit).await;
        let failure = match opened {
            Ok(session) => {
                self.reached.store(true, Ordering::Relaxed);
                attempt.finish(Ok(()));
                return Ok(session);
            }
            // This says nothing about the server.
            Err(error @ (SqlError::NoRuntime | SqlError::RuntimeShutDown)) => {
                return Err(ConnectError::Permanent(error.into_connect_lock_error()));
            }
            Err(error @ SqlError::TimedOut(_)) => earlier.unwrap_or_else(|| self.failure(error)),
            Err(error) => self.failure(error),
        };
        attempt.finish(Err(failure.clone()));
        Err(failure)
    }

    async fn open_once(&self, autocommit: Autocommit, limit: Duration) -> Result<Arc<Session>, SqlError> {
        // Before the server was reached, even if it is not there.
        if !self.has_reached() {
            self.check_files().await?;
        }
        let config = self.config_with_roots().await.map_err(SqlError::Setup)?;
        let for_now = config.options_now(limit).await.map_err(SqlError::Setup)?;
        let options = &self.config.options;
        let tcp = options.get_socket().is_none() && !self.has_reached();
        let non_mysql = async {
            match tcp {
                true => greeting::detect_non_mysql(options.get_host(), options.get_port(), limit).await,
                false => std::future::pending().await,
            }
        };
        let opened = tokio::select! {
            opened = Session::open(for_now, self.terms, autocommit, limit, &self.last_answer) => opened,
            answer = non_mysql => Err(SqlError::NotMySql(answer)),
        };
        match opened {
            // The driver also panics at some of what others say.
            Err(error @ (SqlError::Panicked(_) | SqlError::Driver(sqlx::Error::Protocol(_)))) if tcp => {
                let answer = greeting::non_mysql_answer(options.get_host(), options.get_port(), SILENCE_LIMIT).await;
                Err(answer.map_or(error, SqlError::NotMySql))
            }
            // Not an answer of the server's.
            Err(error @ SqlError::Driver(_)) if error.code().is_none() => {
                self.check_files().await?;
                Err(error)
            }
            opened => opened,
        }
    }

    /// The driver's errors do not say which file of a certificate cannot be used: one that is missing looks like a server
    /// that is not there.
    async fn check_files(&self) -> Result<(), SqlError> {
        match &self.config.tls {
            Some(tls) => tls.check().await.map_err(SqlError::Setup),
            None => Ok(()),
        }
    }

    /// The driver reads the roots of the operating system anew for each connection, and blocks its thread meanwhile. So it
    /// gets them from us.
    async fn config_with_roots(&self) -> Result<&MySqlConfig> {
        let Some(tls) = &self.config.tls else {
            return Ok(&self.config);
        };
        if tls.ca().is_some() {
            return Ok(&self.config);
        }
        let roots = async || Ok(self.config.clone().with_roots(tls.ca_pem().await?));
        self.with_roots.get_or_try_init(roots).await
    }

    /// The error that names the wrong certificate, if one is wrong.
    fn tls_fault(&self, error: &io::Error) -> Option<Error> {
        let server = format!("the MySQL server at {}", self.config.address());
        let fault = self.config.tls.clone().unwrap_or_default().fault(error, &server)?;
        Some(fault.not_executed())
    }

    fn failure(&self, error: SqlError) -> ConnectError {
        if error.code().is_some() {
            self.last_answer.note();
        }
        let error = match error {
            SqlError::Driver(sqlx::Error::Io(error)) => self
                .tls_fault(&error)
                .unwrap_or_else(|| SqlError::Driver(sqlx::Error::Io(error)).into_connect_lock_error()),
            SqlError::Setup(error) => error.not_executed(),
            SqlError::NotMySql(answer) => wrong_server("MySQL or MariaDB", &self.config.address(), &answer),
            error => error.into_connect_lock_error(),
        };
        match error.kind() {
            ErrorKind::Unavailable => ConnectError::Transient(error),
            _ => ConnectError::Permanent(error),
        }
    }
}
