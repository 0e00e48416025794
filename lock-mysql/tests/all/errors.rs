//! Errors that say what to do.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use lock_core::ErrorKind;
use lock_core::backend::DistributedLock;
use lock_core::backend::request::Terms;
use lock_mysql::{MySqlConfig, RowLockBackend};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use crate::support::proxy::Proxy;
use crate::support::*;

mod handshakes;
mod tables;

fn backend(url: &str) -> RowLockBackend {
    RowLockBackend::new(MySqlConfig::from_url(url).unwrap().with_response_timeout(PATIENCE)).unwrap()
}

/// The error of `connect` and the one of a first acquire must be of the same kind.
async fn refusal(backend: &RowLockBackend) -> lock_core::Error {
    let error = backend.connect().await.unwrap_err();
    let (request, _control) = options("a", secs(10)).start();
    let acquiring = backend.acquire(&request).await.unwrap_err();
    assert_eq!(acquiring.kind(), error.kind());
    assert!(!format!("{error:?} {acquiring:?} {backend:?}").contains("s3cret"));
    error
}

#[tokio::test]
async fn no_server() {
    let limit = Duration::from_millis(700);
    let backend = backend("mysql://u:s3cret@127.0.0.1:1/d?connect_timeout=700ms");
    let started = Instant::now();
    let error = refusal(&backend).await;
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(
        error.is_retryable() && error.to_string().contains("127.0.0.1:1"),
        "{error}"
    );
    // Both kept trying, in case the server was just starting.
    assert!(started.elapsed() >= limit, "{:?}", started.elapsed());
    assert!(started.elapsed() < PATIENCE);
}

#[tokio::test]
async fn a_deadline_ends_connecting() {
    let backend = backend("mysql://u:s3cret@127.0.0.1:1/d?connect_timeout=1h");
    let terms = Terms::new(secs(10)).time_left(Duration::from_millis(200));
    let (request, _control) = lock_core::backend::request::RequestOptions::new(name("a"), terms).start();
    let error = soon("given up", backend.acquire(&request)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
}

#[testbed::test]
async fn a_server_that_is_just_starting_is_waited_for() {
    let fixture = Fixture::own().await;
    let backend = RowLockBackend::new(fixture.config().with_connect_timeout(4 * PATIENCE)).unwrap();
    fixture.server.kill().unwrap();
    let connecting = tokio::spawn(async move { backend.connect().await });
    fixture.server.restart().await.unwrap();
    all_soon("connected", connecting).await.unwrap().unwrap();
}

#[testbed::test]
async fn a_wrong_password_and_a_missing_database_are_told_at_once() {
    let fixture = Fixture::shared().await;
    let url = |user: &str, database: &str| {
        format!(
            "mysql://{user}@{}/{database}?connect_timeout=1h",
            fixture.server.address()
        )
    };
    let error = soon("refused", refusal(&backend(&url("app:s3cret", "app")))).await;
    assert_eq!(error.kind(), ErrorKind::Denied);
    assert!(
        !error.is_retryable() && error.to_string().contains("password"),
        "{error}"
    );
    let error = soon("refused", refusal(&backend(&url("app:secret", "nowhere")))).await;
    assert_eq!(error.kind(), ErrorKind::Misconfigured);
    assert!(error.to_string().contains("create it"), "{error}");
}

#[testbed::test]
async fn tls_that_cannot_be_is_told_at_once() {
    // A MariaDB has none without a certificate; a MySQL makes its own, and has no option "ssl".
    let fixture = Fixture::own_with(["--loose-skip-ssl", "--loose-tls-version="]).await;
    let url = |ssl: &str| format!("{}?connect_timeout=1h&{ssl}", fixture.server.url());
    for (ssl, what) in [
        ("tls=true", "check that it has TLS"),
        ("ssl-mode=REQUIRED", "check that it has TLS"),
        (
            "ssl-mode=VERIFY_CA&ssl-ca=/nowhere.pem",
            "ca=/nowhere.pem cannot be read",
        ),
    ] {
        let error = soon("refused", refusal(&backend(&url(ssl)))).await;
        assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error}");
        assert!(error.to_string().contains(what), "{error}");
    }
}

