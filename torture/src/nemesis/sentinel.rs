//! Faults of a master that Sentinels watch. Each ends when all servers follow the next one.

use std::time::Duration;

use testbed::Isolated;
use tokio::time::{Instant, sleep, sleep_until};

use crate::clock;
use crate::error::Result;
use crate::servers::LockServer;

use super::context::{Context, Struck};

pub(super) async fn master_kill(context: &mut Context, server: &LockServer) -> Result<Struck> {
    let watched = server.watched()?;
    let master = watched.settled().await?;
    let from = clock::now();
    watched.redis()[master].kill()?;
    watched.master_after(master).await?;
    let replaced = Instant::now();
    context.last(0.0..1.0).await;
    watched.redis()[master].restart().await?;
    settle(context, server, replaced).await?;
    Ok(Struck::At(from))
}

pub(super) async fn master_stop(context: &mut Context, server: &LockServer) -> Result<Struck> {
    let watched = server.watched()?;
    let master = watched.settled().await?;
    let from = clock::now();
    watched.redis()[master].pause()?;
    watched.master_after(master).await?;
    let replaced = Instant::now();
    context.last(0.0..1.0).await;
    watched.redis()[master].resume()?;
    settle(context, server, replaced).await?;
    Ok(Struck::At(from))
}

pub(super) async fn stale_replica(context: &mut Context, server: &LockServer) -> Result<Struck> {
    let watched = server.watched()?;
    let master = watched.settled().await?;
    for replica in (0..watched.redis().servers().len()).filter(|index| *index != master) {
        // Nobody listens there.
        watched.redis().call(replica, &["REPLICAOF", "127.0.0.1", "1"]).await?;
    }
    // Soon the Sentinels have them follow the master again.
    sleep(Duration::from_secs(1).mul_f64(context.share(1.0..1.9))).await;
    let from = clock::now();
    watched.redis()[master].kill()?;
    watched.master_after(master).await?;
    let replaced = Instant::now();
    watched.redis()[master].restart().await?;
    settle(context, server, replaced).await?;
    Ok(Struck::At(from))
}

pub(super) async fn planned_failover(context: &mut Context, server: &LockServer) -> Result<Struck> {
    let watched = server.watched()?;
    watched.settled().await?;
    let from = clock::now();
    watched.fail_over().await?;
    let replaced = Instant::now();
    settle(context, server, replaced).await?;
    Ok(Struck::At(from))
}

pub(super) async fn split_brain(context: &mut Context, server: &LockServer) -> Result<Struck> {
    let watched = server.watched()?;
    let master = watched.settled().await?;
    let targets = context.targets.clone();
    let (inside, outside) = targets.processes.split_at(targets.processes.len() / 2);
    let inside = inside.iter().flat_map(|process| {
        let links = process.node_links.iter().enumerate();
        links.filter(|(index, _)| *index != master).map(|(_, link)| link)
    });
    let outside = outside.iter().map(|process| &process.node_links[master]);
    let cut: Vec<_> = inside.chain(outside).collect();

    let from = clock::now();
    let isolated = watched.isolate(master).await?;
    cut.iter().for_each(|link| link.stall());
    let serves_on = targets.config.min_replicas.then(|| notice_late(context, &isolated));
    let splitting = async {
        watched.master_after(master).await?;
        let replaced = Instant::now();
        context.last(0.5..2.0).await;
        Ok::<_, crate::error::Error>(replaced)
    };
    let serving = async {
        match serves_on {
            Some(serves_on) => serves_on.await,
            None => Ok(()),
        }
    };
    let (replaced, ()) = tokio::try_join!(splitting, serving)?;
    isolated.heal()?;
    cut.iter().for_each(|link| link.heal());
    settle(context, server, replaced).await?;
    Ok(Struck::At(from))
}

/// Has a master refuse writes as late as if its replicas had gone silent: it counts them once a second, by whole seconds. Here
/// their connections end, which it notices at once.
fn notice_late<'a>(context: &mut Context, isolated: &'a Isolated) -> impl Future<Output = Result<()>> + use<'a> {
    let after = Duration::from_secs(1).mul_f64(context.share(2.0..3.0));
    async move {
        isolated.call(&["CONFIG", "SET", "min-replicas-to-write", "0"])?;
        sleep(after).await;
        isolated.call(&["CONFIG", "SET", "min-replicas-to-write", "1"])?;
        Ok(())
    }
}

/// Waits until all servers follow the new master, and the Sentinels would replace that one as soon.
async fn settle(context: &Context, server: &LockServer, replaced: Instant) -> Result<()> {
    /// Twice the `failover-timeout` of the testbed's Sentinels.
    const NEXT_FAILOVER: Duration = Duration::from_secs(4);
    server.ready().await?;
    sleep_until((replaced + NEXT_FAILOVER).min(context.until)).await;
    Ok(())
}
