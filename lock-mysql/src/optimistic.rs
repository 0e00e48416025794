//! Changing a row without a lock: a compare-and-set on a column that counts versions.

use std::num::NonZeroU32;
use std::time::Duration;

use lock_core::Result;
use lock_kit::backoff::pauses;
use lock_kit::tables::{check_identifier, is_identifier};
use sqlx::error::BoxDynError;
use sqlx::mysql::{MySqlArguments, MySqlConnection, MySqlPool, MySqlRow};
use sqlx::{Arguments, AssertSqlSafe, Column, Connection, Encode, MySql, Row, Type, TypeInfo, query, query_with};

pub use self::error::UpdateError;
use self::error::{is_conflict, known_columns_help};
use self::version::check_version;

/// Changes one row at a time so that no update is lost, without a lock: if somebody else has changed the row since it was read,
/// it is read and computed anew.
///
/// The table has a column that counts versions. Every change must add 1 to it, also those by other programs:
/// `UPDATE … SET …, version = version + 1 WHERE id = ? AND version = ?`.
///
/// ```no_run
/// # async fn example(pool: lock_mysql::sqlx::MySqlPool) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
/// use lock_mysql::OptimisticLock;
/// use lock_mysql::sqlx::{self, Row};
///
/// // CREATE TABLE stock (id BIGINT PRIMARY KEY, amount BIGINT NOT NULL, version BIGINT NOT NULL DEFAULT 0)
/// let stock = OptimisticLock::new("stock")?;
/// let left = stock
///     .update(&pool, 42, |row, new| {
///         let left = row.try_get::<i64, _>("amount")? - 1;
///         new.set("amount", left);
///         Ok::<_, sqlx::Error>(left)
///     })
///     .await?;
/// println!("{left} are left");
/// # Ok(()) }
/// ```
///
/// # When to use it instead of a lock
/// Use it if the protected data is one row, the new values are quick to compute, and few change the same row at once. It has
/// no lease: a process that is paused or dies does no harm, and keeps nobody waiting.
///
/// Use a lock if the work takes long, if it has effects outside of the row (a payment, a mail, another table), or if many
/// want the same row at once. Here only one of them succeeds at a time, the others repeat their work, and in no order.
///
/// # The version
/// Use a `BIGINT`. A smaller integer may reach its largest value: from then on every update is refused, as a server without
/// strict mode would keep that value, and then no change would be noticed.
#[derive(Clone, Debug)]
pub struct OptimisticLock {
    table: String,
    key: String,
    version: String,
    /// The columns that are read besides the version. `None`: all.
    read: Option<Vec<String>>,
    attempts: NonZeroU32,
}

/// The new values of a row.
#[derive(Debug, Default)]
pub struct NewValues {
    columns: Vec<&'static str>,
    values: MySqlArguments,
    error: Option<BoxDynError>,
}

impl OptimisticLock {
    /// The default for the number of tries of an update.
    pub const DEFAULT_ATTEMPTS: NonZeroU32 = NonZeroU32::new(10).expect("it is not 0");

    /// For rows of this table, with the key `id` and the column `version`.
    ///
    /// # Errors
    /// [`ErrorKind::Misconfigured`](lock_core::ErrorKind::Misconfigured) unless the name has 1 to 64 letters, digits, `_` or `$`.
    pub fn new(table: impl Into<String>) -> Result<Self> {
        Ok(Self {
            table: identifier(table.into())?,
            key: "id".to_owned(),
            version: "version".to_owned(),
            read: None,
            attempts: Self::DEFAULT_ATTEMPTS,
        })
    }

    /// Sets the columns of the key, which must be unique, and of the version, an integer that is not `NULL`. Default to `id`
    /// and `version`.
    ///
    /// # Errors
    /// [`ErrorKind::Misconfigured`](lock_core::ErrorKind::Misconfigured) unless both have 1 to 64 letters, digits, `_` or `$`.
    pub fn with_columns(mut self, key: impl Into<String>, version: impl Into<String>) -> Result<Self> {
        self.key = identifier(key.into())?;
        self.version = identifier(version.into())?;
        Ok(self)
    }

