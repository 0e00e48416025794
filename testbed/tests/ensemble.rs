//! An ensemble of ZooKeepers, through every control. Needs the servers: `cargo xtask servers --install`.

use std::net::{Ipv4Addr, TcpStream};
use std::time::Duration;

use testbed::{Error, Server, ZooKeeper, happens};
use tokio::time::timeout;
use zookeeper_client::{Acls, Client, CreateMode};

async fn connect(server: &Server) -> Client {
    Client::connect(server.address()).await.expect("it serves")
}

async fn write(server: &Server, path: &str) {
    let persistent = CreateMode::Persistent.with_acls(Acls::anyone_all());
    let written = connect(server).await.create(path, b"", &persistent).await;
    written.expect("it takes a write");
}

/// Whether the ensemble has it, as its leader knows.
async fn has(server: &Server, path: &str) -> bool {
    let client = connect(server).await;
    client.sync(path).await.expect("it has a leader");
    client.check_stat(path).await.expect("it answers").is_some()
}

fn followers(leader: usize) -> [usize; 2] {
    [(leader + 1) % 3, (leader + 2) % 3]
}

#[testbed::test]
async fn each_server_can_be_killed_paused_and_restarted() {
    let ensemble = ZooKeeper::new().start_ensemble().await.expect("it starts");
    let addresses = ensemble.addresses().join(",");
    assert!(
        ensemble.url().starts_with(&format!("zookeeper://{addresses}/")),
        "{}",
        ensemble.url()
    );
    let leader = ensemble.ready().await.expect("one leads");
    let [one, other] = followers(leader);
    write(&ensemble[one], "/one").await;

    ensemble[leader].kill().expect("it is ours");
    assert!(is_closed(&ensemble[leader]), "a killed server has no socket");
    assert!(matches!(ensemble[leader].pause(), Err(Error::NotRunning { .. })));
    let next = ensemble.leader().await.expect("the others elect one");
    assert_ne!(next, leader);
    write(&ensemble[other], "/other").await;
    ensemble[leader].restart().await.expect("it starts again");
    assert!(has(&ensemble[leader], "/other").await);

    let [one, other] = followers(ensemble.ready().await.expect("one leads"));
    ensemble[one].pause().expect("it runs");
    let answer = timeout(Duration::from_millis(300), Client::connect(ensemble[one].address())).await;
    assert!(!matches!(answer, Ok(Ok(_))), "a paused server answered");
    write(&ensemble[other], "/third").await;
    ensemble[one].resume().expect("it runs");
    happens("all serve again", ensemble.ready())
        .await
        .expect("all serve again");
    assert!(has(&ensemble[one], "/third").await);

    ensemble.restart().await.expect("all start again");
    for server in ensemble.servers() {
        assert!(has(server, "/third").await, "an acknowledged write is lost");
    }
    ensemble.restart_without_data().await.expect("all start again");
    assert!(!has(&ensemble[0], "/third").await, "old data is still there");

    let servers = ensemble.servers().clone();
    drop(ensemble);
    assert!(!servers.iter().any(is_closed), "they live as long as any clone");
    let ports = servers.each_ref().map(Server::port);
    drop(servers);
    assert!(ports.into_iter().all(is_free));
}

#[testbed::test]
async fn servers_are_cut_off_from_each_other() {
    // For 7 s, a server that is cut off answers what it can.
    let ensemble = ZooKeeper::new()
        .sync_limit(14)
        .start_ensemble()
        .await
        .expect("it starts");
    let leader = ensemble.ready().await.expect("one leads");
    let [one, other] = followers(leader);
    // Followers do not need each other.
    ensemble.cut(one, other);
    write(&ensemble[one], "/apart").await;
    assert!(has(&ensemble[other], "/apart").await);
    ensemble.heal();

    let client = connect(&ensemble[one]).await;
    ensemble.isolate(one);
    write(&ensemble[other], "/without-one").await;
    let stat = client.check_stat("/without-one").await;
    assert!(stat.expect("it still answers").is_none());
    let sync = happens("the end of its connection", client.sync("/")).await;
    sync.expect_err("it has no leader");
    ensemble.heal();
    let leader = ensemble.ready().await.expect("it joins them again");
    assert!(has(&ensemble[one], "/without-one").await);

    let [one, other] = followers(leader);
    ensemble.isolate(leader);
    let next = ensemble.leader_after(leader).await.expect("the others elect one");
    write(&ensemble[one], "/without-leader").await;
    assert!(has(&ensemble[other], "/without-leader").await);
    ensemble.heal();
    assert_eq!(ensemble.ready().await.expect("it joins them again"), next);
    assert!(has(&ensemble[leader], "/without-leader").await);
}

fn is_closed(server: &Server) -> bool {
    is_free(server.port())
}

fn is_free(port: u16) -> bool {
    TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_err()
}
