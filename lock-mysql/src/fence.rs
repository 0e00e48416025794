//! Fencing of resources that are stored in a MySQL or MariaDB.

use lock_core::{Error, ErrorKind, FencingToken, Result};
use lock_kit::fence::{Entered, Obstacle, check_resource, entry_error, fill_placeholders};
use lock_kit::tables::check_identifier;
use sqlx::mysql::MySqlTransaction;

use self::verdict::{Row, Step, Verdict};
use crate::connection::execute;
use crate::error::SqlError;
use crate::names::hex;
use crate::protocol::{StatementResult, column};

pub use self::verdict::ReadBeforeEnter;

mod verdict;

/// Protects resources in the database from holders whose lock has expired.
///
/// A lock is a lease: a holder that was paused, or whose write was in flight for long, may come back after the next holder was
/// granted the lock. For each resource the fence stores the newest token that has [entered](Self::enter), and rejects older
/// ones. Checking writes alone is not enough: of two holders that both have read the same value, the older one could still
/// write first, and its update would be lost. So a holder enters *before its first read*, in the same transaction.
///
/// Holders of shared locks, readers, [enter as such](Self::enter_shared). A newer reader rejects older writers, but no other
/// readers. A newer writer rejects everybody.
///
/// ```no_run
/// # async fn example(locks: lock_core::Locker, pool: lock_mysql::sqlx::MySqlPool)
/// # -> Result<(), Box<dyn std::error::Error>> {
/// use lock_mysql::{Fence, sqlx};
///
/// let fence = Fence::new();
/// let guard = locks.lock("stock/42").acquire().await?;
///
/// let mut tx = pool.begin().await?;
/// fence.enter(&mut tx, "stock/42", guard.token()).await?; // an error, kind `Lost`, if another holder has entered meanwhile
/// let left: i64 = sqlx::query_scalar("SELECT amount FROM stock WHERE id = 42").fetch_one(&mut *tx).await?;
/// sqlx::query("UPDATE stock SET amount = ? WHERE id = 42").bind(left - 1).execute(&mut *tx).await?;
/// tx.commit().await?;
///
/// guard.release().await?;
/// # Ok(()) }
/// ```
///
/// # Rules
/// - Enter at the beginning of *every* transaction that reads or writes the resource. The same token may enter again.
/// - All who change the resource must enter, with tokens of the same lock. The locks may live elsewhere, as in a Redis.
/// - If entering fails, roll back, and do not enter again on that transaction. What you have read under this token does not
///   count any more.
/// - A rollback also undoes the entry. So what was read in a transaction that was rolled back does not count either.
/// - Nobody else can enter until the transaction ends: keep it short.
/// - MySQL may report a deadlock if transactions enter several fences in different orders, or if several enter a new resource
///   at once and one of them rolls back. Run the transaction again.
/// - Enter before you set a savepoint: to roll back to an earlier one undoes the entry, too.
///
/// # Isolation levels
/// All four are right. With `REPEATABLE READ`, the default, a transaction reads from a snapshot that its first read takes. A
/// transaction that reads anything before it enters may then miss what the last holder wrote. The fence detects that, and
/// [`enter`](Self::enter) fails. For a second fence in the same transaction, to enter the first one counts as a read: enter
/// both at the beginning, and run the transaction again in the rare case that this error comes all the same.
///
/// # Table
/// One row for each resource, in the table `polylock_fences` of the connection's database or [another](Self::in_table).
/// [`schema`](crate::schema) makes it. It needs `SELECT`, `INSERT` and `UPDATE`. A row must not be deleted as long as an old
/// holder may come back.
///
/// Users of other drivers run the same statements: [`ENTER`](Self::ENTER), [`ENTER_SHARED`](Self::ENTER_SHARED) and
/// [`CHECK_SHARED`](Self::CHECK_SHARED). How to judge their results stands in
/// [the guide to fencing](https://github.com/polylock/polylock/blob/main/docs/fencing.md#mysql-and-mariadb).
#[derive(Clone, Debug)]
pub struct Fence {
    table: String,
}

impl Fence {
    /// The table of [`new`](Self::new): the one that [`migrate`](crate::schema::migrate) makes beside the locks'
    /// [default table](crate::MySqlConfig::DEFAULT_TABLE).
    pub const DEFAULT_TABLE: &'static str = "polylock_fences";
    /// The statements of [`enter`](Self::enter), with `:resource` and `:token`.
    pub const ENTER: &'static str = include_str!("fence/enter.sql");
    /// The statements of [`enter_shared`](Self::enter_shared), with `:resource` and `:token`.
    pub const ENTER_SHARED: &'static str = include_str!("fence/enter_shared.sql");
    /// The statements of [`check_shared`](Self::check_shared), with `:resource`.
    pub const CHECK_SHARED: &'static str = include_str!("fence/check_shared.sql");

