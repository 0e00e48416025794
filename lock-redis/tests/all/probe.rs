//! What a server is asked when a connection to it is made.

use std::time::Duration;

use lock_core::backend::DistributedLock;
use lock_core::{Error, ErrorKind, Guarantee, Locker};
use lock_redis::{Checks, Finding, RedisBackend, RedisConfig};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use crate::support::proxy::Proxy;
use crate::support::{
    Fixture, LONG, TTL, eventually, explained, granted, in_the_end, name, refused, release, request, take, with_config,
};

/// Enough to be told once.
const SHORT: Duration = Duration::from_millis(1500);

const POLICY: &str = "maxmemory-policy allkeys-lru";

/// A server that loses locks in two ways.
async fn careless() -> Option<Fixture> {
    let server = testbed::Redis::new()
        .setting("maxmemory-policy", ["allkeys-lru"])
        .setting("appendonly", ["no"]);
    Fixture::own_of(server).await
}

#[testbed::test]
async fn each_run_of_a_server_is_warned_of_once() {
    let warnings = testbed::Warnings::default();
    let _subscribed = testbed::subscribe(warnings.clone());
    let Some(mut fixture) = careless().await else {
        return;
    };
    let backend = fixture.backend();
    assert_eq!(backend.findings(), [], "nothing is known before the first connection");
    backend.connect().await.expect("a warning is no refusal");
    let policy = "allkeys-lru".to_owned();
    assert_eq!(backend.findings(), [Finding::Evicts { policy }, Finding::NotPersistent]);
    let found = warnings.take();
    assert_eq!(found.len(), 2, "{found:?}");
    for (warning, parts) in found.iter().zip([
        [POLICY, "set maxmemory-policy noeviction"],
        ["appendonly no", "set appendonly yes"],
    ]) {
        assert!(parts.iter().all(|part| warning.contains(part)), "{warning}");
        assert!(warning.contains(fixture.server.address()), "{warning}");
    }

    // Another connection to the same run says nothing new.
    let hold = take(&backend, "a").await;
    let _: i64 = fixture.raw(&["CLIENT", "KILL", "TYPE", "pubsub"]).await;
    eventually("the connection is replaced", async || {
        backend.status(&name("a")).await.is_ok_and(|_| clients_killed(&backend))
    })
    .await;
    assert!(release(&hold).await);
    assert_eq!(warnings.take(), [""; 0]);

    fixture.server.restart().await.expect("it starts again");
    fixture.reconnect().await;
    in_the_end(async || backend.connect().await).await;
    let found = warnings.take();
    assert_eq!(found.len(), 2, "{found:?}");
}

/// Whether it is connected anew.
fn clients_killed(backend: &RedisBackend) -> bool {
    let shown = format!("{backend:?}");
    shown.contains("generation: 2") && shown.contains("phase: \"up\"")
}

#[testbed::test]
async fn settings_may_be_refused() {
    let Some(fixture) = careless().await else {
        return;
    };
    let url = format!("{}?checks=refuse", fixture.server.url());
    let config = RedisConfig::from_url(&url)
        .expect("a good URL")
        .with_connect_timeout(LONG);
    let backend = with_config(config);
    let error = backend.connect().await.expect_err("it is careless");
    assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error:?}");
    for part in [
        POLICY,
        "set maxmemory-policy noeviction",
        "set appendonly yes",
        fixture.server.address(),
    ] {
        assert!(error.to_string().contains(part), "{error}");
    }
    assert_eq!(refused(&backend, "a").await.kind(), ErrorKind::Misconfigured);
    assert!(!fixture.exists("a").await);

    for (setting, value) in [
        ("maxmemory-policy", "noeviction"),
        ("appendonly", "yes"),
        ("appendfsync", "everysec"),
    ] {
        let _: () = fixture.raw(&["CONFIG", "SET", setting, value]).await;
    }
    let error = backend.connect().await.expect_err("it is still a bit careless");
    assert!(error.to_string().contains("appendfsync everysec"), "{error}");
    let _: () = fixture.raw(&["CONFIG", "SET", "appendfsync", "always"]).await;
    let on_rewrite = ["CONFIG", "SET", "no-appendfsync-on-rewrite"];
    let _: () = fixture.raw(&[&on_rewrite[..], &["yes"]].concat()).await;
    let error = backend.connect().await.expect_err("it is careless while it saves");
    assert!(error.to_string().contains("no-appendfsync-on-rewrite yes"), "{error}");
    let _: () = fixture.raw(&[&on_rewrite[..], &["no"]].concat()).await;
    backend.connect().await.expect("all is well");
    assert_eq!(backend.findings(), []);
}

