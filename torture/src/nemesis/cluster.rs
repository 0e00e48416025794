//! Faults of a Redis Cluster. Each ends when all its nodes serve again.

use std::time::Duration;

use testbed::Cluster;
use tokio::time::sleep;

use crate::clock;
use crate::error::Result;
use crate::names::lock_name;
use crate::servers::{LockServer, REDIS_PREFIX};

use super::context::{Context, Struck};

pub(super) async fn reshard(context: &mut Context, server: &LockServer) -> Result<Struck> {
    let cluster = server.cluster()?;
    for _ in 0..context.number(1..=4) {
        let (slot, from, to) = journey(context, cluster).await?;
        cluster.begin_move(slot, from, to).await?;
        // While its keys are on their way.
        context.last(0.0..0.1).await;
        cluster.finish_move(slot, from, to).await?;
    }
    Ok(Struck::AtOnce)
}

pub(super) async fn slot_halfway(context: &mut Context, server: &LockServer) -> Result<Struck> {
    let cluster = server.cluster()?;
    let (slot, from, to) = journey(context, cluster).await?;
    cluster.begin_move(slot, from, to).await?;
    context.last(1.2..2.5).await;
    cluster.finish_move(slot, from, to).await?;
    Ok(Struck::AtOnce)
}

pub(super) async fn master_kill(context: &mut Context, server: &LockServer) -> Result<Struck> {
    let cluster = server.cluster()?;
    let (slot, master) = place(context, cluster).await?;
    cluster[master].kill()?;
    cluster.master_of(slot).await?;
    context.last(0.0..1.0).await;
    cluster[master].restart().await?;
    server.ready().await?;
    Ok(Struck::AtOnce)
}

pub(super) async fn master_stop(context: &mut Context, server: &LockServer) -> Result<Struck> {
    let cluster = server.cluster()?;
    let (slot, master) = place(context, cluster).await?;
    cluster[master].pause()?;
    cluster.master_of(slot).await?;
    context.last(0.0..1.0).await;
    cluster[master].resume()?;
    server.ready().await?;
    Ok(Struck::AtOnce)
}

pub(super) async fn planned_failover(context: &mut Context, server: &LockServer) -> Result<Struck> {
    let cluster = server.cluster()?;
    let (_, master) = place(context, cluster).await?;
    cluster.fail_over_to(cluster.replica_of(master).await?).await?;
    server.ready().await?;
    Ok(Struck::AtOnce)
}

pub(super) async fn stale_replica(context: &mut Context, server: &LockServer) -> Result<Struck> {
    let cluster = server.cluster()?;
    let (slot, master) = place(context, cluster).await?;
    let replica = cluster.replica_of(master).await?;
    cluster[replica].pause()?;
    // Or else it has on its socket whatever its master writes meanwhile.
    cluster.call(master, &["CLIENT", "KILL", "TYPE", "replica"]).await?;
    sleep(Duration::from_secs(1).mul_f64(context.share(1.0..1.9))).await;
    let from = clock::now();
    cluster[master].kill()?;
    cluster[replica].resume()?;
    cluster.master_of(slot).await?;
    cluster[master].restart().await?;
    server.ready().await?;
    Ok(Struck::At(from))
}

/// The slot of some lock, its master, and another one to which it may move.
async fn journey(context: &mut Context, cluster: &Cluster) -> Result<(u16, usize, usize)> {
    let (slot, from) = place(context, cluster).await?;
    let mut others = masters(cluster).await?;
    others.retain(|node| *node != from);
    Ok((slot, from, others[context.index(others.len())]))
}

/// The slot of some lock, and its master.
async fn place(context: &mut Context, cluster: &Cluster) -> Result<(u16, usize)> {
    let lock = lock_name(context.index(context.targets.config.locks));
    let slot = cluster.slot_of(&format!("{REDIS_PREFIX}{lock}")).await?;
    Ok((slot, cluster.master_of(slot).await?))
}

/// The masters of the first, the middle and the last slots, which never move.
async fn masters(cluster: &Cluster) -> Result<Vec<usize>> {
    let mut masters = Vec::new();
    for slot in [0, 8191, 16383] {
        masters.push(cluster.master_of(slot).await?);
    }
    Ok(masters)
}
