//! The compare-and-set, against others who change the row in between: from a connection and a thread of their own, so that
//! they come exactly there.

use std::num::NonZeroU32;
use std::sync::mpsc;
use std::thread;

use lock_mysql::{OptimisticLock, UpdateError};
use sqlx::mysql::{MySqlConnection, MySqlPool};
use sqlx::{AssertSqlSafe, Connection, Executor, Row, query_scalar};
use testbed::Server;
use tokio::runtime;
use tokio::task::JoinSet;

use crate::support::refusals::{Refusal, RefusingProxy};
use crate::support::*;

on_both_servers!(
    an_update_of_others_in_between_is_not_lost,
    without_the_comparison_it_is_lost,
    a_conflict_in_every_attempt_is_reported_and_nothing_is_written,
    many_at_once_lose_no_update,
    a_write_that_waits_too_long_for_the_row_is_tried_again,
    what_is_wrong_is_said_and_nothing_is_written,
    the_settings_of_the_users_connections_do_not_matter,
    a_change_that_is_rolled_back_is_not_read,
    a_version_that_cannot_grow_is_refused,
);

/// Row 1 of a table of the test's own, with ten items.
struct Stock {
    fixture: Fixture,
    lock: OptimisticLock,
    pool: MySqlPool,
}

impl Stock {
    /// With a version column of this type.
    async fn new(server: &Server, version: &str) -> Self {
        let fixture = Fixture::on(server.clone());
        let table = format!("{}_stock", fixture.table);
        let mut observer = fixture.observer().await;
        observer
            .run(&format!(
                "CREATE TABLE {table} (id INT PRIMARY KEY, amount BIGINT NOT NULL, version {version});\
                 INSERT INTO {table} VALUES (1, 10, 0)"
            ))
            .await;
        Self {
            lock: OptimisticLock::new(table).unwrap(),
            pool: MySqlPool::connect(&fixture.server.url()).await.unwrap(),
            fixture,
        }
    }

    fn sql(&self, sql: &str) -> AssertSqlSafe<String> {
        AssertSqlSafe(sql.replace("stock", &format!("{}_stock", self.fixture.table)))
    }

    /// A pool whose connections run this `SET`.
    async fn pool_with(&self, settings: &'static str) -> MySqlPool {
        let options = (*self.pool.connect_options()).clone();
        let pool = sqlx::mysql::MySqlPoolOptions::new().max_connections(1);
        let pool = pool.after_connect(move |connection, _| {
            Box::pin(async move {
                connection.execute(AssertSqlSafe(format!("SET {settings}"))).await?;
                Ok(())
            })
        });
        pool.connect_with(options).await.unwrap()
    }

    async fn left(&self) -> i64 {
        let sql = self.sql("SELECT amount FROM stock WHERE id=1");
        query_scalar(sql).fetch_one(&self.pool).await.unwrap()
    }

    /// Somebody else sells one, and has done so when this returns. Blocks the calling thread.
    fn others_sell(&self) {
        let url = self.fixture.server.url();
        let sell = self.sql("UPDATE stock SET amount=amount-1, version=version+1 WHERE id=1");
        let others = thread::spawn(move || {
            let runtime = runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let mut connection = MySqlConnection::connect(&url).await.unwrap();
                connection.execute(sell).await.unwrap();
            });
        });
        others.join().unwrap();
    }
}

const SIGNED: &str = "BIGINT NOT NULL";

async fn an_update_of_others_in_between_is_not_lost(server: Server) {
    for version in [SIGNED, "INT UNSIGNED NOT NULL", "TINYINT NOT NULL"] {
        let stock = Stock::new(&server, version).await;
        let mut attempts = 0;
        let left = stock.lock.update(&stock.pool, 1, |row, new| {
            attempts += 1;
            let left: i64 = row.try_get("amount")?;
            if attempts == 1 {
                stock.others_sell();
            }
            new.set("amount", left - 1);
            Ok::<_, sqlx::Error>(left - 1)
        });
        assert_eq!(left.await.unwrap(), 8, "{version}");
        assert_eq!((attempts, stock.left().await), (2, 8));
    }
}

/// What the test above would find without the comparison.
async fn without_the_comparison_it_is_lost(server: Server) {
    let stock = Stock::new(&server, SIGNED).await;
    let seen = stock.left().await;
    stock.others_sell();
    let sell = format!("UPDATE stock SET amount={} WHERE id=1", seen - 1);
    stock.pool.execute(stock.sql(&sell)).await.unwrap();
    assert_eq!(stock.left().await, 9, "two were sold");
}

async fn a_conflict_in_every_attempt_is_reported_and_nothing_is_written(server: Server) {
    let stock = Stock::new(&server, SIGNED).await;
    let lock = stock.lock.clone().with_attempts(NonZeroU32::new(3).unwrap());
    let mut attempts = 0;
    let updated = lock.update(&stock.pool, 1, |_, new| {
        attempts += 1;
        stock.others_sell();
        new.set("amount", 1000);
        Ok::<_, sqlx::Error>(())
    });
    let error = updated.await.unwrap_err();
    assert!(matches!(error, UpdateError::Conflict { attempts: 3, .. }), "{error:?}");
    assert!(error.to_string().contains("use a lock"), "{error}");
    assert_eq!((attempts, stock.left().await), (3, 7));
}

