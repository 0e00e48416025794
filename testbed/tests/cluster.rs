//! A Redis Cluster, through every control. Needs the servers: `cargo xtask servers --install`.

use testbed::Redis;

/// The slot of the key `a`.
const SLOT: u16 = 15495;

#[testbed::test]
async fn slots_move_and_masters_fail_over() {
    let cluster = Redis::new().start_cluster(true).await.expect("it starts");
    let addresses = cluster.addresses().join(",");
    assert_eq!(cluster.url(), format!("redis+cluster://{addresses}"));
    let slot = cluster.call(0, &["CLUSTER", "KEYSLOT", "a"]).await.expect("an answer");
    assert_eq!(slot, SLOT.to_string());

    let first = cluster.master_of(SLOT).await.expect("it has one");
    assert_eq!(first, 2);
    cluster.call(first, &["SET", "a", "1"]).await.expect("it takes a write");
    cluster.begin_move(SLOT, first, 0).await.expect("it begins");
    let error = cluster.call(first, &["MGET", "a", "{a}b"]).await.expect_err("it moves");
    assert!(error.to_string().contains("TRYAGAIN"), "{error}");
    cluster.finish_move(SLOT, first, 0).await.expect("it moves");
    assert_eq!(cluster.master_of(SLOT).await.expect("it has one"), 0);
    assert_eq!(cluster.call(0, &["GET", "a"]).await.expect("it is there"), "1");

    cluster.fail_over_to(3).await.expect("it takes over");
    assert_eq!(cluster.master_of(SLOT).await.expect("it has one"), 3);
    cluster[3].kill().expect("it is ours");
    assert_eq!(cluster.master_of(SLOT).await.expect("it has one"), 0);
    cluster.until_it_serves().await.expect("it does");
    cluster[3].restart().await.expect("it comes back");
    cluster.until_it_serves().await.expect("it does");

    cluster.restart().await.expect("it restarts");
    assert_eq!(cluster.call(0, &["GET", "a"]).await.expect("it is there"), "1");
    cluster.restart_without_data().await.expect("it restarts");
    assert_eq!(cluster.master_of(SLOT).await.expect("it has one"), 2);
    assert_eq!(cluster.call(2, &["EXISTS", "a"]).await.expect("an answer"), "0");
}