#[testbed::test]
async fn without_checks_nothing_is_asked() {
    let Some(fixture) = careless().await else {
        return;
    };
    // Testbed itself asks for INFO while the server starts.
    let _: () = fixture.raw(&["CONFIG", "RESETSTAT"]).await;
    let backend = with_config(fixture.config().with_checks(Checks::Off));
    assert!(release(&take(&backend, "a").await).await);
    assert_eq!(backend.findings(), []);
    let statistics: String = fixture.raw(&["INFO", "commandstats"]).await;
    assert!(statistics.contains("cmdstat_evalsha"), "{statistics}");
    for command in ["cmdstat_info:", "cmdstat_config|get:"] {
        assert!(!statistics.contains(command), "{statistics}");
    }
}

#[testbed::test]
async fn a_user_who_may_not_ask_is_left_in_peace() {
    let Some(fixture) = careless().await else {
        return;
    };
    let _: () = fixture
        .raw(&[
            "ACL", "SETUSER", "app", "on", ">pw", "~*", "&*", "+@all", "-info", "-config",
        ])
        .await;
    let config = fixture.config().with_user("app").with_password("pw");
    let backend = with_config(config.clone());
    backend
        .connect()
        .await
        .expect("what is not known is not held against it");
    assert_eq!(backend.findings(), []);

    let strict = with_config(config.with_checks(Checks::Refuse).with_connect_timeout(LONG));
    let error = strict.connect().await.expect_err("it cannot be checked");
    assert_eq!(error.kind(), ErrorKind::Denied);
    assert!(error.to_string().contains("permit +info"), "{error}");

    // As where a provider keeps CONFIG to itself.
    let _: () = fixture.raw(&["ACL", "SETUSER", "app", "+info"]).await;
    let _: () = fixture.raw(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]).await;
    let _: () = fixture.raw(&["CONFIG", "SET", "appendonly", "yes"]).await;
    let _: () = fixture.raw(&["CONFIG", "SET", "appendfsync", "everysec"]).await;
    strict.connect().await.expect("appendfsync is not known");
}

#[testbed::test]
async fn a_node_of_a_cluster_is_refused_at_once() {
    // Outside the ranges of testbed's servers and of outgoing connections. By default it could lie within them.
    let bus = 10_000 + std::process::id() % 10_000;
    let server = testbed::Redis::new()
        .setting("cluster-enabled", ["yes"])
        .setting("cluster-port", [bus.to_string()]);
    let server = server.start().await.expect("a Redis");
    if testbed::skip_external([&server]) {
        return;
    }
    let error = failure(&server.url()).await;
    assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error:?}");
    assert!(error.to_string().contains("Redis Cluster"), "{error}");
}

#[tokio::test]
async fn old_servers_and_sentinels_are_refused_at_once() {
    let old = fake("redis_version:6.2.14\r\nredis_mode:standalone\r\nrole:master\r\n").await;
    let error = failure(&old).await;
    assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error:?}");
    assert!(
        error
            .to_string()
            .contains("is version 6.2.14: version 7.0 or newer is needed"),
        "{error}"
    );
    let sentinel = fake("redis_version:8.0.2\r\nredis_mode:sentinel\r\n").await;
    let error = failure(&sentinel).await;
    assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error:?}");
    assert!(error.to_string().contains("is a Sentinel"), "{error}");
}

#[testbed::test]
async fn a_replica_is_refused_until_it_is_a_primary() {
    let Some(fixture) = Fixture::own().await else {
        return;
    };
    // Of a primary that nobody reaches. Writable or not: what it is told it forgets.
    let _: () = fixture.raw(&["REPLICAOF", "127.0.0.1", "1"]).await;
    for read_only in ["yes", "no"] {
        let _: () = fixture.raw(&["CONFIG", "SET", "replica-read-only", read_only]).await;
        let has_cause = |error: &Error| {
            let cause = error.cause();
            cause.is_some_and(|cause| cause.to_string().contains("is a replica"))
        };
        let error = explained(has_cause, async || {
            let short = with_config(fixture.config().with_connect_timeout(SHORT));
            short.connect().await.expect_err("it is a replica")
        })
        .await;
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        let cause = error.cause().expect("what it is").to_string();
        assert!(
            cause.contains("is a replica") && cause.contains("put the primary's address"),
            "{cause}"
        );
    }
    let patient = with_config(fixture.config().with_connect_timeout(LONG));
    let connecting = tokio::spawn({
        let patient = patient.clone();
        async move { patient.connect().await }
    });
    eventually("it has asked", async || format!("{patient:?}").contains("connecting")).await;
    let _: () = fixture.raw(&["REPLICAOF", "NO", "ONE"]).await;
    connecting.await.expect("no panic").expect("it is a primary now");
}

