//! Faults of a PostgreSQL.

use tokio::time::sleep;

use crate::error::Result;
use crate::servers::{LockServer, TABLE};

use super::context::{Context, Struck};

pub(super) async fn client_kill(context: &mut Context, server: &LockServer) -> Result<Struck> {
    repeat(context, server, "pg_terminate_backend").await
}

pub(super) async fn query_kill(context: &mut Context, server: &LockServer) -> Result<Struck> {
    repeat(context, server, "pg_cancel_backend").await
}

/// On all connections but this one.
async fn repeat(context: &mut Context, server: &LockServer, what: &str) -> Result<Struck> {
    let client = server.postgres().await?;
    let ask = format!(
        "SELECT {what}(pid) FROM pg_stat_activity WHERE backend_type='client backend' AND pid<>pg_backend_pid()"
    );
    for _ in 0..context.number(1..=8) {
        client.execute(&ask, &[]).await?;
        sleep(context.time(0.0..0.1)).await;
    }
    Ok(Struck::AtOnce)
}

/// As a change of an index does it.
pub(super) async fn read_lock(context: &mut Context, server: &LockServer) -> Result<Struck> {
    let client = server.postgres().await?;
    let lock = format!("BEGIN;LOCK TABLE {TABLE}_leases,{TABLE}_holders IN SHARE MODE");
    client.batch_execute(&lock).await?;
    context.last(1.1..2.0).await;
    client.batch_execute("ROLLBACK").await?;
    Ok(Struck::AtOnce)
}