    /// The fence in the table [`DEFAULT_TABLE`](Self::DEFAULT_TABLE). Does no I/O.
    pub fn new() -> Self {
        Self {
            table: Self::DEFAULT_TABLE.to_owned(),
        }
    }

    /// The fence in this table: that of [`schema::fences("shop")`](crate::schema::fences) is `shop_fences`. Does no I/O.
    ///
    /// # Errors
    /// [`ErrorKind::Misconfigured`](lock_core::ErrorKind::Misconfigured) unless it has 1 to 64 letters, digits, `_` or `$`.
    pub fn in_table(table: impl Into<String>) -> Result<Self> {
        let table = table.into();
        check_identifier(&table, LONGEST_TABLE)?;
        Ok(Self { table })
    }

    /// Enters: until the transaction ends nobody else can enter, and from its commit on older tokens are rejected, those of
    /// readers too. Call it before the first read of the transaction. It takes one round trip, and waits while another
    /// transaction has entered.
    ///
    /// `resource` is any 1 to 512 bytes, such as the lock's name. It takes a transaction, not a connection: outside of one,
    /// another holder could enter right after, and before your write.
    ///
    /// # Errors
    /// Roll back after any error, and never enter again on the same transaction. After a deadlock the server has ended it, and
    /// commits each later statement at once: an entry would return `Ok` and protect nothing.
    /// - [`Lost`](lock_core::ErrorKind::Lost) with the [cause](Error::cause) [`Stale`](lock_core::Stale) when a newer token has entered.
    /// - [`Misconfigured`](lock_core::ErrorKind::Misconfigured) with the cause [`ReadBeforeEnter`], retryable, when this
    ///   transaction has read before, and its snapshot lacks what another holder wrote since. Without that cause if the table is
    ///   missing, or if the transaction is `READ ONLY`.
    /// - [`Unavailable`](lock_core::ErrorKind::Unavailable) when another transaction kept the fence for longer than
    ///   `innodb_lock_wait_timeout`, after a deadlock, or when the connection broke: run the transaction again.
    /// - [`InvalidName`](lock_core::ErrorKind::InvalidName) for a resource of another length.
    ///
    /// # Cancel safety
    /// If dropped, roll back: the token may have entered in this transaction.
    pub async fn enter(
        &self,
        tx: &mut MySqlTransaction<'_>,
        resource: impl AsRef<[u8]>,
        token: FencingToken,
    ) -> Result<()> {
        self.run(Step::Enter, tx, resource.as_ref(), token).await
    }

    /// Enters as a reader, with the token of a shared hold: from the commit on, writers with older tokens are rejected, and
    /// other readers are not. Call it before the first read. All readers must enter: an older writer that resumes late could
    /// otherwise write between two reads.
    ///
    /// Until the transaction ends nobody else can enter, not even readers. There are two ways from here:
    /// - For a few short reads, read in the same transaction. Then commit it: a rollback would undo the entry.
    /// - To read beside other readers that have entered, commit at once. Read in a second transaction that begins with
    ///   [`check_shared`](Self::check_shared), or, if the reads take long, calls it after them.
    ///
    /// After a downgrade, enter again with this.
    ///
    /// # Errors
    /// Those of [`enter`](Self::enter). Only a newer writer makes a token stale here. Roll back after any error, and never enter
    /// again on the same transaction.
    ///
    /// # Cancel safety
    /// If dropped, roll back: the token may have entered in this transaction.
    pub async fn enter_shared(
        &self,
        tx: &mut MySqlTransaction<'_>,
        resource: impl AsRef<[u8]>,
        token: FencingToken,
    ) -> Result<()> {
        self.run(Step::EnterShared, tx, resource.as_ref(), token).await
    }

    /// Checks that no newer writer has entered since this token entered as a reader, and that older writers are rejected.
    ///
    /// If called before the reads of a transaction, nobody can enter until it ends, not even new readers. Readers that have
    /// entered already can check and read. If called after the reads, it says whether what was read counts. Call it after reads
    /// that take long, so that others wait for a moment only.
    ///
    /// # Errors
    /// Those of [`enter`](Self::enter), but the transaction may be `READ ONLY`. Roll back after any error, and never check or enter
    /// again on the same transaction. [`Stale::newest`](lock_core::Stale::newest) is `None` if this token never entered.
    ///
    /// # Cancel safety
    /// If dropped, roll back.
    pub async fn check_shared(
        &self,
        tx: &mut MySqlTransaction<'_>,
        resource: impl AsRef<[u8]>,
        token: FencingToken,
    ) -> Result<()> {
        self.run(Step::CheckShared, tx, resource.as_ref(), token).await
    }

