//! The start of a Redis, its commands and its inspection.

use std::time::Duration;

use lock_redis::redis;
use testbed::{Redis, Server};
use tokio::time::{Instant, sleep};

use crate::error::{Error, Result};

/// A Redis that synchronizes a replica at once.
pub(super) fn replicating() -> Redis {
    Redis::new().setting("repl-diskless-sync-delay", ["0"])
}

pub(super) async fn connect(server: &Server) -> Result<redis::aio::MultiplexedConnection> {
    // The driver's defaults, a second to connect and half a second for an answer, are what a busy machine may take.
    let patience = Some(Duration::from_secs(60));
    let patient = redis::AsyncConnectionConfig::new()
        .set_connection_timeout(patience)
        .set_response_timeout(patience);
    let client = redis::Client::open(format!("redis://{}", server.address()))?;
    Ok(client.get_multiplexed_async_connection_with_config(&patient).await?)
}

pub(super) async fn tell(server: &Server, command: &str) -> Result<()> {
    let mut words = command.split(' ');
    let mut parts = redis::cmd(words.next().unwrap_or_default());
    words.for_each(|word| _ = parts.arg(word));
    parts.query_async::<redis::Value>(&mut connect(server).await?).await?;
    Ok(())
}

pub(super) async fn follow(server: &Server, other: &Server) -> Result<()> {
    tell(server, &format!("REPLICAOF 127.0.0.1 {}", other.port())).await?;
    until_info(server, "replication", "master_link_status:up").await
}

pub(super) async fn until_info(server: &Server, section: &str, line: &str) -> Result<()> {
    const LONG: Duration = Duration::from_secs(60);
    let start = Instant::now();
    let mut connection = connect(server).await?;
    loop {
        let info: String = redis::cmd("INFO").arg(section).query_async(&mut connection).await?;
        if info.lines().any(|said| said == line) {
            return Ok(());
        }
        if start.elapsed() > LONG {
            return Err(Error::new(format!("the server does not say {line} within {LONG:?}")));
        }
        sleep(Duration::from_millis(5)).await;
    }
}
