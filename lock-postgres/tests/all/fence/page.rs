//! The SQL of `docs/fencing.md`: that of this crate, and that for any database, on a real PostgreSQL.

use lock_kit::fence::{Entered, Role};
use lock_postgres::schema;
use lock_postgres::tokio_postgres::{Client, SimpleQueryMessage};

use super::*;

const PAGE: &str = include_str!("../../../../docs/fencing.md");

/// The block with this title, to its end.
fn block(title: &str) -> &'static str {
    let (_, rest) = PAGE.split_once(&format!("-- {title}\n")).expect("it is on the page");
    rest.split_once("```").expect("it ends").0
}

/// The statement under this title.
fn sql(title: &str) -> &'static str {
    block(title).split_once(';').expect("it ends").0
}

#[test]
fn the_page_has_the_statements_of_the_crate() {
    let table = schema::fences(None, "polylock").unwrap();
    assert_eq!(block("create the table of fences in PostgreSQL"), table);
    assert_eq!(block("enter in PostgreSQL"), Fence::ENTER);
    assert_eq!(block("enter as a reader in PostgreSQL"), Fence::ENTER_SHARED);
    assert_eq!(block("check as a reader in PostgreSQL"), Fence::CHECK_SHARED);
}

/// In every state of the row that four tokens can make, each step does what the rule of all fences says.
#[testbed::test]
async fn every_step_follows_the_rule_of_all_fences() {
    let stock = Stock::new().await;
    let mut client = stock.connect().await;
    let numbers = 0..=3_u64;
    let states = numbers
        .clone()
        .flat_map(|writer| (0..=3).map(move |reader| (writer, reader)));
    for ((writer, reader), number) in states.flat_map(|state| (1..=3).map(move |number| (state, number))) {
        let before = Entered { writer, reader };
        let token = token(number);
        for step in 0..3 {
            let mut tx = client.transaction().await.unwrap();
            let insert = format!("INSERT INTO {}.fences VALUES ('r', {writer}, {reader})", stock.schema);
            tx.batch_execute(&insert).await.unwrap();
            let (entered, expected) = match step {
                0 => (
                    stock.fence.enter(&mut tx, "r", token).await,
                    before.enter(Role::Writer, token),
                ),
                1 => (
                    stock.fence.enter_shared(&mut tx, "r", token).await,
                    before.enter(Role::Reader, token),
                ),
                _ => (
                    stock.fence.check_shared(&mut tx, "r", token).await,
                    before.check(Role::Reader, token).map(|()| before),
                ),
            };
            let after = format!("SELECT writer, reader FROM {}.fences", stock.schema);
            let after = tx.query_one(&after, &[]).await.unwrap();
            let after = (after.get::<_, i64>(0), after.get::<_, i64>(1));
            let what = format!("{before:?}, step {step}, token {number}");
            assert_eq!(entered.map_err(|error| stale(&error)), expected.map(drop), "{what}");
            let expected = expected.unwrap_or(before);
            assert_eq!(after, (expected.writer as i64, expected.reader as i64), "{what}");
            tx.rollback().await.unwrap();
        }
    }
}

/// How the storage knows a stale holder.
#[derive(Clone, Copy, Debug)]
enum Storage {
    Row,
    Table,
    ReadersAndWriters,
    WritesAlone,
}

impl Storage {
    /// The titles of the statements that enter, read and write.
    fn steps(self) -> [&'static str; 3] {
        match self {
            Self::Row => ["enter", "read", "write"],
            Self::Table => ["enter the fence", "check the fence", "naive read"],
            Self::ReadersAndWriters => ["enter as a writer", "check as a writer", "naive read"],
            Self::WritesAlone => ["", "naive read", "naive write"],
        }
    }
}

/// A database of its own schema, and one stock in it.
struct Page {
    client: Client,
    storage: Storage,
}

#[derive(Debug, Default)]
struct Holder {
    seen: i64,
    sold: i64,
    rejected: bool,
}

const STOCK: i64 = 100;

impl Page {
    async fn new(storage: Storage) -> Self {
        let stock = Stock::new().await;
        let client = stock.connect().await;
        let tables = [
            "create the table",
            "create the fence",
            "add a fence",
            "create the fence for readers and writers",
            "add a fence for readers and writers",
        ];
        let tables = tables.map(sql).join(";").replace(":name", "'stock/42'");
        let sql = format!(
            "CREATE SCHEMA page_{schema}; SET search_path = page_{schema}; {tables}; \
             INSERT INTO stock (id, amount) VALUES (42, 0)",
            schema = stock.schema
        );
        client.batch_execute(&sql).await.unwrap();
        Self { client, storage }
    }

