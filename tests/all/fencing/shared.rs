//! Readers and writers: the SQL of the page for any database, and `polylock::mysql::Fence`.
//!
//! What each step does in each state of the database is asked of the MariaDB once. The orders are walked through with the
//! answers.

use std::collections::HashMap;

use super::{Database, connect, sql, tokens};
use lock_mysql::sqlx::mysql::{MySqlConnection, MySqlTransaction};
use lock_mysql::sqlx::{AssertSqlSafe, Connection, query_scalar, raw_sql};
use polylock::FencingToken;
use polylock::mysql::Fence;

/// What the database holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Stored {
    writer: i64,
    reader: i64,
    /// Of the rows 42 and 43, which are always equal between two holders.
    amounts: [i64; 2],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Step {
    EnterAsWriter,
    /// Checks as a writer and reads the first row, in one transaction.
    CheckedRead,
    /// Checks as a writer and writes this into a row, in one transaction.
    CheckedWrite {
        row: usize,
        amount: i64,
    },
    EnterAsReader,
    Read {
        row: usize,
    },
    CheckAsReader,
    /// What is wrong: looks for newer writers alone.
    CheckForWriters,
}

/// Whose statements the holders run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Statements {
    OfThePage,
    OfTheCrate,
}

impl Statements {
    fn table(self) -> &'static str {
        match self {
            Self::OfThePage => "rw_fence",
            Self::OfTheCrate => Fence::DEFAULT_TABLE,
        }
    }
}

/// Steps of a holder with this token, and their results: `None` if it was rejected.
struct Answers {
    statements: Statements,
    database: Database,
    known: HashMap<(Stored, i64, Step), (Stored, Option<i64>)>,
}

impl Answers {
    async fn of(&mut self, before: Stored, token: i64, step: Step) -> (Stored, Option<i64>) {
        if let Some(known) = self.known.get(&(before, token, step)) {
            return *known;
        }
        self.restore(before).await;
        let result = match self.statements {
            Statements::OfThePage => self.step(token, step).await,
            Statements::OfTheCrate => step_of_the_crate(&mut self.database.connection, token, step).await,
        };
        let answer = (self.stored().await, result);
        self.known.insert((before, token, step), answer);
        answer
    }

    async fn step(&mut self, token: i64, step: Step) -> Option<i64> {
        let database = &mut self.database;
        match step {
            Step::EnterAsWriter => {
                database.change(&with_token("enter as a writer", token)).await;
                Some(0)
            }
            Step::EnterAsReader => {
                database.change(&with_token("enter as a reader", token)).await;
                Some(0)
            }
            Step::CheckedRead | Step::CheckedWrite { .. } => {
                database.change("BEGIN").await;
                let checked = database.select(&with_token("check as a writer", token)).await;
                let mut seen = None;
                if checked.is_some() {
                    seen = self.checked(step).await;
                }
                self.database.change("COMMIT").await;
                seen
            }
            Step::Read { row } => self.read(row).await,
            Step::CheckAsReader => database.select(&with_token("check as a reader", token)).await,
            Step::CheckForWriters => {
                let check = format!("SELECT writer FROM rw_fence WHERE writer <= {token}");
                database.select(&check).await
            }
        }
    }

    async fn checked(&mut self, step: Step) -> Option<i64> {
        match step {
            Step::CheckedWrite { row, amount } => {
                self.write(row, amount).await;
                Some(amount)
            }
            _ => self.read(0).await,
        }
    }

    async fn read(&mut self, row: usize) -> Option<i64> {
        let id = 42 + row;
        let read = format!("SELECT amount FROM stock WHERE id = {id}");
        self.database.select(&read).await
    }

    async fn write(&mut self, row: usize, amount: i64) {
        let id = 42 + row;
        let write = format!("UPDATE stock SET amount = {amount} WHERE id = {id}");
        self.database.change(&write).await;
    }

    async fn restore(&mut self, stored: Stored) {
        let Stored {
            writer,
            reader,
            amounts,
        } = stored;
        let table = self.statements.table();
        let fence = format!("UPDATE {table} SET writer = {writer}, reader = {reader}");
        self.database.change(&fence).await;
        for (row, amount) in amounts.into_iter().enumerate() {
            self.write(row, amount).await;
        }
    }

