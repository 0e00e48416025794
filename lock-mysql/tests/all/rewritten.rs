//! Proxies that change what passes through them, and servers that a test cannot start.

use lock_core::ErrorKind;
use lock_core::backend::DistributedLock;
use lock_mysql::{LeaseTableBackend, MySqlConfig, RowLockBackend, Strategy};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::support::proxy::Proxy;
use crate::support::*;

/// The configuration of a client behind a proxy that replaces what clients say by something of the same length.
async fn behind(fixture: &Fixture, from: &'static str, to: &'static str) -> MySqlConfig {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let server = fixture.server.address().to_owned();
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let server = TcpStream::connect(&server).await.unwrap();
            tokio::spawn(rewrite(client, server, from, to));
        }
    });
    let url = format!("{}?ssl-mode=DISABLED", fixture.server.url_at(&address));
    patient(&url).with_table(&fixture.table)
}

/// `to` is padded with spaces.
async fn rewrite(mut client: TcpStream, mut server: TcpStream, from: &str, to: &str) {
    let (mut from_client, mut to_client) = client.split();
    let (mut from_server, mut to_server) = server.split();
    let rewriting = async {
        let (mut buffer, to) = (vec![0; 65_536], format!("{to:width$}", width = from.len()));
        assert_eq!(from.len(), to.len());
        while let Ok(read @ 1..) = from_client.read(&mut buffer).await {
            let said = &mut buffer[..read];
            for at in 0..=read.saturating_sub(from.len()) {
                if said[at..].starts_with(from.as_bytes()) {
                    said[at..at + from.len()].copy_from_slice(to.as_bytes());
                }
            }
            if to_server.write_all(said).await.is_err() {
                return;
            }
        }
    };
    tokio::select! {
        () = rewriting => {}
        _ = tokio::io::copy(&mut from_server, &mut to_client) => {}
    }
}

#[testbed::test]
async fn a_proxy_that_does_not_pass_on_everything_is_refused() {
    let fixture = Fixture::shared().await;
    for (from, to, says) in [
        ("SET SESSION wait_timeout=61", "DO 0", "SET wait_timeout"),
        (
            "=CONNECTION_ID() AS SIGNED)",
            "=0               AS SIGNED)",
            "one connection",
        ),
        // The control connection's server does not know the other one.
        (
            "SELECT CAST(IS_USED_LOCK(",
            "SELECT CAST(NULLIF(NULL,",
            "different servers",
        ),
    ] {
        let backend = RowLockBackend::new(behind(&fixture, from, to).await).unwrap();
        let error = backend.connect().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error}");
        assert!(!error.is_retryable() && error.to_string().contains(says), "{error}");
    }
    // One that changes nothing of that.
    let honest = behind(&fixture, "something else", "never mind").await;
    RowLockBackend::new(honest).unwrap().connect().await.unwrap();
}

#[testbed::test]
async fn a_proxy_that_does_not_pass_on_what_leases_need_is_refused() {
    let fixture = Fixture::shared().await;
    for (from, to, says) in [
        ("time_zone='+00:00'", "time_zone='+05:00'", "SET time_zone"),
        (
            "=CONNECTION_ID() AS SIGNED)",
            "=0               AS SIGNED)",
            "one connection",
        ),
    ] {
        let config = behind(&fixture, from, to).await.with_strategy(Strategy::Lease);
        let backend = LeaseTableBackend::new(config).unwrap();
        let (request, _control) = options("a", secs(10)).waits(false).start();
        for error in [
            backend.connect().await.unwrap_err(),
            backend.acquire(&request).await.unwrap_err(),
        ] {
            assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error}");
            assert!(!error.is_retryable() && error.to_string().contains(says), "{error}");
        }
    }
}

/// The control connection broke, and each successor reaches another server than those for locks.
#[testbed::test]
async fn a_later_control_connection_to_another_server_is_refused() {
    let (fixture, elsewhere) = (Fixture::own().await, Fixture::own().await);
    let (proxy, backend) = without_connections(&fixture).await;
    proxy.lead_next_to(&[&elsewhere, &fixture, &elsewhere]);
    let (request, _control) = options("a", secs(10)).waits(false).start();
    let error = soon("refused", backend.acquire(&request)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error}");
    assert!(error.to_string().contains("different servers"), "{error}");
}

