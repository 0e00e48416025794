//! Faults of an ensemble of ZooKeepers. Each ends when all its servers serve again.

use crate::error::Result;
use crate::servers::LockServer;

use super::context::{Context, Struck};

pub(super) async fn leader_kill(context: &mut Context, server: &LockServer) -> Result<Struck> {
    let ensemble = server.ensemble()?;
    let leader = ensemble.leader().await?;
    ensemble[leader].kill()?;
    ensemble.leader_after(leader).await?;
    context.last(0.0..1.0).await;
    ensemble[leader].restart().await?;
    ensemble.ready().await?;
    Ok(Struck::AtOnce)
}

pub(super) async fn leader_stop(context: &mut Context, server: &LockServer) -> Result<Struck> {
    let ensemble = server.ensemble()?;
    let leader = ensemble.leader().await?;
    ensemble[leader].pause()?;
    context.last(0.3..2.5).await;
    ensemble[leader].resume()?;
    ensemble.ready().await?;
    Ok(Struck::AtOnce)
}

pub(super) async fn follower_cut(context: &mut Context, server: &LockServer) -> Result<Struck> {
    let ensemble = server.ensemble()?;
    let leader = ensemble.leader().await?;
    let follower = (leader + 1 + context.index(2)) % 3;
    ensemble.cut(leader, follower);
    context.last(0.5..2.5).await;
    ensemble.heal();
    ensemble.ready().await?;
    Ok(Struck::AtOnce)
}

pub(super) async fn leader_cut(context: &mut Context, server: &LockServer) -> Result<Struck> {
    let ensemble = server.ensemble()?;
    let leader = ensemble.leader().await?;
    ensemble.isolate(leader);
    if context.chance(0.5) {
        // The others elect another leader at once, long before this one notices.
        let others = [&ensemble[(leader + 1) % 3], &ensemble[(leader + 2) % 3]];
        tokio::try_join!(others[0].restart(), others[1].restart())?;
    }
    context.last(0.5..2.5).await;
    ensemble.heal();
    ensemble.ready().await?;
    Ok(Struck::AtOnce)
}

pub(super) async fn rolling_restart(_context: &mut Context, server: &LockServer) -> Result<Struck> {
    let ensemble = server.ensemble()?;
    for server in ensemble.servers() {
        server.restart().await?;
        ensemble.ready().await?;
    }
    Ok(Struck::AtOnce)
}
