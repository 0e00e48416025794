//! Faults of the way between a process and the server. The caller heals the link.

use conformance_tests::Link;
use tokio::time::timeout;

use crate::error::Result;

use super::context::{Context, Struck};

pub(super) async fn hole(context: &mut Context, link: &Link) -> Result<Struck> {
    link.stall();
    context.last(0.2..2.5).await;
    Ok(Struck::AtOnce)
}

pub(super) async fn oneway(context: &mut Context, link: &Link) -> Result<Struck> {
    link.hold_replies_after(0);
    context.last(0.5..0.95).await;
    Ok(Struck::AtOnce)
}

pub(super) async fn delay(context: &mut Context, link: &Link) -> Result<Struck> {
    link.delay(context.time(0.02..0.4));
    context.last(1.0..3.0).await;
    Ok(Struck::AtOnce)
}

pub(super) async fn reset(_context: &mut Context, link: &Link) -> Result<Struck> {
    link.reset();
    Ok(Struck::AtOnce)
}

pub(super) async fn reply_loss(context: &mut Context, link: &Link) -> Result<Struck> {
    link.swallow_reply(context.number(1..=4));
    Ok(match timeout(context.ttl() * 2, link.swallowed()).await {
        Ok(()) => Struck::AtOnce,
        Err(_) => Struck::Never,
    })
}