/// As while an address is moved.
#[testbed::test]
async fn a_control_connection_to_another_server_is_made_anew() {
    let (fixture, elsewhere) = (Fixture::own().await, Fixture::own().await);
    let (proxy, backend) = without_connections(&fixture).await;
    proxy.lead_next_to(&[&elsewhere]);
    let granted = soon("granted", ask(&backend, options("a", secs(600)).waits(false)));
    let granted = granted.await.unwrap();
    let status = backend.status(&name("a")).await.unwrap();
    assert_eq!(status.holders[0].token, Some(granted.hold.token()));
}

/// The old server is still there, and so are the connections to it.
#[testbed::test]
async fn no_idle_connection_to_the_former_server_is_used() {
    let (old, new) = (Fixture::own().await, Fixture::own().await);
    let proxy = Proxy::of(&old).await;
    let backend = proxy.patient(&old);
    backend.connect().await.unwrap();
    let mut observer = old.observer().await;
    let sleeping = "FROM information_schema.PROCESSLIST WHERE ID<>CONNECTION_ID() AND COMMAND='Sleep'";
    // It was made first.
    let control = observer.number(&format!("SELECT MIN(ID) {sleeping}")).await;
    two_at_once(&backend).await;

    proxy.lead_to(&new);
    let before = proxy.dials();
    observer.run(&format!("KILL CONNECTION {control}")).await;
    until("a new control connection", async || {
        backend.status(&name("a")).await.unwrap();
        proxy.dials() > before
    })
    .await;
    grant(&backend, "a", secs(60)).await.release().await;
    until("without idle connections", async || {
        observer.number(&format!("SELECT COUNT(*) {sleeping}")).await == 0
    })
    .await;
    two_at_once(&backend).await;
    assert_eq!(proxy.dials() - before, 3, "the control connection and two for locks");
}

/// The backend has two idle connections after that.
async fn two_at_once(backend: &RowLockBackend) {
    let holds = [grant(backend, "a", secs(60)).await, grant(backend, "b", secs(60)).await];
    for hold in holds {
        hold.release().await;
    }
}

/// A backend whose connections the server has ended.
async fn without_connections(fixture: &Fixture) -> (Proxy, RowLockBackend) {
    let proxy = Proxy::of(fixture).await;
    let backend = proxy.patient(fixture);
    backend.connect().await.unwrap();
    grant(&backend, "a", secs(10)).await.release().await;
    let mut observer = fixture.observer().await;
    let others = "FROM information_schema.PROCESSLIST WHERE ID<>CONNECTION_ID() AND COMMAND='Sleep'";
    while observer.number(&format!("SELECT COUNT(*) {others}")).await > 0 {
        let id = observer.number(&format!("SELECT MIN(ID) {others}")).await;
        observer.try_run(&format!("KILL CONNECTION {id}")).await;
    }
    (proxy, backend)
}

#[testbed::test]
async fn a_cluster_whose_nodes_all_take_writes_is_refused() {
    let fixture = Fixture::shared().await;
    let asks = "SHOW GLOBAL VARIABLES WHERE Variable_name IN ('wsrep_on','group_replication_single_primary_mode')";
    for (says, names) in [
        ("SELECT 'wsrep_on','ON'", "Galera"),
        (
            "SELECT 'group_replication_single_primary_mode','OFF'",
            "several primaries",
        ),
    ] {
        let config = behind(&fixture, asks, says).await;
        let backend = RowLockBackend::new(config.clone()).unwrap();
        let connecting = backend.connect().await.unwrap_err();
        let (request, _control) = options("a", secs(10)).waits(false).start();
        let acquiring = backend.acquire(&request).await.unwrap_err();
        for error in [connecting, acquiring] {
            assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error}");
            let said = error.to_string();
            assert!(said.contains(names) && said.contains("single_writer=true"), "{said}");
        }
        let backend = RowLockBackend::new(config.with_single_writer(true)).unwrap();
        backend.connect().await.unwrap();
        grant(&backend, "a", secs(10)).await.release().await;
    }
}
