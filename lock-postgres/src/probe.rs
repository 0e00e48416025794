//! The checks of the server: what it is and how it writes, asked with each connection.

use std::time::Duration;

use lock_core::{Error, ErrorKind, Result};

use crate::config::{Checks, PostgresConfig, Strategy};
use crate::connection::{TextRows, told};
use crate::error::SqlError;

pub(crate) use self::guarantees::{leases_keep, sessions_keep};

#[cfg(test)]
mod fuzz;
mod guarantees;

/// The oldest server that has all that the statements use.
const OLDEST: u32 = 120_000;

/// Sets what locks need, in the session. Of the settings with a value here, a server sets those that it has. Not
/// `default_transaction_read_only`: by that an administrator keeps clients from writing to a server that another one replaces.
///
/// A prepared statement keeps its plan. One that is planned while the queue is empty would read the whole table for each waiter later on,
/// so plans take the indexes.
const SETTINGS: &str = "SET default_transaction_isolation='read committed';SET default_transaction_deferrable=off;SET lock_timeout='1s';\
     SET idle_in_transaction_session_timeout='10s';SET timezone='UTC';SET intervalstyle='postgres';SET bytea_output='hex';\
     SET client_min_messages=warning;SET jit=off;SET plan_cache_mode=force_generic_plan;SET enable_seqscan=off;\
     SET extra_float_digits=1;\
     SELECT set_config(s.name,v.value,false) FROM (VALUES ('idle_session_timeout','0'),('transaction_timeout','0'),\
     ('tcp_keepalives_idle','10'),('tcp_keepalives_interval','5'),('tcp_keepalives_count','3'),\
     ('tcp_user_timeout','20s')) v(name,value) JOIN pg_settings s ON s.name=v.name;\
     SELECT set_config('synchronous_commit','on',false) \
     WHERE current_setting('synchronous_commit') NOT IN ('on','remote_apply')";

/// The shortest time that the server has for a statement: a renewal is waited for longer than a short response timeout.
const LEAST_STATEMENT_TIMEOUT: Duration = Duration::from_secs(5);

/// Sets what locks need, in the session.
pub(crate) fn settings(config: &PostgresConfig) -> String {
    // First: the limit that the user's role has may be too short for the rest.
    format!("{};{SETTINGS}", limit_statements(config))
}

/// Has the server end a statement of the session that takes longer than its answer is waited for.
pub(crate) fn limit_statements(config: &PostgresConfig) -> String {
    let limit = config.response_timeout.max(LEAST_STATEMENT_TIMEOUT);
    format!("SET statement_timeout='{}ms'", limit.as_millis())
}

/// Asks what the server is, and which tables of this configuration a crash empties, in a row that begins with [`MARK`].
pub(crate) fn question(config: &PostgresConfig) -> String {
    // That of waiters may be emptied.
    let endings = match config.strategy() {
        Strategy::Lease => &["leases", "holders"][..],
        Strategy::Session => &["tokens"],
    };
    let tables: Vec<_> = endings
        .iter()
        .map(|ending| format!("'{}_{ending}'", config.table))
        .collect();
    let is_ours = match &config.schema {
        Some(schema) => format!("s.nspname='{schema}'"),
        None => "pg_table_is_visible(c.oid)".to_owned(),
    };
    format!(
        "{PROBE},(SELECT string_agg(c.relname::text,' and ' ORDER BY c.relname) FROM pg_class c JOIN pg_namespace s \
         ON s.oid=c.relnamespace WHERE c.relname IN ({}) AND c.relpersistence<>'p' AND {is_ours})",
        tables.join(",")
    )
}

const PROBE: &str = "SELECT 'polylock',pg_is_in_recovery(),current_setting('server_version_num'),\
     current_setting('default_transaction_isolation'),current_setting('synchronous_commit'),\
     current_setting('synchronous_standby_names'),current_setting('fsync'),current_setting('full_page_writes'),\
     current_setting('transaction_read_only'),current_setting('lock_timeout')";

/// Asks what tells this server, and its standbys, from all others.
pub(crate) const SYSTEM: &str = "SELECT system_identifier FROM pg_control_system()";

/// The answer to [`SYSTEM`]; `None` where the server does not show it, as some services.
pub(crate) fn server_id(answer: Result<TextRows, SqlError>) -> Result<Option<String>> {
    match answer {
        Err(error) if error.is_refusal() => Ok(None),
        rows => {
            let system = rows.map_err(SqlError::into_lock_error)?.into_iter().flatten().next();
            Ok(system.flatten().map(|system| format!("postgres {system}")))
        }
    }
}

/// What tells the row of the probe from others.
const MARK: &str = "polylock";

/// What the server is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Probe {
    is_standby: bool,
    version: u32,
    isolation: String,
    synchronous_commit: String,
    synchronous_standbys: String,
    fsync: String,
    full_page_writes: String,
    is_read_only: bool,
    lock_timeout: String,
    /// The tables that a crash empties.
    unlogged: String,
}

