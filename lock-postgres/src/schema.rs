//! The tables, as SQL for an administrator or a migration tool, and made by [`migrate`].
//!
//! | table | what needs it |
//! |---|---|
//! | `{table}_leases`, `{table}_holders`, `{table}_waiters` | [`LeaseTableBackend`](crate::LeaseTableBackend), see [`lease_table`] |
//! | `{table}_tokens`, `{table}_readers` | [`SessionBackend`](crate::SessionBackend), see [`sessions`] |
//! | `{table}_fences` | [`Fence`](crate::Fence), see [`fences`] |
//!
//! `{table}` is [`PostgresConfig::with_table`], by default [`polylock`](PostgresConfig::DEFAULT_TABLE).
//!
//! The backend makes its tables when it first connects, if it may: missing ones in the schema of those that are there. In production
//! the user of an application should have no `CREATE`: make the tables beforehand with this SQL or with [`migrate`] under another
//! user, and grant that user what ["Permissions needed"](crate#permissions-needed) says.
//!
//! Every statement is `CREATE TABLE IF NOT EXISTS`, so it may run again.
//!
//! ```
//! # fn main() -> Result<(), lock_core::Error> {
//! let sql = lock_postgres::schema::lease_table(Some("locks"), "shop")?;
//! assert_eq!(sql.matches("CREATE TABLE IF NOT EXISTS \"locks\".\"shop_").count(), 3);
//! # Ok(()) }
//! ```

use lock_core::{Error, ErrorKind, Result};
use lock_kit::tables::{Table, script};

use crate::config::{PostgresConfig, Strategy};
use crate::connection::{Connection, Dialer};
use crate::error::SqlError;
use crate::names::{check_identifiers, quoted};

/// The SQL of the tables of [`LeaseTableBackend`](crate::LeaseTableBackend) in this schema, or in the first one of the
/// `search_path`, as statements that end with `;`.
///
/// # Errors
/// [`ErrorKind::Misconfigured`] for names that [`PostgresConfig::with_table`] or [`with_schema`](PostgresConfig::with_schema) do
/// not allow.
pub fn lease_table(schema: Option<&str>, table: &str) -> Result<String> {
    check_identifiers(schema, table)?;
    Ok(script(&lease_tables(schema, table)))
}

/// The SQL of the tables of [`SessionBackend`](crate::SessionBackend), likewise.
///
/// # Errors
/// Those of [`lease_table`].
pub fn sessions(schema: Option<&str>, table: &str) -> Result<String> {
    check_identifiers(schema, table)?;
    Ok(script(&session_tables(schema, table)))
}

/// The SQL of the table of [`Fence`](crate::Fence), `{table}_fences`, in this schema, or in the first one of the `search_path`, as
/// a statement that ends with `;`.
///
/// # Errors
/// [`ErrorKind::Misconfigured`] unless the schema has 1 to 63 letters, digits, `_` or `$`, and the table 1 to 48.
///
/// # Examples
/// ```
/// # fn main() -> Result<(), lock_core::Error> {
/// let sql = lock_postgres::schema::fences(None, "shop")?;
/// assert!(sql.starts_with("CREATE TABLE IF NOT EXISTS \"shop_fences\""));
/// # Ok(()) }
/// ```
pub fn fences(schema: Option<&str>, table: &str) -> Result<String> {
    check_identifiers(schema, table)?;
    Ok(script(&[fence_table(schema, table)]))
}

/// The SQL of all tables of this configuration, whatever its strategy: what [`migrate`] makes.
///
/// # Errors
/// Those of [`lease_table`].
///
/// # Examples
/// ```
/// # fn main() -> Result<(), lock_core::Error> {
/// use lock_postgres::{PostgresConfig, schema};
///
/// let config = PostgresConfig::from_url("postgres://app@db/shop?schema=locks")?;
/// assert_eq!(schema::of(&config)?.matches("\"locks\".\"polylock_").count(), 6);
/// # Ok(()) }
/// ```
pub fn of(config: &PostgresConfig) -> Result<String> {
    check_identifiers(config.schema.as_deref(), &config.table)?;
    Ok(script(&all(config.schema.as_deref(), &config.table)))
}