    async fn run(&self, step: Step, tx: &mut MySqlTransaction<'_>, resource: &[u8], token: FencingToken) -> Result<()> {
        check_resource(resource)?;
        // As one text of literals: one round trip, and no prepared statement that a dropped future leaves half-made.
        let sql = statements(step, &self.table, resource, token);
        let error = |error| self.error(error, resource);
        let results = execute(tx, sql).await.map_err(error)?;
        let verdict = judge(step, token, &results).map_err(error)?;
        let resource = String::from_utf8_lossy(resource);
        match verdict {
            Verdict::Entered => Ok(()),
            Verdict::Stale(stale) => Err(stale.into_error(&resource)),
            Verdict::ReadBefore => Err(ReadBeforeEnter.into_error(&resource)),
        }
    }

    fn error(&self, error: SqlError, resource: &[u8]) -> Error {
        let resource = String::from_utf8_lossy(resource);
        let obstacle = match error.code() {
            // MariaDB's innodb_snapshot_isolation finds it before we do.
            Some(1020) => return ReadBeforeEnter.into_error(&resource),
            Some(1205) => Obstacle::Occupied,
            Some(1213) => Obstacle::Deadlock,
            Some(1146) => Obstacle::NoTable("run lock_mysql::schema::migrate, or the SQL of schema::fences"),
            Some(1054) => Obstacle::OtherColumns,
            Some(1142 | 1143 | 1044) => Obstacle::Denied(""),
            Some(1792) => {
                let advice = (ErrorKind::Misconfigured, "begin the transaction READ WRITE");
                return entry_error(&resource, advice, error);
            }
            _ => return error.into_lock_error(),
        };
        let advice = obstacle.advice("MySQL", &format!("`{}`", self.table));
        entry_error(&resource, advice, error)
    }
}

impl Default for Fence {
    fn default() -> Self {
        Self::new()
    }
}

/// The limit of MySQL.
const LONGEST_TABLE: usize = 64;

fn statements(step: Step, table: &str, resource: &[u8], token: FencingToken) -> String {
    let template = match step {
        Step::Enter => Fence::ENTER,
        Step::EnterShared => Fence::ENTER_SHARED,
        Step::CheckShared => Fence::CHECK_SHARED,
    };
    fill_placeholders(&template.replace(Fence::DEFAULT_TABLE, table), &hex(resource), token)
}

fn judge(step: Step, token: FencingToken, results: &[StatementResult]) -> Result<Verdict, SqlError> {
    let (row, snapshot) = match step {
        Step::Enter | Step::EnterShared => (3, 4),
        Step::CheckShared => (0, 1),
    };
    let first = |statement: usize| results.get(statement).and_then(|result| result.rows.first());
    let row = match first(row) {
        None => None,
        Some(row) => Some(Row {
            entered: Entered {
                writer: column(row, 0, "writer")?,
                reader: column(row, 1, "reader")?,
            },
            entries: column(row, 2, "entries")?,
        }),
    };
    let snapshot = first(snapshot).map(|row| column(row, 0, "entries")).transpose()?;
    Ok(verdict::judge(step, token, row, snapshot))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Users of other drivers, and other versions of this crate, run the same.
    #[test]
    fn values_go_in_as_literals() {
        let token = FencingToken::new(7).unwrap();
        assert_eq!(
            statements(Step::CheckShared, "t", b"a':token", token),
            "SELECT `writer`, `reader`, `entries` FROM `t` WHERE `resource` = x'61273a746f6b656e' LOCK IN SHARE MODE;\n\
             SELECT `entries` FROM `t` WHERE `resource` = x'61273a746f6b656e';\n"
        );
        for step in [Step::Enter, Step::EnterShared] {
            let sql = statements(step, "t", b"a", token);
            assert!(!sql.contains(':') && !sql.contains(Fence::DEFAULT_TABLE), "{sql}");
            assert!(sql.contains("= 7") && sql.contains("(x'61')"), "{sql}");
        }
    }

    #[test]
    fn the_default_table_is_the_one_beside_the_default_locks() {
        let table = crate::schema::fences(crate::MySqlConfig::DEFAULT_TABLE).unwrap();
        assert!(table.contains(&format!("`{}`", Fence::DEFAULT_TABLE)), "{table}");
        let error = Fence::in_table("a`b").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Misconfigured);
    }
}
