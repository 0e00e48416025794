//! Faults of a process.

use std::time::Duration;

use rustix::process::Signal;
use tokio::time::{Instant, sleep};

use crate::clock;
use crate::error::Result;
use crate::process::WorkerProcess;
use crate::worker::job::Order;

use super::context::{Context, Struck};

pub(super) async fn stop(context: &mut Context, process: &WorkerProcess) -> Result<Struck> {
    process.signal(Signal::STOP);
    context.last(0.3..2.0).await;
    process.signal(Signal::CONT);
    Ok(Struck::AtOnce)
}

pub(super) async fn gap(context: &mut Context, process: &WorkerProcess) -> Result<Struck> {
    process.order(Order::Gap);
    let stopped = has_stopped(process, context.ttl() * 2).await || {
        process.order(Order::NoGap);
        // The order may cross with the stop.
        has_stopped(process, Duration::from_millis(500)).await
    };
    if !stopped {
        return Ok(Struck::Never);
    }
    let from = clock::now();
    let at_the_worst_moment = context.chance(0.7);
    let end = Instant::now() + context.time(1.0..1.6);
    while Instant::now() < end && !(at_the_worst_moment && context.targets.resource.is_ripe(process.index)) {
        sleep(Duration::from_millis(1)).await;
    }
    process.signal(Signal::CONT);
    Ok(Struck::At(from))
}

async fn has_stopped(process: &WorkerProcess, limit: Duration) -> bool {
    let start = Instant::now();
    // The kernel tells only who blocks, or asks.
    while !process.is_stopped() {
        if start.elapsed() > limit {
            return false;
        }
        sleep(Duration::from_millis(2)).await;
    }
    true
}

pub(super) async fn kill(context: &mut Context, process: &WorkerProcess) -> Result<Struck> {
    let incarnation = process.incarnation();
    let from = process.kill();
    context.last(0.0..0.5).await;
    process.start(incarnation + 1).await?;
    Ok(Struck::At(from))
}
