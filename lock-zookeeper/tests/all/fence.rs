//! A resource in ZooKeeper, and holders that come too late. Every interleaving is made by the clients of one test.

use lock_core::{Error, ErrorKind, FencingToken, Stale};
use lock_zookeeper::{Fence, Fenced};
use tokio::task::JoinSet;
use zookeeper_client::{Acls, Client, CreateMode, Error as DriverError};

use crate::support::*;

mod shared;

/// A stock of ten items in a node of the test's own.
struct Stock {
    client: Client,
    path: String,
}

impl Stock {
    async fn new() -> Self {
        let client = observer(shared_server().await).await;
        let path = fresh_root();
        let options = CreateMode::Persistent.with_acls(Acls::anyone_all());
        client.create(&path, b"10", &options).await.unwrap();
        Self { client, path }
    }

    fn fence(&self) -> Fence<'_> {
        Fence::new(&self.client, &self.path, Acls::anyone_all()).unwrap()
    }

    /// As somebody without a fence reads it.
    async fn left(&self) -> i64 {
        number(&self.client.get_data(&self.path).await.unwrap().0)
    }

    /// The fence's node.
    fn node(&self) -> String {
        format!("{}:entered", self.path)
    }
}

fn number(data: &[u8]) -> i64 {
    std::str::from_utf8(data).unwrap().parse().unwrap()
}

fn token(number: u64) -> FencingToken {
    FencingToken::new(number).unwrap()
}

fn stale(error: &Error) -> Stale {
    assert_eq!(error.kind(), ErrorKind::Lost, "{error:?}");
    assert!(!error.is_retryable());
    *error.cause().unwrap().downcast_ref().expect("it says why")
}

/// Every order in which two holders take so many steps: `false` is a step of the first.
fn orders(first: u32, second: u32) -> impl Iterator<Item = Vec<bool>> {
    let steps = first + second;
    let patterns = (0..1_u32 << steps).filter(move |pattern| pattern.count_ones() == second);
    patterns.map(move |pattern| (0..steps).map(|at| pattern >> at & 1 == 1).collect())
}

/// The older holder reads, and is paused until the newer one has read. Then both sell an item. How many were sold, and how
/// many are left.
async fn two_sales(stock: &Stock, fenced: bool) -> (i64, i64) {
    let fence = stock.fence();
    if !fenced {
        let seen = [stock.left().await, stock.left().await];
        for seen in seen {
            let data = (seen - 1).to_string();
            stock.client.set_data(&stock.path, data.as_bytes(), None).await.unwrap();
        }
        return (2, stock.left().await);
    }
    let older = fence.enter(token(1)).await.expect("nobody was there");
    let seen_by_older = number(&older.get().await.unwrap());
    let newer = fence.enter(token(2)).await.expect("its token is newer");
    let seen_by_newer = number(&newer.get().await.unwrap());

    let error = older.set((seen_by_older - 1).to_string()).await.unwrap_err();
    let rejected = stale(&error);
    assert_eq!((rejected.token, rejected.newest), (token(1), Some(token(2))));
    assert!(error.to_string().contains(&stock.path), "{error}");
    newer
        .set((seen_by_newer - 1).to_string())
        .await
        .expect("nobody is newer");
    (1, stock.left().await)
}

#[testbed::test]
async fn the_update_of_a_holder_that_was_paused_is_rejected() {
    assert_eq!(two_sales(&Stock::new().await, true).await, (1, 9));
}

#[testbed::test]
async fn without_the_fence_that_update_is_lost() {
    assert_eq!(two_sales(&Stock::new().await, false).await, (2, 9));
}