    /// Sets the columns that are read for the computation, besides the version. Defaults to all columns of the table.
    ///
    /// A table with a column of a type that the driver does not know, such as MySQL 9's `VECTOR`, needs this: if such a column
    /// is read, each update fails.
    ///
    /// # Errors
    /// [`ErrorKind::Misconfigured`](lock_core::ErrorKind::Misconfigured) unless all have 1 to 64 letters, digits, `_` or `$`.
    ///
    /// # Examples
    /// ```
    /// # fn main() -> Result<(), lock_core::Error> {
    /// let stock = lock_mysql::OptimisticLock::new("stock")?.with_read_columns(["amount"])?;
    /// # Ok(()) }
    /// ```
    pub fn with_read_columns<C: Into<String>>(mut self, columns: impl IntoIterator<Item = C>) -> Result<Self> {
        let columns = columns.into_iter().map(|column| identifier(column.into()));
        self.read = Some(columns.collect::<Result<_>>()?);
        Ok(self)
    }

    /// Sets how often an update is tried. Defaults to [`DEFAULT_ATTEMPTS`](Self::DEFAULT_ATTEMPTS), which takes up to about a
    /// second.
    #[must_use]
    pub fn with_attempts(mut self, attempts: NonZeroU32) -> Self {
        self.attempts = attempts;
        self
    }

    /// Reads the row of this key, computes its new values and writes them, unless the row was changed meanwhile: then it
    /// starts over, after a pause of 1 ms at first, which doubles up to 100 ms, with jitter. Returns what `compute` returned.
    ///
    /// `compute` runs once for each attempt, so it must have no effects of its own. If it sets no value, nothing is written.
    ///
    /// Each attempt is a transaction of its own, on a connection of the pool. Within a single transaction it would read the same
    /// snapshot again and again. The transaction is `REPEATABLE READ` whatever the connection's isolation level is: it reads
    /// nothing that others may still roll back.
    ///
    /// # Errors
    /// See [`UpdateError`].
    ///
    /// # Cancel safety
    /// If dropped, the row may be updated or not.
    pub async fn update<K, T, E>(
        &self,
        pool: &MySqlPool,
        key: K,
        mut compute: impl FnMut(&MySqlRow, &mut NewValues) -> Result<T, E>,
    ) -> Result<T, UpdateError<E>>
    where
        K: for<'q> Encode<'q, MySql> + Type<MySql> + Clone + Send,
    {
        let mut pauses = pauses(FIRST_PAUSE, LONGEST_PAUSE);
        for attempt in 1..=self.attempts.get() {
            let mut connection = pool.acquire().await.map_err(|error| self.sql_error(error))?;
            let begun = connection.begin_with(BEGIN).await;
            let mut tx = begun.map_err(|error| self.sql_error(error))?;
            let row = match self.read(&mut tx, key.clone()).await {
                // The driver has not read the answer to its end, so nobody can use the connection.
                Err(error) if error.is_protocol() => {
                    drop(tx);
                    drop(connection.detach());
                    return Err(error);
                }
                row => row?,
            };
            let mut new = NewValues::default();
            let result = compute(&row, &mut new).map_err(UpdateError::Compute)?;
            if new.columns.is_empty() {
                return Ok(result);
            }
            let written = self.write(&mut tx, &row, key.clone(), new).await;
            let ended = match written.map_err(|error| self.sql_error(error))? {
                true => match tx.commit().await {
                    Ok(()) => return Ok(result),
                    // The nodes of a cluster find conflicts only here.
                    Err(error) if is_conflict(&error) => Ok(()),
                    Err(error) => Err(error),
                },
                false => tx.rollback().await,
            };
            ended.map_err(|error| self.sql_error(error))?;
            if attempt < self.attempts.get() {
                tokio::time::sleep(pauses.next().unwrap_or(LONGEST_PAUSE)).await;
            }
        }
        Err(UpdateError::Conflict {
            table: self.table.clone(),
            attempts: self.attempts.get(),
        })
    }

    async fn read<K, E>(&self, connection: &mut MySqlConnection, key: K) -> Result<MySqlRow, UpdateError<E>>
    where
        K: for<'q> Encode<'q, MySql> + Type<MySql> + Send,
    {
        let row = query(AssertSqlSafe(self.select()))
            .bind(key)
            .fetch_optional(connection)
            .await;
        row.map_err(|error| self.sql_error(known_columns_help(error)))?
            .ok_or_else(|| UpdateError::NoRow {
                table: self.table.clone(),
            })
    }

