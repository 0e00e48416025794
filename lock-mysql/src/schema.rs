//! The tables, as SQL for an administrator or a migration tool, and made by [`migrate`].
//!
//! | table | what needs it |
//! |---|---|
//! | `{table}`, `{table}_tokens` | [`RowLockBackend`](crate::RowLockBackend), see [`row_lock`] |
//! | `{table}_leases`, `{table}_lease_holders` | [`LeaseTableBackend`](crate::LeaseTableBackend), see [`lease_table`] |
//! | `{table}_fences` | [`Fence`](crate::Fence), see [`fences`] |
//!
//! `{table}` is [`MySqlConfig::with_table`], by default [`polylock`](MySqlConfig::DEFAULT_TABLE).
//!
//! The backends make their own tables when they first connect, if they may. In production the user of an application should
//! have no `CREATE`: make the tables beforehand with this SQL or with [`migrate`] under another user. Then `SELECT`, `INSERT`
//! and `UPDATE` on these tables are enough for everything in this crate but [clean-up](MySqlConfig::with_retention), which needs
//! `DELETE`.
//!
//! Every statement is `CREATE TABLE IF NOT EXISTS`, so it may run again. Names of tables differ by their case on most servers.
//!
//! ```
//! # fn main() -> Result<(), lock_core::Error> {
//! let sql = [lock_mysql::schema::row_lock("shop_locks")?, lock_mysql::schema::fences("shop_locks")?].concat();
//! assert_eq!(sql.matches("CREATE TABLE IF NOT EXISTS").count(), 3);
//! # Ok(()) }
//! ```

use lock_core::Result;
use lock_kit::tables::script;

use crate::client::Client;
use crate::config::MySqlConfig;
use crate::error::RequestError;
use crate::names::check_table_prefix;
use crate::probe;
use crate::protocol::row_lock::SESSION_SETTINGS;
use crate::tables::{all, fence_table, lease_tables, row_lock_tables};

/// The SQL of the tables of [`RowLockBackend`](crate::RowLockBackend), as statements that end with `;`.
///
/// # Errors
/// [`ErrorKind::Misconfigured`](lock_core::ErrorKind::Misconfigured) for a `table` that [`MySqlConfig::with_table`] does not allow.
pub fn row_lock(table: &str) -> Result<String> {
    check_table_prefix(table)?;
    Ok(script(&row_lock_tables(table)))
}

/// The SQL of the tables of [`LeaseTableBackend`](crate::LeaseTableBackend), `{table}_leases` and `{table}_lease_holders`, as
/// statements that end with `;`.
///
/// # Errors
/// [`ErrorKind::Misconfigured`](lock_core::ErrorKind::Misconfigured) for a `table` that [`MySqlConfig::with_table`] does not allow.
pub fn lease_table(table: &str) -> Result<String> {
    check_table_prefix(table)?;
    Ok(script(&lease_tables(table)))
}

/// The SQL of the table of [`Fence`](crate::Fence), `{table}_fences`, as a statement that ends with `;`.
///
/// # Errors
/// [`ErrorKind::Misconfigured`](lock_core::ErrorKind::Misconfigured) for a `table` that [`MySqlConfig::with_table`] does not allow.
pub fn fences(table: &str) -> Result<String> {
    check_table_prefix(table)?;
    Ok(script(&[fence_table(&format!("{table}_fences"))]))
}

/// The SQL of all tables of this configuration: what [`migrate`] makes.
///
/// # Errors
/// Those of [`row_lock`].
///
/// # Examples
/// ```
/// # fn main() -> Result<(), lock_core::Error> {
/// use lock_mysql::{MySqlConfig, schema};
///
/// let config = MySqlConfig::from_url("mysql://app@db/shop?table=shop_locks")?;
/// assert_eq!(schema::of(&config)?.matches("`shop_locks").count(), 5);
/// # Ok(()) }
/// ```
pub fn of(config: &MySqlConfig) -> Result<String> {
    check_table_prefix(&config.table)?;
    Ok(script(&all(&config.table)))
}