/// Makes the tables that are missing, all those of the table above: in the schema of those that are there, or else in the
/// configured one or the first one of the `search_path`. Needs `CREATE` on that schema if one is missing, and no permission
/// on data. Without that permission it is enough that those of the configuration's strategy are there.
///
/// # Errors
/// [`ErrorKind::Denied`], with the SQL for an administrator, if tables of the strategy are missing and the user may not create them;
/// [`ErrorKind::Misconfigured`] if tables are missing and those that are used with them are in more than one schema; and those of
/// connecting.
///
/// # Cancel safety
/// May be dropped at any point: the tables are then made or not. Call it again.
///
/// # Examples
/// ```no_run
/// # async fn example() -> Result<(), lock_core::Error> {
/// use lock_postgres::{PostgresConfig, schema};
///
/// let config = PostgresConfig::from_url("postgres://admin:secret@db:5432/shop?table=shop_locks")?;
/// schema::migrate(&config).await?;
/// # Ok(()) }
/// ```
pub async fn migrate(config: &PostgresConfig) -> Result<()> {
    config.check()?;
    let connection = Dialer::new(config.clone()).dial().await?;
    let (needed, others): (TablesOf, [TablesOf; 2]) = match config.strategy() {
        Strategy::Lease => (lease_tables, [session_tables, fence_tables]),
        Strategy::Session => (session_tables, [lease_tables, fence_tables]),
    };
    match prepare_tables(all, config, &connection).await {
        // Those of one strategy may be there, or in a schema of their own.
        Err(error) if matches!(error.kind(), ErrorKind::Denied | ErrorKind::Misconfigured) => {}
        prepared => return prepared,
    }
    prepare_tables(needed, config, &connection).await?;
    for tables_of in others {
        match prepare_tables(tables_of, config, &connection).await {
            Err(error) if error.kind() == ErrorKind::Denied => {}
            prepared => prepared?,
        }
    }
    Ok(())
}

/// The tables with this prefix, in this schema, that are used together.
type TablesOf = fn(Option<&str>, &str) -> Vec<Table>;

fn fence_tables(schema: Option<&str>, table: &str) -> Vec<Table> {
    vec![fence_table(schema, table)]
}

fn all(schema: Option<&str>, table: &str) -> Vec<Table> {
    [lease_tables, session_tables, fence_tables as TablesOf]
        .iter()
        .flat_map(|tables_of| tables_of(schema, table))
        .collect()
}

/// Makes those of these tables that are missing, beside those that are there: in the first schema of the `search_path`, a second one
/// would hide the one that clients use.
///
/// # Errors
/// [`ErrorKind::Denied`], with the statements for an administrator, if some are missing and may not be made;
/// [`ErrorKind::Misconfigured`] if some are missing and the others are in more than one schema.
pub(crate) async fn prepare_tables(
    tables_of: TablesOf,
    config: &PostgresConfig,
    connection: &Connection,
) -> Result<()> {
    let (schema, table, limit) = (config.schema.as_deref(), &config.table, config.response_timeout);
    // A server asks for CREATE on the schema even if the table is there.
    let found = connection
        .run(&find(&tables_of(schema, table)), Some(limit))
        .await
        .map_err(SqlError::into_lock_error)?;
    let schemas: Vec<_> = found.into_iter().flatten().collect();
    if schemas.iter().all(Option::is_some) {
        return Ok(());
    }
    let mut used: Vec<_> = schemas.iter().flatten().collect();
    used.sort_unstable();
    used.dedup();
    if let [one, other, ..] = used[..] {
        let message = format!(
            "tables of polylock are missing, and those that are used with them are in the schemas {one:?} and {other:?}: stop all \
             processes that lock, move the tables into one schema with ALTER TABLE ... SET SCHEMA, and name it in all URLs (schema=)"
        );
        return Err(Error::new(ErrorKind::Misconfigured, message));
    }
    let escaped = used.first().map(|name| name.replace('"', "\"\""));
    let mut tables = tables_of(escaped.as_deref().or(schema), table);
    let mut is_missing = schemas.iter().map(Option::is_none);
    tables.retain(|_| is_missing.next() == Some(true));
    let script = script(&tables);
    // One at a time: two that make the same table meet in the catalogue. When a whole fleet starts, many wait here, for
    // longer than a request waits for a lock. Behind a pooler of transactions the role's own `statement_timeout` would count.
    let create = format!(
        "SET LOCAL lock_timeout=0;SET LOCAL statement_timeout='{}ms';SELECT pg_advisory_xact_lock(7308332240012276590);{script}",
        limit.as_millis().max(1)
    );
    match connection.run(&create, Some(limit)).await {
        Ok(_) => Ok(()),
        Err(error) if error.is_denied() => {
            let message = format!(
                "tables of polylock are missing and the PostgreSQL user may not create them: run \"{}\" and grant the user SELECT, \
                 INSERT, UPDATE and DELETE on them",
                script.trim_end().replace('\n', " ")
            );
            Err(Error::new(ErrorKind::Denied, message).with_source(error))
        }
        Err(error) => Err(error.into_lock_error()),
    }
}

