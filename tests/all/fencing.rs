//! The SQL of `docs/fencing.md`, on a real MariaDB.

use lock_mysql::sqlx::{AssertSqlSafe, Connection, MySqlConnection, Row, raw_sql};

mod mysql;
mod shared;

const PAGE: &str = include_str!("../../docs/fencing.md");

/// The statement under this title on the page.
fn sql(title: &str) -> String {
    let (_, rest) = PAGE.split_once(&format!("-- {title}\n")).expect("it is on the page");
    rest.split_once(';').expect("it ends").0.to_owned()
}

/// How the storage knows a stale holder.
#[derive(Clone, Copy, Debug)]
enum Fence {
    Row,
    Table,
    WritesAlone,
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Enter,
    Read,
    Write,
}

impl Fence {
    fn steps(self) -> &'static [Step] {
        match self {
            Self::Row | Self::Table => &[Step::Enter, Step::Read, Step::Write, Step::Read, Step::Write],
            Self::WritesAlone => &[Step::Read, Step::Write, Step::Read, Step::Write],
        }
    }
}

const STOCK: i64 = 100;

struct Database {
    connection: MySqlConnection,
    server: testbed::Server,
}

impl Database {
    async fn start() -> Self {
        let server = testbed::MariaDb::new().start().await.expect("a server");
        let mut database = Self {
            connection: connect(&server).await,
            server,
        };
        database.change(&sql("create the table")).await;
        database.change(&sql("create the fence")).await;
        database.change("INSERT INTO stock (id, amount) VALUES (42, 0)").await;
        database
            .change(&sql("add a fence").replace(":name", "'stock/42'"))
            .await;
        database
    }

    /// How many rows were changed.
    async fn change(&mut self, sql: &str) -> u64 {
        let changed = raw_sql(AssertSqlSafe(sql)).execute(&mut self.connection).await;
        changed.expect(sql).rows_affected()
    }

    async fn select(&mut self, sql: &str) -> Option<i64> {
        let row = raw_sql(AssertSqlSafe(sql)).fetch_optional(&mut self.connection).await;
        row.expect(sql).map(|row| row.get(0))
    }

    async fn reset(&mut self) {
        self.change(&format!("UPDATE stock SET amount = {STOCK}, token = 0"))
            .await;
        self.change("UPDATE fence SET token = 0").await;
    }
}

async fn connect(server: &testbed::Server) -> MySqlConnection {
    MySqlConnection::connect(&server.url()).await.expect("it runs")
}

/// Tokens of one lock, the oldest first.
async fn tokens<const COUNT: usize>(server: &testbed::Server) -> [i64; COUNT] {
    let locks = polylock::connect(&server.url()).await.expect("it runs");
    let mut tokens = [0; COUNT];
    for token in &mut tokens {
        let guard = locks.lock("stock/42").acquire().await.expect("it is free");
        *token = guard.token().into();
        guard.release().await.expect("it was held");
    }
    tokens
}

/// Sells one item after another, until it is rejected.
#[derive(Debug)]
struct Holder {
    fence: Fence,
    token: i64,
    seen: i64,
    sold: i64,
    rejected: bool,
}

impl Holder {
    fn new(fence: Fence, token: i64) -> Self {
        Self {
            fence,
            token,
            seen: 0,
            sold: 0,
            rejected: false,
        }
    }

    async fn step(&mut self, step: Step, database: &mut Database) {
        if self.rejected {
            return;
        }
        match step {
            Step::Enter => self.enter(database).await,
            Step::Read => match self.read(database).await {
                Some(amount) => self.seen = amount,
                None => self.rejected = true,
            },
            Step::Write => match self.write(database).await {
                true => self.sold += 1,
                false => self.rejected = true,
            },
        }
    }

    fn sql(&self, title: &str) -> String {
        sql(title)
            .replace(":id", "42")
            .replace(":name", "'stock/42'")
            .replace(":token", &self.token.to_string())
            .replace(":amount", &(self.seen - 1).to_string())
    }

    async fn enter(&self, database: &mut Database) {
        match self.fence {
            Fence::Row => database.change(&self.sql("enter")).await,
            Fence::Table => database.change(&self.sql("enter the fence")).await,
            Fence::WritesAlone => unreachable!("it never enters"),
        };
    }