async fn many_at_once_lose_no_update(server: Server) {
    let stock = Stock::new(&server, SIGNED).await;
    let lock = stock.lock.clone().with_attempts(NonZeroU32::new(1000).unwrap());
    let mut tasks = JoinSet::new();
    for _ in 0..8 {
        let (lock, pool) = (lock.clone(), stock.pool.clone());
        tasks.spawn(async move {
            for _ in 0..10 {
                let sold = lock.update(&pool, 1, |row, new| {
                    new.set("amount", row.try_get::<i64, _>("amount")? - 1);
                    Ok::<_, sqlx::Error>(())
                });
                sold.await.unwrap();
            }
        });
    }
    while let Some(ended) = tasks.join_next().await {
        ended.unwrap();
    }
    assert_eq!(stock.left().await, 10 - 80);
}

/// As if others had changed it: nothing was executed.
async fn a_write_that_waits_too_long_for_the_row_is_tried_again(server: Server) {
    let stock = Stock::new(&server, SIGNED).await;
    let options = (*stock.pool.connect_options()).clone();
    let pool = sqlx::mysql::MySqlPoolOptions::new()
        .after_connect(|connection, _| {
            Box::pin(async {
                connection.execute("SET SESSION innodb_lock_wait_timeout=1").await?;
                Ok(())
            })
        })
        .connect_with(options)
        .await
        .unwrap();
    let mut other = stock.pool.begin().await.unwrap();
    other
        .execute(stock.sql("SELECT 1 FROM stock FOR UPDATE"))
        .await
        .unwrap();
    let (waits, waiting) = tokio::sync::oneshot::channel();
    let (mut waits, mut attempts) = (Some(waits), 0);
    let updating = stock.lock.update(&pool, 1, |_, new| {
        attempts += 1;
        if attempts == 2 {
            // The first write has failed.
            waits.take().unwrap().send(()).unwrap();
        }
        new.set("amount", 3);
        Ok::<_, sqlx::Error>(())
    });
    let ending = async {
        waiting.await.unwrap();
        other.rollback().await.unwrap();
    };
    let (updated, ()) = tokio::join!(updating, ending);
    updated.unwrap();
    assert_eq!(stock.left().await, 3);
}

async fn what_is_wrong_is_said_and_nothing_is_written(server: Server) {
    let stock = Stock::new(&server, "BIGINT NULL").await;
    let update = async |key: i32, column: &'static str| {
        let updated = stock.lock.update(&stock.pool, key, |_, new| {
            new.set(column, 5);
            Ok::<_, sqlx::Error>(())
        });
        updated.await
    };
    let error = update(2, "amount").await.unwrap_err();
    assert!(matches!(error, UpdateError::NoRow { .. }), "{error:?}");
    for bad in ["nowhere", "amount`=7,`id", "version"] {
        let error = update(1, bad).await.unwrap_err();
        assert!(matches!(error, UpdateError::Sql { .. }), "{error:?}");
    }
    let refused = stock.lock.update(&stock.pool, 1, |_, new| {
        new.set("amount", 5);
        Err::<(), _>("sold out")
    });
    assert!(matches!(refused.await.unwrap_err(), UpdateError::Compute("sold out")));
    // Without a value there is nothing to write.
    let seen = stock
        .lock
        .update(&stock.pool, 1, |row, _| row.try_get::<i64, _>("amount"));
    assert_eq!(seen.await.unwrap(), 10);
    stock
        .pool
        .execute(stock.sql("UPDATE stock SET version=NULL"))
        .await
        .unwrap();
    update(1, "amount").await.unwrap_err();
    assert_eq!(stock.left().await, 10);
}

/// With `autocommit=0` a statement alone would never be committed, and would read the same snapshot for ever.
async fn the_settings_of_the_users_connections_do_not_matter(server: Server) {
    for settings in [
        "autocommit=0",
        "SESSION TRANSACTION ISOLATION LEVEL SERIALIZABLE",
        "SESSION TRANSACTION READ ONLY",
        "completion_type=CHAIN",
        "sql_mode='ANSI_QUOTES,NO_BACKSLASH_ESCAPES'",
    ] {
        let stock = Stock::new(&server, SIGNED).await;
        let pool = stock.pool_with(settings).await;
        for expected in [9, 7, 6] {
            let left = stock.lock.update(&pool, 1, |row, new| {
                let left = row.try_get::<i64, _>("amount")? - 1;
                new.set("amount", left);
                Ok::<_, sqlx::Error>(left)
            });
            assert_eq!(left.await.unwrap(), expected, "{settings}");
            assert_eq!(stock.left().await, expected, "{settings}");
            if expected == 9 {
                stock.others_sell();
            }
        }
    }
}

