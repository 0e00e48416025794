//! The tables, as SQL for an administrator or a migration tool.

use lock_core::Result;

use crate::names::{check_identifiers, quoted};

/// The SQL of the table of [`Fence`](crate::Fence), `{table}_fences`, in this schema, or in the first one of the `search_path`, as
/// a statement that ends with `;`.
///
/// # Errors
/// [`ErrorKind::Misconfigured`](lock_core::ErrorKind::Misconfigured) unless the schema has 1 to 63 letters, digits, `_` or `$`, and
/// the table 1 to 48.
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
    let table = quoted(schema, &format!("{table}_fences"));
    // An update stays within its page, and that cleans itself.
    Ok(format!(
        "CREATE TABLE IF NOT EXISTS {table} (resource bytea PRIMARY KEY, writer bigint NOT NULL DEFAULT 0, \
         reader bigint NOT NULL DEFAULT 0) WITH (fillfactor=50);\n"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

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
            assert_eq!(error.kind(), lock_core::ErrorKind::Misconfigured, "{bad:?}");
        }
    }
}