/// Makes the tables that are missing, all those of the table above. Needs `CREATE` if one is missing, and no permission on
/// data.
///
/// # Errors
/// [`ErrorKind::Denied`](lock_core::ErrorKind::Denied), with the SQL for an administrator, if tables are missing and the user may
/// not create them.
/// [`ErrorKind::Misconfigured`](lock_core::ErrorKind::Misconfigured) if a table is of an engine other than InnoDB, and those of connecting.
///
/// # Cancel safety
/// If dropped, some tables may have been made. Call it again.
///
/// # Examples
/// ```no_run
/// # async fn example() -> Result<(), lock_core::Error> {
/// use lock_mysql::{MySqlConfig, schema};
///
/// let config = MySqlConfig::from_url("mysql://admin:secret@db:3306/shop?table=shop_locks")?;
/// schema::migrate(&config).await?;
/// # Ok(()) }
/// ```
pub async fn migrate(config: &MySqlConfig) -> Result<()> {
    config.check()?;
    let client = Client::new(config.clone(), SESSION_SETTINGS);
    let session = client.pool.open().await?;
    let prepared = probe::prepare_tables(&all(&config.table), &session, client.response_timeout()).await;
    prepared.map_err(RequestError::into_lock_error)
}

#[cfg(test)]
mod tests {
    use lock_core::ErrorKind;

    use super::*;

    /// Other versions of this crate use the same tables.
    #[test]
    fn the_tables_stay_as_they_are() {
        assert_eq!(
            row_lock("polylock").unwrap(),
            "CREATE TABLE IF NOT EXISTS `polylock` (`name` VARBINARY(512) NOT NULL PRIMARY KEY, \
             `token` BIGINT UNSIGNED NOT NULL DEFAULT 0, `connection` BIGINT UNSIGNED NULL, \
             `label` VARBINARY(255) NULL, `expires` BIGINT UNSIGNED NULL) ENGINE=InnoDB;\n\
             CREATE TABLE IF NOT EXISTS `polylock_tokens` (`name` VARBINARY(512) NOT NULL PRIMARY KEY, \
             `token` BIGINT UNSIGNED NOT NULL) ENGINE=InnoDB;\n"
        );
        assert_eq!(
            lease_table("polylock").unwrap(),
            "CREATE TABLE IF NOT EXISTS `polylock_leases` (`name` VARBINARY(512) NOT NULL PRIMARY KEY, \
             `holder` VARBINARY(32) NULL, `label` VARBINARY(255) NULL, `expires` BIGINT NOT NULL DEFAULT 0, \
             `term` BIGINT NOT NULL DEFAULT 0, `token` BIGINT NOT NULL DEFAULT 0, `last_token` BIGINT NOT NULL DEFAULT 0, \
             `waiter` VARBINARY(32) NULL, `wanted` BIGINT NOT NULL DEFAULT 0, \
             `sleeper` BIGINT NOT NULL DEFAULT 0) ENGINE=InnoDB;\n\
             CREATE TABLE IF NOT EXISTS `polylock_lease_holders` (`name` VARBINARY(512) NOT NULL, \
             `holder` VARBINARY(32) NOT NULL, `label` VARBINARY(255) NULL, `permits` INT UNSIGNED NOT NULL, \
             `of` INT UNSIGNED NOT NULL, `expires` BIGINT NOT NULL, `term` BIGINT NOT NULL, `token` BIGINT NOT NULL, \
             PRIMARY KEY (`name`,`holder`)) ENGINE=InnoDB;\n"
        );
        assert_eq!(
            fences("polylock").unwrap(),
            "CREATE TABLE IF NOT EXISTS `polylock_fences` (`resource` VARBINARY(512) NOT NULL PRIMARY KEY, \
             `writer` BIGINT UNSIGNED NOT NULL DEFAULT 0, `reader` BIGINT UNSIGNED NOT NULL DEFAULT 0, \
             `entries` BIGINT UNSIGNED NOT NULL DEFAULT 0) ENGINE=InnoDB;\n"
        );
    }

    #[test]
    fn a_table_that_needs_an_escape_is_refused() {
        for bad in ["", "a`b", "a.b", &"x".repeat(49)] {
            for refused in [row_lock(bad), lease_table(bad), fences(bad)] {
                assert_eq!(refused.unwrap_err().kind(), ErrorKind::Misconfigured, "{bad:?}");
            }
        }
        row_lock(&"x".repeat(48)).unwrap();
    }
}
