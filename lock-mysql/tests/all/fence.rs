//! A resource in the database, and holders that come too late. Every interleaving is made by two connections of one test.

use lock_core::{Error, ErrorKind, FencingToken, Stale};
use lock_mysql::{Fence, ReadBeforeEnter, schema};
use sqlx::mysql::{MySqlConnection, MySqlPool, MySqlTransaction};
use sqlx::{AssertSqlSafe, Connection, Executor, query, query_scalar};
use testbed::Server;
use tokio::task::JoinSet;

use crate::support::*;

mod deadlocks;
mod isolation;
mod settings;
mod shared;

on_both_servers!(
    the_update_of_a_holder_that_was_paused_is_refused,
    without_the_fence_that_update_is_lost,
    no_order_of_transactions_loses_an_update,
    nobody_enters_until_the_transaction_ends,
    a_rollback_undoes_the_entry,
    resources_are_compared_by_their_bytes_and_have_1_to_512,
    many_that_enter_a_new_resource_at_once_cause_no_deadlock,
    a_new_resource_does_not_wait_for_another,
    an_entry_that_is_dropped_leaves_nothing_behind,
);

/// A stock of ten items in a table of the test's own, beside a fence of its own.
struct Stock {
    fixture: Fixture,
    fence: Fence,
}

impl Stock {
    async fn new(server: &Server) -> Self {
        let fixture = Fixture::on(server.clone());
        let table = &fixture.table;
        let mut observer = fixture.observer().await;
        observer.run(&schema::fences(table).unwrap()).await;
        observer
            .run(&format!(
                "CREATE TABLE {table}_stock (id INT PRIMARY KEY, amount BIGINT NOT NULL);\
                 INSERT INTO {table}_stock VALUES (1, 10), (2, 10)"
            ))
            .await;
        let fence = Fence::in_table(format!("{table}_fences")).unwrap();
        Self { fixture, fence }
    }

    async fn connect(&self) -> MySqlConnection {
        let mut connection = MySqlConnection::connect(&self.fixture.server.url()).await.unwrap();
        // A wait that no test expects fails soon.
        connection
            .execute("SET SESSION innodb_lock_wait_timeout=1")
            .await
            .unwrap();
        connection
    }

    async fn read(&self, tx: &mut MySqlTransaction<'_>) -> i64 {
        let sql = format!("SELECT amount FROM {}_stock WHERE id=1", self.fixture.table);
        query_scalar(AssertSqlSafe(sql)).fetch_one(&mut **tx).await.unwrap()
    }

    async fn write(&self, tx: &mut MySqlTransaction<'_>, amount: i64) {
        let sql = format!("UPDATE {}_stock SET amount=? WHERE id=1", self.fixture.table);
        query(AssertSqlSafe(sql)).bind(amount).execute(&mut **tx).await.unwrap();
    }

    /// What is committed.
    async fn left(&self) -> i64 {
        let mut connection = self.connect().await;
        let mut tx = connection.begin().await.unwrap();
        self.read(&mut tx).await
    }
}

const RESOURCE: &str = "stock/1";

fn token(number: u64) -> FencingToken {
    FencingToken::new(number).unwrap()
}

fn stale(error: &Error) -> Stale {
    assert_eq!(error.kind(), ErrorKind::Lost, "{error:?}");
    assert!(!error.is_retryable());
    *error.cause().unwrap().downcast_ref().expect("it says why")
}

fn is_read_before_enter(error: &Error) -> bool {
    assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error:?}");
    assert!(error.is_retryable());
    error.cause().unwrap().downcast_ref::<ReadBeforeEnter>().is_some()
}

