//! How many connections a process has, counted at the server: docs/production.md has the table.

use lock_core::backend::DistributedLock;

use crate::support::*;

/// Each session has one connection.
#[testbed::test]
async fn a_process_has_one_connection_or_four() {
    let (server, root) = (own_server().await, fresh_root());
    // This question is one, too, and the one before it may be one still.
    let connections = async || counter(&server, "zk_num_alive_connections").await - 1;
    let backend = backend(&server, &root);
    let mut held = vec![hold(&backend, "first").await];
    eventually("one connection", async || connections().await == 1).await;
    for number in 1..8 {
        held.push(hold(&backend, &format!("orders/{number}")).await);
    }
    eventually("one connection", async || connections().await == 1).await;
    for number in 8..60 {
        held.push(hold(&backend, &format!("orders/{number}")).await);
    }
    eventually("four connections", async || connections().await == 4).await;
    let others = self::backend(&server, &root);
    let waiting: Vec<_> = (1..60)
        .map(|number| {
            let others = others.clone();
            let (request, control) = waiting(&format!("orders/{number}"));
            tokio::spawn(async move { (acquire(&others, &request).await, control) })
        })
        .collect();
    happens("the connections are gone", async {
        for number in 1..60 {
            while others.status(&name(&format!("orders/{number}"))).await.unwrap().waiting != Some(1) {
                tokio::time::sleep(std::time::Duration::from_millis(10)).await;
            }
        }
    })
    .await;
    // Names that begin together may all be in the first session.
    eventually("one to four more", async || (5..=8).contains(&connections().await)).await;
    waiting.into_iter().for_each(|waiting| waiting.abort());
}
