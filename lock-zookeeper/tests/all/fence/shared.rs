//! Readers and writers.

use super::*;

#[testbed::test]
async fn a_reader_rejects_older_writers_and_no_readers() {
    let stock = Stock::new().await;
    let fence = stock.fence();
    let writer = fence.enter(token(5)).await.unwrap();
    let reader = fence.enter_shared(token(7)).await.unwrap();
    let older_reader = fence.enter_shared(token(6)).await.unwrap();
    assert_eq!(number(&reader.get().await.unwrap()), 10);
    assert_eq!(number(&older_reader.get().await.unwrap()), 10);
    for error in [writer.set("1").await.unwrap_err(), writer.get().await.unwrap_err()] {
        assert_eq!(stale(&error).newest, Some(token(7)));
    }
    assert_eq!(stock.left().await, 10);
}

#[testbed::test]
async fn a_newer_writer_ends_readers() {
    let stock = Stock::new().await;
    let fence = stock.fence();
    let reader = fence.enter_shared(token(7)).await.unwrap();
    let writer = fence.enter(token(8)).await.unwrap();
    writer.set("3").await.unwrap();
    assert_eq!(stale(&reader.get().await.unwrap_err()).newest, Some(token(8)));
    assert_eq!(stale(&reader.check().await.unwrap_err()).newest, Some(token(8)));
    assert_eq!(
        stale(&fence.enter_shared(token(7)).await.unwrap_err()).newest,
        Some(token(8))
    );
    assert_eq!(number(&writer.get().await.unwrap()), 3);
}

#[testbed::test]
async fn a_reader_that_never_entered_again_after_a_loss_of_the_fence_is_rejected() {
    let stock = Stock::new().await;
    let fence = stock.fence();
    let reader = fence.enter_shared(token(7)).await.unwrap();
    stock.client.delete(&stock.node(), None).await.unwrap();
    assert_eq!(stale(&reader.get().await.unwrap_err()).newest, None);
    fence.enter_shared(token(3)).await.unwrap();
    assert_eq!(stale(&reader.get().await.unwrap_err()).newest, None);
}

#[testbed::test]
async fn a_holder_downgrades_and_upgrades() {
    let stock = Stock::new().await;
    let fence = stock.fence();
    fence.enter(token(7)).await.unwrap().set("9").await.unwrap();
    let downgraded = fence.enter_shared(token(7)).await.unwrap();
    assert_eq!(number(&downgraded.get().await.unwrap()), 9);
    let error = downgraded.set("8").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    fence.enter(token(8)).await.unwrap().set("7").await.unwrap();
    assert_eq!(stale(&downgraded.get().await.unwrap_err()).newest, Some(token(8)));
    assert_eq!(stock.left().await, 7);
}

/// A writer enters and sets two numbers at once; a reader enters and reads one after the other. How many of the reads were
/// done, and how many of them saw two numbers that were never there together.
async fn reads(stock: &Stock, fenced: bool) -> (usize, usize) {
    let other = format!("{}-other", stock.path);
    let options = CreateMode::Persistent.with_acls(Acls::anyone_all());
    stock.client.create(&other, b"0", &options).await.unwrap();
    let (mut done, mut torn) = (0, 0);
    let mut next = 1;
    for writer_is_newer in [false, true] {
        for order in orders(2, 3) {
            for path in [&stock.path, &other] {
                stock.client.set_data(path, b"0", None).await.unwrap();
            }
            let fence = stock.fence();
            let tokens = [
                token(next + u64::from(writer_is_newer)),
                token(next + u64::from(!writer_is_newer)),
            ];
            next += 2;
            let (mut writer, mut reader) = (None, None);
            let mut seen = Ok(Vec::new());
            for is_reader in order {
                match (is_reader, &writer, &reader) {
                    (false, None, _) => writer = Some(fence.enter(tokens[0]).await),
                    (false, Some(Err(_)), _) => {}
                    (false, Some(Ok(writer)), _) => {
                        let write = writer.write(|multi| {
                            multi.add_set_data(&stock.path, b"1", None)?;
                            multi.add_set_data(&other, b"1", None)
                        });
                        // Rejected if the reader is newer and has entered.
                        let _ = write
                            .await
                            .inspect_err(|error| assert_eq!(stale(error).token, tokens[0]));
                    }
                    (true, _, None) if fenced => reader = Some(fence.enter_shared(tokens[1]).await),
                    (true, _, None) => reader = Some(Err(Error::new(ErrorKind::Unsupported, "no fence"))),
                    (true, _, Some(reader)) => {
                        if let Ok(numbers) = &mut seen {
                            let path = [&stock.path, &other][numbers.len()];
                            let read = match (reader, fenced) {
                                (Ok(reader), _) => reader.get_at(path).await,
                                (Err(error), true) => Err(error.clone()),
                                (Err(_), false) => Ok(stock.client.get_data(path).await.unwrap().0),
                            };
                            match read {
                                Ok(data) => numbers.push(number(&data)),
                                Err(error) => seen = Err(stale(&error)),
                            }
                        }
                    }
                }
            }
            if let Ok(numbers) = seen {
                done += 1;
                torn += usize::from(numbers[0] != numbers[1]);
            }
        }
    }
    (done, torn)
}

#[testbed::test]
async fn no_order_shows_numbers_that_were_never_there_together() {
    let (done, torn) = reads(&Stock::new().await, true).await;
    assert_eq!(torn, 0);
    assert!(
        (1..20).contains(&done),
        "some reads are done and some are rejected: {done}"
    );
}

#[testbed::test]
async fn without_the_fence_some_orders_do() {
    let (done, torn) = reads(&Stock::new().await, false).await;
    assert_eq!(done, 20);
    assert!(torn > 0);
}
