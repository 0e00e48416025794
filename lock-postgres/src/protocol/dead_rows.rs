//! The deletion of rows that nobody needs any more.

use crate::connection::TextRows;
use crate::error::SqlError;

/// The dead rows of one table.
#[derive(Debug)]
pub(crate) struct DeadRows {
    table: String,
    /// The columns of its primary key, of which the first is the name.
    key: &'static [&'static str],
    /// Which rows are dead. The table is `t`.
    dead: String,
}

/// The values of a primary key, as text.
pub(crate) type Key = Vec<String>;

/// What one statement did.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Page {
    /// The number of rows that it looked at.
    pub(crate) rows: usize,
    pub(crate) deleted: u64,
    /// The key of the last of them.
    pub(crate) last: Key,
}

impl DeadRows {
    pub(super) fn new(table: &str, key: &'static [&'static str], dead: String) -> Self {
        let table = table.to_owned();
        Self { table, key, dead }
    }

    /// Looks at so many rows behind this key, or at the first ones, and deletes the dead ones among them, but none that somebody has
    /// locked. A statement that looked for dead rows might read a large table to its end.
    pub(crate) fn delete(&self, after: Option<&Key>, at_once: usize) -> String {
        let Self { table, key, dead } = self;
        let behind = after.map_or_else(String::new, |after| {
            let value = |(number, value)| match number {
                0 => format!("decode('{value}','hex')"),
                _ => format!("'{value}'"),
            };
            let values: Vec<_> = after.iter().enumerate().map(value).collect();
            format!("WHERE ({})>({}) ", key.join(","), values.join(","))
        });
        let as_text = |column: &&str| match *column {
            "name" => "encode(name,'hex')".to_owned(),
            column => format!("{column}::text"),
        };
        let last: Vec<_> = key.iter().map(as_text).collect();
        let downwards: Vec<_> = key.iter().map(|column| format!("p.{column} DESC")).collect();
        let (key, last, downwards) = (key.join(","), last.join(","), downwards.join(","));
        format!(
            "SET LOCAL enable_seqscan=off;\
             WITH p AS MATERIALIZED (SELECT {key} FROM {table} {behind}ORDER BY {key} LIMIT {at_once}),\
             l AS MATERIALIZED (SELECT {key} FROM {table} t WHERE ({key}) IN (SELECT {key} FROM p) AND {dead} FOR UPDATE SKIP LOCKED),\
             d AS (DELETE FROM {table} t WHERE ({key}) IN (SELECT {key} FROM l) AND {dead} RETURNING 1) \
             SELECT (SELECT count(*) FROM p),(SELECT count(*) FROM d),{last} FROM p ORDER BY {downwards} LIMIT 1"
        )
    }

    /// The answer to [`delete`](Self::delete); `None` at the end of the table.
    pub(crate) fn page(&self, rows: &TextRows) -> Result<Option<Page>, SqlError> {
        const UNREAD: SqlError = SqlError::UnexpectedAnswer("page of a table");
        let Some(row) = rows.first() else {
            return Ok(None);
        };
        let text = |column: usize| row.get(column).and_then(Option::as_deref).ok_or(UNREAD);
        // They go into the next statement.
        let is_plain = |text: &str| text.bytes().all(|c| c.is_ascii_hexdigit() || c == b'-');
        let value = |column| {
            Ok(text(column)
                .ok()
                .filter(|text| is_plain(text))
                .ok_or(UNREAD)?
                .to_owned())
        };
        let last: Result<Key, SqlError> = (2..self.key.len() + 2).map(value).collect();
        Ok(Some(Page {
            rows: text(0)?.parse().map_err(|_| UNREAD)?,
            deleted: text(1)?.parse().map_err(|_| UNREAD)?,
            last: last?,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waiters() -> DeadRows {
        DeadRows::new("w", &["name", "place"], "expires<now()".to_owned())
    }

    #[test]
    fn a_statement_looks_at_one_page_and_deletes_none_that_is_locked() {
        let after = vec!["c3b6".to_owned(), "-7".to_owned()];
        let behind = "WHERE (name,place)>(decode('c3b6','hex'),'-7') ";
        for (after, behind) in [(None, ""), (Some(&after), behind)] {
            assert_eq!(
                waiters().delete(after, 500),
                format!(
                    "SET LOCAL enable_seqscan=off;\
                     WITH p AS MATERIALIZED (SELECT name,place FROM w {behind}ORDER BY name,place LIMIT 500),\
                     l AS MATERIALIZED (SELECT name,place FROM w t WHERE (name,place) IN (SELECT name,place FROM p) \
                     AND expires<now() FOR UPDATE SKIP LOCKED),\
                     d AS (DELETE FROM w t WHERE (name,place) IN (SELECT name,place FROM l) AND expires<now() RETURNING 1) \
                     SELECT (SELECT count(*) FROM p),(SELECT count(*) FROM d),encode(name,'hex'),place::text FROM p \
                     ORDER BY p.name DESC,p.place DESC LIMIT 1"
                )
            );
        }
    }

    #[test]
    fn an_answer_says_where_the_next_page_begins() {
        let answer = |texts: &[&str]| vec![texts.iter().map(|text| Some((*text).to_owned())).collect()];
        let page = waiters().page(&answer(&["500", "3", "c3b6", "-7"])).unwrap();
        let last = vec!["c3b6".to_owned(), "-7".to_owned()];
        let (rows, deleted) = (500, 3);
        assert_eq!(page, Some(Page { rows, deleted, last }));
        assert_eq!(waiters().page(&Vec::new()).unwrap(), None);
        let of_names = DeadRows::new("l", &["name"], "true".to_owned());
        let page = of_names.page(&answer(&["7", "0", "c3b6"])).unwrap().unwrap();
        assert_eq!(page.last, ["c3b6"]);
        for bad in [
            &["500", "3", "c3b6"][..],
            &["500", "3", "c3b6", "'"],
            &["x", "3", "c3b6", "7"],
            &["500", "", "c3b6", "7"],
        ] {
            assert!(waiters().page(&answer(bad)).is_err(), "{bad:?}");
        }
    }
}