    /// Writes the row. Returns whether it was unchanged since it was read.
    async fn write<K>(
        &self,
        connection: &mut MySqlConnection,
        row: &MySqlRow,
        key: K,
        new: NewValues,
    ) -> sqlx::Result<bool>
    where
        K: for<'q> Encode<'q, MySql> + Type<MySql>,
    {
        let sql = self.compare_and_set(&new)?;
        let mut values = new.into_values()?;
        values.add(key).map_err(sqlx::Error::Encode)?;
        let version = self.version.as_str();
        // The driver tells signed columns from unsigned ones.
        let (counted, is_unsigned) = match row.try_get::<u64, _>(version) {
            Ok(counted) => (i128::from(counted), true),
            Err(_) => (i128::from(row.try_get::<i64, _>(version)?), false),
        };
        let type_name = row.try_column(version)?.type_info().name();
        check_version(version, counted, type_name, is_unsigned)?;
        match u64::try_from(counted) {
            Ok(counted) => values.add(counted),
            // It is negative.
            Err(_) => values.add(row.try_get::<i64, _>(version)?),
        }
        .map_err(sqlx::Error::Encode)?;
        match query_with(AssertSqlSafe(sql), values).execute(connection).await {
            // The driver counts matched rows, and the version always changes.
            Ok(done) => Ok(done.rows_affected() > 0),
            Err(error) if is_conflict(&error) => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn select(&self) -> String {
        let columns = match &self.read {
            None => "*".to_owned(),
            Some(read) => {
                let columns = read.iter().chain([&self.version]);
                columns
                    .map(|column| format!("`{column}`"))
                    .collect::<Vec<_>>()
                    .join(",")
            }
        };
        format!("SELECT {columns} FROM `{}` WHERE `{}`=?", self.table, self.key)
    }

    fn compare_and_set(&self, new: &NewValues) -> sqlx::Result<String> {
        let Self {
            table, key, version, ..
        } = self;
        let mut sql = format!("UPDATE `{table}` SET ");
        for column in &new.columns {
            let allowed = is_identifier(column, LONGEST_IDENTIFIER) && !column.eq_ignore_ascii_case(version);
            if !allowed {
                let message = format!(
                    "column {column:?} cannot be set: it must be another one than `{version}`, of 1 to 64 letters, digits, _ or $"
                );
                return Err(sqlx::Error::InvalidArgument(message));
            }
            sql += &format!("`{column}`=?,");
        }
        Ok(sql + &format!("`{version}`=`{version}`+1 WHERE `{key}`=? AND `{version}`=?"))
    }

    fn sql_error<E>(&self, source: sqlx::Error) -> UpdateError<E> {
        UpdateError::Sql {
            table: self.table.clone(),
            source,
        }
    }
}

impl NewValues {
    /// Sets a column of the row.
    pub fn set<'q, T>(&mut self, column: &'static str, value: T)
    where
        T: Encode<'q, MySql> + Type<MySql>,
    {
        self.columns.push(column);
        if let Err(error) = self.values.add(value) {
            self.error.get_or_insert(error);
        }
    }

    fn into_values(self) -> sqlx::Result<MySqlArguments> {
        match self.error {
            Some(error) => Err(sqlx::Error::Encode(error)),
            None => Ok(self.values),
        }
    }
}

/// Begins a transaction in which the row read is committed, whatever the connection's settings. With `completion_type=CHAIN`
/// one is open already, and its level cannot be set. `READ COMMITTED` would be refused with `binlog_format=STATEMENT`.
const BEGIN: &str = "COMMIT AND NO CHAIN NO RELEASE;SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ WRITE;BEGIN";

const FIRST_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(100);
/// The limit of MySQL.
const LONGEST_IDENTIFIER: usize = 64;

fn identifier(name: String) -> Result<String> {
    check_identifier(&name, LONGEST_IDENTIFIER)?;
    Ok(name)
}

mod error;
#[cfg(test)]
mod tests;
mod version;
