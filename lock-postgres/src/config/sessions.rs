//! What only [`Strategy::Session`] needs.

use std::ops::RangeInclusive;
use std::time::Duration;

use lock_core::Result;
use lock_kit::url::misconfigured;

use super::{Pooler, PostgresConfig, Strategy};

/// The settings of sessions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sessions {
    pub(crate) timeout: Duration,
    /// `None`: the session timeout.
    restart_delay: Option<Duration>,
    /// `None`: a tenth of the server's table of locks.
    pub(crate) max_holds: Option<usize>,
    pub(crate) max_connections: usize,
}

const TIMEOUTS: RangeInclusive<Duration> = Duration::from_millis(100)..=Duration::from_secs(3600);
const LONGEST_DELAY: Duration = Duration::from_secs(24 * 3600);

impl Default for Sessions {
    fn default() -> Self {
        Self {
            timeout: PostgresConfig::DEFAULT_SESSION_TIMEOUT,
            restart_delay: None,
            max_holds: None,
            max_connections: PostgresConfig::DEFAULT_MAX_CONNECTIONS,
        }
    }
}

impl Sessions {
    pub(crate) fn restart_delay(&self) -> Duration {
        self.restart_delay.unwrap_or(self.timeout)
    }
}

impl PostgresConfig {
    /// How long the server keeps a silent session, unless said otherwise.
    pub const DEFAULT_SESSION_TIMEOUT: Duration = Duration::from_secs(10);
    /// The most connections with sessions, unless said otherwise.
    pub const DEFAULT_MAX_CONNECTIONS: usize = 32;

    /// Sets after which silence the server ends a session of [`Strategy::Session`] and frees its locks. This is the shortest TTL. From
    /// 100 ms to 1 h. Defaults to [`DEFAULT_SESSION_TIMEOUT`](Self::DEFAULT_SESSION_TIMEOUT).
    pub fn with_session_timeout(mut self, timeout: Duration) -> Self {
        self.sessions.timeout = timeout;
        self
    }

    /// Sets for how long a server that was started or promoted grants nothing with [`Strategy::Session`]. Its sessions ended with the
    /// old server, but a client that is cut off counts on its session timeout. Choose the longest session timeout of all
    /// processes. The server's wall clock counts it, from the start of the server's process, or from when a client first saw the
    /// promotion: a clock that is set forward meanwhile shortens it. A server that was ever promoted also grants nothing for that long
    /// after the table of tokens was made or emptied. From zero, for none, to 24 h. Defaults to the [session timeout](Self::with_session_timeout).
    pub fn with_restart_delay(mut self, delay: Duration) -> Self {
        self.sessions.restart_delay = Some(delay);
        self
    }

    /// Sets how many names this backend may hold or ask for at a time with [`Strategy::Session`]. Each takes an entry of the server's
    /// table of locks. If one client fills it, nobody can connect to the server any more. Defaults to a tenth of the table:
    /// `max_locks_per_transaction * (max_connections + max_prepared_transactions) / 10`.
    pub fn with_max_holds(mut self, most: usize) -> Self {
        self.sessions.max_holds = Some(most);
        self
    }

    /// Sets how many connections this backend may have for locks with [`Strategy::Session`]: one that carries holds, and one for each
    /// name that is waited for, or that is held after a wait. If all are taken, waiters ask again and again. At least 2. Defaults to
    /// [`DEFAULT_MAX_CONNECTIONS`](Self::DEFAULT_MAX_CONNECTIONS).
    pub fn with_max_connections(mut self, most: usize) -> Self {
        self.sessions.max_connections = most;
        self
    }

    pub(super) fn check_sessions(&self) -> Result<()> {
        let sessions = &self.sessions;
        if self.strategy != Strategy::Session {
            return match *sessions == Sessions::default() {
                true => Ok(()),
                false => Err(misconfigured(
                    "session_timeout, restart_delay, max_holds and max_connections need strategy=session",
                )),
            };
        }
        if self.pooler == Pooler::Transaction {
            return Err(misconfigured(
                "strategy=session needs a connection of its own, which a pooler of transactions does not give: use strategy=lease",
            ));
        }
        if self.listen.is_some() {
            return Err(misconfigured("listen is for strategy=lease alone: leave it out"));
        }
        if !TIMEOUTS.contains(&sessions.timeout) {
            return Err(misconfigured("session_timeout must be from 100ms to 1h"));
        }
        if sessions.restart_delay() > LONGEST_DELAY {
            return Err(misconfigured("restart_delay must be from 0s to 24h"));
        }
        if sessions.max_holds == Some(0) || sessions.max_connections < 2 {
            return Err(misconfigured(
                "max_holds must be at least 1, and max_connections at least 2",
            ));
        }
        Ok(())
    }
}
