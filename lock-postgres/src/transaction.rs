//! Locks that last as long as a transaction, for those who need no more.

use lock_core::{Error, ErrorKind, LockName, Result};
use tokio_postgres::{SimpleQueryMessage, Transaction};

use crate::error::Cause;
use crate::fence::error::{cause, meaning};
use crate::names::literal;

/// Takes the lock `name` of the database until the transaction ends, and waits while another transaction has it.
///
/// This is an advisory lock of PostgreSQL, and nothing else of polylock: it needs no table, no lease, no renewal and no fencing
/// token. Use it if all that is protected lies in the same database and is changed in the same transaction. If the connection
/// breaks, PostgreSQL rolls the transaction back and frees the lock: so nothing that was done under the lock can come too late.
///
/// ```no_run
/// # async fn example(mut client: lock_postgres::tokio_postgres::Client) -> Result<(), Box<dyn std::error::Error>> {
/// use lock_postgres::lock_in;
///
/// let mut tx = client.transaction().await?;
/// lock_in(&mut tx, "monthly report").await?;
/// // Nobody else is here until the transaction ends.
/// tx.execute("INSERT INTO reports SELECT now(), sum(amount) FROM sales", &[]).await?;
/// tx.commit().await?;
/// # Ok(()) }
/// ```
///
/// # Limits
/// - Such locks exclude each other alone: not the locks of a [`Locker`](lock_core::Locker), and not those of another database.
/// - What is done outside of the transaction, such as a payment, is not protected after the connection breaks. Take a lock of a
///   [`Locker`](lock_core::Locker) for that, and [fence](crate::Fence) the data.
/// - An open transaction keeps VACUUM from removing rows that died since, in the whole database. Keep it short.
/// - Take the lock before the first read. Under `REPEATABLE READ` and `SERIALIZABLE` a transaction sees the state of its first
///   statement, and that is the lock: it may miss what the last holder wrote while this one waited.
/// - Transactions that take several locks in different orders may deadlock. PostgreSQL then ends one of them.
/// - All transactions of a server share room for `max_locks_per_transaction * max_connections` locks.
///
/// It passes poolers, since it ends with the transaction. Other programs run `SELECT pg_advisory_xact_lock(key)`, where `key` is
/// [`KEY_OF`](crate::KEY_OF).
///
/// # Errors
/// Roll back after any error.
/// - [`ErrorKind::TimedOut`] when another transaction kept the lock for longer than `lock_timeout`, which is unlimited by default.
/// - [`ErrorKind::Unavailable`] after a deadlock, after `statement_timeout`, or when the connection broke: run the transaction
///   again.
/// - [`ErrorKind::InvalidName`] unless the name has 1 to 512 bytes.
///
/// # Cancel safety
/// If dropped, roll back: the transaction may have the lock, or wait for it.
pub async fn lock_in(tx: &mut Transaction<'_>, name: &str) -> Result<()> {
    ask(tx, "pg_advisory_xact_lock", name).await.map(drop)
}

/// Takes the lock `name` of the database until the transaction ends, as [`lock_in`] does, if no other transaction has it.
/// Returns whether this one has it now.
///
/// # Errors
/// Those of [`lock_in`], but [`ErrorKind::TimedOut`].
///
/// # Cancel safety
/// If dropped, roll back: the transaction may have the lock.
///
/// # Examples
/// ```no_run
/// # async fn example(mut client: lock_postgres::tokio_postgres::Client) -> Result<(), Box<dyn std::error::Error>> {
/// use lock_postgres::try_lock_in;
///
/// let mut tx = client.transaction().await?;
/// if try_lock_in(&mut tx, "monthly report").await? {
///     tx.execute("INSERT INTO reports SELECT now(), sum(amount) FROM sales", &[]).await?;
/// }
/// tx.commit().await?;
/// # Ok(()) }
/// ```
pub async fn try_lock_in(tx: &mut Transaction<'_>, name: &str) -> Result<bool> {
    let answer = ask(tx, "pg_try_advisory_xact_lock", name).await?;
    Ok(answer.as_deref() == Some("t"))
}

/// The key of the advisory lock of [`lock_in`]: an SQL expression with `:name`, the `bytea` of the lock's name in UTF-8.
///
/// It is the first 64 bits of the SHA-256 of `polylock`, a zero byte, `transaction`, a zero byte, and the name. Two of a million
/// names have the same key with a probability of 1 to 30 million. They then exclude each other, which is safe.
pub const KEY_OF: &str = include_str!("transaction/key.sql");

async fn ask(tx: &mut Transaction<'_>, function: &str, name: &str) -> Result<Option<String>> {
    let name = LockName::new(name)?;
    let sql = format!("SELECT {function}({})", key_of(&name));
    let answers = tx.simple_query(&sql).await.map_err(|error| failed(error, &name))?;
    Ok(answers.iter().find_map(|answer| match answer {
        SimpleQueryMessage::Row(row) => row.get(0).map(str::to_owned),
        _ => None,
    }))
}

fn key_of(name: &LockName) -> String {
    KEY_OF.trim_end().replace(":name", &literal(name.as_str().as_bytes()))
}

fn failed(error: tokio_postgres::Error, name: &LockName) -> Error {
    let (kind, problem) = match cause(&error) {
        Some(Cause::Locked) => (
            ErrorKind::TimedOut,
            "not acquired within lock_timeout: another transaction has it".into(),
        ),
        Some(Cause::Cancelled) => (
            ErrorKind::Unavailable,
            "not acquired within statement_timeout, or cancelled: run the transaction again".into(),
        ),
        _ => meaning(&error),
    };
    Error::new(kind, problem).with_name(name).with_source(error)
}
