//! Fencing of resources that are stored in a PostgreSQL.

use lock_core::{Error, ErrorKind, FencingToken, Result, Stale};
use lock_kit::fence::{Entered, Role, check_resource, fill_placeholders};
use lock_kit::tables::check_identifier;
use tokio_postgres::{SimpleQueryMessage, Transaction};

use crate::names::{LONGEST_IDENTIFIER, literal, quoted};

pub(crate) mod error;
#[cfg(test)]
mod fuzz;

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
/// # async fn example(locks: lock_core::Locker, mut client: lock_postgres::tokio_postgres::Client)
/// # -> Result<(), Box<dyn std::error::Error>> {
/// use lock_postgres::Fence;
///
/// let fence = Fence::new();
/// let guard = locks.lock("stock/42").acquire().await?;
///
/// let mut tx = client.transaction().await?;
/// fence.enter(&mut tx, "stock/42", guard.token()).await?; // an error, kind `Lost`, if another holder has entered meanwhile
/// let left: i64 = tx.query_one("SELECT amount FROM stock WHERE id = 42", &[]).await?.get(0);
/// tx.execute("UPDATE stock SET amount = $1 WHERE id = 42", &[&(left - 1)]).await?;
/// tx.commit().await?;
///
/// guard.release().await?;
/// # Ok(()) }
/// ```
///
/// # Rules
/// - Enter at the beginning of *every* transaction that reads or writes the resource. The same token may enter again.
/// - All who change the resource must enter, with tokens of the same lock. The locks may live elsewhere, as in a Redis.
/// - If entering fails, roll back. What you have read under this token does not count any more.
/// - A rollback also undoes the entry. So what was read in a transaction that was rolled back does not count either.
/// - Nobody else can enter until the transaction ends: keep it short.
/// - PostgreSQL may report a deadlock if transactions enter several fences in different orders. Run the transaction again.
/// - Enter before you set a savepoint: to roll back to an earlier one undoes the entry, too.
///
/// # Isolation levels
/// All are right. Under `READ COMMITTED`, the default, each statement after the entry sees what the last holder has committed.
/// Under `REPEATABLE READ` and `SERIALIZABLE`, a transaction sees the state of its first statement. If another holder has entered
/// since, or while this one waited for its end, PostgreSQL rejects the entry with error 40001, and [`enter`](Self::enter) returns a
/// retryable error: run the transaction again.
///
/// # Table
/// One row for each resource, in the table `polylock_fences` of the first schema of the `search_path`, or [another
/// table](Self::in_table). [`schema::fences`](crate::schema::fences) has its SQL. It needs `SELECT`, `INSERT` and `UPDATE`. A row
/// must not be deleted as long as an old holder may come back.
///
/// Users of other drivers run the same statements: [`ENTER`](Self::ENTER), [`ENTER_SHARED`](Self::ENTER_SHARED) and
/// [`CHECK_SHARED`](Self::CHECK_SHARED). How to judge their results stands in
/// [the guide to fencing](https://github.com/polylock/polylock/blob/main/docs/fencing.md#postgresql).
#[derive(Clone, Debug)]
pub struct Fence {
    /// Between quotation marks, with its schema.
    table: String,
}

impl Fence {
    /// The table of [`new`](Self::new).
    pub const DEFAULT_TABLE: &'static str = "polylock_fences";
    /// The statements of [`enter`](Self::enter), with `:resource`, a `bytea`, and `:token`.
    pub const ENTER: &'static str = include_str!("fence/enter.sql");
    /// The statements of [`enter_shared`](Self::enter_shared), with `:resource` and `:token`.
    pub const ENTER_SHARED: &'static str = include_str!("fence/enter_shared.sql");
    /// The statement of [`check_shared`](Self::check_shared), with `:resource`.
    pub const CHECK_SHARED: &'static str = include_str!("fence/check_shared.sql");

    /// The fence in the table [`DEFAULT_TABLE`](Self::DEFAULT_TABLE) of the first schema of the `search_path`. Does no I/O.
    pub fn new() -> Self {
        Self {
            table: quoted(None, Self::DEFAULT_TABLE),
        }
    }

    /// The fence in this table of this schema, or of the first one of the `search_path`: that of
    /// [`schema::fences(None, "shop")`](crate::schema::fences) is `shop_fences`. Does no I/O.
    ///
    /// # Errors
    /// [`ErrorKind::Misconfigured`] unless both have 1 to 63 letters, digits, `_` or `$`.
    ///
    /// # Examples
    /// ```
    /// # fn main() -> Result<(), lock_core::Error> {
    /// use lock_postgres::Fence;
    ///
    /// let fence = Fence::in_table(Some("locks"), "shop_fences")?;
    /// # Ok(()) }
    /// ```
    pub fn in_table(schema: Option<&str>, table: &str) -> Result<Self> {
        for name in schema.into_iter().chain([table]) {
            check_identifier(name, LONGEST_IDENTIFIER)?;
        }
        Ok(Self {
            table: quoted(schema, table),
        })
    }

    /// Enters: until the transaction ends nobody else can enter, and from its commit on older tokens are rejected, those of
    /// readers too. Call it before the first read of the transaction. It takes one round trip, and waits while another
    /// transaction has entered.
    ///
    /// `resource` is any 1 to 512 bytes, such as the lock's name. It takes a transaction, not a client: outside of one, another
    /// holder could enter right after, and before your write.
    ///
    /// # Errors
    /// Roll back after any error.
    /// - [`ErrorKind::Lost`] with the [cause](Error::cause) [`Stale`] when a newer token has entered.
    /// - [`ErrorKind::Unavailable`] when another transaction kept the fence for longer than `lock_timeout` or `statement_timeout`,
    ///   after a deadlock, when another holder entered since the snapshot of a `REPEATABLE READ` or `SERIALIZABLE` transaction, or
    ///   when the connection broke: run the transaction again.
    /// - [`ErrorKind::Misconfigured`] if the table is missing, or the transaction cannot write.
    /// - [`ErrorKind::Denied`] if a permission is missing.
    /// - [`ErrorKind::InvalidName`] for a resource of another length.
    ///
    /// # Cancel safety
    /// If dropped, roll back: the token may have entered in this transaction.
    pub async fn enter(&self, tx: &mut Transaction<'_>, resource: impl AsRef<[u8]>, token: FencingToken) -> Result<()> {
        self.run(Self::ENTER, Role::Writer, tx, resource.as_ref(), token).await
    }

