//! A connection over TLS. We make it ourselves: the driver would take the crypto provider of the process, and panics if there
//! is none or if it cannot tell which.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use lock_core::{Error, ErrorKind};
use lock_kit::identify::{first_answer, without_tls, wrong_server};
use lock_tls::Tls;
use redis::aio::MultiplexedConnection;
use redis::io::tcp::{TcpSettings, socket2::SockRef};
use redis::{AsyncConnectionConfig, ConnectionAddr, ConnectionInfo, RedisError};
use tokio::net::TcpStream;
use tokio::task::AbortHandle;
use tokio::time::sleep;

use super::opened::{DialError, IDENTIFY_LIMIT};

/// The time after which a slow handshake makes us check whether the server speaks TLS at all. A Redis without TLS would
/// wait for the end of a line for ever.
const SLOW_HANDSHAKE: Duration = Duration::from_secs(1);

/// Ends the driver's task with the last connection that uses it.
#[derive(Clone, Debug)]
pub(super) struct Driver {
    _task: Arc<AbortOnDrop>,
}

#[derive(Debug)]
struct AbortOnDrop(AbortHandle);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Connects over TLS, and makes the driver serve the connection. Errors name the `server`.
pub(super) async fn connect(
    tls: &Tls,
    server: &(dyn fmt::Display + Sync),
    info: &ConnectionInfo,
    config: AsyncConnectionConfig,
) -> Result<(MultiplexedConnection, Driver), DialError> {
    let ConnectionAddr::Tcp(host, port) = info.addr() else {
        let message = "TLS needs a host: leave it out for a Unix socket";
        return Err(DialError::Lock(Error::new(ErrorKind::Misconfigured, message)));
    };
    let dropped = |error: std::io::Error| DialError::Driver(RedisError::from(error));
    let stream = TcpStream::connect((host.as_str(), *port)).await.map_err(dropped)?;
    apply(info.tcp_settings(), &stream).map_err(dropped)?;
    let stream = tokio::select! {
        biased;
        stream = tls.connect(host, stream, server) => match stream {
            Ok(stream) => stream,
            Err(error) => return Err(DialError::Lock(identify(host, *port, error).await)),
        },
        error = plain_server(host, *port) => return Err(DialError::Lock(error)),
    };
    let record = stream.record();
    match MultiplexedConnection::new_with_config(info.redis_settings(), stream, config).await {
        Ok((connection, driving)) => {
            let driver = Driver {
                _task: Arc::new(AbortOnDrop(tokio::spawn(driving).abort_handle())),
            };
            Ok((connection, driver))
        }
        Err(error) if record.get().is_none() && !error.is_connection_dropped() => Err(DialError::Driver(error)),
        // The server may check our certificate after the handshake has ended for us.
        Err(error) => match record.get() {
            Some(fault) => Err(DialError::Lock(lock_tls::fault(
                fault,
                tls.certificate().is_some(),
                server,
            ))),
            None => match tls.refusal(host, *port, server, IDENTIFY_LIMIT).await {
                Some(refusal) => Err(DialError::Lock(refusal)),
                None => Err(DialError::Driver(error)),
            },
        },
    }
}

/// As the driver sets up its own sockets.
fn apply(settings: &TcpSettings, stream: &TcpStream) -> std::io::Result<()> {
    stream.set_nodelay(settings.nodelay())?;
    let socket = SockRef::from(stream);
    if let Some(keepalive) = settings.keepalive() {
        socket.set_tcp_keepalive(keepalive)?;
    }
    #[cfg(any(target_os = "android", target_os = "fuchsia", target_os = "linux"))]
    socket.set_tcp_user_timeout(settings.user_timeout())?;
    Ok(())
}

/// Returns if the server certainly answers without TLS.
async fn plain_server(host: &str, port: u16) -> Error {
    sleep(SLOW_HANDSHAKE).await;
    match plain_answer(host, port).await {
        Some(error) => error,
        None => std::future::pending().await,
    }
}

/// A better error than that of the handshake, if the server answers without TLS.
async fn identify(host: &str, port: u16, error: Error) -> Error {
    match error.is_retryable() || lock_tls::is_no_tls(&error) {
        true => plain_answer(host, port).await.unwrap_or(error),
        false => error,
    }
}

async fn plain_answer(host: &str, port: u16) -> Option<Error> {
    let answer = first_answer(host, port, Duration::ZERO, IDENTIFY_LIMIT).await.ok()?;
    match answer.first()? {
        b'+' | b'-' => Some(without_tls("Redis", &format_args!("{host}:{port}"))),
        _ if lock_kit::identify::is_tls(&answer) => None,
        _ => Some(wrong_server("Redis", &format_args!("{host}:{port}"), &answer)),
    }
}
