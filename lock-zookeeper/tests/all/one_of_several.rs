//! Several servers, of which some are silent or no ZooKeeper.

use std::net::TcpListener;

use lock_core::backend::{DistributedLock, ReleaseOptions, ReleaseOutcome};
use lock_core::{ErrorKind, Result};
use lock_zookeeper::{ConnectionState, ZooKeeperConfig};
use testbed::Redis;
use tokio::task::JoinSet;

use crate::support::line::Line;
use crate::support::*;

/// Enough that one of them tries the wrong server first: the order is random.
const CLIENTS: usize = 8;

fn config_of(servers: &[&str]) -> ZooKeeperConfig {
    let config = ZooKeeperConfig::new(servers.iter().copied())
        .with_open_acl()
        .with_root(fresh_root());
    config.with_session_timeout(LONG).with_connect_timeout(GENEROUS)
}

/// Connects many clients at a time.
async fn connect_all(config: &ZooKeeperConfig) -> Vec<Result<()>> {
    let mut connecting = JoinSet::new();
    for _ in 0..CLIENTS {
        let backend = backend_with(config.clone());
        connecting.spawn(async move { backend.connect().await });
    }
    happens("answers to the connects", connecting.join_all()).await
}

/// It takes connections, and reads nothing.
struct Silent {
    address: String,
    _listener: TcpListener,
}

fn silent() -> Silent {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    Silent {
        address: listener.local_addr().unwrap().to_string(),
        _listener: listener,
    }
}

#[testbed::test]
async fn a_client_connects_although_one_server_is_silent() {
    let silent = silent();
    // The driver alone waits for 33 s.
    for connected in connect_all(&config_of(&[&silent.address, shared_server().await.address()])).await {
        connected.unwrap();
    }
}

#[testbed::test]
async fn a_client_connects_although_one_server_is_no_zookeeper() {
    let redis = Redis::new().start().await.unwrap();
    for connected in connect_all(&config_of(&[redis.address(), shared_server().await.address()])).await {
        connected.unwrap();
    }
}

/// The connection breaks. If two silent servers are tried before the other one, each for more than half of the session timeout, the lease ends.
#[testbed::test]
async fn a_hold_outlives_silent_servers() {
    let (silent, line) = (
        [silent(), silent(), silent()],
        Line::to(shared_server().await.address()),
    );
    let addresses = [
        &silent[0].address,
        &silent[1].address,
        &silent[2].address,
        &line.address,
    ];
    let config = config_of(&addresses.map(String::as_str));
    in_some_run("the hold was lost", async || {
        let backend = backend_with(config.clone().with_session_timeout(STEADY));
        let (request, _control) = long("a");
        let hold = acquire(&backend, &request).await;
        for _ in 0..CLIENTS {
            line.reset();
            eventually("the loss of the connection", async || {
                (backend.state() != ConnectionState::Connected).then_some(())
            })
            .await;
            eventually("another connection", async || {
                (backend.state() == ConnectionState::Connected).then_some(())
            })
            .await;
        }
        let was_live = is_live(request.lease());
        let released = happens("the release", hold.release(ReleaseOptions::default())).await;
        let is_released = released.is_ok_and(|outcome| outcome == ReleaseOutcome::Released);
        (was_live && is_released).then_some(()).ok_or(was_live)
    })
    .await;
}

#[testbed::test]
async fn the_wrong_server_is_named_if_no_other_one_serves() {
    let redis = Redis::new().start().await.unwrap();
    let line = Line::to(shared_server().await.address());
    line.cut();
    let backend = backend_with(config_of(&[redis.address(), &line.address]));
    let error = happens("an answer to the connect", backend.connect())
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error}");
    assert!(error.to_string().contains("but Redis answers there"), "{error}");
    line.heal();
    eventually("a connection to the other one", async || backend.connect().await.ok()).await;
}