    async fn read(&self, database: &mut Database) -> Option<i64> {
        match self.fence {
            Fence::Row => database.select(&self.sql("read")).await,
            Fence::WritesAlone => database.select(&self.sql("naive read")).await,
            Fence::Table => {
                database.change("BEGIN").await;
                let checked = database.select(&self.sql("check the fence")).await;
                let amount = database.select(&self.sql("naive read")).await;
                database.change("COMMIT").await;
                checked.and(amount)
            }
        }
    }

    async fn write(&self, database: &mut Database) -> bool {
        match self.fence {
            Fence::Row => database.change(&self.sql("write")).await == 1,
            Fence::WritesAlone => database.change(&self.sql("naive write")).await == 1,
            Fence::Table => {
                database.change("BEGIN").await;
                let checked = database.select(&self.sql("check the fence")).await;
                if checked.is_some() {
                    let amount = self.seen - 1;
                    database.change(&format!("UPDATE stock SET amount = {amount}")).await;
                }
                database.change("COMMIT").await;
                checked.is_some()
            }
        }
    }
}

/// Every order of two holders with so many steps each: `false` is a step of the older one.
fn orders(steps: u32) -> impl Iterator<Item = Vec<bool>> {
    let patterns = (0..1_u32 << (2 * steps)).filter(move |pattern| pattern.count_ones() == steps);
    patterns.map(move |pattern| (0..2 * steps).map(|at| pattern >> at & 1 == 1).collect())
}

/// The number of orders, and of those in which an update was lost.
async fn count_lost_updates(fence: Fence) -> (usize, usize) {
    let mut database = Database::start().await;
    let tokens: [i64; 2] = tokens(&database.server).await;
    let steps = fence.steps();
    let (mut tried, mut lost) = (0, 0);
    for order in orders(steps.len().try_into().expect("a few")) {
        database.reset().await;
        let mut holders = tokens.map(|token| (Holder::new(fence, token), steps.iter()));
        for newer in &order {
            let (holder, steps) = &mut holders[usize::from(*newer)];
            let step = steps.next().expect("as many as in the order");
            holder.step(*step, &mut database).await;
        }
        let [(older, _), (newer, _)] = holders;
        assert!(
            newer.sold == 2 && !newer.rejected,
            "nobody is newer: {newer:?}, {order:?}"
        );
        let left = database.select("SELECT amount FROM stock").await.expect("the row");
        tried += 1;
        lost += usize::from(left != STOCK - older.sold - newer.sold);
    }
    (tried, lost)
}

#[testbed::test]
async fn a_fence_in_the_row_loses_no_update() {
    assert_eq!(count_lost_updates(Fence::Row).await, (252, 0));
}

#[testbed::test]
async fn a_fence_in_a_table_loses_no_update() {
    assert_eq!(count_lost_updates(Fence::Table).await, (252, 0));
}

#[testbed::test]
async fn a_fence_on_writes_alone_loses_updates() {
    let (tried, lost) = count_lost_updates(Fence::WritesAlone).await;
    assert!(tried == 70 && lost > 0, "{lost} of {tried}");
}

#[testbed::test]
async fn nobody_enters_a_fence_while_a_transaction_has_checked_it() {
    let mut database = Database::start().await;
    let tokens: [i64; 2] = tokens(&database.server).await;
    let [older, newer] = tokens.map(|token| Holder::new(Fence::Table, token));
    older.enter(&mut database).await;
    let mut newcomer = connect(&database.server).await;
    let enter = newer.sql("enter the fence");

    database.change("BEGIN").await;
    assert!(database.select(&older.sql("check the fence")).await.is_some());
    let impatient = format!("SET STATEMENT innodb_lock_wait_timeout = 1 FOR {enter}");
    let refused = raw_sql(AssertSqlSafe(impatient)).execute(&mut newcomer).await;
    let refused = refused.expect_err("the row is locked").to_string();
    assert!(refused.contains("Lock wait timeout"), "{refused}");
    database.change("COMMIT").await;

    let entered = raw_sql(AssertSqlSafe(enter)).execute(&mut newcomer).await;
    assert_eq!(entered.expect("the row is free").rows_affected(), 1);
    assert!(database.select(&older.sql("check the fence")).await.is_none());
}