impl Probe {
    pub(crate) fn read(rows: &TextRows) -> Result<Self, SqlError> {
        let row = told(rows, MARK).ok_or(SqlError::UnexpectedAnswer("probe"))?;
        let value = |column: usize| row.get(column).cloned().flatten().unwrap_or_default();
        Ok(Self {
            is_standby: value(0) == "t",
            version: value(1).parse().map_err(|_| SqlError::UnexpectedAnswer("version"))?,
            isolation: value(2),
            synchronous_commit: value(3),
            synchronous_standbys: value(4),
            fsync: value(5),
            full_page_writes: value(6),
            is_read_only: value(7) == "on",
            lock_timeout: value(8),
            unlogged: value(9),
        })
    }

    /// Refuses a server that cannot serve locks.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`] for a standby, which may be promoted, and for one that takes no writes; [`ErrorKind::Misconfigured`] for an
    /// old one.
    pub(crate) fn check(&self, config: &PostgresConfig, address: &str) -> Result<()> {
        if self.version < OLDEST {
            let message = format!(
                "the PostgreSQL server at {address} is version {}: locks need 12 or later",
                self.version / 10_000
            );
            return Err(Error::new(ErrorKind::Misconfigured, message));
        }
        if self.is_standby {
            let message = format!(
                "the PostgreSQL server at {address} is a standby, which takes no writes: connect to the primary, or name both \
                 in the URL"
            );
            return Err(Error::new(ErrorKind::Unavailable, message));
        }
        if self.is_read_only {
            let message = format!(
                "the PostgreSQL server at {address} takes no writes: connect to the primary, and see \
                 default_transaction_read_only"
            );
            return Err(Error::new(ErrorKind::Unavailable, message));
        }
        if config.pooler == crate::Pooler::Transaction && self.isolation != "read committed" {
            let message = format!(
                "locks need the isolation level read committed, and the PostgreSQL server at {address} has {}: run ALTER ROLE \
                 ... SET default_transaction_isolation='read committed' for polylock's user, and then have the pooler connect anew \
                 (PgBouncer: RECONNECT)",
                self.isolation
            );
            return Err(Error::new(ErrorKind::Misconfigured, message));
        }
        // One row that stays locked would occupy a connection of the pool for each request for it, without end.
        if config.pooler == crate::Pooler::Transaction && self.lock_timeout == "0" {
            let message = format!(
                "locks behind a pooler of transactions need a lock_timeout, and the PostgreSQL server at {address} has none: run ALTER \
                 ROLE ... SET lock_timeout='1s' for polylock's user, and then have the pooler connect anew (PgBouncer: RECONNECT)"
            );
            return Err(Error::new(ErrorKind::Misconfigured, message));
        }
        Ok(())
    }

    /// Warns of settings that can lose locks, or refuses them. `last`: what was judged before, of whose findings it does not warn again.
    ///
    /// # Errors
    /// [`ErrorKind::Misconfigured`] for settings that are [refused](Checks::Refuse).
    pub(crate) fn judge(&self, checks: Checks, address: &str, last: Option<&Self>) -> Result<()> {
        match self.is_news(checks, last) {
            true => checks.apply("PostgreSQL server", address, &self.findings()),
            false => Ok(()),
        }
    }

    /// Whether the findings have consequences once more.
    fn is_news(&self, checks: Checks, last: Option<&Self>) -> bool {
        checks == Checks::Refuse || last.is_none_or(|last| last.findings() != self.findings())
    }

    /// The settings and tables by which a crash loses leases, and what to do.
    pub(crate) fn findings(&self) -> Vec<String> {
        let mut findings = Vec::new();
        for (name, value) in [("fsync", &self.fsync), ("full_page_writes", &self.full_page_writes)] {
            if value != "on" {
                findings.push(format!(
                    "with {name}={value} a crash may lose the last grants: set it to on"
                ));
            }
        }
        let commit = self.synchronous_commit.as_str();
        if !["on", "remote_apply", "remote_write", "local"].contains(&commit) {
            findings.push(format!(
                "with synchronous_commit={commit} a crash may lose the last grants: set it to on for polylock's user"
            ));
        }
        findings.extend(self.unlogged_tables());
        findings
    }

    /// What is wrong with tables that are empty after a crash, and on a standby that was promoted.
    pub(crate) fn unlogged_tables(&self) -> Option<String> {
        let tables = &self.unlogged;
        let finding =
            format!("a crash or a promotion empties what is UNLOGGED: run ALTER TABLE ... SET LOGGED for {tables}");
        (!tables.is_empty()).then_some(finding)
    }

