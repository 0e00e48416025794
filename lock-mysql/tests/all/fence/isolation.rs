//! The fence at every isolation level, and transactions that read before they enter.

use sqlx::{AssertSqlSafe, Connection, Executor};

use super::*;

on_both_servers!(
    who_enters_first_reads_what_the_last_holder_wrote,
    a_transaction_that_has_read_before_is_refused_where_it_would_miss_a_write,
    a_reader_that_has_read_before_is_refused_too,
    a_transaction_that_was_refused_is_refused_again,
    innodb_snapshot_isolation_gives_the_same_error,
    a_second_fence_is_entered_again_if_its_holder_came_in_between,
);

const LEVELS: [&str; 4] = ["READ UNCOMMITTED", "READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"];

async fn connect(stock: &Stock, level: &str) -> MySqlConnection {
    let mut connection = stock.connect().await;
    let sql = format!("SET SESSION TRANSACTION ISOLATION LEVEL {level}");
    connection.execute(AssertSqlSafe(sql)).await.unwrap();
    connection
}

/// The older holder sells an item.
async fn sell(stock: &Stock, number: u64) {
    let mut connection = stock.connect().await;
    let mut tx = connection.begin().await.unwrap();
    stock.fence.enter(&mut tx, RESOURCE, token(number)).await.unwrap();
    let left = stock.read(&mut tx).await;
    stock.write(&mut tx, left - 1).await;
    tx.commit().await.unwrap();
}

/// Reads another table than the resource's: under REPEATABLE READ this takes the snapshot all the same.
async fn read_something(stock: &Stock, tx: &mut MySqlTransaction<'_>) {
    let sql = format!("SELECT amount FROM {}_stock WHERE id=2", stock.fixture.table);
    query(AssertSqlSafe(sql)).fetch_all(&mut **tx).await.unwrap();
}

async fn who_enters_first_reads_what_the_last_holder_wrote(server: Server) {
    for level in LEVELS {
        let stock = Stock::new(&server).await;
        let mut newer = connect(&stock, level).await;
        let mut tx = newer.begin().await.unwrap();
        sell(&stock, 1).await;
        stock.fence.enter(&mut tx, RESOURCE, token(2)).await.expect(level);
        assert_eq!(stock.read(&mut tx).await, 9, "{level}");
        tx.commit().await.unwrap();
    }
}

/// That is the trap: the lock of the fence's row alone does not show what the last holder wrote.
async fn a_transaction_that_has_read_before_is_refused_where_it_would_miss_a_write(server: Server) {
    for level in LEVELS {
        let stock = Stock::new(&server).await;
        sell(&stock, 1).await;
        let mut newer = connect(&stock, level).await;
        let mut tx = newer.begin().await.unwrap();
        read_something(&stock, &mut tx).await;
        // Of the same token, so that only the count of entries shows it.
        sell(&stock, 1).await;
        let entered = stock.fence.enter(&mut tx, RESOURCE, token(2)).await;
        let seen = stock.read(&mut tx).await;
        if level == "REPEATABLE READ" {
            assert!(is_read_before_enter(&entered.unwrap_err()));
            assert_eq!(seen, 9, "an update would be lost");
        } else {
            entered.expect(level);
            assert_eq!(seen, 8, "{level}");
        }
        tx.rollback().await.unwrap();
        let mut tx = newer.begin().await.unwrap();
        stock.fence.enter(&mut tx, RESOURCE, token(2)).await.unwrap();
        assert_eq!(stock.read(&mut tx).await, 8);
    }
}

async fn a_reader_that_has_read_before_is_refused_too(server: Server) {
    let stock = Stock::new(&server).await;
    let mut reader = connect(&stock, "REPEATABLE READ").await;
    let mut tx = reader.begin().await.unwrap();
    read_something(&stock, &mut tx).await;
    sell(&stock, 1).await; // makes the row, which the snapshot lacks
    let error = stock.fence.enter_shared(&mut tx, RESOURCE, token(2)).await.unwrap_err();
    assert!(is_read_before_enter(&error));
    tx.rollback().await.unwrap();
    let mut tx = reader.begin().await.unwrap();
    stock.fence.enter_shared(&mut tx, RESOURCE, token(2)).await.unwrap();
    tx.commit().await.unwrap();

    // Where nobody wrote since, an earlier read does no harm.
    let mut tx = reader.begin().await.unwrap();
    read_something(&stock, &mut tx).await;
    stock.fence.check_shared(&mut tx, RESOURCE, token(2)).await.unwrap();
    stock.fence.enter(&mut tx, RESOURCE, token(3)).await.unwrap();
    tx.commit().await.unwrap();
}

/// A refused entry that stayed in the transaction would look like one that its snapshot has.
async fn a_transaction_that_was_refused_is_refused_again(server: Server) {
    let stock = Stock::new(&server).await;
    let mut newer = connect(&stock, "REPEATABLE READ").await;
    let mut later = 2;
    // At first the snapshot lacks the row.
    for _ in 0..2 {
        let mut tx = newer.begin().await.unwrap();
        read_something(&stock, &mut tx).await;
        sell(&stock, later).await;
        for number in [later, later + 1] {
            for _ in 0..2 {
                let error = stock.fence.enter(&mut tx, RESOURCE, token(number)).await.unwrap_err();
                assert!(is_read_before_enter(&error));
                let error = stock
                    .fence
                    .enter_shared(&mut tx, RESOURCE, token(number))
                    .await
                    .unwrap_err();
                assert!(is_read_before_enter(&error));
            }
        }
        tx.commit().await.unwrap();
        later += 1;
    }
    // Nothing of them was committed.
    sell(&stock, later - 1).await;
}

/// To enter the first fence takes the snapshot, too.
async fn a_second_fence_is_entered_again_if_its_holder_came_in_between(server: Server) {
    let stock = Stock::new(&server).await;
    let mut connection = connect(&stock, "REPEATABLE READ").await;
    let mut tx = connection.begin().await.unwrap();
    stock.fence.enter(&mut tx, "another", token(2)).await.unwrap();
    sell(&stock, 1).await;
    let error = stock.fence.enter(&mut tx, RESOURCE, token(2)).await.unwrap_err();
    assert!(is_read_before_enter(&error));
    tx.rollback().await.unwrap();
    let mut tx = connection.begin().await.unwrap();
    stock.fence.enter(&mut tx, "another", token(2)).await.unwrap();
    stock.fence.enter(&mut tx, RESOURCE, token(2)).await.unwrap();
    assert_eq!(stock.read(&mut tx).await, 9);
}

/// MariaDB's own guard against the same, which 11.6 turns on.
async fn innodb_snapshot_isolation_gives_the_same_error(server: Server) {
    let stock = Stock::new(&server).await;
    sell(&stock, 1).await;
    let mut newer = connect(&stock, "REPEATABLE READ").await;
    let snapshot_isolation = newer.execute("SET SESSION innodb_snapshot_isolation=ON").await;
    if let Err(sqlx::Error::Database(unknown)) = snapshot_isolation {
        assert!(unknown.message().contains("Unknown system variable"), "{unknown}");
        testbed::skip("this server has no innodb_snapshot_isolation");
        return;
    }
    let mut tx = newer.begin().await.unwrap();
    read_something(&stock, &mut tx).await;
    sell(&stock, 1).await;
    let error = stock.fence.enter(&mut tx, RESOURCE, token(2)).await.unwrap_err();
    assert!(is_read_before_enter(&error));
}