    async fn stored(&mut self) -> Stored {
        let table = self.statements.table();
        let mut number = async |column: &str, from: &str| {
            let query = format!("SELECT CAST({column} AS SIGNED) FROM {from}");
            self.database.select(&query).await.expect("the row")
        };
        Stored {
            writer: number("writer", table).await,
            reader: number("reader", table).await,
            amounts: [
                number("amount", "stock WHERE id = 42").await,
                number("amount", "stock WHERE id = 43").await,
            ],
        }
    }
}

/// Each step is a transaction, which enters first.
async fn step_of_the_crate(connection: &mut MySqlConnection, token: i64, step: Step) -> Option<i64> {
    let mut tx = connection.begin().await.expect("it runs");
    let number = token.try_into().expect("it is not negative");
    let (fence, token) = (Fence::new(), FencingToken::new(number).expect("it is not 0"));
    let entered = match step {
        Step::EnterAsWriter | Step::CheckedRead | Step::CheckedWrite { .. } => {
            fence.enter(&mut tx, "stock", token).await
        }
        Step::EnterAsReader => fence.enter_shared(&mut tx, "stock", token).await,
        Step::Read { .. } => Ok(()),
        Step::CheckAsReader | Step::CheckForWriters => fence.check_shared(&mut tx, "stock", token).await,
    };
    entered.ok()?; // which rolls back
    let result = match step {
        Step::CheckedRead => amount(&mut tx, 0).await,
        Step::Read { row } => amount(&mut tx, row).await,
        Step::CheckedWrite { row, amount } => {
            let write = format!("UPDATE stock SET amount = {amount} WHERE id = {}", 42 + row);
            raw_sql(AssertSqlSafe(write)).execute(&mut *tx).await.expect("it runs");
            amount
        }
        Step::EnterAsWriter | Step::EnterAsReader | Step::CheckAsReader | Step::CheckForWriters => 0,
    };
    tx.commit().await.expect("it runs");
    Some(result)
}

async fn amount(tx: &mut MySqlTransaction<'_>, row: usize) -> i64 {
    let read = format!("SELECT amount FROM stock WHERE id = {}", 42 + row);
    let amount = query_scalar(AssertSqlSafe(read)).fetch_one(&mut **tx).await;
    amount.expect("the row")
}

fn with_token(title: &str, token: i64) -> String {
    let statement = sql(title).replace(":name", "'stock'");
    statement.replace(":token", &token.to_string())
}

async fn start(statements: Statements) -> Database {
    let mut database = Database::start().await;
    if statements == Statements::OfThePage {
        database.change(&sql("create the fence for readers and writers")).await;
        let add = sql("add a fence for readers and writers").replace(":name", "'stock'");
        database.change(&add).await;
    } else {
        database.change(&sql("create the table of fences")).await;
        database
            .change("INSERT INTO polylock_fences (resource) VALUES ('stock')")
            .await;
    }
    database.change("INSERT INTO stock (id, amount) VALUES (43, 0)").await;
    database
}

/// How readers take part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Readers {
    EnterAndCheck,
    EnterOnly,
    CheckOnly,
}

/// The older writer, the reader and the newer writer.
const OLDER: usize = 0;
const READER: usize = 1;
const STEPS: usize = 4;

/// An order of steps, as far as it was taken.
#[derive(Clone, Debug, Default)]
struct Run {
    stored: Stored,
    taken: [usize; 3],
    rejected: [bool; 3],
    seen: [i64; 3],
    lost: bool,
}

impl Run {
    /// Each holder has as many steps.
    fn next_step(&self, holder: usize, readers: Readers) -> Option<Step> {
        let amount = self.seen[holder];
        Some(match (holder, self.taken[holder]) {
            (READER, 0) if readers != Readers::CheckOnly => Step::EnterAsReader,
            (READER, 1) => Step::Read { row: 0 },
            (READER, 2) => Step::Read { row: 1 },
            (READER, _) => match readers {
                Readers::EnterAndCheck => Step::CheckAsReader,
                Readers::EnterOnly => return None,
                Readers::CheckOnly => Step::CheckForWriters,
            },
            (_, 0) => Step::EnterAsWriter,
            (_, 1) => Step::CheckedRead,
            (_, 2) => Step::CheckedWrite {
                row: 0,
                amount: amount + 1,
            },
            (_, _) => Step::CheckedWrite { row: 1, amount },
        })
    }

