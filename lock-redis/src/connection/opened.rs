//! Opens one connection to a server: its purpose, and the errors if it was not made.

#[cfg(feature = "tls")]
use std::fmt;
use std::time::Duration;

use lock_core::Error;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, RedisError, Value};

use super::access::Access;
use crate::protocol::PubSub;

/// The purpose of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// All requests to the only server, and its wake-ups.
    Alone,
    /// The requests to a master of a cluster.
    Master,
    /// The wake-ups of a master of a cluster. They have a connection of their own: if a hash slot moves away, the server ends
    /// the subscriptions in it unasked, which the driver takes for the reply to a request.
    Listener,
}

impl Role {
    pub(crate) fn wakes(self) -> PubSub {
        match self {
            Self::Alone => PubSub::Plain,
            Self::Master | Self::Listener => PubSub::Sharded,
        }
    }
}

/// The time that a server that did not answer like a Redis has to show its kind.
pub(super) const IDENTIFY_LIMIT: Duration = Duration::from_millis(500);

/// Why a connection was not made.
pub(super) enum DialError {
    Driver(RedisError),
    /// TLS or the source of the credentials says what is wrong.
    Lock(Error),
}

impl From<RedisError> for DialError {
    fn from(error: RedisError) -> Self {
        Self::Driver(error)
    }
}

/// One of the connections to a server.
pub(super) struct Opened {
    pub(super) connection: MultiplexedConnection,
    #[cfg(feature = "tls")]
    pub(super) driver: Option<super::tls::Driver>,
}

/// Opens a connection.
pub(super) async fn open(
    access: &Access,
    #[cfg(feature = "tls")] (tls, server): (Option<&lock_tls::Tls>, &(dyn fmt::Display + Sync)),
    config: AsyncConnectionConfig,
) -> Result<Opened, DialError> {
    let client = access.client().await.map_err(DialError::Lock)?;
    #[cfg(feature = "tls")]
    if let Some(tls) = tls {
        let (connection, driver) = super::tls::connect(tls, server, client.get_connection_info(), config).await?;
        return Ok(Opened {
            connection,
            driver: Some(driver),
        });
    }
    Ok(Opened {
        connection: client.get_multiplexed_async_connection_with_config(&config).await?,
        #[cfg(feature = "tls")]
        driver: None,
    })
}

/// Checks that this is the reply to PING of a server that serves.
pub(super) fn is_pong(reply: &Value) -> Result<(), RedisError> {
    match reply {
        Value::SimpleString(pong) if pong == "PONG" => Ok(()),
        _ => Err((redis::ErrorKind::Parse, "PING was not answered with PONG").into()),
    }
}