/// Asks for the schema of each of these tables, in their order; `NULL` for one that is missing.
fn find(tables: &[Table]) -> String {
    let names: Vec<_> = tables
        .iter()
        .map(|table| format!("to_regclass('{}')", table.name))
        .collect();
    format!(
        "SELECT s.nspname FROM unnest(ARRAY[{}]) WITH ORDINALITY t(id,n) LEFT JOIN pg_class c ON c.oid=t.id \
         LEFT JOIN pg_namespace s ON s.oid=c.relnamespace ORDER BY n",
        names.join(",")
    )
}

/// Its name has quotation marks, and the schema.
fn make(schema: Option<&str>, table: &str, ending: &str, columns: &str, options: &str) -> Table {
    let name = quoted(schema, &format!("{table}_{ending}"));
    let create = format!("CREATE TABLE IF NOT EXISTS {name} ({columns}) WITH ({options})");
    Table { name, create }
}

/// The options of a table with a row for each name.
const OF_NAMES: &str = "fillfactor=40,autovacuum_vacuum_threshold=500,autovacuum_vacuum_scale_factor=0.02,\
     autovacuum_vacuum_cost_delay=0";

/// No column that a request changes is indexed, and pages have room, so that updates stay within their page and it cleans
/// itself.
pub(crate) fn lease_tables(schema: Option<&str>, table: &str) -> Vec<Table> {
    let make = |ending, columns, options| make(schema, table, ending, columns, options);
    vec![
        make(
            "leases",
            "name bytea PRIMARY KEY, holder uuid, kind smallint NOT NULL DEFAULT 0, label bytea, \
             term interval NOT NULL DEFAULT '0', expires timestamptz NOT NULL DEFAULT '-infinity', \
             token bigint NOT NULL DEFAULT 0, last_token bigint NOT NULL DEFAULT 0, \
             wanted timestamptz NOT NULL DEFAULT '-infinity', last_place bigint NOT NULL DEFAULT 0, \
             dead uuid[] NOT NULL DEFAULT '{}', dead_at timestamptz[] NOT NULL DEFAULT '{}'",
            OF_NAMES,
        ),
        make(
            "holders",
            "name bytea, holder uuid, kind smallint NOT NULL, label bytea, permits bigint NOT NULL, \"of\" bigint NOT NULL, \
             term interval NOT NULL, expires timestamptz NOT NULL, token bigint NOT NULL, PRIMARY KEY (name,holder)",
            "fillfactor=60",
        ),
        make(
            "waiters",
            "name bytea, place bigint, holder uuid NOT NULL, channel text NOT NULL, kind smallint NOT NULL, \
             permits bigint NOT NULL, \"of\" bigint NOT NULL, label bytea, since timestamptz NOT NULL, \
             expires timestamptz NOT NULL, PRIMARY KEY (name,place)",
            "fillfactor=70",
        ),
    ]
}

/// As lease tables. A hold is an advisory lock, and the tables have no more than what is shown of it and its token.
pub(crate) fn session_tables(schema: Option<&str>, table: &str) -> Vec<Table> {
    let make = |ending, columns, options| make(schema, table, ending, columns, options);
    vec![
        make(
            "tokens",
            "name bytea PRIMARY KEY, kind smallint NOT NULL DEFAULT 0, holder uuid, label bytea, token bigint NOT NULL, \
             last_token bigint NOT NULL",
            OF_NAMES,
        ),
        make(
            "readers",
            "name bytea, pid int, holder uuid NOT NULL, label bytea, token bigint NOT NULL, PRIMARY KEY (name,pid)",
            "fillfactor=60",
        ),
    ]
}

