//! Heartbeats that need a quorum. What that is for: [`crate::ensemble`].

use lock_core::backend::ReleaseOptions;
use lock_zookeeper::HeartbeatKind;
use testbed::Server;
use tokio::time::sleep;

use crate::support::*;

/// The server's last transaction.
async fn last_transaction(server: &Server) -> u64 {
    let answer = ask(server, "srvr").await;
    let zxid = answer.lines().find_map(|line| line.strip_prefix("Zxid: 0x")).unwrap();
    u64::from_str_radix(zxid, 16).unwrap()
}

/// How many nodes there are.
async fn nodes(server: &Server) -> String {
    let answer = ask(server, "srvr").await;
    answer
        .lines()
        .find(|line| line.starts_with("Node count"))
        .unwrap()
        .to_owned()
}

#[testbed::test]
async fn each_one_is_a_transaction_that_changes_nothing() {
    let server = own_server().await;
    let config = config(server.address(), "/locks").with_heartbeat(HeartbeatKind::Write);
    let backend = backend_with(config);
    in_some_run("the hold was lost, or few heartbeats were sent", async || {
        let (hold, request, _control) = hold(&backend, "a").await;
        let (before, count) = (last_transaction(&server).await, nodes(&server).await);
        // Nobody else is there. A session timeout has twelve heartbeats, or more on a slow machine.
        sleep(SESSION * 3 / 2).await;
        let (after, then) = (last_transaction(&server).await, nodes(&server).await);
        println!("{before} to {after}");
        let is_live = is_live(request.lease());
        assert!(!is_live || then == count, "{count}, and then {then}");
        happens("the release", hold.release(ReleaseOptions::default()))
            .await
            .unwrap();
        is_live && after >= before + 6
    })
    .await;
    drop(backend);
    let observer = observer(&server).await;
    // The lock's container stays until the server reaps it.
    assert_eq!(children_until(&observer, "/locks", |_| true).await, ["a"]);
}
