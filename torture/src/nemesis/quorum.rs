//! Faults of a quorum of servers that know nothing of each other.

use lock_quorum::rules;

use crate::error::Result;
use crate::process::WorkerProcess;
use crate::servers::LockServer;

use super::context::{Context, Struck};

pub(super) async fn minority_kill(context: &mut Context, server: &LockServer) -> Result<Struck> {
    let nodes = server.count();
    kill(context, server, nodes - rules::majority(nodes)).await
}

pub(super) async fn majority_kill(context: &mut Context, server: &LockServer) -> Result<Struck> {
    let nodes = server.count();
    kill(context, server, nodes - rules::majority(nodes) + 1).await
}

async fn kill(context: &mut Context, server: &LockServer, count: usize) -> Result<Struck> {
    let first = context.index(server.count());
    let killed = (0..count).map(|step| server.any((first + step) % server.count()));
    let killed: Vec<_> = killed.collect();
    for node in &killed {
        node.kill()?;
    }
    context.last(0.3..2.0).await;
    for node in &killed {
        node.restart().await?;
    }
    Ok(Struck::AtOnce)
}

pub(super) async fn node_cut(context: &mut Context, process: &WorkerProcess) -> Result<Struck> {
    let link = &process.node_links[context.index(process.node_links.len())];
    link.stall();
    context.last(0.5..2.5).await;
    link.heal();
    Ok(Struck::AtOnce)
}

pub(super) async fn node_delay(context: &mut Context, process: &WorkerProcess) -> Result<Struck> {
    let link = &process.node_links[context.index(process.node_links.len())];
    link.delay(context.time(1.0..3.0));
    context.last(2.0..4.0).await;
    link.heal();
    Ok(Struck::AtOnce)
}
