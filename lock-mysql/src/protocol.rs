//! The parts of statements, and the server's answers.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use lock_core::LockName;
use lock_core::backend::{HolderId, SentAt};
use sqlx::mysql::MySqlRow;
use sqlx::{Decode, MySql, Row, Type};
use tokio::time::Instant;

pub(crate) use self::dead_rows::DeadRows;
pub(crate) use self::list::{page as list_page, statement as list_statement};
use crate::error::SqlError;

mod dead_rows;
pub(crate) mod lease_table;
mod list;
pub(crate) mod row_lock;

/// Identifies a connection at the server: the name of a named lock that only this connection has, and keeps to its end.
/// Its number does not identify it, as a restarted server counts anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Identity(HolderId);

impl Identity {
    pub(crate) fn random() -> Self {
        Self(HolderId::random())
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "'polylock:{}'", self.0)
    }
}

/// Ends the connection of this identity. If there is none, the error is [`NO_SUCH_CONNECTION`].
pub(crate) fn kill(identity: Identity) -> String {
    format!("KILL CONNECTION IS_USED_LOCK({identity})")
}

/// The number of the error of a KILL that finds no connection.
pub(crate) const NO_SUCH_CONNECTION: u16 = 1094;

/// Asks whether the server is read-only. A primary becomes so before another server takes its place. Needs no permission.
pub(crate) const READ_ONLY: &str = "CAST(@@GLOBAL.read_only AS BINARY)";

/// Reads the answer to [`READ_ONLY`] from this column. Later versions of MariaDB have several words for yes.
pub(crate) fn is_read_only(row: &MySqlRow, index: usize) -> Result<bool, SqlError> {
    let value: Vec<u8> = column(row, index, "read_only")?;
    Ok(!(value == b"0" || value.eq_ignore_ascii_case(b"OFF")))
}

/// Asks which of these connections the server has, and whether it is read-only. [`are_fine`] reads the answer.
pub(crate) fn used(identities: &[Identity]) -> String {
    // No server minds so many arguments.
    const AT_A_TIME: usize = 1000;
    let statements = identities.chunks(AT_A_TIME).map(|identities| {
        let used = identities.iter().map(|id| format!("IS_USED_LOCK({id}) IS NOT NULL"));
        let used = used.collect::<Vec<_>>().join(",");
        format!("SELECT CAST(CONCAT({used}) AS BINARY),{READ_ONLY}")
    });
    statements.collect::<Vec<_>>().join(";")
}

/// For each of the connections that [`used`] asks for, whether the server has it and takes writes.
pub(crate) fn are_fine(answer: &Answer) -> Result<Vec<bool>, SqlError> {
    let mut fine = Vec::new();
    for result in &answer.results {
        let row = result.rows.first().ok_or(SqlError::UnexpectedAnswer("named locks"))?;
        let digits: Vec<u8> = column(row, 0, "named locks")?;
        let is_read_only = is_read_only(row, 1)?;
        fine.extend(digits.iter().map(|digit| *digit == b'1' && !is_read_only));
    }
    Ok(fine)
}

/// The autocommit setting. If it is on, every statement is a transaction of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Autocommit {
    On,
    Off,
}

/// The server's answer to some statements.
pub(crate) struct Answer {
    /// Just before they were sent.
    pub(crate) sent: SentAt,
    /// The same for arithmetic.
    pub(crate) sent_instant: Instant,
    /// The result of each statement.
    pub(crate) results: Vec<StatementResult>,
}

/// A small job for a connection that many share.
#[derive(Clone, Debug)]
pub(crate) enum Job {
    /// One statement.
    Statement(String),
    /// Statements that take effect together or not at all. The last one gives the answer.
    Transaction(Vec<String>),
    /// A renewal, which may go out together with others.
    Renew(Arc<dyn RenewalStatements>, HoldRenewal),
}

/// A hold to renew by a statement.
#[derive(Clone, Debug)]
pub(crate) struct HoldRenewal {
    pub(crate) name: LockName,
    pub(crate) holder: HolderId,
    pub(crate) ttl: Duration,
    /// True if it shares the name.
    pub(crate) is_shared: bool,
    /// True if it is sent by itself, because a stranger seems to have its row locked.
    pub(crate) is_alone: bool,
}

/// Makes the statements of renewals. None of them waits for a row that somebody else has locked.
pub(crate) trait RenewalStatements: fmt::Debug + Send + Sync {
    /// Renews holds of one TTL and one kind. It may leave out those whose row is locked.
    fn together(&self, ttl: Duration, holds: &[HoldRenewal]) -> Vec<String>;

    /// Renews one hold, in one transaction. It fails if its row is locked.
    fn alone(&self, hold: &HoldRenewal) -> Vec<String>;

    /// For each of these holds, whether the last of their statements says that it was renewed.
    ///
    /// # Errors
    /// If the result has another shape than such a statement gives.
    fn renewed(&self, holds: &[HoldRenewal], result: &StatementResult) -> Result<Vec<bool>, SqlError>;
}

/// The result of a [`Job`].
pub(crate) struct JobDone {
    /// Just before it was sent.
    pub(crate) sent: SentAt,
    /// The result of its last statement. A renewal matched a row if it renewed its hold.
    pub(crate) result: StatementResult,
}

