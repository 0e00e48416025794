//! Faults of a Redis.

use tokio::time::sleep;

use crate::error::Result;
use crate::servers::LockServer;

use super::context::{Context, Struck};

pub(super) async fn script_flush(context: &mut Context, server: &LockServer) -> Result<Struck> {
    for _ in 0..context.number(1..=8) {
        server.tell("SCRIPT FLUSH").await?;
        sleep(context.time(0.0..0.1)).await;
    }
    Ok(Struck::AtOnce)
}

pub(super) async fn client_kill(context: &mut Context, server: &LockServer) -> Result<Struck> {
    for _ in 0..context.number(1..=8) {
        server.end_connections().await?;
        sleep(context.time(0.0..0.1)).await;
    }
    Ok(Struck::AtOnce)
}

pub(super) async fn memory_full(context: &mut Context, server: &LockServer) -> Result<Struck> {
    server.limit_memory("1").await?;
    context.last(0.3..1.5).await;
    server.limit_memory("0").await?;
    Ok(Struck::AtOnce)
}

/// A Redis that must have on disk what it answers ends when it cannot; one that need not refuses writes.
pub(super) async fn disk_full(context: &mut Context, server: &LockServer) -> Result<Struck> {
    let disk = server.disk()?;
    let ends = context.chance(0.5);
    if !ends {
        server.tell("CONFIG SET appendfsync everysec").await?;
    }
    disk.fill(true)?;
    context.last(0.3..1.5).await;
    disk.fill(false)?;
    if ends {
        server.server.restart().await?;
    } else {
        server.has_room().await?;
        server.tell("CONFIG SET appendfsync always").await?;
    }
    Ok(Struck::AtOnce)
}

pub(super) async fn failover(context: &mut Context, server: &LockServer) -> Result<Struck> {
    demote(context, server).await?;
    server.end_connections().await?;
    server.take_writes().await?;
    Ok(Struck::AtOnce)
}

pub(super) async fn demotion(context: &mut Context, server: &LockServer) -> Result<Struck> {
    demote(context, server).await?;
    server.take_writes().await?;
    Ok(Struck::AtOnce)
}

/// Has the server follow a replica that had fallen behind.
async fn demote(context: &mut Context, server: &LockServer) -> Result<()> {
    server.replicate().await?;
    server.fall_behind().await?;
    context.last(0.3..2.0).await;
    server.demote().await
}