fn fence_table(schema: Option<&str>, table: &str) -> Table {
    let columns = "resource bytea PRIMARY KEY, writer bigint NOT NULL DEFAULT 0, reader bigint NOT NULL DEFAULT 0";
    // An update stays within its page, and that cleans itself.
    make(schema, table, "fences", columns, "fillfactor=50")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Other versions of this crate use the same tables.
    #[test]
    fn the_tables_stay_as_they_are() {
        assert_eq!(
            lease_table(None, "polylock").unwrap(),
            "CREATE TABLE IF NOT EXISTS \"polylock_leases\" (name bytea PRIMARY KEY, holder uuid, \
             kind smallint NOT NULL DEFAULT 0, label bytea, term interval NOT NULL DEFAULT '0', \
             expires timestamptz NOT NULL DEFAULT '-infinity', token bigint NOT NULL DEFAULT 0, \
             last_token bigint NOT NULL DEFAULT 0, wanted timestamptz NOT NULL DEFAULT '-infinity', \
             last_place bigint NOT NULL DEFAULT 0, dead uuid[] NOT NULL DEFAULT '{}', \
             dead_at timestamptz[] NOT NULL DEFAULT '{}') WITH (fillfactor=40,autovacuum_vacuum_threshold=500,\
             autovacuum_vacuum_scale_factor=0.02,autovacuum_vacuum_cost_delay=0);\n\
             CREATE TABLE IF NOT EXISTS \"polylock_holders\" (name bytea, holder uuid, kind smallint NOT NULL, label bytea, \
             permits bigint NOT NULL, \"of\" bigint NOT NULL, term interval NOT NULL, expires timestamptz NOT NULL, \
             token bigint NOT NULL, PRIMARY KEY (name,holder)) WITH (fillfactor=60);\n\
             CREATE TABLE IF NOT EXISTS \"polylock_waiters\" (name bytea, place bigint, holder uuid NOT NULL, \
             channel text NOT NULL, kind smallint NOT NULL, permits bigint NOT NULL, \"of\" bigint NOT NULL, label bytea, \
             since timestamptz NOT NULL, expires timestamptz NOT NULL, PRIMARY KEY (name,place)) WITH (fillfactor=70);\n"
        );
    }

    /// Other versions of this crate use the same tables.
    #[test]
    fn the_tables_of_sessions_stay_as_they_are() {
        assert_eq!(
            sessions(Some("s"), "polylock").unwrap(),
            "CREATE TABLE IF NOT EXISTS \"s\".\"polylock_tokens\" (name bytea PRIMARY KEY, kind smallint NOT NULL DEFAULT 0, \
             holder uuid, label bytea, token bigint NOT NULL, last_token bigint NOT NULL) WITH (fillfactor=40,\
             autovacuum_vacuum_threshold=500,autovacuum_vacuum_scale_factor=0.02,autovacuum_vacuum_cost_delay=0);\n\
             CREATE TABLE IF NOT EXISTS \"s\".\"polylock_readers\" (name bytea, pid int, holder uuid NOT NULL, label bytea, \
             token bigint NOT NULL, PRIMARY KEY (name,pid)) WITH (fillfactor=60);\n"
        );
    }

    #[test]
    fn a_table_that_needs_an_escape_is_refused() {
        for bad in ["", "a\"b", "a.b", &"x".repeat(49)] {
            assert_eq!(
                lease_table(None, bad).unwrap_err().kind(),
                ErrorKind::Misconfigured,
                "{bad:?}"
            );
        }
        lease_table(Some("s"), &"x".repeat(48)).unwrap();
    }

    /// Other versions of this crate use the same table.
    #[test]
    fn the_table_of_fences_stays_as_it_is() {
        assert_eq!(
            fences(Some("locks"), "polylock").unwrap(),
            "CREATE TABLE IF NOT EXISTS \"locks\".\"polylock_fences\" (resource bytea PRIMARY KEY, \
             writer bigint NOT NULL DEFAULT 0, reader bigint NOT NULL DEFAULT 0) WITH (fillfactor=50);\n"
        );
        for bad in ["", "a\"b", "a.b", &"x".repeat(49)] {
            let error = fences(None, bad).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Misconfigured, "{bad:?}");
        }
    }
}
