//! The transaction ids that tokens are based on.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use lock_core::backend::{DistributedLock, Hold, Lease, ReleaseOptions};
use testbed::ZooKeeper;
use tokio::task::JoinSet;
use tokio::time::sleep;
use zookeeper_client::{Acls, CreateMode, Stat};

use crate::support::line::Line;
use crate::support::*;

async fn release(hold: &dyn Hold) {
    hold.release(ReleaseOptions::default()).await.unwrap();
}

async fn the_node(client: &zookeeper_client::Client, directory: &str) -> Stat {
    let children = client.list_children(directory).await.unwrap();
    let [child] = children.as_slice() else {
        panic!("one holds it: {children:?}")
    };
    client.get_data(&format!("{directory}/{child}")).await.unwrap().1
}

/// Sixteen times the transaction id, and the grant wrote nothing but its node.
#[testbed::test]
async fn a_token_is_a_transaction_id_and_grants_write_nothing() {
    // A hold's task writes its token in the background, after a twelfth of the session timeout.
    in_some_run("the grant wrote its node", is_granted_without_a_write).await;
}

async fn is_granted_without_a_write() -> bool {
    let (server, root) = (shared_server().await, fresh_root());
    let (one, two, client) = (backend(server, &root), backend(server, &root), observer(server).await);
    let directory = format!("{root}/a");
    let (first, _request, _control) = hold(&one, "a").await;
    let node = the_node(&client, &directory).await;
    assert_eq!(first.token().as_i64() >> 4, node.czxid);
    let made = client.get_children(&directory).await.unwrap().1;
    let waiting = start_waiting(&two, (&client, &directory), 2, waiting("a")).await;
    release(&*first).await;
    let (second, _control) = happens("the grant", waiting).await.unwrap();
    let (node, last) = (
        the_node(&client, &directory).await,
        client.get_children(&directory).await.unwrap().1,
    );
    assert_eq!(second.token().as_i64(), last.pzxid * 16);
    assert!(node.czxid < last.pzxid, "the end of the first hold was later");
    assert_eq!(last.mzxid, made.mzxid);
    node.mzxid == node.czxid
}

/// The waiters' nodes are older than all of these passes.
#[testbed::test]
async fn waiters_get_tokens_above_all_passes_of_the_hold_before_them() {
    let (server, root) = (shared_server().await, fresh_root());
    let (one, two, client) = (backend(server, &root), backend(server, &root), observer(server).await);
    let directory = format!("{root}/a");
    let (request, _control) = options("a").reserve(16).start();
    let mut last = granted(happens("an answer to the acquire", one.acquire(&request)).await);
    let second = start_waiting(&two, (&client, &directory), 2, waiting("a")).await;
    let third = start_waiting(&two, (&client, &directory), 3, waiting("a")).await;
    while let Some(next) = last.pass(&Lease::new(name("a"))) {
        last = next;
    }
    release(&*last).await;
    let (second, _control) = happens("the grant", second).await.unwrap();
    release(&*second).await;
    let (third, _control) = happens("the grant", third).await.unwrap();
    assert!(last.token() < second.token());
    assert!(second.token().as_u64() + 15 < third.token().as_u64());
}

/// A server that restarted may have forgotten the last change: over a new connection, the grant takes the transaction id
/// of a write of its node.
#[testbed::test]
async fn a_waiter_that_reconnected_writes_its_node() {
    let (server, root) = (shared_server().await, fresh_root());
    let (one, line) = (backend(server, &root), Line::to(server.address()));
    let (two, client) = (patient(&line.address, &root), observer(server).await);
    let directory = format!("{root}/a");
    let (first, _request, _control) = hold(&one, "a").await;
    let (request, control) = long("a");
    let waiting = start_waiting(&two, (&client, &directory), 2, (request.clone(), control)).await;
    let dialed = line.dials().len();
    line.reset();
    happens("an answer over a new connection", async {
        while line.dials().len() == dialed {
            sleep(Duration::from_millis(5)).await;
        }
        // Answered over the new connection.
        two.connect().await.unwrap();
    })
    .await;
    release(&*first).await;
    let (second, _control) = happens("the grant", waiting).await.unwrap();
    let node = the_node(&client, &directory).await;
    assert!(node.mzxid > node.czxid);
    assert_eq!(second.token().as_i64(), node.mzxid * 16);
    assert_eq!(
        one.status(&name("a")).await.unwrap().holders[0].token,
        Some(second.token())
    );
}

/// Releases until that is answered, as core does: while its session lives, nobody else gets the lock.
async fn end(hold: &dyn Hold) {
    while hold.release(ReleaseOptions::default()).await.is_err() {
        sleep(Duration::from_millis(5)).await;
    }
}

/// Snapshots are taken all the time, of a tree that is large enough that changes fall into them, and the server is killed.
#[testbed::test]
async fn tokens_grow_over_kills_during_snapshots() {
    const KILLS: usize = 3;
    let server = ZooKeeper::new().snapshot_every(20).start().await.unwrap();
    let client = observer(&server).await;
    let ballast = CreateMode::Persistent.with_acls(Acls::anyone_all());
    client.create("/ballast", b"", &ballast).await.unwrap();
    let data = vec![b'x'; 4096];
    for number in 0..1000 {
        let path = format!("/ballast/{number}");
        client.create(&path, &data, &ballast).await.unwrap();
    }
    let seen: Arc<Mutex<Vec<u64>>> = Arc::default();
    let mut clients = JoinSet::new();
    for _ in 0..4 {
        let (backend, seen) = (patient(server.address(), "/test"), seen.clone());
        clients.spawn(async move {
            loop {
                let (request, _control) = long("a");
                let hold = acquire(&backend, &request).await;
                // The session outlasts the kills, so that nobody else holds it meanwhile.
                seen.lock().unwrap().push(hold.token().as_u64());
                end(&*hold).await;
            }
        });
    }
    for _ in 0..KILLS {
        let granted = seen.lock().unwrap().len();
        let working = async {
            while seen.lock().unwrap().len() < granted + 100 || counter(&server, "zk_cnt_snapshottime").await < 3 {
                assert!(clients.try_join_next().is_none(), "a client ended");
                sleep(Duration::from_millis(5)).await;
            }
        };
        // A hundred grants, and a snapshot of the whole tree for every few of them.
        happens("a hundred grants and a snapshot", working).await;
        server.kill().unwrap();
        server.restart().await.unwrap();
    }
    let granted = seen.lock().unwrap().len();
    happens("twenty more grants", async {
        while seen.lock().unwrap().len() < granted + 20 {
            assert!(clients.try_join_next().is_none(), "a client ended");
            sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    clients.shutdown().await;
    let seen = seen.lock().unwrap();
    let fallen = seen.windows(2).find(|pair| pair[0] >= pair[1]);
    assert_eq!(fallen, None, "of {} tokens", seen.len());
}