/// The result of one statement.
#[derive(Default)]
pub(crate) struct StatementResult {
    /// The rows that it gave.
    pub(crate) rows: Vec<MySqlRow>,
    /// The number of rows that it matched, changed or not.
    pub(crate) matched: u64,
    /// Its `LAST_INSERT_ID`.
    pub(crate) last_insert_id: u64,
}

impl Answer {
    /// The first row that this statement gave, if any; they are counted from 0.
    pub(crate) fn row(&self, statement: usize) -> Option<&MySqlRow> {
        self.results.get(statement)?.rows.first()
    }
}

/// A column of a row; `what` names it for the error.
pub(crate) fn column<'r, T>(row: &'r MySqlRow, index: usize, what: &'static str) -> Result<T, SqlError>
where
    T: Decode<'r, MySql> + Type<MySql>,
{
    row.try_get(index).map_err(|_| SqlError::UnexpectedAnswer(what))
}

/// The time zone of each session: UTC.
pub(crate) const TIME_ZONE: &str = "+00:00";

/// The server's clock in microseconds since 1970, at this very moment: `NOW()` stands still while a statement waits.
/// The session's time zone is UTC.
pub(crate) const SERVER_MICROS: &str = "CAST(TIMESTAMPDIFF(MICROSECOND,'1970-01-01',SYSDATE(6)) AS UNSIGNED)";

/// A duration in the whole seconds that MySQL's timeouts count in, never shorter than it is.
pub(crate) fn seconds_up(duration: Duration) -> u64 {
    let more = u64::from(duration.subsec_nanos() > 0);
    duration.as_secs().saturating_add(more).clamp(1, LONGEST_SECONDS)
}

/// The longest `wait_timeout` that both MySQL and MariaDB take: a year.
pub(crate) const LONGEST_SECONDS: u64 = 31_536_000;

#[cfg(test)]
mod fuzz;
#[cfg(test)]
mod rows;
#[cfg(test)]
mod tests {
    use super::rows::{Value, row};
    use super::*;

    fn answer(rows: Vec<Vec<MySqlRow>>) -> Answer {
        let result = |rows| StatementResult {
            rows,
            ..StatementResult::default()
        };
        Answer {
            sent: SentAt::now(),
            sent_instant: Instant::now(),
            results: rows.into_iter().map(result).collect(),
        }
    }

    /// Other versions of this crate look for the same.
    #[test]
    fn a_connection_is_ended_by_the_named_lock_that_it_has() {
        let id = HolderId::random();
        assert_eq!(
            kill(Identity(id)),
            format!("KILL CONNECTION IS_USED_LOCK('polylock:{id}')")
        );
        assert_ne!(Identity::random(), Identity::random());
    }

    #[test]
    fn a_server_is_read_only_unless_it_says_no() {
        let says = |value| is_read_only(&row(&[Value::Bytes(value)]), 0).unwrap();
        assert_eq!([&b"0"[..], b"OFF", b"off"].map(says), [false; 3]);
        assert_eq!([&b"1"[..], b"ON", b"NO_LOCK", b""].map(says), [true; 4]);
        assert!(is_read_only(&row(&[Value::Signed(0)]), 0).is_err(), "it is a text");
    }

    #[test]
    fn a_connection_is_fine_if_a_server_that_takes_writes_has_it() {
        let used = |connections, read_only| vec![row(&[Value::Bytes(connections), Value::Bytes(read_only)])];
        let fine = are_fine(&answer(vec![used(b"101", b"0"), used(b"01", b"OFF")]));
        assert_eq!(fine.unwrap(), [true, false, true, false, true]);
        let read_only = are_fine(&answer(vec![used(b"10", b"1")]));
        assert_eq!(read_only.unwrap(), [false, false]);
        assert!(are_fine(&answer(vec![Vec::new()])).is_err());
    }

    #[test]
    fn the_row_of_a_statement_is_its_first() {
        let number = |number| row(&[Value::Signed(number)]);
        let answer = answer(vec![Vec::new(), vec![number(7), number(8)]]);
        let first = answer.row(1).map(|row| column::<i64>(row, 0, "number").unwrap());
        assert_eq!(first, Some(7));
        assert!(answer.row(0).is_none() && answer.row(2).is_none());
    }

    #[test]
    fn one_text_asks_for_all_connections() {
        let identities = [(); 1001].map(|()| Identity::random());
        let [a, b] = [identities[0], identities[1]];
        assert_eq!(
            used(&identities[..2]),
            format!(
                "SELECT CAST(CONCAT(IS_USED_LOCK({a}) IS NOT NULL,IS_USED_LOCK({b}) IS NOT NULL) AS BINARY),\
                 CAST(@@GLOBAL.read_only AS BINARY)"
            )
        );
        assert_eq!(used(&identities).matches("SELECT").count(), 2);
    }

    #[test]
    fn seconds_are_rounded_up() {
        assert_eq!(seconds_up(Duration::ZERO), 1);
        assert_eq!(seconds_up(Duration::from_millis(1)), 1);
        assert_eq!(seconds_up(Duration::from_secs(2)), 2);
        assert_eq!(seconds_up(Duration::from_millis(2001)), 3);
        assert_eq!(seconds_up(Duration::MAX), LONGEST_SECONDS);
    }
}
