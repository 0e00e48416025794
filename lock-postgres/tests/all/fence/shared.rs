//! Readers at the fence.

use lock_postgres::tokio_postgres::Client;

use super::*;

/// Commits after entering.
async fn enter_shared(stock: &Stock, client: &mut Client, number: u64) -> lock_core::Result<()> {
    let mut tx = client.transaction().await.unwrap();
    let entered = stock.fence.enter_shared(&mut tx, RESOURCE, token(number)).await;
    tx.commit().await.unwrap();
    entered
}

async fn enter(stock: &Stock, client: &mut Client, number: u64) -> lock_core::Result<()> {
    let mut tx = client.transaction().await.unwrap();
    let entered = stock.fence.enter(&mut tx, RESOURCE, token(number)).await;
    tx.commit().await.unwrap();
    entered
}

/// The older writer is paused between its reads and its write, while a reader reads twice. What the reader saw.
async fn two_reads(stock: &Stock, enters: bool) -> (i64, i64) {
    let [mut writer, mut reader] = [stock.connect().await, stock.connect().await];
    enter(stock, &mut writer, 1).await.unwrap();
    if enters {
        enter_shared(stock, &mut reader, 2).await.unwrap();
    }
    let tx = reader.transaction().await.unwrap();
    let first = stock.read(&tx).await;
    tx.commit().await.unwrap();

    let mut tx = writer.transaction().await.unwrap();
    match stock.fence.enter(&mut tx, RESOURCE, token(1)).await {
        Ok(()) => {
            stock.write(&tx, first - 1).await;
            tx.commit().await.unwrap();
        }
        Err(error) => assert_eq!(stale(&error).newest, Some(token(2))),
    }
    (first, stock.left().await)
}

#[testbed::test]
async fn an_older_writer_does_not_write_between_a_readers_reads() {
    assert_eq!(two_reads(&Stock::new().await, true).await, (10, 10));
    assert_eq!(two_reads(&Stock::new().await, false).await, (10, 9), "a torn read");
}

#[testbed::test]
async fn a_newer_writer_rejects_readers_and_readers_reject_no_readers() {
    let stock = Stock::new().await;
    let mut client = stock.connect().await;
    for number in [5, 3, 4] {
        enter_shared(&stock, &mut client, number).await.unwrap();
    }
    let error = enter(&stock, &mut client, 4).await.unwrap_err();
    assert_eq!(stale(&error).newest, Some(token(5)));
    // An upgrade's token is newer, a downgrade may keep its own.
    enter(&stock, &mut client, 6).await.unwrap();
    enter_shared(&stock, &mut client, 6).await.unwrap();
    let error = enter_shared(&stock, &mut client, 5).await.unwrap_err();
    assert_eq!(stale(&error).newest, Some(token(6)));
    let mut tx = client.transaction().await.unwrap();
    let error = stock.fence.check_shared(&mut tx, RESOURCE, token(5)).await.unwrap_err();
    assert_eq!(stale(&error).newest, Some(token(6)));
    stock.fence.check_shared(&mut tx, RESOURCE, token(6)).await.unwrap();
}

#[testbed::test]
async fn readers_that_have_checked_read_beside_each_other_and_keep_writers_out() {
    let stock = Stock::new().await;
    let [mut first, mut second, mut writer] = [stock.connect().await, stock.connect().await, stock.connect().await];
    enter_shared(&stock, &mut first, 1).await.unwrap();
    enter_shared(&stock, &mut second, 2).await.unwrap();
    let mut one = first.transaction().await.unwrap();
    let mut two = second.transaction().await.unwrap();
    stock.fence.check_shared(&mut one, RESOURCE, token(1)).await.unwrap();
    happens(
        "an answer of the fence",
        stock.fence.check_shared(&mut two, RESOURCE, token(2)),
    )
    .await
    .unwrap();
    writer.batch_execute("SET lock_timeout = 100").await.unwrap();
    let mut tx = writer.transaction().await.unwrap();
    is_for_another_run(&stock.fence.enter(&mut tx, RESOURCE, token(3)).await.unwrap_err());
    tx.rollback().await.unwrap();
    one.commit().await.unwrap();
    two.commit().await.unwrap();
    enter(&stock, &mut writer, 3).await.unwrap();
}

#[testbed::test]
async fn a_reader_that_never_entered_is_not_known() {
    let stock = Stock::new().await;
    let mut client = stock.connect().await;
    let mut tx = client.transaction().await.unwrap();
    let error = stock.fence.check_shared(&mut tx, RESOURCE, token(2)).await.unwrap_err();
    assert_eq!(stale(&error).newest, None);
    stock.fence.enter_shared(&mut tx, RESOURCE, token(1)).await.unwrap();
    let error = stock.fence.check_shared(&mut tx, RESOURCE, token(2)).await.unwrap_err();
    assert_eq!(stale(&error).newest, None);
}