/// Each holder enters, reads, sells, reads and sells.
#[testbed::test]
async fn no_order_of_two_holders_loses_an_update() {
    let stock = Stock::new().await;
    let (mut tried, mut rejected, mut next) = (0, 0, 1);
    for order in orders(5, 5) {
        let start = stock.left().await;
        let tokens = [token(next), token(next + 1)];
        next += 2;
        // Whether it has entered, what it saw, and how many steps it took.
        let mut holders: [Option<(Option<Fenced<'_>>, i64, u32)>; 2] = [Some((None, 0, 0)), Some((None, 0, 0))];
        let mut sold = 0;
        for newer in order {
            let index = usize::from(newer);
            let Some((entered, seen, steps)) = holders[index].take() else {
                continue;
            };
            let step = async {
                Ok(match (entered, steps) {
                    (None, _) => (Some(stock.fence().enter(tokens[index]).await?), seen),
                    (Some(entered), 1 | 3) => {
                        let seen = number(&entered.get().await?);
                        (Some(entered), seen)
                    }
                    (Some(entered), _) => {
                        entered.set((seen - 1).to_string()).await?;
                        sold += 1;
                        (Some(entered), seen)
                    }
                })
            };
            match step.await {
                Ok((entered, seen)) => holders[index] = Some((entered, seen, steps + 1)),
                Err(error) => {
                    assert!(!newer, "nobody is newer: {error}");
                    stale(&error);
                    rejected += 1;
                }
            }
        }
        tried += 1;
        assert_eq!(stock.left().await, start - sold, "order {tried}");
    }
    assert_eq!(
        (tried, rejected),
        (252, 251),
        "only in one order does the older one end first"
    );
}

/// A writer that another one did not see when it entered could still write.
#[testbed::test]
async fn of_many_that_enter_at_once_the_newest_alone_may_write() {
    const ROUNDS: u64 = 50;
    const TOKENS: u64 = 6;
    let stock = Stock::new().await;
    let server = shared_server().await;
    let mut tasks = JoinSet::new();
    for task in 0..TOKENS {
        let (client, path) = (observer(server).await, stock.path.clone());
        let node = stock.node();
        tasks.spawn(async move {
            let fence = Fence::new(&client, path, Acls::anyone_all()).unwrap();
            for round in 0..ROUNDS {
                let own = 1 + round * TOKENS + task;
                if let Err(error) = fence.enter(token(own)).await {
                    assert!(stale(&error).newest.is_some());
                    continue;
                }
                for writer in client.list_children(&node).await.unwrap() {
                    assert!(
                        writer.parse::<u64>().unwrap() >= own,
                        "{writer} may write after {own} has entered"
                    );
                }
            }
        });
    }
    happens("all of them", tasks.join_all()).await;
    let newest = stock.fence().enter(token(ROUNDS * TOKENS)).await.unwrap();
    newest.set("7").await.unwrap();
    assert_eq!(stock.left().await, 7);
}

#[testbed::test]
async fn a_write_is_done_whole_or_not_at_all() {
    let stock = Stock::new().await;
    let entered = stock.fence().enter(token(1)).await.unwrap();
    let missing = format!("{}-missing", stock.path);
    let error = entered
        .write(|writer| {
            writer.add_set_data(&stock.path, b"5", None)?;
            writer.add_delete(&missing, None)
        })
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unexpected, "{error}");
    let source = error.cause().and_then(|cause| cause.downcast_ref::<DriverError>());
    assert_eq!(source, Some(&DriverError::NoNode));
    assert_eq!(stock.left().await, 10);

    let options = CreateMode::Persistent.with_acls(Acls::anyone_all());
    let writing = entered.write(|writer| {
        writer.add_set_data(&stock.path, b"5", None)?;
        writer.add_create(&missing, b"", &options)
    });
    writing.await.unwrap();
    assert_eq!(stock.left().await, 5);
    assert_eq!(entered.get_at(&missing).await.unwrap(), b"");
}

#[testbed::test]
async fn a_fence_that_was_deleted_rejects_who_had_entered() {
    let stock = Stock::new().await;
    let fence = stock.fence();
    let entered = fence.enter(token(7)).await.unwrap();
    let node = stock.node();
    stock.client.delete(&format!("{node}/7"), None).await.unwrap();
    stock.client.delete(&node, None).await.unwrap();
    for error in [entered.set("1").await.unwrap_err(), entered.get().await.unwrap_err()] {
        assert_eq!(stale(&error).newest, None);
    }
    assert_eq!(stock.left().await, 10);
    // Another holder makes it anew, with the same version of its data.
    fence.enter(token(8)).await.unwrap();
    let error = entered.set("1").await.unwrap_err();
    assert_eq!(stale(&error).newest, Some(token(8)));
}

#[testbed::test]
async fn bad_nodes_and_missing_permissions_say_what_to_do() {
    let stock = Stock::new().await;
    for path in ["", "/", "stock", "/stock/"] {
        let error = Fence::new(&stock.client, path, Acls::anyone_all()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Misconfigured, "{path}");
    }

    let orphan = format!("{}/nobody/stock", stock.path);
    let fence = Fence::new(&stock.client, orphan, Acls::anyone_all()).unwrap();
    let error = fence.enter(token(1)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Misconfigured);
    assert!(error.to_string().contains("create the node's parent first"), "{error}");

    let options = CreateMode::Persistent.with_acls(Acls::anyone_all());
    let node = stock.node();
    stock.client.create(&node, b"10.0.0.5", &options).await.unwrap();
    let error = stock.fence().enter(token(1)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Misconfigured);
    assert!(error.to_string().contains("is no fence"), "{error}");

    let options = CreateMode::Persistent.with_acls(Acls::anyone_read());
    let closed = format!("{}-closed", stock.path);
    stock
        .client
        .create(&format!("{closed}:entered"), b"0 0", &options)
        .await
        .unwrap();
    let fence = Fence::new(&stock.client, closed, Acls::anyone_all()).unwrap();
    let error = fence.enter(token(1)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Denied);
    assert!(error.to_string().contains("all permissions"), "{error}");
}
