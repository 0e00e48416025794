//! The errors of an update, and what the driver's errors mean for it.

use sqlx::mysql::MySqlDatabaseError;

/// Why an update was not made.
///
/// `E` is the error of the computation.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UpdateError<E> {
    /// Others changed the row in each of so many attempts, after it was read. Nothing was written.
    #[error(
        "the row of `{table}` was changed by others in each of {attempts} attempts: repeat later, allow more attempts, or \
         use a lock"
    )]
    Conflict {
        /// The table.
        table: String,
        /// The number of tries.
        attempts: u32,
    },
    /// There is no row of this key. Nothing was written.
    #[error("the table `{table}` has no row of this key")]
    NoRow {
        /// The table.
        table: String,
    },
    /// The computation failed. Nothing was written.
    #[error("{0}")]
    Compute(E),
    /// A statement failed. If the connection broke during the write, the outcome is unknown.
    #[error("the row of `{table}` cannot be updated")]
    Sql {
        /// The table.
        table: String,
        /// The error.
        source: sqlx::Error,
    },
}

impl<E> UpdateError<E> {
    pub(super) fn is_protocol(&self) -> bool {
        matches!(
            self,
            Self::Sql {
                source: sqlx::Error::Protocol(_),
                ..
            }
        )
    }
}

/// Adds to the driver's error for a type that it does not know what to do.
pub(super) fn known_columns_help(error: sqlx::Error) -> sqlx::Error {
    match error {
        sqlx::Error::Protocol(message) if message.contains("unknown column type") => sqlx::Error::Protocol(format!(
            "{message}: name the columns that the computation needs, by OptimisticLock::with_read_columns"
        )),
        error => error,
    }
}

/// True if nothing was executed because of other transactions.
pub(super) fn is_conflict(error: &sqlx::Error) -> bool {
    let sqlx::Error::Database(error) = error else {
        return false;
    };
    let error = error.try_downcast_ref::<MySqlDatabaseError>();
    error.is_some_and(|error| is_conflict_number(error.number()))
}

/// A wait for the row that took too long, a deadlock (which is also how Galera reports a conflict with another node, at the
/// commit), MariaDB's `innodb_snapshot_isolation`, and group replication's conflict with another node.
pub(super) fn is_conflict_number(number: u16) -> bool {
    matches!(number, 1205 | 1213 | 1020 | 3101)
}
