//! Every failure is told apart, and says what to do.

use std::time::Duration;

use lock_core::backend::DistributedLock;
use lock_core::{Error, ErrorKind, Locker};
use lock_redis::{RedisBackend, RedisConfig};
use testbed::happens;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::time::Instant;

use crate::support::{
    AT_MOST, Fixture, LONG, TTL, explained, in_the_end, refused, release, request, shown, take, with_config,
};

const SHORT: Duration = Duration::from_millis(300);
/// Enough to be told once.
const ONCE: Duration = Duration::from_secs(1);

fn backend(address: &str, connect_timeout: Duration) -> RedisBackend {
    let config = RedisConfig::from_url(&format!("redis://:sesame@{address}")).expect("a good URL");
    with_config(config.with_connect_timeout(connect_timeout))
}

/// How connect and acquire fail, which is the same.
async fn failure(backend: &RedisBackend) -> Error {
    let error = backend.connect().await.expect_err("it must fail");
    let other = refused(backend, "a").await;
    assert_eq!(other.kind(), error.kind(), "{error:?} {other:?}");
    assert_eq!(other.name().map(|name| name.as_str()), Some("a"));
    let shown = format!("{backend:?} {} {}", shown(&error), shown(&other));
    assert!(!shown.contains("sesame"), "{shown}");
    error
}

/// A server of another kind: says `greeting`, and `answer` to whatever it is told.
async fn impostor(greeting: &'static [u8], answer: &'static [u8]) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("it is bound").to_string();
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut told = vec![0; 4096];
                // The client may hang up at any time.
                let _ = client.write_all(greeting).await;
                while client.read(&mut told).await.is_ok_and(|length| length > 0) {
                    let _ = client.write_all(answer).await;
                }
            });
        }
    });
    address
}

#[tokio::test]
async fn nobody_listens() {
    // Bound for as long as the test runs, so that no server of another test gets the port.
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.bind(([127, 0, 0, 1], 0).into()).expect("a free port");
    let address = socket.local_addr().expect("it is bound").to_string();
    let start = Instant::now();
    let has_cause = |error: &Error| {
        let cause = error.cause();
        cause.is_some_and(|cause| cause.to_string().contains("check that it runs"))
    };
    let error = explained(has_cause, async || failure(&backend(&address, ONCE)).await).await;
    assert!(start.elapsed() >= 2 * ONCE, "it was tried for as long as was allowed");
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.is_retryable());
    assert!(error.to_string().contains(&address), "{error}");
    let cause = error.cause().expect("the last failure");
    assert!(cause.to_string().contains("check that it runs"), "{cause}");
    let driver = cause
        .downcast_ref::<Error>()
        .and_then(Error::cause)
        .and_then(|cause| cause.downcast_ref::<redis::RedisError>());
    assert!(
        driver.is_some_and(redis::RedisError::is_connection_refusal),
        "{error:?}"
    );
    let abandoned = backend(&address, SHORT).abandon(&request("a", TTL).0).await;
    abandoned.expect("nothing was sent, so nothing is left");
}

#[tokio::test]
async fn what_was_never_sent_is_abandoned_without_a_connection() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.set_nonblocking(true).expect("it can be asked");
    let address = listener.local_addr().expect("it is bound").to_string();
    let backend = backend(&address, LONG);
    let (never, _control) = request("a", TTL);
    let abandoned = happens("at once", backend.abandon(&never)).await;
    abandoned.expect("nothing was sent, so nothing is left");
    assert!(listener.accept().is_err(), "somebody has connected");

    // While the connection is being made, too.
    let locks = Locker::new(backend);
    let error = locks.lock("a").acquire_within(SHORT).await.expect_err("nobody answers");
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
    locks.shutdown().await.expect("nothing is left");
}

#[tokio::test]
async fn somebody_accepts_and_never_answers() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("it is bound").to_string();
    let start = Instant::now();
    let error = failure(&backend(&address, SHORT)).await;
    assert!(start.elapsed() >= 2 * SHORT);
    assert_eq!(error.kind(), ErrorKind::Unavailable);
}

#[tokio::test]
async fn a_host_name_without_an_address() {
    let error = failure(&backend("no-such-host.invalid", SHORT)).await;
    assert_eq!(error.kind(), ErrorKind::Unavailable);
}

#[tokio::test]
async fn other_kinds_of_servers_are_reported_at_once() {
    let http = impostor(b"", b"HTTP/1.1 400 Bad Request\r\n\r\n").await;
    let mysql = impostor(b"J\0\0\0\n8.0.36\0", b"").await;
    let ssh = impostor(b"SSH-2.0-OpenSSH_9.6\r\n", b"").await;
    let memcached = impostor(b"", b"ERROR\r\nERROR\r\nERROR\r\n").await;
    let tls = impostor(b"", b"\x15\x03\x01\0\x02\x02\x16").await;
    let pop3 = impostor(b"", b"+OK\r\n+OK\r\n+OK\r\n").await;
    for address in [http, mysql, ssh, memcached, tls, pop3] {
        let start = Instant::now();
        let error = failure(&backend(&address, LONG)).await;
        assert!(start.elapsed() < AT_MOST);
        assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error:?}");
        let message = error.to_string();
        let is_told = message.contains("expected Redis") || message.contains("is not a Redis server");
        assert!(is_told, "{error}");
        assert!(!error.is_retryable());
    }
}