/// The older holder reads, and is paused until the newer one has read. Then both sell an item. How many were sold, and how
/// many are left.
async fn two_sales(stock: &Stock, fenced: bool) -> (i64, i64) {
    let [mut older, mut newer] = [stock.connect().await, stock.connect().await];
    let mut sold = 0;
    let enter = async |tx: &mut MySqlTransaction<'_>, number| match fenced {
        true => stock.fence.enter(tx, RESOURCE, token(number)).await,
        false => Ok(()),
    };

    let mut tx = older.begin().await.unwrap();
    enter(&mut tx, 1).await.expect("nobody was there");
    let seen_by_older = stock.read(&mut tx).await;
    tx.commit().await.unwrap();

    let mut tx = newer.begin().await.unwrap();
    enter(&mut tx, 2).await.expect("its token is newer");
    let seen_by_newer = stock.read(&mut tx).await;
    tx.commit().await.unwrap();

    let mut tx = older.begin().await.unwrap();
    match enter(&mut tx, 1).await {
        Ok(()) => {
            stock.write(&mut tx, seen_by_older - 1).await;
            tx.commit().await.unwrap();
            sold += 1;
        }
        Err(error) => {
            let stale = stale(&error);
            assert_eq!((stale.token, stale.newest), (token(1), Some(token(2))));
            assert!(error.to_string().contains("\"stock/1\""), "{error}");
            tx.rollback().await.unwrap();
        }
    }

    let mut tx = newer.begin().await.unwrap();
    enter(&mut tx, 2).await.expect("nobody is newer");
    stock.write(&mut tx, seen_by_newer - 1).await;
    tx.commit().await.unwrap();
    (sold + 1, stock.left().await)
}

async fn the_update_of_a_holder_that_was_paused_is_refused(server: Server) {
    assert_eq!(two_sales(&Stock::new(&server).await, true).await, (1, 9));
}

async fn without_the_fence_that_update_is_lost(server: Server) {
    assert_eq!(two_sales(&Stock::new(&server).await, false).await, (2, 9));
}

/// Every order in which two holders take so many steps each: `false` is a step of the older one.
fn orders(steps: u32) -> impl Iterator<Item = Vec<bool>> {
    let patterns = (0..1_u32 << (2 * steps)).filter(move |pattern| pattern.count_ones() == steps);
    patterns.map(move |pattern| (0..2 * steps).map(|at| pattern >> at & 1 == 1).collect())
}

/// Each holder reads, sells, reads and sells, in a transaction each.
async fn no_order_of_transactions_loses_an_update(server: Server) {
    let stock = Stock::new(&server).await;
    let mut connection = stock.connect().await;
    let (mut tried, mut refused) = (0, 0);
    for (number, order) in orders(4).enumerate() {
        let resource = format!("stock/{number}");
        let start = stock.left().await;
        let mut holders = [Some((0, 0)); 2]; // what it saw, and how many steps it took
        let mut sold = 0;
        for newer in order {
            let holder = usize::from(newer);
            let Some((seen, steps)) = holders[holder] else { continue };
            let mut tx = connection.begin().await.unwrap();
            let token = token(holder as u64 + 1);
            if stock.fence.enter(&mut tx, &resource, token).await.is_err() {
                assert!(!newer, "nobody is newer");
                holders[holder] = None;
                refused += 1;
                continue;
            }
            if steps % 2 == 0 {
                holders[holder] = Some((stock.read(&mut tx).await, steps + 1));
            } else {
                stock.write(&mut tx, seen - 1).await;
                holders[holder] = Some((seen, steps + 1));
                sold += 1;
            }
            tx.commit().await.unwrap();
        }
        tried += 1;
        assert_eq!(stock.left().await, start - sold, "order {number}");
    }
    assert_eq!(
        (tried, refused),
        (70, 69),
        "only in one order does the older one end first"
    );
}

async fn nobody_enters_until_the_transaction_ends(server: Server) {
    let stock = Stock::new(&server).await;
    let [mut first, mut second] = [stock.connect().await, stock.connect().await];
    let mut tx = first.begin().await.unwrap();
    stock.fence.enter(&mut tx, RESOURCE, token(1)).await.unwrap();
    let mut waiting = second.begin().await.unwrap();
    let error = stock.fence.enter(&mut waiting, RESOURCE, token(2)).await.unwrap_err();
    assert!(
        error.kind() == ErrorKind::Unavailable && error.is_retryable(),
        "{error}"
    );
    assert!(error.to_string().contains("run the transaction again"), "{error}");
    waiting.rollback().await.unwrap();
    tx.commit().await.unwrap();
    let mut tx = second.begin().await.unwrap();
    stock.fence.enter(&mut tx, RESOURCE, token(2)).await.unwrap();
}

