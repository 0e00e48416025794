//! A resource in the database, and holders that come too late. Every interleaving is made by two connections of one test.

use lock_core::{Error, ErrorKind, FencingToken, Stale};
use lock_postgres::Fence;
use lock_postgres::tokio_postgres::Transaction;
use testbed::{Postgres, happens};
use tokio::task::JoinSet;

use self::stock::{Stock, connect};

mod isolation;
mod page;
mod shared;
pub(crate) mod stock;

const RESOURCE: &str = "stock/1";

fn token(number: u64) -> FencingToken {
    FencingToken::new(number).unwrap()
}

fn stale(error: &Error) -> Stale {
    assert_eq!(error.kind(), ErrorKind::Lost, "{error:?}");
    assert!(!error.is_retryable());
    *error.cause().unwrap().downcast_ref().expect("it says why")
}

fn is_for_another_run(error: &Error) {
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
    assert!(
        error.is_retryable() && error.to_string().contains("run the transaction again"),
        "{error}"
    );
}

/// The older holder reads, and is paused until the newer one has read. Then both sell an item. How many were sold, and how
/// many are left.
async fn two_sales(stock: &Stock, fenced: bool) -> (i64, i64) {
    let [mut older, mut newer] = [stock.connect().await, stock.connect().await];
    let mut sold = 0;
    let enter = async |tx: &mut Transaction<'_>, number| match fenced {
        true => stock.fence.enter(tx, RESOURCE, token(number)).await,
        false => Ok(()),
    };

    let mut tx = older.transaction().await.unwrap();
    enter(&mut tx, 1).await.expect("nobody was there");
    let seen_by_older = stock.read(&tx).await;
    tx.commit().await.unwrap();

    let mut tx = newer.transaction().await.unwrap();
    enter(&mut tx, 2).await.expect("its token is newer");
    let seen_by_newer = stock.read(&tx).await;
    tx.commit().await.unwrap();

    let mut tx = older.transaction().await.unwrap();
    match enter(&mut tx, 1).await {
        Ok(()) => {
            stock.write(&tx, seen_by_older - 1).await;
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

    let mut tx = newer.transaction().await.unwrap();
    enter(&mut tx, 2).await.expect("nobody is newer");
    stock.write(&tx, seen_by_newer - 1).await;
    tx.commit().await.unwrap();
    (sold + 1, stock.left().await)
}

#[testbed::test]
async fn the_update_of_a_holder_that_was_paused_is_refused() {
    assert_eq!(two_sales(&Stock::new().await, true).await, (1, 9));
}

#[testbed::test]
async fn without_the_fence_that_update_is_lost() {
    assert_eq!(two_sales(&Stock::new().await, false).await, (2, 9));
}

/// Every order in which two holders take so many steps each: `false` is a step of the older one.
fn orders(steps: u32) -> impl Iterator<Item = Vec<bool>> {
    let patterns = (0..1_u32 << (2 * steps)).filter(move |pattern| pattern.count_ones() == steps);
    patterns.map(move |pattern| (0..2 * steps).map(|at| pattern >> at & 1 == 1).collect())
}

/// Each holder reads, sells, reads and sells, in a transaction each.
#[testbed::test]
async fn no_order_of_transactions_loses_an_update() {
    let stock = Stock::new().await;
    let mut client = stock.connect().await;
    let (mut tried, mut refused) = (0, 0);
    for (number, order) in orders(4).enumerate() {
        let resource = format!("stock/{number}");
        let start = stock.left().await;
        let mut holders = [Some((0, 0)); 2]; // what it saw, and how many steps it took
        let mut sold = 0;
        for newer in order {
            let holder = usize::from(newer);
            let Some((seen, steps)) = holders[holder] else { continue };
            let mut tx = client.transaction().await.unwrap();
            let token = token(holder as u64 + 1);
            if stock.fence.enter(&mut tx, &resource, token).await.is_err() {
                assert!(!newer, "nobody is newer");
                holders[holder] = None;
                refused += 1;
                continue;
            }
            if steps % 2 == 0 {
                holders[holder] = Some((stock.read(&tx).await, steps + 1));
            } else {
                stock.write(&tx, seen - 1).await;
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

#[testbed::test]
async fn nobody_enters_until_the_transaction_ends() {
    let stock = Stock::new().await;
    let [mut first, mut second] = [stock.connect().await, stock.connect().await];
    let mut tx = first.transaction().await.unwrap();
    stock.fence.enter(&mut tx, RESOURCE, token(1)).await.unwrap();
    second.batch_execute("SET lock_timeout = 100").await.unwrap();
    let mut waiting = second.transaction().await.unwrap();
    is_for_another_run(&stock.fence.enter(&mut waiting, RESOURCE, token(2)).await.unwrap_err());
    waiting.rollback().await.unwrap();
    second.batch_execute("RESET lock_timeout").await.unwrap();

    let mut waiting = second.transaction().await.unwrap();
    let (entered, ()) = tokio::join!(stock.fence.enter(&mut waiting, RESOURCE, token(2)), async {
        stock.until_somebody_waits().await;
        tx.commit().await.unwrap();
    });
    entered.unwrap();
}

#[testbed::test]
async fn a_rollback_undoes_the_entry() {
    let stock = Stock::new().await;
    let mut client = stock.connect().await;
    let mut tx = client.transaction().await.unwrap();
    stock.fence.enter(&mut tx, RESOURCE, token(2)).await.unwrap();
    tx.rollback().await.unwrap();
    let mut tx = client.transaction().await.unwrap();
    stock.fence.enter(&mut tx, RESOURCE, token(1)).await.unwrap();
}

#[testbed::test]
async fn resources_are_compared_by_their_bytes_and_have_1_to_512() {
    let stock = Stock::new().await;
    let mut client = stock.connect().await;
    let mut tx = client.transaction().await.unwrap();
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
#[testbed::test]
async fn many_that_enter_a_new_resource_at_once_cause_no_deadlock() {
    let stock = Stock::new().await;
    let mut clients = Vec::new();
    for _ in 0..8 {
        clients.push(stock.connect().await);
    }
    for (resource, rolls_back) in (0..20_u8).map(|resource| (resource, false)).chain([(20, true); 20]) {
        let mut tasks = JoinSet::new();
        for (number, mut client) in (1..).zip(clients.drain(..)) {
            let fence = stock.fence.clone();
            tasks.spawn(async move {
                let mut tx = client.transaction().await.unwrap();
                let entered = fence.enter(&mut tx, [resource], token(number)).await;
                match rolls_back && number % 2 == 0 {
                    false => tx.commit().await.unwrap(),
                    true => tx.rollback().await.unwrap(),
                }
                (client, entered)
            });
        }
        while let Some(entered) = tasks.join_next().await {
            let (client, entered) = entered.unwrap();
            clients.push(client);
            if let Err(error) = entered {
                stale(&error);
            }
        }
    }
}

#[testbed::test]
async fn a_new_resource_does_not_wait_for_another() {
    let stock = Stock::new().await;
    let [mut first, mut second] = [stock.connect().await, stock.connect().await];
    let mut tx = first.transaction().await.unwrap();
    stock.fence.enter(&mut tx, "b", token(1)).await.unwrap();
    for resource in ["a", "c"] {
        let mut tx = second.transaction().await.unwrap();
        let entered = stock.fence.enter(&mut tx, resource, token(1));
        happens("the task ends", entered).await.expect(resource);
        tx.commit().await.unwrap();
    }
}

#[testbed::test]
async fn a_deadlock_of_two_fences_is_told() {
    let stock = Stock::new().await;
    let [mut first, mut second] = [stock.connect().await, stock.connect().await];
    let mut one = first.transaction().await.unwrap();
    let mut two = second.transaction().await.unwrap();
    stock.fence.enter(&mut one, "a", token(1)).await.unwrap();
    stock.fence.enter(&mut two, "b", token(1)).await.unwrap();
    let (fence, other) = (stock.fence.clone(), stock.fence.clone());
    let entered = tokio::join!(
        fence.enter(&mut one, "b", token(1)),
        other.enter(&mut two, "a", token(1))
    );
    // The other one enters as soon as the server has rolled back the first.
    let error = match entered {
        (Err(error), Ok(())) | (Ok(()), Err(error)) => error,
        both => panic!("the server ends one of them: {both:?}"),
    };
    assert!(
        error.is_retryable() && error.to_string().contains("deadlock"),
        "{error}"
    );
}

#[testbed::test]
async fn what_is_missing_says_what_to_do() {
    let stock = Stock::new().await;
    let mut client = stock.connect().await;
    let mut tx = client.transaction().await.unwrap();
    let missing = Fence::in_table(Some(&stock.schema), "none").unwrap();
    let error = missing.enter(&mut tx, RESOURCE, token(1)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error}");
    assert!(error.to_string().contains("schema::fences"), "{error}");
    let error = stock.fence.enter(&mut tx, RESOURCE, token(1)).await.unwrap_err();
    assert!(error.to_string().contains("failed before: roll back"), "{error}");
    tx.rollback().await.unwrap();

    let mut tx = client.build_transaction().read_only(true).start().await.unwrap();
    let error = stock.fence.enter(&mut tx, RESOURCE, token(1)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error}");
    assert!(error.to_string().contains("READ WRITE"), "{error}");
}

#[testbed::test]
async fn a_user_needs_the_permissions_that_the_error_names() {
    let server = Postgres::new().role("least", "s3cret").start().await.unwrap();
    let stock = Stock::on(&server).await;
    let owner = stock.connect().await;
    let url = format!("postgres://least:s3cret@{}/app", server.address());
    let mut client = connect(&url).await;
    let schema = &stock.schema;
    for granted in [
        String::new(),
        format!("GRANT USAGE ON SCHEMA {schema} TO least"),
        format!("GRANT SELECT, UPDATE ON {schema}.fences TO least"),
    ] {
        owner.batch_execute(&granted).await.unwrap();
        let mut tx = client.transaction().await.unwrap();
        let error = stock.fence.enter(&mut tx, RESOURCE, token(1)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
        assert!(error.to_string().contains("SELECT, INSERT and UPDATE"), "{error}");
    }
    let all = format!("GRANT INSERT ON {schema}.fences TO least");
    owner.batch_execute(&all).await.unwrap();
    let mut tx = client.transaction().await.unwrap();
    stock.fence.enter(&mut tx, RESOURCE, token(1)).await.unwrap();
    stock.fence.enter_shared(&mut tx, RESOURCE, token(2)).await.unwrap();
    stock.fence.check_shared(&mut tx, RESOURCE, token(2)).await.unwrap();
}

#[testbed::test]
async fn the_settings_of_the_users_connection_do_not_matter() {
    let server = Postgres::new().hostile().start().await.unwrap();
    let stock = Stock::on(&server).await;
    let mut client = stock.connect().await;
    let mut tx = client.transaction().await.unwrap();
    stock.fence.enter(&mut tx, "r\\'\"", token(2)).await.unwrap();
    stock.fence.enter_shared(&mut tx, "r\\'\"", token(3)).await.unwrap();
    stock.fence.check_shared(&mut tx, "r\\'\"", token(3)).await.unwrap();
    stale(&stock.fence.enter(&mut tx, "r\\'\"", token(1)).await.unwrap_err());
    tx.commit().await.unwrap();
}

/// It waits for another transaction when it is dropped.
#[testbed::test]
async fn an_entry_that_is_dropped_leaves_nothing_behind() {
    let stock = Stock::new().await;
    let [mut first, mut second] = [stock.connect().await, stock.connect().await];
    let mut tx = first.transaction().await.unwrap();
    stock.fence.enter(&mut tx, RESOURCE, token(1)).await.unwrap();
    let mut waiting = second.transaction().await.unwrap();
    tokio::select! {
        entered = stock.fence.enter(&mut waiting, RESOURCE, token(3)) => panic!("{entered:?}"),
        () = stock.until_somebody_waits() => {}
    }
    drop(waiting);
    tx.commit().await.unwrap();

    // Over the same connection, and with a token between the two.
    let mut tx = second.transaction().await.unwrap();
    stock.fence.enter(&mut tx, RESOURCE, token(2)).await.unwrap();
    tx.commit().await.unwrap();
}
