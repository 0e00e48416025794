//! Making connections.

use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use lock_core::{Error, ErrorKind};
use tokio::time::{Instant, timeout};

use super::greeting;
use super::last_answer::LastAnswer;
use super::limiter::{Gate, SPACING, Turn};
use super::session::{Commits, Session};
use crate::config::MySqlConfig;
use crate::error::SqlError;

/// Why there is no connection.
#[derive(Clone, Debug)]
pub(crate) enum Failure {
    /// The server cannot be reached or cannot serve at the moment.
    Passing(Error),
    /// Dialling again is of no use.
    Final(Error),
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Passing(error) | Failure::Final(error) => error,
        }
    }
}

#[derive(Debug)]
pub(crate) struct Dialer {
    config: MySqlConfig,
    /// Whether the server ever was reached: before, connecting is patient; after, failing fast lets the caller decide.
    reached: AtomicBool,
    gate: Gate,
    last_answer: Arc<LastAnswer>,
}

impl Dialer {
    pub(crate) fn new(config: MySqlConfig, last_answer: Arc<LastAnswer>) -> Self {
        Self {
            config,
            reached: AtomicBool::new(false),
            gate: Gate::parallel(),
            last_answer,
        }
    }

    pub(crate) fn config(&self) -> &MySqlConfig {
        &self.config
    }

    pub(crate) fn has_reached(&self) -> bool {
        self.reached.load(Ordering::Relaxed)
    }

    /// A connection broke, perhaps with all others.
    pub(crate) fn doubt(&self) {
        self.gate.doubt();
    }

    /// A new connection. Until the server was reached for the first time it keeps trying until the connect timeout:
    /// the server may just be starting.
    ///
    /// # Cancel safety
    /// May be dropped at any point.
    pub(crate) async fn open(&self, commits: Commits) -> Result<Arc<Session>, Failure> {
        let limit = self.config.connect_timeout();
        if self.has_reached() {
            return self.dial(commits, limit).await;
        }
        let deadline = Instant::now() + limit;
        let mut rest = limit;
        loop {
            match timeout(rest, self.dial(commits, rest)).await {
                Ok(Err(Failure::Passing(_))) if !self.has_reached() => {}
                Ok(opened) => return opened,
                Err(_elapsed) => rest = Duration::ZERO,
            }
            rest = rest.min(deadline.saturating_duration_since(Instant::now()));
            // A dial in less time would say no more than that it had too little.
            if rest < SPACING {
                return Err(Failure::Passing(self.unreached(&format!("within {limit:?}"))));
            }
        }
    }

    /// The error for those whose time was up while the server was dialled.
    pub(crate) fn unreached(&self, when: &str) -> Error {
        let message = format!("the MySQL server at {} was not reached {when}", self.config.address());
        let error = match self.gate.failure() {
            // It says what to do.
            Some(failure) => Error::new(ErrorKind::Unavailable, message).with_source(Error::from(failure)),
            None => {
                let message = format!("{message}: check that it runs and its address");
                Error::new(ErrorKind::Unavailable, message)
            }
        };
        error.not_executed()
    }

    async fn dial(&self, commits: Commits, limit: Duration) -> Result<Arc<Session>, Failure> {
        let Turn::Dial(dialling) = self.gate.turn(|| None::<Infallible>).await?;
        let opened = self.open_once(commits, limit).await;
        let failure = match opened {
            Ok(session) => {
                self.reached.store(true, Ordering::Relaxed);
                dialling.ended(Ok(()));
                return Ok(session);
            }
            // That tells nothing of the server.
            Err(error @ (SqlError::NoRuntime | SqlError::ShuttingDown)) => {
                return Err(Failure::Final(error.into_connect_error()));
            }
            Err(error) => self.failure(error),
        };
        dialling.ended(Err(failure.clone()));
        Err(failure)
    }

    async fn open_once(&self, commits: Commits, limit: Duration) -> Result<Arc<Session>, SqlError> {
        let options = self.config.options();
        let tcp = options.get_socket().is_none() && !self.has_reached();
        let foreign = async {
            match tcp {
                true => greeting::is_foreign(options.get_host(), options.get_port()).await,
                false => std::future::pending().await,
            }
        };
        let opened = tokio::select! {
            opened = Session::open(&self.config, commits, limit, &self.last_answer) => opened,
            () = foreign => Err(SqlError::Foreign),
        };
        match opened {
            // The driver panics at some of what others say.
            Err(SqlError::Panicked(_))
                if tcp && greeting::is_foreign_now(options.get_host(), options.get_port()).await =>
            {
                Err(SqlError::Foreign)
            }
            opened => opened,
        }
    }

    fn failure(&self, error: SqlError) -> Failure {
        if error.code().is_some() {
            self.last_answer.note();
        }
        let error = match error {
            // Without a socket's path, the only files are those for TLS.
            SqlError::Driver(sqlx::Error::Io(error))
                if error.kind() == io::ErrorKind::NotFound && self.config.options().get_socket().is_none() =>
            {
                let message = "a file that ssl-ca, ssl-cert or ssl-key names does not exist";
                Error::new(ErrorKind::Misconfigured, message).with_source(error)
            }
            error => error.into_connect_error(),
        };
        match error.kind() {
            ErrorKind::Unavailable => Failure::Passing(error),
            _ => Failure::Final(error),
        }
    }
}