    /// Whether a commit waits for a standby that can take over.
    pub(crate) fn waits_for_standby(&self) -> bool {
        !self.synchronous_standbys.is_empty() && ["on", "remote_apply"].contains(&self.synchronous_commit.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn probe(changes: &[(usize, &str)]) -> Probe {
        let mut row = [
            "polylock",
            "f",
            "150018",
            "read committed",
            "on",
            "",
            "on",
            "on",
            "off",
            "1s",
            "",
        ]
        .map(str::to_owned);
        for (column, value) in changes {
            row[*column] = (*value).to_owned();
        }
        Probe::read(&vec![vec![Some("0".to_owned())], row.map(Some).to_vec()]).unwrap()
    }

    fn config() -> PostgresConfig {
        PostgresConfig::new("db", 5432).with_database("shop")
    }

    #[test]
    fn a_statement_has_as_long_as_its_answer_is_waited_for() {
        let limited = |timeout| limit_statements(&config().with_response_timeout(timeout));
        assert_eq!(limited(Duration::from_millis(500)), "SET statement_timeout='5000ms'");
        assert_eq!(limited(Duration::from_millis(5001)), "SET statement_timeout='5001ms'");
        // The longest one that a configuration takes.
        assert_eq!(limited(Duration::from_secs(3600)), "SET statement_timeout='3600000ms'");
        assert!(settings(&config()).starts_with("SET statement_timeout='5000ms';"));
    }

    #[test]
    fn what_cannot_keep_locks_is_refused() {
        probe(&[]).check(&config(), "db").unwrap();
        probe(&[(2, "120000")]).check(&config(), "db").unwrap();
        for (changes, kind, said) in [
            (&[(1, "t"), (8, "on")][..], ErrorKind::Unavailable, "is a standby"),
            (&[(8, "on")], ErrorKind::Unavailable, "takes no writes"),
            (
                &[(2, "110022")],
                ErrorKind::Misconfigured,
                "is version 11: locks need 12",
            ),
        ] {
            let error = probe(changes).check(&config(), "db").unwrap_err();
            assert_eq!(error.kind(), kind);
            assert!(error.to_string().contains(said), "{error}");
        }
        let pooled = config().with_pooler(crate::Pooler::Transaction);
        for (column, value, said) in [
            (3, "repeatable read", "SET default_transaction_isolation"),
            (9, "0", "SET lock_timeout"),
        ] {
            let error = probe(&[(column, value)]).check(&pooled, "db").unwrap_err();
            assert!(error.to_string().contains("ALTER ROLE"), "{error}");
            assert!(error.to_string().contains(said), "{error}");
            // Without a pooler each connection sets its own.
            probe(&[(column, value)]).check(&config(), "db").unwrap();
        }
        probe(&[]).check(&pooled, "db").unwrap();
        assert!(Probe::read(&Vec::new()).is_err());
    }

    #[test]
    fn settings_by_which_a_crash_loses_leases_are_found() {
        for (setting, value) in [(6, "off"), (7, "off"), (4, "off"), (10, "t_leases")] {
            let probe = probe(&[(setting, value)]);
            assert_eq!(probe.findings().len(), 1);
            probe.check(&config(), "db").unwrap();
            for checks in [Checks::Warn, Checks::Off] {
                probe.judge(checks, "db", None).unwrap();
            }
            for last in [None, Some(&probe)] {
                let error = probe.judge(Checks::Refuse, "db", last).unwrap_err();
                assert!(error.to_string().contains("can lose locks"), "{error}");
            }
        }
    }

    /// A schema that the user may not use is an error of the first request, and none of the connection.
    #[test]
    fn tables_are_found_in_the_configured_schema_or_by_the_path() {
        let asked = question(&config().with_table("t"));
        assert!(asked.contains("c.relname IN ('t_leases','t_holders')"), "{asked}");
        assert!(asked.contains("pg_table_is_visible(c.oid)"), "{asked}");
        let asked = question(&config().with_schema("s").with_strategy(Strategy::Session));
        assert!(
            asked.contains("('polylock_tokens')") && asked.contains("s.nspname='s'"),
            "{asked}"
        );
    }

    #[test]
    fn a_finding_is_no_news_twice() {
        let (right, wrong) = (probe(&[]), probe(&[(6, "off")]));
        assert!(wrong.is_news(Checks::Warn, None) && wrong.is_news(Checks::Warn, Some(&right)));
        let elsewhere = probe(&[(6, "off"), (5, "a")]);
        assert!(!elsewhere.is_news(Checks::Warn, Some(&wrong)));
        assert!(elsewhere.is_news(Checks::Refuse, Some(&wrong)));
        assert!(probe(&[(6, "off"), (7, "off")]).is_news(Checks::Warn, Some(&wrong)));
    }

    #[test]
    fn commits_wait_for_a_standby_if_both_settings_say_so() {
        assert!(!probe(&[]).waits_for_standby());
        assert!(probe(&[(5, "a")]).waits_for_standby());
        assert!(probe(&[(5, "a"), (4, "remote_apply")]).waits_for_standby());
        assert!(!probe(&[(5, "a"), (4, "local")]).waits_for_standby());
    }

    #[tokio::test]
    async fn a_server_is_known_by_its_number_if_it_shows_that() {
        let known = server_id(Ok(vec![vec![Some("7".to_owned())]])).unwrap();
        assert_eq!(known.as_deref(), Some("postgres 7"));
        assert_eq!(server_id(Ok(Vec::new())).unwrap(), None);
        let said = async |severity| SqlError::from(crate::error::tests::said(severity, "42501").await);
        assert_eq!(server_id(Err(said("ERROR").await)).unwrap(), None);
        assert!(server_id(Err(said("FATAL").await)).is_err());
    }
}
