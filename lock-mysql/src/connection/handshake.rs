//! Handshakes whose callers leave before their end.
//!
//! A MySQL counts a handshake that the client breaks off, and blocks a host after `max_connect_errors` of them. Callers with
//! little time, on a line that is slow, would soon come so far. So the handshake goes on, and ends with a goodbye.

use std::future::Future;
use std::pin::pin;
use std::time::Duration;

use sqlx::Connection;
use sqlx::mysql::MySqlConnection;
use tokio::sync::{Semaphore, oneshot};
use tokio::time::timeout;

use crate::error::SqlError;

/// The most handshakes of a process without a caller at a time: a server that hangs must not collect them.
static WITHOUT_CALLER: Semaphore = Semaphore::const_new(16);

/// The longest time of a handshake without a caller.
const LIMIT: Duration = Duration::from_secs(5);

/// The connection, or `None` if the caller leaves, who waits at the other end of `caller`.
pub(super) async fn connect_for<T>(
    caller: &mut oneshot::Sender<T>,
    connecting: impl Future<Output = Result<MySqlConnection, SqlError>>,
) -> Option<Result<MySqlConnection, SqlError>> {
    let mut connecting = pin!(connecting);
    tokio::select! {
        biased;
        connected = &mut connecting => return Some(connected),
        () = caller.closed() => {}
    }
    let _permit = WITHOUT_CALLER.try_acquire().ok()?;
    let end = async {
        if let Ok(connection) = connecting.await {
            // It has served its purpose.
            drop(connection.close().await);
        }
    };
    drop(timeout(LIMIT, end).await);
    None
}