/// Others change the row and roll that back, and yet others make a change with the same version.
async fn a_change_that_is_rolled_back_is_not_read(server: Server) {
    let stock = Stock::new(&server, SIGNED).await;
    let pool = stock
        .pool_with("SESSION TRANSACTION ISOLATION LEVEL READ UNCOMMITTED")
        .await;
    let (url, sell_all) = (
        stock.fixture.server.url(),
        stock.sql("UPDATE stock SET amount=0, version=version+1 WHERE id=1"),
    );
    let ((sold, is_sold), (end, ends), (ended, has_ended)) = (mpsc::channel(), mpsc::channel(), mpsc::channel());
    let others = thread::spawn(move || {
        let runtime = runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let mut connection = MySqlConnection::connect(&url).await.unwrap();
            let mut tx = connection.begin().await.unwrap();
            tx.execute(sell_all).await.unwrap();
            sold.send(()).unwrap();
            ends.recv().unwrap();
            tx.rollback().await.unwrap();
            ended.send(()).unwrap();
        });
    });
    is_sold.recv().unwrap();
    let mut attempts = 0;
    let left = stock.lock.update(&pool, 1, |row, new| {
        attempts += 1;
        let left = row.try_get::<i64, _>("amount")? - 1;
        if attempts == 1 {
            end.send(()).unwrap();
            has_ended.recv().unwrap();
            stock.others_sell();
        }
        new.set("amount", left);
        Ok::<_, sqlx::Error>(left)
    });
    assert_eq!(left.await.unwrap(), 8);
    assert_eq!((attempts, stock.left().await), (2, 8));
    others.join().unwrap();
}

/// Without strict mode the server would write the same version again, and each comparison after that would succeed.
async fn a_version_that_cannot_grow_is_refused(server: Server) {
    for (version, largest) in [
        ("TINYINT NOT NULL", "127"),
        ("TINYINT(1) UNSIGNED NOT NULL", "255"),
        ("BIGINT NOT NULL", "9223372036854775807"),
    ] {
        let stock = Stock::new(&server, version).await;
        let pool = stock.pool_with("sql_mode=''").await;
        let set = format!("UPDATE stock SET version={largest}");
        stock.pool.execute(stock.sql(&set)).await.unwrap();
        let updated = stock.lock.update(&pool, 1, |_, new| {
            new.set("amount", 5);
            Ok::<_, sqlx::Error>(())
        });
        let error = updated.await.unwrap_err();
        let UpdateError::Sql { source, .. } = error else {
            panic!("{error:?}");
        };
        assert!(source.to_string().contains("largest value"), "{source}");
        assert_eq!(stock.left().await, 10, "{version}");
    }
}

#[testbed::test]
async fn a_column_that_the_driver_does_not_know_is_left_out() {
    let Some(server) = shared_mysql9().await else {
        return;
    };
    let stock = Stock::new(&server, SIGNED).await;
    stock
        .pool
        .execute(stock.sql("ALTER TABLE stock ADD COLUMN place VECTOR(3)"))
        .await
        .unwrap();
    let pool = stock.pool_with("autocommit=1").await;
    let sell = async |lock: &OptimisticLock| {
        let sold = lock.update(&pool, 1, |row, new| {
            new.set("amount", row.try_get::<i64, _>("amount")? - 1);
            Ok::<_, sqlx::Error>(())
        });
        sold.await
    };
    let error = sell(&stock.lock).await.unwrap_err();
    let UpdateError::Sql { source, .. } = error else {
        panic!("{error:?}");
    };
    assert!(source.to_string().contains("with_read_columns"), "{source}");
    sell(&stock.lock.clone().with_read_columns(["amount"]).unwrap())
        .await
        .unwrap();
    assert_eq!(stock.left().await, 9);
}

/// As Galera answers if another node has changed the row.
#[testbed::test]
async fn a_conflict_at_the_commit_is_tried_again() {
    let fixture = Fixture::shared().await;
    Refusal::prepare(&fixture).await;
    // The statements before the commit depend on the driver.
    for at in 1..20 {
        let stock = Stock::new(&fixture.server, SIGNED).await;
        let proxy = RefusingProxy::new(&fixture, Refusal::Deadlock, at).await;
        let Ok(pool) = MySqlPool::connect(&proxy.url(&fixture)).await else {
            continue;
        };
        let mut attempts = 0;
        let sold = stock.lock.update(&pool, 1, |row, new| {
            attempts += 1;
            new.set("amount", row.try_get::<i64, _>("amount")? - 1);
            Ok::<_, sqlx::Error>(())
        });
        let sold = sold.await;
        if proxy.refused() == Some("COMMIT") {
            sold.unwrap();
            assert_eq!((attempts, stock.left().await), (2, 9));
            return;
        }
    }
    panic!("no commit was refused");
}
