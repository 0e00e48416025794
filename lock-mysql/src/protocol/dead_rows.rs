//! Statements that find and delete rows that nobody needs any more.

use sqlx::mysql::MySqlRow;

use super::{Job, column};
use crate::error::SqlError;
use crate::names::{NO_ROW, hex};

/// The dead rows of a table.
#[derive(Debug)]
pub(crate) struct DeadRows<'a> {
    table: &'a str,
    /// The columns of the primary key. The first one is the name.
    key: &'static [&'static str],
    /// The condition by which a row is dead.
    is_dead: String,
}

/// The primary key of a row, a value for each column.
pub(crate) type Key = Vec<Vec<u8>>;

/// The rows of readers have greater keys, and are never committed. A name has no such byte.
const PAST_NAMES: &str = "x'ff'";

impl<'a> DeadRows<'a> {
    pub(crate) fn new(table: &'a str, key: &'static [&'static str], is_dead: String) -> Self {
        Self { table, key, is_dead }
    }

    /// The key before all others.
    pub(crate) fn first_key(&self) -> Key {
        vec![Vec::new(); self.key.len()]
    }

    /// Deletes nothing, but needs the permission to.
    pub(crate) fn check_delete(&self) -> Job {
        Job::Statement(format!("DELETE FROM `{}` WHERE {NO_ROW}", self.table))
    }

    /// So many rows after this key, in order, dead or not; [`read`](Self::read) reads each.
    pub(crate) fn after(&self, key: &Key, count: usize) -> Job {
        let columns = self.key.join("`,`");
        let sql = format!(
            "SELECT `{columns}`,CAST({} AS SIGNED) FROM `{}` WHERE {} AND `name`<{PAST_NAMES} ORDER BY `{columns}` LIMIT {count}",
            self.is_dead,
            self.table,
            beyond(self.key, key)
        );
        Job::Transaction(vec![sql])
    }

    /// The key of a row, and whether the row is dead.
    pub(crate) fn read(&self, row: &MySqlRow) -> Result<(Key, bool), SqlError> {
        let key = (0..self.key.len()).map(|index| column(row, index, "key of a row"));
        let key = key.collect::<Result<_, _>>()?;
        let is_dead: i64 = column(row, self.key.len(), "state of a row")?;
        Ok((key, is_dead != 0))
    }

    /// Deletes the row of this key if it is still dead: then it matches a row. Fails at once with a busy error if anybody has
    /// locked it. One row at a time, so that no two clean-ups wait for each other.
    pub(crate) fn delete(&self, key: &Key) -> Job {
        let values = self.key.iter().zip(key);
        let is_it: Vec<_> = values
            .map(|(column, value)| format!("`{column}`={}", hex(value)))
            .collect();
        let (table, is_it) = (self.table, is_it.join(" AND "));
        Job::Transaction(vec![
            format!("SELECT 1 FROM `{table}` WHERE {is_it} FOR UPDATE NOWAIT"),
            format!("DELETE FROM `{table}` WHERE {is_it} AND {}", self.is_dead),
        ])
    }
}

/// The condition of a row after this key. It is no comparison of two tuples, for which a server reads the rows before as well.
fn beyond(columns: &[&str], key: &[Vec<u8>]) -> String {
    let (Some((column, columns)), Some((value, values))) = (columns.split_first(), key.split_first()) else {
        return "TRUE".to_owned();
    };
    let value = hex(value);
    match columns {
        [] => format!("`{column}`>{value}"),
        _ => format!(
            "`{column}`>={value} AND (`{column}`>{value} OR {})",
            beyond(columns, values)
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::rows::{Value, row};

    #[test]
    fn a_row_says_its_key_and_whether_it_is_dead() {
        let rows = DeadRows::new("t", &["name", "holder"], "TRUE".to_owned());
        let read = |is_dead| {
            let row = row(&[Value::Bytes(b"a"), Value::Bytes(b"b"), Value::Signed(is_dead)]);
            rows.read(&row).unwrap()
        };
        let key = vec![b"a".to_vec(), b"b".to_vec()];
        assert_eq!((read(0), read(1)), ((key.clone(), false), (key, true)));
        assert!(rows.read(&row(&[Value::Bytes(b"a"), Value::Null])).is_err());
    }

    #[test]
    fn a_page_begins_after_the_last_key_of_the_page_before() {
        assert_eq!(beyond(&["name"], &[b"a".to_vec()]), "`name`>x'61'");
        assert_eq!(
            beyond(&["name", "holder"], &[b"a".to_vec(), b"b".to_vec()]),
            "`name`>=x'61' AND (`name`>x'61' OR `holder`>x'62')"
        );
    }
}