#[testbed::test]
async fn a_demoted_primary_is_left_for_the_server_that_its_name_leads_to() {
    let (old, new) = (Fixture::new().await, Fixture::new().await);
    if testbed::skip_external([&old.server]) {
        return;
    }
    let name = Proxy::start(old.server.address()).await;
    let config = RedisConfig::from_url(&format!("redis://{}", name.address)).expect("a good URL");
    let backend = with_config(config.with_prefix(&new.prefix));
    assert!(release(&take(&backend, "a").await).await);
    assert_eq!(name.connections(), 1);

    // The old one stays up, and so does the connection to it.
    name.lead_to(new.server.address());
    let [host, port] = [
        new.server.address().split(':').next(),
        new.server.address().split(':').nth(1),
    ];
    let _: () = old
        .raw(&["REPLICAOF", host.expect("a host"), port.expect("a port")])
        .await;
    let hold = in_the_end(async || match backend.acquire(&request("b", TTL).0).await {
        Ok(lock_core::backend::Attempt::Granted(hold, _)) => Ok(hold),
        Ok(other) => panic!("nobody else has it: {other:?}"),
        Err(error) => Err(error),
    })
    .await;
    assert_eq!(name.connections(), 2, "one that was read-only, and one that is not");
    assert!(new.exists("b").await);
    assert!(release(&hold).await);
    granted(&backend, &request("c", TTL).0).await;
}

/// How connecting fails, at once.
async fn failure(url: &str) -> Error {
    let config = RedisConfig::from_url(url)
        .expect("a good URL")
        .with_connect_timeout(LONG);
    let backend = with_config(config);
    backend.connect().await.expect_err("it must fail")
}

/// Answers as a Redis of which INFO says this.
async fn fake(info: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("it is bound");
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut told = vec![0; 1 << 16];
                while let Ok(length @ 1..) = client.read(&mut told).await {
                    let answers = answers(&String::from_utf8_lossy(&told[..length]), info);
                    // The client may hang up at any time.
                    let _ = client.write_all(answers.as_bytes()).await;
                }
            });
        }
    });
    format!("redis://{address}")
}

/// One for each command. Its name is the first argument, and so short that it comes in one piece.
fn answers(told: &str, info: &str) -> String {
    let mut lines = told.lines().peekable();
    let mut answers = String::new();
    while let Some(line) = lines.next() {
        if !line.starts_with('*') {
            continue;
        }
        let command = lines.nth(1).unwrap_or_default();
        answers += &match command {
            "HELLO" => "%1\r\n$5\r\nproto\r\n:3\r\n".to_owned(),
            "CLIENT" => "+OK\r\n".to_owned(),
            "PING" => "+PONG\r\n".to_owned(),
            "INFO" => format!("${}\r\n{info}\r\n", info.len()),
            _ => "-ERR unknown\r\n".to_owned(),
        };
    }
    answers
}

#[testbed::test]
async fn what_is_required_is_checked_again_after_a_reconnect() {
    let Some(fixture) = Fixture::own().await else { return };
    let backend = fixture.backend();
    let locks = Locker::new(backend.clone()).require([Guarantee::ServerCrash, Guarantee::NoEviction]);
    locks.connect().await.expect("it writes before it answers");
    let guard = locks.lock("a").acquire().await.expect("a grant");

    let reconnected = async |appendfsync: &str, generation: &str| {
        let _: () = fixture.raw(&["CONFIG", "SET", "appendfsync", appendfsync]).await;
        let _: i64 = fixture.raw(&["CLIENT", "KILL", "TYPE", "pubsub"]).await;
        eventually("the connection is replaced", async || {
            let shown = format!("{backend:?}");
            backend.status(&name("a")).await.is_ok() && shown.contains(generation) && shown.contains("phase: \"up\"")
        })
        .await;
    };
    reconnected("everysec", "generation: 2").await;
    let error = locks.lock("b").acquire().await.expect_err("it may forget");
    assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error}");
    assert!(
        error.to_string().contains("server-crash (with appendfsync everysec"),
        "{error}"
    );
    assert!(guard.check().is_ok(), "what is held stays");
    assert!(!fixture.exists("b").await);

    reconnected("always", "generation: 3").await;
    let other = locks.lock("b").acquire().await.expect("all is well again");
    other.release().await.expect("held");
    guard.release().await.expect("held");
}
