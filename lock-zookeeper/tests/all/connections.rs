//! How many connections a process has, counted at the server: docs/production.md has the table.

use lock_core::backend::DistributedLock;

use crate::support::*;

/// Each session has one connection.
#[testbed::test]
async fn a_process_has_one_connection_or_four() {
    let (server, root) = (own_server().await, fresh_root());
    // This question is one, too.
    let connections = async || counter(&server, "zk_num_alive_connections").await - 1;
    let backend = backend(&server, &root);
    let mut held = vec![hold(&backend, "first").await];
    assert_eq!(connections().await, 1);
    for number in 1..8 {
        held.push(hold(&backend, &format!("orders/{number}")).await);
    }
    assert_eq!(connections().await, 1);
    for number in 8..60 {
        held.push(hold(&backend, &format!("orders/{number}")).await);
    }
    assert_eq!(connections().await, 4);
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
    assert!((5..=8).contains(&connections().await));
    waiting.into_iter().for_each(|waiting| waiting.abort());
}
