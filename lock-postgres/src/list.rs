//! The names in a table.

use std::sync::Arc;
use std::time::Duration;

use lock_core::Result;
use lock_core::backend::{ListFrom, ListPage};
use lock_kit::list::{after, page, prefix_end};

use crate::connection::{Connection, Statement};
use crate::error::{SqlError, unless_missing};
use crate::protocol::answers::column;

/// A page of the names that this statement finds.
pub(crate) async fn list(
    connection: &Arc<Connection>,
    statement: &Statement,
    from: &ListFrom,
    at_most: usize,
    limit: Option<Duration>,
) -> Result<ListPage> {
    let (prefix, end) = (from.name_prefix().as_bytes(), prefix_end(from.name_prefix()));
    let after = after(from).unwrap_or_default();
    let most = i64::try_from(at_most).unwrap_or(i64::MAX);
    let found = connection
        .query(statement, &[&prefix, &after.as_ref(), &end, &most], limit)
        .await;
    let rows = unless_missing(found)?;
    let read = |row| Ok((column(row, 0, "name")?, column(row, 1, "name")?));
    page(rows.iter().map(read), from, at_most).map_err(SqlError::into_lock_error)
}