    /// Enters as a reader, with the token of a shared hold: from the commit on, writers with older tokens are rejected, and
    /// other readers are not. Call it before the first read. All readers must enter: an older writer that resumes late could
    /// otherwise write between two reads.
    ///
    /// Until the transaction ends nobody else can enter, not even readers. There are two ways from here:
    /// - For a few short reads, read in the same transaction. Then commit it: a rollback would undo the entry.
    /// - To read beside other readers, commit at once. Read in a second transaction, with [`check_shared`](Self::check_shared)
    ///   before the reads if they are short, and after them if they take longer.
    ///
    /// After a downgrade, enter again with this.
    ///
    /// # Errors
    /// Those of [`enter`](Self::enter). Only a newer writer makes a token stale here.
    ///
    /// # Cancel safety
    /// If dropped, roll back: the token may have entered in this transaction.
    pub async fn enter_shared(
        &self,
        tx: &mut Transaction<'_>,
        resource: impl AsRef<[u8]>,
        token: FencingToken,
    ) -> Result<()> {
        self.run(Self::ENTER_SHARED, Role::Reader, tx, resource.as_ref(), token)
            .await
    }

    /// Checks that no newer writer has entered since this token entered as a reader, and that older writers are rejected.
    ///
    /// If called before the reads of a transaction, nobody can enter until it ends, not even new readers. Readers that have
    /// entered already can check and read. If called after the reads, it says whether what was read counts: use this for long
    /// reads, so that others can enter meanwhile.
    ///
    /// # Errors
    /// Those of [`enter`](Self::enter). [`Stale::newest`] is `None` if this token never entered.
    ///
    /// # Cancel safety
    /// If dropped, roll back.
    pub async fn check_shared(
        &self,
        tx: &mut Transaction<'_>,
        resource: impl AsRef<[u8]>,
        token: FencingToken,
    ) -> Result<()> {
        self.run(Self::CHECK_SHARED, Role::Reader, tx, resource.as_ref(), token)
            .await
    }

    async fn run(
        &self,
        statements: &str,
        role: Role,
        tx: &mut Transaction<'_>,
        resource: &[u8],
        token: FencingToken,
    ) -> Result<()> {
        check_resource(resource)?;
        let answers = tx.simple_query(&self.text(statements, resource, token)).await;
        let name = String::from_utf8_lossy(resource);
        let answers = answers.map_err(|error| error::of_fence(error, &self.table, &name))?;
        let entered = row(&answers)?;
        let verdict = entered.map_or(Err(Stale::new(token, 0)), |entered| entered.check(role, token));
        verdict.map_err(|stale| stale.into_error(&name))
    }

    /// One text of literals: it takes one round trip, and a pooler lets it pass.
    fn text(&self, statements: &str, resource: &[u8], token: FencingToken) -> String {
        let statements = statements.replace(Self::DEFAULT_TABLE, &self.table);
        fill_placeholders(&statements, &literal(resource), token)
    }
}

impl Default for Fence {
    fn default() -> Self {
        Self::new()
    }
}

/// The fence's row, read while it is locked.
fn row(answers: &[SimpleQueryMessage]) -> Result<Option<Entered>> {
    let rows = answers.iter().filter_map(|answer| match answer {
        SimpleQueryMessage::Row(row) => Some(row),
        _ => None,
    });
    let Some(row) = rows.last() else {
        return Ok(None);
    };
    let number = |column: &str| {
        let value = row.try_get(column).ok().flatten();
        let number = value.and_then(|value| value.parse().ok());
        number.ok_or_else(|| {
            let message =
                format!("the fence's row has no number in the column {column}: drop the table, or name another");
            Error::new(ErrorKind::Misconfigured, message)
        })
    };
    Ok(Some(Entered {
        writer: number("writer")?,
        reader: number("reader")?,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Users of other drivers, and other versions of this crate, run the same.
    #[test]
    fn values_go_in_as_literals() {
        let (fence, token) = (Fence::in_table(None, "t").unwrap(), FencingToken::new(7).unwrap());
        assert_eq!(
            fence.text(Fence::CHECK_SHARED, b"a':token", token),
            "SELECT writer, reader FROM \"t\" WHERE resource = decode('61273a746f6b656e','hex') FOR SHARE;\n"
        );
        for statements in [Fence::ENTER, Fence::ENTER_SHARED] {
            let sql = fence.text(statements, b"a", token);
            assert!(!sql.contains(':') && !sql.contains("polylock"), "{sql}");
            assert!(sql.contains("= 7") && sql.contains("(decode('61','hex'), 7)"), "{sql}");
        }
    }

    #[test]
    fn the_default_table_is_the_one_beside_the_default_locks() {
        let table = crate::schema::fences(None, "polylock").unwrap();
        assert!(table.contains(&Fence::new().table), "{table}");
        for bad in ["a\"b", "", &"x".repeat(64)] {
            assert_eq!(Fence::in_table(None, bad).unwrap_err().kind(), ErrorKind::Misconfigured);
            assert!(Fence::in_table(Some(bad), "t").is_err());
        }
    }
}
