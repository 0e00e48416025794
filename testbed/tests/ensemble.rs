//! An ensemble of ZooKeepers, through every control. Needs the servers: `cargo xtask servers --install`.

use std::net::{Ipv4Addr, TcpStream};
use std::time::Duration;

use testbed::{Ensemble, Error, Server, ZooKeeper};
use tokio::time::timeout;
use zookeeper_client::{Acls, Client, CreateMode};

/// Longer than anything takes on an overloaded machine.
const AT_MOST: Duration = Duration::from_secs(60);

async fn start() -> Ensemble {
    ZooKeeper::new().start_ensemble().await.expect("it starts")
}

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
    let ensemble = start().await;
    assert_eq!(
        ensemble.url(),
        format!("zookeeper://{}", ensemble.addresses().join(","))
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
    timeout(AT_MOST, ensemble.ready())
        .await
        .expect("in time")
        .expect("all serve again");
    assert!(has(&ensemble[one], "/third").await);
}

#[testbed::test]
async fn all_can_be_killed_and_restarted() {
    let ensemble = start().await;
    write(&ensemble[0], "/one").await;
    for server in ensemble.servers() {
        server.kill().expect("it is ours");
    }
    let [one, two, three] = ensemble.servers();
    tokio::try_join!(one.restart(), two.restart(), three.restart()).expect("they start again");
    for server in ensemble.servers() {
        assert!(has(server, "/one").await);
    }
    let servers = ensemble.servers().clone();
    drop(ensemble);
    let addresses = servers.each_ref().map(Server::port);
    drop(servers);
    assert!(
        addresses
            .into_iter()
            .all(|port| TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_err())
    );
}

fn is_closed(server: &Server) -> bool {
    TcpStream::connect((Ipv4Addr::LOCALHOST, server.port())).is_err()
}