#[tokio::test]
async fn a_redis_without_resp3_is_too_old() {
    let old = impostor(
        b"",
        b"-ERR unknown command `HELLO`, with args beginning with: `3`, \r\n-ERR\r\n-ERR\r\n",
    )
    .await;
    let error = failure(&backend(&old, LONG)).await;
    assert_eq!(error.kind(), ErrorKind::Misconfigured);
    assert!(error.to_string().contains("version 7.0"), "{error}");
}

#[tokio::test]
async fn an_error_that_quotes_the_password_is_not_shown() {
    for answer in [
        b"-ERR unknown command 'HELLO', with args beginning with: '3' 'AUTH' 'default' 'sesame' \r\n-ERR\r\n-ERR\r\n"
            .as_slice(),
        b"-WRONGPASS invalid password \"sesame\"\r\n-ERR\r\n-ERR\r\n",
        b"+sesame\r\n+sesame\r\n+sesame\r\n",
    ] {
        let echo = impostor(b"", answer).await;
        // Looks for it in all that is shown.
        let error = failure(&backend(&echo, LONG)).await;
        assert!(!error.is_retryable(), "{error:?}");
    }
}

#[testbed::test]
async fn wrong_credentials_are_reported_at_once() {
    let server = testbed::Redis::new().password("s3cret").start().await.expect("a Redis");
    if testbed::skip_external([&server]) {
        return;
    }
    let start = Instant::now();
    let error = failure(&backend(server.address(), LONG)).await;
    assert_eq!(error.kind(), ErrorKind::Denied);
    let config = RedisConfig::from_url(&format!("redis://{}", server.address())).expect("a good URL");
    let without = with_config(config.with_connect_timeout(LONG));
    let error = failure(&without).await;
    assert_eq!(error.kind(), ErrorKind::Denied);
    assert!(error.to_string().contains("wants a password"), "{error}");
    assert!(start.elapsed() < AT_MOST);

    let right = RedisBackend::from_url(&server.url()).expect("a good URL");
    right.connect().await.expect("the password is right");
    assert!(!format!("{right:?}").contains("s3cret"));
}

#[testbed::test]
async fn out_of_memory_is_unavailable_and_can_still_release() {
    let Some(fixture) = Fixture::own().await else {
        return;
    };
    let backend = fixture.backend();
    let hold = take(&backend, "a").await;
    let _: () = fixture.raw(&["CONFIG", "SET", "maxmemory", "1"]).await;
    let error = refused(&backend, "b").await;
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.to_string().contains("maxmemory"), "{error}");
    assert!(!fixture.exists("b").await);
    assert!(release(&hold).await);
    let _: () = fixture.raw(&["CONFIG", "SET", "maxmemory", "0"]).await;
    take(&backend, "b").await;
}

#[testbed::test]
async fn a_replica_is_unavailable_until_it_is_a_primary() {
    let Some(fixture) = Fixture::own().await else {
        return;
    };
    let backend = fixture.backend();
    let hold = take(&backend, "a").await;
    // Of a primary that nobody reaches.
    let _: () = fixture.raw(&["REPLICAOF", "127.0.0.1", "1"]).await;
    let error = refused(&backend, "b").await;
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.to_string().contains("replica"), "{error}");
    let _: () = fixture.raw(&["REPLICAOF", "NO", "ONE"]).await;
    in_the_end(async || backend.acquire(&request("b", TTL).0).await).await;
    assert!(release(&hold).await);
}

async fn a_dial(listener: &TcpListener) -> TcpStream {
    let accepted = happens("somebody dials", listener.accept()).await;
    accepted.expect("it listens").0
}

/// The last dial has what is left of the time, which may be too little for it. Why those before it failed says more.
#[testbed::test]
async fn a_dial_that_is_cut_short_does_not_hide_why_others_failed() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("it is bound");
    let backend = backend(&address.to_string(), Duration::from_secs(6));
    let connecting = tokio::spawn({
        let backend = backend.clone();
        async move { backend.connect().await }
    });
    // The first dial is refused. When the second one comes, nobody answers any more.
    let mut first = a_dial(&listener).await;
    let asked = first.read(&mut [0; 1024]).await.expect("it is there");
    assert!(asked > 0, "it asks at once");
    let refusals = b"-LOADING refused\r\n".repeat(16);
    first.write_all(&refusals).await.expect("it is there");
    drop(first);
    let _second = a_dial(&listener).await;
    let connecting = happens("it gives up", connecting).await;
    let error = connecting.expect("no panic").expect_err("nobody answers");
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(error.to_string().contains("refused"), "{error}");
    assert!(!error.to_string().contains("0ns"), "{error}");
}
