//! What makes a connection a session that may carry locks, and what the server says of it.

use std::time::Duration;

use lock_core::{Error, ErrorKind, Result};

use super::in_micros;
use crate::config::{Pooler, PostgresConfig};
use crate::connection::{self, SetUp, TextRows};
use crate::error::{SqlError, pooler_between};
use crate::probe::limit_statements;

/// The oldest server that ends silent sessions.
const OLDEST: u32 = 140_000;

/// For how long a statement waits for a row or a table. Meanwhile heartbeats of the session wait as well.
const LOCK_TIMEOUT: &str = "500ms";

/// What tells the row of a set-up from others.
const ROW: &str = "session";

/// Whether the session is still the client's own: returns its mark.
pub(crate) const PING: &str = "SELECT current_setting('polylock.session',true)";

/// A session of the server, distinct from all others that it ever had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) process: i32,
    /// When it was started, in microseconds; `None` if the server does not say.
    started: Option<i64>,
    /// The number in its `application_name`, if a pooler may lend the session to somebody else, who sets another name.
    client: Option<u64>,
}

/// What the server says of a new session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Told {
    pub(crate) identity: Identity,
    /// The entries of the server's table of locks.
    pub(crate) lock_entries: usize,
}

/// Sets up the session of a connection with this mark. The server itself must have started the session for it, unless a pooler is
/// declared: a pooler cannot pass the mark on in the first message, since its connections are there before its clients are.
pub(crate) fn set_up(config: &PostgresConfig, mark: &str) -> SetUp {
    let timeout = config.sessions.timeout;
    let (options, set_mark) = match config.pooler {
        Pooler::Session => {
            let name = client_of(mark).map(application_name).unwrap_or_default();
            let set_mark = format!(
                "SELECT set_config('polylock.session','{mark}',false),set_config('application_name','{name}',false);"
            );
            (None, set_mark)
        }
        _ => (Some(format!("-c polylock.session={mark}")), String::new()),
    };
    // A line that is cut off must not end the session before its timeout, by which its client counts.
    let seconds = timeout.as_secs() + 1;
    let (idle, unanswered) = (seconds.max(10), seconds.max(20));
    let text = format!(
        "{set_mark}SELECT '{ROW}',current_setting('polylock.session',true),current_setting('server_version_num'),pg_backend_pid(),\
         (SELECT {started} FROM pg_stat_activity WHERE pid=pg_backend_pid()),current_setting('max_locks_per_transaction')::bigint*\
         (current_setting('max_connections')::bigint+current_setting('max_prepared_transactions')::bigint);\
         SET synchronous_commit=off;\
         SET lock_timeout='{LOCK_TIMEOUT}';\
         SELECT set_config(s.name,v.value,false) FROM (VALUES ('idle_session_timeout','{}ms'),('tcp_keepalives_idle','{idle}'),\
         ('tcp_user_timeout','{unanswered}s'),('client_connection_check_interval','1s')) v(name,value) JOIN pg_settings s \
         ON s.name=v.name WHERE s.name<>'client_connection_check_interval' OR version() LIKE '%linux%'",
        timeout.as_millis(),
        started = in_micros("backend_start"),
    );
    SetUp {
        options,
        text,
        keep_silent: Duration::from_secs(seconds),
    }
}

/// The first 16 of the digits of a mark.
fn client_of(mark: &str) -> Option<u64> {
    u64::from_str_radix(mark.get(..16)?, 16).ok()
}

fn application_name(client: u64) -> String {
    format!("polylock {client:016x}")
}

/// Reads what the server said of the session with this mark.
///
/// # Errors
/// [`ErrorKind::Misconfigured`] for an old server, and for a pooler that was not declared.
pub(crate) fn told(rows: &TextRows, mark: &str, config: &PostgresConfig) -> Result<Told> {
    let address = &config.address();
    let row = connection::told(rows, ROW);
    let value = |column: usize| row?.get(column)?.as_deref();
    if value(0) != Some(mark) {
        return Err(pooler_between(address).not_executed());
    }
    let number = |column: usize| value(column).and_then(|text| text.parse::<i64>().ok());
    let unread = || SqlError::UnexpectedAnswer("session").into_lock_error().not_executed();
    let version = number(1).ok_or_else(unread)?;
    if version < i64::from(OLDEST) {
        let message = format!(
            "the PostgreSQL server at {address} is version {}: strategy=session needs 14 or later, use strategy=lease",
            version / 10_000
        );
        return Err(Error::new(ErrorKind::Misconfigured, message).not_executed());
    }
    let process = number(2).and_then(|process| i32::try_from(process).ok());
    Ok(Told {
        identity: Identity {
            process: process.ok_or_else(unread)?,
            started: number(3),
            client: match config.pooler {
                Pooler::Session => client_of(mark),
                _ => None,
            },
        },
        lock_entries: number(4).and_then(|entries| usize::try_from(entries).ok()).unwrap_or(0),
    })
}

/// Has a session wait for a lock for so long.
pub(crate) fn begin_wait(limit: Duration) -> String {
    format!(
        "SET lock_timeout='{}ms';SET statement_timeout=0",
        limit.as_millis().max(1)
    )
}

/// Undoes [`begin_wait`].
pub(crate) fn end_wait(config: &PostgresConfig) -> String {
    format!("SET lock_timeout='{LOCK_TIMEOUT}';{}", limit_statements(config))
}

impl Identity {
    /// Ends what the session is waiting for.
    pub(crate) fn cancel(self) -> String {
        self.over("pg_cancel_backend(pid)")
    }

