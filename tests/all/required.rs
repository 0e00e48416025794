//! What an application requires, where nothing connects before the first acquire.

use polylock::{Guarantee, connect_lazy};
use testbed::{MariaDb, Postgres, Redis, ZooKeeper, happens};

/// Requires all that the server keeps, of a locker that has never connected.
async fn a_first_acquire_finds_what_the_server_keeps(url: &str) -> Vec<Guarantee> {
    let asked = connect_lazy(url).expect("a good URL");
    let verdicts = asked.guarantees().await.expect("a server");
    let kept: Vec<_> = verdicts
        .into_iter()
        .filter(|(_, verdict)| verdict.is_yes())
        .map(|(guarantee, _)| guarantee)
        .collect();
    let fresh = connect_lazy(url).expect("a good URL").require(kept.clone());
    // Twice: the second one is refused before anything is sent, if it is.
    for _ in 0..2 {
        let guard = happens("an answer", fresh.lock("required").acquire()).await;
        guard.expect("it keeps all of them").release().await.expect("held");
    }
    kept
}

#[testbed::test]
async fn redis_and_a_quorum() {
    let start = async || {
        let server = Redis::new().setting("appendonly", ["yes"]);
        server
            .setting("appendfsync", ["always"])
            .start()
            .await
            .expect("a server")
    };
    let servers = [start().await, start().await, start().await];
    if testbed::skip_external(&servers) {
        return;
    }
    let urls = servers.each_ref().map(|server| server.url());
    for url in [&urls[0], &format!("quorum:{}", urls.join("|"))] {
        let kept = a_first_acquire_finds_what_the_server_keeps(url).await;
        assert!(kept.contains(&Guarantee::ServerCrash), "{url}: {kept:?}");
    }
}

#[testbed::test]
async fn mysql() {
    let server = MariaDb::new().option("--innodb-flush-log-at-trx-commit=1");
    let server = server.start().await.expect("a server");
    if testbed::skip_external([&server]) {
        return;
    }
    a_first_acquire_finds_what_the_server_keeps(&server.url()).await;
    let leases = format!("{}?strategy=lease", server.url());
    let kept = a_first_acquire_finds_what_the_server_keeps(&leases).await;
    assert!(kept.contains(&Guarantee::ServerCrash), "{kept:?}");
}

#[testbed::test]
async fn postgres() {
    let server = Postgres::new().start().await.expect("a server");
    let kept = a_first_acquire_finds_what_the_server_keeps(&server.url()).await;
    assert!(kept.contains(&Guarantee::ServerCrash), "{kept:?}");
    let sessions = format!("{}?strategy=session", server.url());
    a_first_acquire_finds_what_the_server_keeps(&sessions).await;
}

#[testbed::test]
async fn zookeeper() {
    let server = ZooKeeper::new().start().await.expect("a server");
    let url = format!("zookeeper://{}/required?acl=open", server.address());
    let kept = a_first_acquire_finds_what_the_server_keeps(&url).await;
    assert!(kept.contains(&Guarantee::ServerCrash), "{kept:?}");
}