async fn a_rollback_undoes_the_entry(server: Server) {
    let stock = Stock::new(&server).await;
    let mut connection = stock.connect().await;
    let mut tx = connection.begin().await.unwrap();
    stock.fence.enter(&mut tx, RESOURCE, token(2)).await.unwrap();
    tx.rollback().await.unwrap();
    let mut tx = connection.begin().await.unwrap();
    stock.fence.enter(&mut tx, RESOURCE, token(1)).await.unwrap();
}

async fn resources_are_compared_by_their_bytes_and_have_1_to_512(server: Server) {
    let stock = Stock::new(&server).await;
    let mut connection = stock.connect().await;
    let mut tx = connection.begin().await.unwrap();
    let longest = [0xff; 512];
    let different: [&[u8]; 6] = [b"a", b"A", b"a ", b"a\0", "ä".as_bytes(), &longest];
    for (number, resource) in [6, 5, 4, 3, 2, 1].into_iter().zip(different) {
        // A row of another resource would have a newer token.
        stock.fence.enter(&mut tx, resource, token(number)).await.unwrap();
    }
    for bad in [&[][..], &[b'a'; 513]] {
        let error = stock.fence.enter(&mut tx, bad, token(9)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidName, "{error}");
    }
}

/// All of them want the row: at first they also make it, later half of them roll back.
async fn many_that_enter_a_new_resource_at_once_cause_no_deadlock(server: Server) {
    let stock = Stock::new(&server).await;
    let pool = MySqlPool::connect(&stock.fixture.server.url()).await.unwrap();
    for (resource, rolls_back) in (0..20_u8).map(|resource| (resource, false)).chain([(0, true); 20]) {
        let mut tasks = JoinSet::new();
        for number in 1..=8 {
            let (pool, fence) = (pool.clone(), stock.fence.clone());
            tasks.spawn(async move {
                let mut tx = pool.begin().await.unwrap();
                let entered = fence.enter(&mut tx, [resource], token(number)).await;
                match rolls_back && number % 2 == 0 {
                    false => tx.commit().await.unwrap(),
                    true => tx.rollback().await.unwrap(),
                }
                entered
            });
        }
        while let Some(entered) = tasks.join_next().await {
            match entered.unwrap() {
                Err(error) if error.kind() == ErrorKind::Lost => _ = stale(&error),
                Err(error) => panic!("{error:?}\n{}", deadlocks::innodb_status(&stock).await),
                Ok(()) => {}
            }
        }
    }
}

/// Nor does the fence of one resource keep anybody from making that of its neighbour.
async fn a_new_resource_does_not_wait_for_another(server: Server) {
    let stock = Stock::new(&server).await;
    let [mut first, mut second] = [stock.connect().await, stock.connect().await];
    for resource in ["b", "d"] {
        let mut tx = first.begin().await.unwrap();
        stock.fence.enter(&mut tx, resource, token(1)).await.unwrap();
        tx.commit().await.unwrap();
    }
    let mut tx = first.begin().await.unwrap();
    stock.fence.enter(&mut tx, "d", token(1)).await.unwrap();
    for resource in ["a", "c", "e"] {
        let mut tx = second.begin().await.unwrap();
        stock.fence.enter(&mut tx, resource, token(1)).await.expect(resource);
        tx.commit().await.unwrap();
    }
}

/// It waits for another transaction when it is dropped.
async fn an_entry_that_is_dropped_leaves_nothing_behind(server: Server) {
    let stock = Stock::new(&server).await;
    let pool = MySqlPool::connect(&stock.fixture.server.url()).await.unwrap();
    let mut first = stock.connect().await;
    let mut tx = first.begin().await.unwrap();
    stock.fence.enter(&mut tx, RESOURCE, token(1)).await.unwrap();

    let mut waiting = pool.begin().await.unwrap();
    let mut observer = stock.fixture.observer().await;
    let waits = async {
        let insert = format!("INSERT INTO `{}_fences`", stock.fixture.table);
        while !observer.statements().await.iter().any(|sql| sql.contains(&insert)) {
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        entered = stock.fence.enter(&mut waiting, RESOURCE, token(3)) => panic!("{entered:?}"),
        () = soon("waits", waits) => {}
    }
    drop(waiting);
    tx.commit().await.unwrap();

    // Over a connection of the same pool, and with a token between the two.
    let mut tx = pool.begin().await.unwrap();
    stock.fence.enter(&mut tx, RESOURCE, token(2)).await.unwrap();
    tx.commit().await.unwrap();
}
