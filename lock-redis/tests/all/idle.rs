//! A backend of which nobody needs anything: it seldom asks the server, and notices all the same when it does not answer.

use std::time::Duration;

use lock_core::ErrorKind;
use lock_core::backend::DistributedLock;
use tokio::time::{Instant, sleep};

use crate::support::{
    Fixture, Proxied, TTL, eventually, in_the_end, in_the_end_granted, in_the_end_released, refused, request,
    with_config,
};

/// With a heartbeat each hundredth of a second.
const SHORT: Duration = Duration::from_millis(100);
/// After so long, the server is asked even if nobody needs it.
const IDLE: Duration = Duration::from_secs(30);
/// Time for a hundred heartbeats.
const WHILE: Duration = Duration::from_secs(1);

/// How often the server was asked whether it is there, in a while.
async fn pings(fixture: &Fixture) -> u64 {
    let before = fixture.calls("ping").await;
    sleep(WHILE).await;
    fixture.calls("ping").await - before
}

#[testbed::test]
async fn it_asks_the_server_only_while_somebody_needs_it() {
    let Some(fixture) = Fixture::own().await else { return };
    let backend = with_config(fixture.config().with_response_timeout(SHORT));
    in_the_end(async || backend.connect().await).await;
    eventually("it is idle", async || pings(&fixture).await == 0).await;
    let hold = in_the_end_granted(&backend, &request("a", TTL).0).await;
    eventually("it is used", async || pings(&fixture).await > 0).await;
    in_the_end_released(&hold).await;
    drop(hold);
    eventually("it is idle again", async || pings(&fixture).await == 0).await;
}

#[testbed::test]
async fn a_first_request_after_that_finds_out_that_the_server_is_silent() {
    let fixture = Fixture::new().await;
    let Proxied { proxy, backend } = Proxied::new(&fixture, |config| config.with_response_timeout(SHORT)).await;
    in_the_end(async || backend.connect().await).await;
    eventually("it is idle", async || pings(&fixture).await == 0).await;
    proxy.hold_answers();
    let asked = Instant::now();
    let error = refused(&backend, "a").await;
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(
        asked.elapsed() >= SHORT && asked.elapsed() < IDLE / 2,
        "{:?}",
        asked.elapsed()
    );
    proxy.let_go();
}
