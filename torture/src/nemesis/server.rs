//! Faults of any server, and of the clock that one runs on.

use std::time::Duration;

use crate::error::Result;
use crate::servers::LockServer;

use super::context::{Context, Struck};

pub(super) async fn kill(context: &mut Context, server: &LockServer) -> Result<Struck> {
    let one = server.any(context.index(server.count()));
    one.kill()?;
    context.last(0.0..1.0).await;
    one.restart().await?;
    server.ready().await?;
    Ok(Struck::AtOnce)
}

pub(super) async fn lose(context: &mut Context, server: &LockServer) -> Result<Struck> {
    let one = server.any(context.index(server.count()));
    one.kill()?;
    context.last(0.0..1.0).await;
    one.restart_without_data().await?;
    Ok(Struck::AtOnce)
}

pub(super) async fn stop(context: &mut Context, server: &LockServer) -> Result<Struck> {
    let one = server.any(context.index(server.count()));
    one.pause()?;
    context.last(0.3..1.5).await;
    one.resume()?;
    server.ready().await?;
    Ok(Struck::AtOnce)
}

pub(super) async fn clock_ahead(context: &mut Context, server: &LockServer) -> Result<Struck> {
    let step = nanos(context, context.targets.config.clock_step());
    move_clock(context, server, step).await
}

pub(super) async fn clock_behind(context: &mut Context, server: &LockServer) -> Result<Struck> {
    let step = nanos(context, context.targets.config.clock_step());
    move_clock(context, server, -step).await
}

pub(super) async fn clock_behind_for_good(context: &mut Context, server: &LockServer) -> Result<Struck> {
    let step = nanos(context, context.ttl() * 60);
    server.clock()?.step(-step)?;
    Ok(Struck::AtOnce)
}

pub(super) async fn clock_faster(context: &mut Context, server: &LockServer) -> Result<Struck> {
    /// The contract: clocks run within 5 % of each other.
    const FASTER: i64 = 50_000;
    server.clock()?.run_faster(FASTER)?;
    context.last(2.0..4.0).await;
    server.clock()?.run_faster(0)?;
    Ok(Struck::AtOnce)
}

async fn move_clock(context: &mut Context, server: &LockServer, step: i64) -> Result<Struck> {
    server.clock()?.step(step)?;
    context.last(0.5..2.0).await;
    server.clock()?.step(-step)?;
    Ok(Struck::AtOnce)
}

/// Most of the longest step, or a part of it.
fn nanos(context: &mut Context, longest: Duration) -> i64 {
    let step = longest.mul_f64(context.share(0.25..1.0));
    i64::try_from(step.as_nanos()).unwrap_or(i64::MAX)
}
