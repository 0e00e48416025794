//! A URL that leads to another kind of server: the error says what was expected and what answered, and it comes at once.

use std::time::Duration;

use polylock::{Config, ErrorKind};
use testbed::{MariaDb, Postgres, Redis, ZooKeeper, in_some_run};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::time::timeout;

/// Much shorter than the connect timeout, and longer than it takes to look at what answers.
const AT_ONCE: Duration = Duration::from_secs(10);

/// Connects to the server `found` at `address` as to each of the `expected` servers.
async fn is_named(found: &str, address: &str, expected: &[&str]) {
    for expected in expected {
        let url = match *expected {
            "Redis" => format!("redis://:s3cret@{address}/?connect_timeout=1h"),
            "ZooKeeper" => format!("zookeeper://me:s3cret@{address}/?connect_timeout=1h"),
            _ => format!("mysql://me:s3cret@{address}/app?connect_timeout=1h"),
        };
        let config = Config::new(url);
        let hint = format!("expected {expected} at {address}, but {found} answers there: check host and port");
        // Each connect waits for the server's first answer once, for half a second: on a busy machine that may be too short.
        let error = in_some_run("no error at once, or another one", async || {
            let connected = timeout(AT_ONCE, config.connect()).await;
            let error = connected.map_err(|_| format!("none within {AT_ONCE:?}"))?.unwrap_err();
            assert!(!format!("{error:?}").contains("s3cret"), "{error:?}");
            match error.to_string() {
                line if line == hint => Ok(error),
                line => Err(line),
            }
        });
        let error = error.await;
        assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error}");
        assert!(!error.is_retryable());
    }
}

#[testbed::test]
async fn redis() {
    let server = Redis::new().start().await.unwrap();
    is_named("Redis", server.address(), &["MySQL or MariaDB", "ZooKeeper"]).await;
}

#[testbed::test]
async fn mariadb() {
    let server = MariaDb::new().start().await.unwrap();
    is_named("MySQL or MariaDB", server.address(), &["Redis", "ZooKeeper"]).await;
}

#[testbed::test]
async fn zookeeper() {
    let server = ZooKeeper::new().start().await.unwrap();
    is_named("ZooKeeper", server.address(), &["Redis", "MySQL or MariaDB"]).await;
}

#[testbed::test]
async fn postgres() {
    let server = Postgres::new().start().await.unwrap();
    is_named(
        "PostgreSQL",
        server.address(),
        &["Redis", "MySQL or MariaDB", "ZooKeeper"],
    )
    .await;
}

#[testbed::test]
async fn http() {
    let address = http_server().await;
    is_named("an HTTP server", &address, &["Redis", "MySQL or MariaDB", "ZooKeeper"]).await;
}

/// Answers each line, as none of the three clients sends a request of HTTP.
async fn http_server() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                // Until the client hangs up.
                while let Ok(byte) = stream.read_u8().await {
                    if byte == b'\n' {
                        let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await;
                    }
                }
            });
        }
    });
    address
}
