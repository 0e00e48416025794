//! Statements that find and delete dead rows.

use std::time::Duration;

use sqlx::mysql::MySqlRow;

use super::{RESERVED_TOKENS, Statements};
use crate::error::SqlError;
use crate::names::hex;
use crate::protocol::{SERVER_MICROS, column};

/// What the keys of readers' rows begin with, and no name does: those rows are never committed.
const READERS: &str = "x'ff'";

impl Statements {
    /// Deletes nothing, but needs the permission to.
    pub(crate) fn check_delete(&self) -> String {
        let [locks, tokens] = self
            .tables()
            .map(|table| format!("DELETE FROM `{table}` WHERE `name`=x'';"));
        format!("{locks}{tokens}COMMIT")
    }

    /// For each of the two tables, the statements that clean it.
    pub(crate) fn dead_rows(&self, retention: Duration) -> [DeadRows<'_>; 2] {
        self.tables().map(|table| DeadRows { table, retention })
    }
}

/// The rows of a table whose last token was granted so long ago by the server's clock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DeadRows<'a> {
    table: &'a str,
    retention: Duration,
}

impl DeadRows<'_> {
    /// So many names after this one, in order, and whether each is dead; [`row_after`] reads them.
    pub(crate) fn after(self, name: &[u8], count: usize) -> String {
        format!(
            "SELECT `name`,CAST({} AS SIGNED) FROM `{}` WHERE `name`>{} AND `name`<{READERS} ORDER BY `name` LIMIT {count};\
             COMMIT",
            self.are_dead(),
            self.table,
            hex(name)
        )
    }

    /// Deletes the row of this name if it is still dead: then the second statement matches a row. Fails at once with a busy
    /// error if anybody has locked it, whoever holds it alone or reads it. One at a time, so that no two wait for each other.
    pub(crate) fn delete(self, name: &[u8]) -> String {
        let (table, name) = (self.table, hex(name));
        format!(
            "SELECT 1 FROM `{table}` WHERE `name`={name} FOR UPDATE NOWAIT;\
             DELETE FROM `{table}` WHERE `name`={name} AND {};COMMIT",
            self.are_dead()
        )
    }

    /// A token that is as young as that, or ahead of the clock, would be given again once the clock is set back.
    fn are_dead(self) -> String {
        format!(
            "(`token`+{}<{SERVER_MICROS})",
            u128::from(RESERVED_TOKENS) + self.retention.as_micros()
        )
    }
}

/// A row of [`DeadRows::after`]: the name, and whether it is dead.
pub(crate) fn row_after(row: &MySqlRow) -> Result<(Vec<u8>, bool), SqlError> {
    let dead: i64 = column(row, 1, "state of a row")?;
    Ok((column(row, 0, "name")?, dead != 0))
}
