//! The same over TLS: no plain text is sent to a server that speaks TLS.

use std::io;
use std::time::Duration;

use lock_core::{Error, ErrorKind};
use lock_kit::identify::{first_answer, is_tls, without_tls, wrong_server};
use lock_tls::{Tls, is_no_tls};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::{ServerMode, judge, silent};
use crate::config::host_and_port;

/// Asks the server at `address` over TLS for its mode. The error says why there may be no session with it.
pub(super) async fn probe(tls: &Tls, address: &str, limit: Duration) -> Result<ServerMode, Error> {
    let (host, port) = host_and_port(address);
    let server = format!("ZooKeeper at {address}");
    let unreached = |error: io::Error| {
        Error::new(ErrorKind::Unavailable, format!("cannot connect to {address}")).with_source(error)
    };
    let connecting = timeout(limit, TcpStream::connect((host, port)));
    let stream = connecting
        .await
        .map_err(|_| unreached(io::ErrorKind::TimedOut.into()))?;
    let handshake = tls.connect(host, stream.map_err(unreached)?, &server);
    let mut stream = match timeout(2 * limit, handshake).await {
        Ok(Ok(stream)) => stream,
        // It is said which certificate is wrong.
        Ok(Err(error)) if !error.is_retryable() && !is_no_tls(&error) => return Err(error),
        Ok(Err(error)) => return Err(plain_answer(address, limit).await.unwrap_or(error)),
        Err(_elapsed) => return Err(plain_answer(address, limit).await.unwrap_or_else(|| silent(address))),
    };
    let mut answer = Vec::new();
    let asked = async {
        stream.write_all(b"srvr").await?;
        stream.read_to_end(&mut answer).await
    };
    let failed = timeout(limit, asked).await.map(Result::err);
    match (failed, answer.as_slice()) {
        // The server may check our certificate after the handshake has ended for us, and then hangs up.
        (Ok(error), b"") => Err(match error.and_then(|error| tls.fault(&error, &server)) {
            Some(fault) => fault,
            None => tls
                .refusal(host, port, &server, limit)
                .await
                .unwrap_or_else(|| silent(address)),
        }),
        (Err(_elapsed), b"") => Err(silent(address)),
        (_, answer) => judge(address, answer),
    }
}

/// The error, if the server certainly answers without TLS.
async fn plain_answer(address: &str, limit: Duration) -> Option<Error> {
    let (host, port) = host_and_port(address);
    let answer = first_answer(host, port, Duration::ZERO, limit).await.ok()?;
    if answer.is_empty() || is_tls(&answer) {
        return None;
    }
    Some(match judge(address, &answer) {
        Err(error) if error.kind() == ErrorKind::Misconfigured => wrong_server("ZooKeeper", &address, &answer),
        _ => without_tls("ZooKeeper", &address),
    })
}