    /// How many rows were changed or read, and the first number in them.
    async fn run(&self, sql: &str, token: i64, amount: i64) -> (u64, Option<i64>) {
        let sql = sql
            .replace(":id", "42")
            .replace(":name", "'stock/42'")
            .replace(":token", &token.to_string())
            .replace(":amount", &amount.to_string());
        let (mut count, mut first) = (0, None);
        for message in self.client.simple_query(&sql).await.expect(&sql) {
            match message {
                SimpleQueryMessage::Row(row) => first = row.get(0).and_then(|number| number.parse().ok()),
                SimpleQueryMessage::CommandComplete(rows) => count = rows,
                _ => {}
            }
        }
        (count, first)
    }

    async fn step(&self, holder: &mut Holder, token: i64, step: usize) {
        let [enter, first, second] = self.storage.steps();
        let sale = holder.seen - 1;
        let writes = step == 2 || step == 4;
        match (self.storage, step) {
            _ if holder.rejected => {}
            (Storage::WritesAlone, 0) => {}
            (_, 0) => _ = self.run(sql(enter), token, 0).await,
            (Storage::Row | Storage::WritesAlone, _) if writes => match self.run(sql(second), token, sale).await.0 {
                1 => holder.sold += 1,
                _ => holder.rejected = true,
            },
            (Storage::Row | Storage::WritesAlone, _) => match self.run(sql(first), token, 0).await.1 {
                Some(amount) => holder.seen = amount,
                None => holder.rejected = true,
            },
            // The check, and what it allows, are one transaction.
            (Storage::Table | Storage::ReadersAndWriters, _) => {
                self.run("BEGIN", token, 0).await;
                match self.run(sql(first), token, 0).await.1 {
                    None => holder.rejected = true,
                    Some(_) if writes => {
                        self.run("UPDATE stock SET amount = :amount", token, sale).await;
                        holder.sold += 1;
                    }
                    Some(_) => holder.seen = self.run(sql(second), token, 0).await.1.expect("the row"),
                }
                self.run("COMMIT", token, 0).await;
            }
        }
    }

    /// The number of orders of two holders that enter, and read and write twice, and of those with a lost update.
    async fn count_lost_updates(&self) -> (u32, u32) {
        let (mut tried, mut lost) = (0, 0);
        for order in orders(5) {
            let reset = format!(
                "UPDATE stock SET amount = {STOCK}, token = 0; UPDATE fence SET token = 0; \
                 UPDATE rw_fence SET writer = 0, reader = 0"
            );
            self.client.batch_execute(&reset).await.unwrap();
            let mut holders = [(Holder::default(), 0), (Holder::default(), 0)];
            for newer in order {
                let (holder, step) = &mut holders[usize::from(newer)];
                self.step(holder, 1 + i64::from(newer), *step).await;
                *step += 1;
            }
            let [(older, _), (newer, _)] = holders;
            assert!(newer.sold == 2 && !newer.rejected, "nobody is newer: {newer:?}");
            let left = self.run("SELECT amount FROM stock", 0, 0).await.1;
            tried += 1;
            lost += u32::from(left != Some(STOCK - older.sold - newer.sold));
        }
        (tried, lost)
    }
}

#[testbed::test]
async fn the_pages_fence_in_a_row_loses_no_update() {
    let page = Page::new(Storage::Row).await;
    assert_eq!(page.count_lost_updates().await, (252, 0));
}

#[testbed::test]
async fn the_pages_fence_in_a_table_loses_no_update() {
    for storage in [Storage::Table, Storage::ReadersAndWriters] {
        let page = Page::new(storage).await;
        assert_eq!(page.count_lost_updates().await, (252, 0), "{storage:?}");
    }
}

#[testbed::test]
async fn the_pages_fence_on_writes_alone_loses_updates() {
    let (tried, lost) = Page::new(Storage::WritesAlone).await.count_lost_updates().await;
    assert!(tried == 252 && lost > 0, "{lost} of {tried}");
}

/// A reader whose check passes has seen nothing of a writer that it was not admitted after.
#[testbed::test]
async fn the_pages_readers_keep_older_writers_out() {
    let page = Page::new(Storage::ReadersAndWriters).await;
    page.run(sql("enter as a writer"), 1, 0).await;
    page.run(sql("enter as a reader"), 2, 0).await;
    assert_eq!(page.run(sql("check as a writer"), 1, 0).await.1, None);
    assert_eq!(page.run(sql("check as a reader"), 2, 0).await.1, Some(2));
    page.run(sql("enter as a writer"), 3, 0).await;
    assert_eq!(page.run(sql("check as a writer"), 3, 0).await.1, Some(3));
    assert_eq!(page.run(sql("check as a reader"), 2, 0).await.1, None);
}