    /// Ends the session, and waits until it has ended: returns `t` then, and no row if it had ended before.
    pub(crate) fn terminate(self, limit: Duration) -> String {
        self.over(&format!("pg_terminate_backend(pid,{})", limit.as_millis().max(1)))
    }

    /// Returns a row if the session is there.
    pub(crate) fn find(self) -> String {
        self.over("true")
    }

    fn over(self, what: &str) -> String {
        let started = in_micros("backend_start");
        let is_it = match self.started {
            // That of another user is hidden.
            Some(number) => format!(" AND COALESCE({started},{number})={number}"),
            None => String::new(),
        };
        let is_clients = match self.client {
            Some(client) => format!(" AND application_name='{}'", application_name(client)),
            None => String::new(),
        };
        format!(
            "SELECT {what} FROM pg_stat_activity WHERE pid={}{is_it}{is_clients}",
            self.process
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_is_set_up_by_its_timeout() {
        let config = PostgresConfig::new("db", 5432).with_session_timeout(Duration::from_millis(1500));
        let direct = set_up(&config, "ab");
        assert_eq!(direct.options.as_deref(), Some("-c polylock.session=ab"));
        for part in [
            "('idle_session_timeout','1500ms')",
            "('tcp_keepalives_idle','10')",
            "('tcp_user_timeout','20s')",
        ] {
            assert!(direct.text.contains(part), "{part}: {}", direct.text);
        }
        let long = config
            .with_session_timeout(Duration::from_secs(60))
            .with_pooler(Pooler::Session);
        assert_eq!(direct.keep_silent, Duration::from_secs(2));
        let mark = "0123456789abcdef0123456789abcdef";
        let pooled = set_up(&long, mark);
        assert_eq!((pooled.options, pooled.keep_silent), (None, Duration::from_secs(61)));
        assert!(pooled.text.starts_with(&format!(
            "SELECT set_config('polylock.session','{mark}',false),\
             set_config('application_name','polylock 0123456789abcdef',false);"
        )));
        assert!(
            pooled.text.contains("('tcp_user_timeout','61s')") && pooled.text.contains("('tcp_keepalives_idle','61')")
        );
    }

    #[test]
    fn a_wait_has_its_own_limit_and_no_other() {
        let begin = begin_wait(Duration::from_millis(1500));
        assert_eq!(begin, "SET lock_timeout='1500ms';SET statement_timeout=0");
        // 0 would be no limit.
        assert!(begin_wait(Duration::ZERO).contains("lock_timeout='1ms'"));
        let config = PostgresConfig::new("db", 5432).with_response_timeout(Duration::from_secs(7));
        assert_eq!(
            end_wait(&config),
            "SET lock_timeout='500ms';SET statement_timeout='7000ms'"
        );
    }

    #[test]
    fn a_session_is_found_by_more_than_its_number() {
        let identity = Identity {
            process: 7,
            started: Some(5),
            client: None,
        };
        assert_eq!(
            identity.find(),
            "SELECT true FROM pg_stat_activity WHERE pid=7 AND \
             COALESCE((extract(epoch from backend_start)*1000000)::bigint,5)=5"
        );
        assert!(
            identity
                .terminate(Duration::from_secs(2))
                .starts_with("SELECT pg_terminate_backend(pid,2000) ")
        );
        assert!(identity.cancel().starts_with("SELECT pg_cancel_backend(pid) "));
        let pooled = Identity {
            client: client_of("0123456789abcdef0123456789abcdef"),
            ..identity
        };
        assert!(
            pooled
                .find()
                .ends_with("=5 AND application_name='polylock 0123456789abcdef'")
        );
    }

    #[test]
    fn a_session_is_the_clients_own_if_the_server_knows_its_mark() {
        let answer = |values: [&str; 6]| -> TextRows {
            let value = |value: &str| (!value.is_empty()).then(|| value.to_owned());
            vec![Vec::new(), values.map(value).to_vec()]
        };
        let mark = "0123456789abcdef0123456789abcdef";
        let config = PostgresConfig::new("db", 5432);
        let read = |values| told(&answer(values), mark, &config);
        let session = read(["session", mark, "150018", "7", "5", "6400"]).unwrap();
        let identity = Identity {
            process: 7,
            started: Some(5),
            client: None,
        };
        assert_eq!(
            session,
            Told {
                identity,
                lock_entries: 6400
            }
        );
        let hidden = read(["session", mark, "140000", "7", "", ""]).unwrap();
        assert_eq!((hidden.identity.started, hidden.lock_entries), (None, 0));
        for (values, said) in [
            (["session", "other", "150018", "7", "5", "1"], "a pooler is between"),
            (["other", mark, "150018", "7", "5", "1"], "a pooler is between"),
            (
                ["session", mark, "130021", "7", "5", "1"],
                "is version 13: strategy=session needs 14",
            ),
            (["session", mark, "", "7", "5", "1"], "something unexpected"),
            (["session", mark, "150018", "x", "5", "1"], "something unexpected"),
        ] {
            let error = read(values).unwrap_err();
            assert!(error.to_string().contains(said), "{error}");
        }
        let pooled = PostgresConfig::new("db", 5432).with_pooler(Pooler::Session);
        let lent = told(&answer(["session", mark, "150018", "7", "5", "1"]), mark, &pooled).unwrap();
        assert_eq!(lent.identity.client, Some(0x0123_4567_89ab_cdef));
    }
}
