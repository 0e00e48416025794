//! Readers at the fence.

use super::*;

on_both_servers!(
    an_older_writer_does_not_write_between_a_readers_reads,
    a_newer_writer_rejects_readers_and_readers_reject_no_readers,
    readers_that_have_checked_read_beside_each_other_and_keep_writers_out,
    a_reader_that_never_entered_is_not_known,
);

/// Commits after entering.
async fn enter_shared(stock: &Stock, connection: &mut MySqlConnection, number: u64) -> lock_core::Result<()> {
    let mut tx = connection.begin().await.unwrap();
    let entered = stock.fence.enter_shared(&mut tx, RESOURCE, token(number)).await;
    tx.commit().await.unwrap();
    entered
}

async fn enter(stock: &Stock, connection: &mut MySqlConnection, number: u64) -> lock_core::Result<()> {
    let mut tx = connection.begin().await.unwrap();
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
    let mut tx = reader.begin().await.unwrap();
    let first = stock.read(&mut tx).await;
    tx.commit().await.unwrap();

    let mut tx = writer.begin().await.unwrap();
    match stock.fence.enter(&mut tx, RESOURCE, token(1)).await {
        Ok(()) => {
            stock.write(&mut tx, first - 1).await;
            tx.commit().await.unwrap();
        }
        Err(error) => assert_eq!(stale(&error).newest, Some(token(2))),
    }
    (first, stock.left().await)
}

async fn an_older_writer_does_not_write_between_a_readers_reads(server: Server) {
    assert_eq!(two_reads(&Stock::new(&server).await, true).await, (10, 10));
    assert_eq!(
        two_reads(&Stock::new(&server).await, false).await,
        (10, 9),
        "a torn read"
    );
}

async fn a_newer_writer_rejects_readers_and_readers_reject_no_readers(server: Server) {
    let stock = Stock::new(&server).await;
    let mut connection = stock.connect().await;
    for number in [5, 3, 4] {
        enter_shared(&stock, &mut connection, number).await.unwrap();
    }
    assert_eq!(
        stale(&enter(&stock, &mut connection, 4).await.unwrap_err()).newest,
        Some(token(5))
    );
    // An upgrade's token is newer, a downgrade may keep its own.
    enter(&stock, &mut connection, 6).await.unwrap();
    enter_shared(&stock, &mut connection, 6).await.unwrap();
    let error = enter_shared(&stock, &mut connection, 5).await.unwrap_err();
    assert_eq!(stale(&error).newest, Some(token(6)));
    let mut tx = connection.begin().await.unwrap();
    let error = stock.fence.check_shared(&mut tx, RESOURCE, token(5)).await.unwrap_err();
    assert_eq!(stale(&error).newest, Some(token(6)));
    stock.fence.check_shared(&mut tx, RESOURCE, token(6)).await.unwrap();
}

async fn readers_that_have_checked_read_beside_each_other_and_keep_writers_out(server: Server) {
    let stock = Stock::new(&server).await;
    let [mut first, mut second, mut writer] = [stock.connect().await, stock.connect().await, stock.connect().await];
    enter_shared(&stock, &mut first, 1).await.unwrap();
    enter_shared(&stock, &mut second, 2).await.unwrap();
    let mut first = first.begin().await.unwrap();
    let mut second = second.begin().await.unwrap();
    stock.fence.check_shared(&mut first, RESOURCE, token(1)).await.unwrap();
    stock.fence.check_shared(&mut second, RESOURCE, token(2)).await.unwrap();
    let mut tx = writer.begin().await.unwrap();
    let error = stock.fence.enter(&mut tx, RESOURCE, token(3)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    tx.rollback().await.unwrap();
    first.commit().await.unwrap();
    second.commit().await.unwrap();
    enter(&stock, &mut writer, 3).await.unwrap();
}

async fn a_reader_that_never_entered_is_not_known(server: Server) {
    let stock = Stock::new(&server).await;
    let mut connection = stock.connect().await;
    let mut tx = connection.begin().await.unwrap();
    let error = stock.fence.check_shared(&mut tx, RESOURCE, token(2)).await.unwrap_err();
    assert_eq!(stale(&error).newest, None);
    stock.fence.enter_shared(&mut tx, RESOURCE, token(1)).await.unwrap();
    let error = stock.fence.check_shared(&mut tx, RESOURCE, token(2)).await.unwrap_err();
    assert_eq!(stale(&error).newest, None);
}