#[testbed::test]
async fn the_options_of_an_existing_pool_serve() {
    let fixture = Fixture::shared().await;
    let pool = sqlx::MySqlPool::connect_lazy(&fixture.server.url()).unwrap();
    let config = MySqlConfig::from_pool(&pool).with_table(&fixture.table);
    let backend = RowLockBackend::new(config).unwrap();
    grant(&backend, "a", secs(10)).await.release().await;
    assert_eq!(pool.size(), 0);
}

#[testbed::test]
async fn something_else_than_a_mysql_is_told_at_once() {
    let redis = testbed::Redis::new().start().await.unwrap();
    let url = |address: &str| format!("mysql://u:s3cret@{address}/d?connect_timeout=1h&ssl-mode=DISABLED");
    let error = soon("refused", refusal(&backend(&url(redis.address())))).await;
    assert_eq!(error.kind(), ErrorKind::Misconfigured);
    assert!(error.to_string().contains("but Redis answers there"), "{error}");

    let mut refused = JoinSet::new();
    for answer in [
        "-ERR unknown command\r\n",
        "HTTP/1.1 400 Bad Request\r\n\r\n",
        "\x01\x00\x00\x00\x00",
        "\x00\x00\x00\x00",
    ] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                tokio::spawn(async move {
                    stream.write_all(answer.as_bytes()).await.unwrap();
                    let mut ignored = Vec::new();
                    let _ = stream.read_to_end(&mut ignored).await;
                });
            }
        });
        let backend = backend(&url(&address));
        refused.spawn(async move {
            let error = soon("refused", refusal(&backend)).await;
            assert_eq!(error.kind(), ErrorKind::Misconfigured, "{answer:?}");
        });
    }
    refused.join_all().await;
}

/// A MySQL's greeting, without TLS.
const GREETING: &[u8] = b"\x4a\x00\x00\x00\x0a8.0.18\0\x19\0\0\0\x114aB0c\x06g\0\xff\xf7\xff\x02\0\xff\xc7\x15\
    \0\0\0\0\0\0\0\0\0\0tL\x03s\x0f[4\rl4. \0mysql_native_password\0";
const LOGGED_IN: &[u8] = b"\x07\0\0\x02\0\0\0\x02\0\0\0";
/// One column, whose definition ends within a string.
const CUT_SHORT: &[u8] = b"\x01\0\0\x01\x01\x03\0\0\x02\x03de";

#[tokio::test]
async fn a_panic_of_the_driver_is_an_error_with_its_text_and_not_tried_again() {
    // A greeting that ends before its time, and an answer that does.
    let servers: [(&[&[u8]], _); 2] = [
        (&[b"\x06\0\0\0\x0a8.0\0\x01"], "advance"),
        (&[GREETING, LOGGED_IN, CUT_SHORT], "split_to"),
    ];
    for (says, panics) in servers {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let dials = Arc::<AtomicUsize>::default();
        let counted = dials.clone();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                counted.fetch_add(1, Ordering::SeqCst);
                tokio::spawn(async move {
                    let mut heard = [0; 4096];
                    for say in says {
                        stream.write_all(say).await.unwrap();
                        if !matches!(stream.read(&mut heard).await, Ok(1..)) {
                            return;
                        }
                    }
                });
            }
        });
        let url = format!("mysql://u@{address}/d?connect_timeout=1h&ssl-mode=DISABLED");
        let error = soon("refused", refusal(&backend(&url))).await;
        assert_eq!(error.kind(), ErrorKind::Unexpected, "{error}");
        assert!(!error.is_retryable());
        let text = error.cause().unwrap().to_string();
        assert!(text.contains(panics), "{text}");
        // Two requests, each with a look whether it is a MySQL, or with two on a busy machine.
        let dials = dials.load(Ordering::SeqCst);
        assert!(dials <= 6, "{dials}");
    }
}