    /// Whether the older writer has changed one of the two rows and is there, or was rejected there.
    fn is_half_written(&self) -> bool {
        self.taken[OLDER] == STEPS - 1
    }

    async fn step(&mut self, holder: usize, token: i64, readers: Readers, answers: &mut Answers) {
        let step = self.next_step(holder, readers);
        self.taken[holder] += 1;
        let Some(step) = step.filter(|_| !self.rejected[holder]) else {
            return;
        };
        let before = self.stored;
        let (stored, result) = answers.of(before, token, step).await;
        self.stored = stored;
        match (step, result) {
            (_, None) => self.rejected[holder] = true,
            (Step::CheckedRead | Step::Read { row: 0 }, Some(amount)) => self.seen[holder] = amount,
            (Step::CheckedWrite { row: 0, amount }, _) => {
                self.lost |= self.seen[holder] != before.amounts[0];
                self.seen[holder] = amount;
            }
            // As a difference.
            (Step::Read { .. }, Some(amount)) => self.seen[holder] -= amount,
            _ => {}
        }
    }

    /// Whether the reader was not rejected, and has seen rows that differ.
    fn is_torn(&self) -> bool {
        !self.rejected[READER] && self.seen[READER] != 0
    }
}

/// The number of orders, and of those with a torn read and with a lost update.
///
/// If the older writer expired half-way, what it left is for the next writer to mend: a reader that enters then is not counted.
async fn count(statements: Statements, readers: Readers) -> (u32, u32, u32) {
    let database = start(statements).await;
    let tokens: [i64; 3] = tokens(&database.server).await;
    let mut answers = Answers {
        statements,
        database,
        known: HashMap::new(),
    };
    let (mut orders, mut torn, mut lost) = (0, 0, 0);
    let mut runs = vec![Run::default()];
    while let Some(run) = runs.pop() {
        for (holder, token) in tokens.into_iter().enumerate() {
            let enters_late = holder == READER && run.taken[READER] == 0 && run.is_half_written();
            if run.taken[holder] < STEPS && !enters_late {
                let mut next = run.clone();
                next.step(holder, token, readers, &mut answers).await;
                runs.push(next);
            }
        }
        if run.taken == [STEPS; 3] {
            orders += 1;
            torn += u32::from(run.is_torn());
            lost += u32::from(run.lost);
        }
    }
    (orders, torn, lost)
}

#[testbed::test]
async fn no_order_of_writers_and_a_reader_tears_a_read_or_loses_an_update() {
    for statements in [Statements::OfThePage, Statements::OfTheCrate] {
        let counted = count(statements, Readers::EnterAndCheck).await;
        assert_eq!(counted, (32_670, 0, 0), "{statements:?}");
    }
}

#[testbed::test]
async fn readers_that_do_not_enter_or_do_not_check_tear_reads() {
    for readers in [Readers::EnterOnly, Readers::CheckOnly] {
        let (orders, torn, _) = count(Statements::OfThePage, readers).await;
        assert!(orders == 32_670 && torn > 0, "{readers:?}: {torn} of {orders}");
    }
}

#[testbed::test]
async fn no_reader_enters_while_a_writers_transaction_has_checked() {
    let mut database = start(Statements::OfThePage).await;
    let [writer, reader]: [i64; 2] = tokens(&database.server).await;
    database.change(&with_token("enter as a writer", writer)).await;
    let mut newcomer = connect(&database.server).await;
    let enter = with_token("enter as a reader", reader);

    database.change("BEGIN").await;
    let check = with_token("check as a writer", writer);
    assert!(database.select(&check).await.is_some());
    let impatient = format!("SET STATEMENT innodb_lock_wait_timeout = 1 FOR {enter}");
    let refused = raw_sql(AssertSqlSafe(impatient)).execute(&mut newcomer).await;
    let refused = refused.expect_err("the row is locked").to_string();
    assert!(refused.contains("Lock wait timeout"), "{refused}");
    database.change("COMMIT").await;

    let entered = raw_sql(AssertSqlSafe(enter)).execute(&mut newcomer).await;
    assert_eq!(entered.expect("the row is free").rows_affected(), 1);
    assert!(database.select(&check).await.is_none());
}
