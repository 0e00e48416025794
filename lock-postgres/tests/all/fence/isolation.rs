//! The fence at every isolation level, and transactions that read before they enter.

use lock_postgres::tokio_postgres::{Client, IsolationLevel};

use super::*;

const SNAPSHOTS: [IsolationLevel; 2] = [IsolationLevel::RepeatableRead, IsolationLevel::Serializable];

async fn begin(client: &mut Client, level: IsolationLevel) -> Transaction<'_> {
    client.build_transaction().isolation_level(level).start().await.unwrap()
}

/// The older holder sells an item.
async fn sell(stock: &Stock, number: u64) {
    let mut client = stock.connect().await;
    let mut tx = client.transaction().await.unwrap();
    stock.fence.enter(&mut tx, RESOURCE, token(number)).await.unwrap();
    let left = stock.read(&tx).await;
    stock.write(&tx, left - 1).await;
    tx.commit().await.unwrap();
}

/// Reads something else than the resource: this takes the snapshot all the same.
async fn read_something(tx: &Transaction<'_>) {
    tx.query_one("SELECT count(*) FROM pg_class", &[]).await.unwrap();
}

#[testbed::test]
async fn who_enters_first_reads_what_the_last_holder_wrote() {
    for level in [IsolationLevel::ReadCommitted].into_iter().chain(SNAPSHOTS) {
        let stock = Stock::new().await;
        let mut newer = stock.connect().await;
        let mut tx = begin(&mut newer, level).await;
        sell(&stock, 1).await;
        stock.fence.enter(&mut tx, RESOURCE, token(2)).await.unwrap();
        assert_eq!(stock.read(&tx).await, 9, "{level:?}");
        tx.commit().await.unwrap();
    }
}

/// That is the trap of a snapshot: the lock of the fence's row alone does not show what the last holder wrote.
#[testbed::test]
async fn a_transaction_that_has_read_before_is_refused_where_it_would_miss_a_write() {
    for level in [IsolationLevel::ReadCommitted].into_iter().chain(SNAPSHOTS) {
        let stock = Stock::new().await;
        sell(&stock, 1).await;
        let mut newer = stock.connect().await;
        let mut tx = begin(&mut newer, level).await;
        read_something(&tx).await;
        // Of the same token: its number alone shows nothing.
        sell(&stock, 1).await;
        let entered = stock.fence.enter(&mut tx, RESOURCE, token(2)).await;
        match level {
            IsolationLevel::ReadCommitted => {
                entered.unwrap();
                assert_eq!(stock.read(&tx).await, 8);
            }
            _ => is_for_another_run(&entered.unwrap_err()),
        }
        tx.rollback().await.unwrap();
        let mut tx = begin(&mut newer, level).await;
        stock.fence.enter(&mut tx, RESOURCE, token(2)).await.unwrap();
        assert_eq!(stock.read(&tx).await, 8);
    }
}

#[testbed::test]
async fn a_reader_that_has_read_before_is_refused_too() {
    for level in SNAPSHOTS {
        let stock = Stock::new().await;
        let mut reader = stock.connect().await;
        let mut tx = begin(&mut reader, level).await;
        read_something(&tx).await;
        sell(&stock, 1).await; // makes the row, which the snapshot lacks
        is_for_another_run(&stock.fence.enter_shared(&mut tx, RESOURCE, token(2)).await.unwrap_err());
        tx.rollback().await.unwrap();
        let mut tx = begin(&mut reader, level).await;
        stock.fence.enter_shared(&mut tx, RESOURCE, token(2)).await.unwrap();
        tx.commit().await.unwrap();

        // The reader's check takes no new version of the row.
        let mut tx = begin(&mut reader, level).await;
        read_something(&tx).await;
        sell(&stock, 3).await;
        let error = stock.fence.check_shared(&mut tx, RESOURCE, token(2)).await.unwrap_err();
        is_for_another_run(&error);
        tx.rollback().await.unwrap();

        // Where nobody wrote since, an earlier read does no harm.
        let mut tx = begin(&mut reader, level).await;
        read_something(&tx).await;
        stock.fence.enter(&mut tx, RESOURCE, token(4)).await.unwrap();
        assert_eq!(stock.read(&tx).await, 8);
        tx.commit().await.unwrap();
    }
}

/// The snapshot is that of the statement which waits.
#[testbed::test]
async fn who_waited_for_the_last_holder_sees_its_write_or_is_refused() {
    for level in [IsolationLevel::ReadCommitted].into_iter().chain(SNAPSHOTS) {
        let stock = Stock::new().await;
        let [mut older, mut newer] = [stock.connect().await, stock.connect().await];
        let mut holding = older.transaction().await.unwrap();
        stock.fence.enter(&mut holding, RESOURCE, token(1)).await.unwrap();
        let mut tx = begin(&mut newer, level).await;
        let (entered, ()) = tokio::join!(stock.fence.enter(&mut tx, RESOURCE, token(2)), async {
            stock.until_somebody_waits().await;
            stock.write(&holding, 5).await;
            holding.commit().await.unwrap();
        });
        match level {
            IsolationLevel::ReadCommitted => {
                entered.unwrap();
                assert_eq!(stock.read(&tx).await, 5);
            }
            _ => is_for_another_run(&entered.unwrap_err()),
        }
    }
}
