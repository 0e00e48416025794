//! A Redis Cluster, through every control. Needs the servers: `cargo xtask servers --install`.

use std::panic::Location;

use testbed::{Redis, in_some_run};

/// The slot of the key `a`.
const SLOT: u16 = 15495;

#[testbed::test]
async fn slots_move_and_masters_fail_over() {
    in_some_run("another node is the master", moved_and_failed_over).await;
}

/// The error is a node that has the slot in place of the one that should. If the machine stands still, replicas take over too.
async fn moved_and_failed_over() -> Result<(), String> {
    let cluster = Redis::new().start_cluster(true).await.expect("it starts");
    let addresses = cluster.addresses().join(",");
    assert_eq!(cluster.url(), format!("redis+cluster://{addresses}"));
    let slot = cluster.call(0, &["CLUSTER", "KEYSLOT", "a"]).await.expect("an answer");
    assert_eq!(slot, SLOT.to_string());

    let first = cluster.master_of(SLOT).await.expect("it has one");
    is(first, 2)?;
    cluster.call(first, &["SET", "a", "1"]).await.expect("it takes a write");
    cluster.begin_move(SLOT, first, 0).await.expect("it begins");
    let error = cluster.call(first, &["MGET", "a", "{a}b"]).await.expect_err("it moves");
    assert!(error.to_string().contains("TRYAGAIN"), "{error}");
    cluster.finish_move(SLOT, first, 0).await.expect("it moves");
    is(cluster.master_of(SLOT).await.expect("it has one"), 0)?;
    assert_eq!(cluster.call(0, &["GET", "a"]).await.expect("it is there"), "1");

    cluster.fail_over_to(3).await.expect("it takes over");
    is(cluster.master_of(SLOT).await.expect("it has one"), 3)?;
    cluster[3].kill().expect("it is ours");
    is(cluster.master_of(SLOT).await.expect("it has one"), 0)?;
    cluster.until_it_serves().await.expect("it does");
    cluster[3].restart().await.expect("it comes back");
    cluster.until_it_serves().await.expect("it does");

    cluster.restart().await.expect("it restarts");
    assert_eq!(cluster.call(0, &["GET", "a"]).await.expect("it is there"), "1");
    cluster.restart_without_data().await.expect("it restarts");
    is(cluster.master_of(SLOT).await.expect("it has one"), 2)?;
    assert_eq!(cluster.call(2, &["EXISTS", "a"]).await.expect("an answer"), "0");
    Ok(())
}

#[track_caller]
fn is(master: usize, expected: usize) -> Result<(), String> {
    match master == expected {
        true => Ok(()),
        false => Err(format!("{master} in place of {expected}, at {}", Location::caller())),
    }
}