#[tokio::test]
async fn a_server_that_accepts_and_never_answers() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!(
        "mysql://u:s3cret@{}/d?connect_timeout=1500ms",
        listener.local_addr().unwrap()
    );
    let started = Instant::now();
    let error = soon("unavailable", refusal(&backend(&url))).await;
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(started.elapsed() >= Duration::from_millis(1500));
}

#[testbed::test]
async fn a_read_only_server_is_unavailable() {
    let fixture = Fixture::own().await;
    let mut observer = fixture.observer().await;
    let backend = fixture.backend();
    grant(&backend, "a", secs(10)).await.release().await;
    observer.run("CREATE USER 'reader'@'%' IDENTIFIED BY 's3cret'").await;
    observer
        .run("GRANT SELECT, INSERT, UPDATE ON app.* TO 'reader'@'%'")
        .await;
    observer.run("SET GLOBAL read_only=1").await;
    let url = format!(
        "mysql://reader:s3cret@{}/app?table={}",
        fixture.server.address(),
        fixture.table
    );
    let error = refusal(&crate::errors::backend(&url)).await;
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.to_string().contains("read-only"), "{error}");
}

#[testbed::test]
async fn a_full_server_is_unavailable_and_holders_are_not_touched() {
    let fixture = Fixture::own().await;
    let mut observer = fixture.observer().await;
    let backend = fixture.backend();
    let granted = grant(&backend, "a", secs(60)).await;
    observer.run("CREATE USER 'many'@'%' IDENTIFIED BY 's3cret'").await;
    observer.run("GRANT ALL ON app.* TO 'many'@'%'").await;
    observer.run("SET GLOBAL max_connections=10").await;
    let url = format!(
        "mysql://many:s3cret@{}/app?connect_timeout=20s",
        fixture.server.address()
    );
    let config = MySqlConfig::from_url(&url)
        .unwrap()
        .with_table(&fixture.table)
        .with_max_connections(50);
    let many = RowLockBackend::new(config).unwrap();
    let mut held = Vec::new();
    let error = loop {
        let (request, control) = options(&format!("name {}", held.len()), secs(60)).waits(false).start();
        match many.acquire(&request).await {
            Ok(attempt) => held.push((attempt, control)),
            Err(error) => break error,
        }
        assert!(held.len() < 20);
    };
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(
        error.is_retryable() && error.to_string().contains("no free connection"),
        "{error}"
    );
    granted.hold.renew(secs(10)).await.unwrap();
    assert_eq!(granted.state(), lock_core::HoldState::Held);
}

/// The last dial has what is left of the time, which may be too little for it. Why those before it failed says more.
#[testbed::test]
async fn a_dial_that_is_cut_short_does_not_hide_why_others_failed() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let url = format!("mysql://root@{address}/app");
    let config = MySqlConfig::from_url(&url).unwrap().with_connect_timeout(secs(6));
    let backend = RowLockBackend::new(config).unwrap();
    let connecting = tokio::spawn({
        let backend = backend.clone();
        async move { backend.connect().await }
    });
    // The first dial is refused. When the second one comes, nobody answers any more.
    let (mut first, _) = soon("a dial", listener.accept()).await.unwrap();
    let refusal = [&[0xff, 0x10, 0x04][..], b"refused"].concat();
    let header = [u8::try_from(refusal.len()).unwrap(), 0, 0, 0];
    first.write_all(&[&header[..], &refusal].concat()).await.unwrap();
    drop(first);
    let _second = soon("a dial", listener.accept()).await.unwrap();
    let error = soon("given up", connecting).await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(error.to_string().contains("refused"), "{error}");
}
