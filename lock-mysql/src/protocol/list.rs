//! Names with a hold, page by page, in the order of the primary key.

use lock_core::Result;
use lock_core::backend::{ListFrom, ListPage};
use lock_kit::list;
use sqlx::mysql::MySqlRow;

use super::column;
use crate::error::SqlError;
use crate::names::hex;

/// A statement that looks at so many names, and whether `is_used` is true of each. It goes on after the last one of them, so that
/// names that are free cost a page no more than others.
pub(crate) fn statement(table: &str, is_used: &str, from: &ListFrom, at_most: usize) -> String {
    let begin = match list::after(from) {
        Some(after) => format!("`name`>{}", hex(&after)),
        None => format!("`name`>={}", hex(from.name_prefix().as_bytes())),
    };
    let end = hex(&list::prefix_end(from.name_prefix()));
    format!(
        "SELECT `name`,CAST({is_used} AS SIGNED) FROM `{table}` l WHERE {begin} AND `name`<{end} \
         ORDER BY `name` LIMIT {at_most}"
    )
}

/// The page that these rows make.
pub(crate) fn page(rows: &[MySqlRow], from: &ListFrom, at_most: usize) -> Result<ListPage> {
    list::page(rows.iter().map(read), from, at_most).map_err(SqlError::into_lock_error)
}

fn read(row: &MySqlRow) -> Result<(Vec<u8>, bool), SqlError> {
    let is_used: Option<i64> = column(row, 1, "state of a row")?;
    Ok((column(row, 0, "name")?, is_used.is_some_and(|used| used != 0)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::rows::{Value, row};

    #[test]
    fn a_page_has_the_names_that_are_used_and_the_beginning_of_the_next() {
        let rows = [
            (&b"a"[..], Value::Signed(1)),
            (b"b", Value::Signed(0)),
            (b"c", Value::Null),
        ]
        .map(|(name, is_used)| row(&[Value::Bytes(name), is_used]));
        let page = page(&rows, &ListFrom::all(), 3).unwrap();
        let names: Vec<_> = page.names.iter().map(|name| name.as_str()).collect();
        assert_eq!(names, ["a"]);
        assert_eq!(page.next.as_ref().and_then(ListFrom::after), Some("c"));
    }

    #[test]
    fn a_page_begins_with_the_prefix_or_after_the_page_before() {
        let from = ListFrom::prefix("a/");
        let first = statement("t", "1", &from, 7);
        let range = "WHERE `name`>=x'612f' AND `name`<x'612fff' ORDER BY `name` LIMIT 7";
        assert!(first.contains(range), "{first}");
        let next = statement("t", "1", &from.go_on_after("a/7"), 7);
        assert!(next.contains("WHERE `name`>x'612f37' AND `name`<x'612fff'"), "{next}");
        let all = statement("t", "1", &ListFrom::all(), 7);
        assert!(all.contains("WHERE `name`>=x'' AND `name`<x'ff'"), "{all}");
    }
}
