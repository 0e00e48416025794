//! A master and its replicas, through every control. Needs the servers: `cargo xtask servers --install`.

use testbed::Redis;

#[testbed::test]
async fn replicas_follow_are_promoted_and_come_back() {
    let servers = Redis::new().start_replicated(2).await.expect("they start");
    assert_eq!(servers.servers().len(), 3);
    let has = async |server: usize| servers.call(server, &["GET", "a"]).await.expect("an answer");

    servers.call(0, &["SET", "a", "1"]).await.expect("it takes a write");
    // It counts the replicas that follow.
    let follow = servers.call(0, &["WAIT", "2", "10000"]).await.expect("an answer");
    assert_eq!(follow, "2");
    let error = servers.call(1, &["SET", "a", "2"]).await.expect_err("it is a replica");
    assert!(error.to_string().contains("READONLY"), "{error}");

    servers[0].kill().expect("it is ours");
    servers.promote(1).await.expect("it takes over");
    servers.follow(2, 1).await.expect("it follows");
    servers.call(1, &["SET", "a", "3"]).await.expect("it takes a write");
    servers[0].restart().await.expect("it comes back");
    assert_eq!(has(0).await, "1", "it is a master with its own data");
    servers.follow(0, 1).await.expect("it follows");
    assert_eq!(has(0).await, "3");
}
