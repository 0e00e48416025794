//! Waiters whose machines fall silent: the server hears nothing from them, and no end of their connections either.

use std::time::Duration;

use lock_core::{Guard, Locker, Result};
use lock_mysql::Strategy;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::support::proxy::Proxy;
use crate::support::*;

/// Of the waiters.
const TTL: Duration = secs(2);
const SILENT: usize = 3;

#[testbed::test]
async fn silent_waiters_delay_a_row_lock_by_a_ttl_each_at_most() {
    silent_waiters_delay_the_next_by_a_ttl_each_at_most(Strategy::Row).await;
}

#[testbed::test]
async fn silent_waiters_delay_a_lease_by_a_ttl_each_at_most() {
    silent_waiters_delay_the_next_by_a_ttl_each_at_most(Strategy::Lease).await;
}

async fn silent_waiters_delay_the_next_by_a_ttl_each_at_most(strategy: Strategy) {
    /// A connection's time counts whole seconds, and a busy machine is slow.
    const LATE: Duration = secs(10);
    let fixture = Fixture::shared().await;
    let locker = |config: lock_mysql::MySqlConfig| {
        let backend = lock_mysql::backend(config.with_strategy(strategy)).unwrap();
        Locker::from_backend(backend).with_ttl(TTL)
    };
    let (holder, live) = (locker(fixture.config()), locker(fixture.config()));
    live.connect().await.unwrap();
    let guard = holder.lock("a").ttl(secs(60)).acquire().await.unwrap();
    let mut silent = Vec::new();
    for _ in 0..SILENT {
        let proxy = Proxy::of(&fixture).await;
        let locker = locker(proxy.config(&fixture));
        locker.connect().await.unwrap();
        let asked = proxy.requests();
        silent.push((wait(&locker), proxy, asked));
    }
    let mut observer = fixture.observer().await;
    until("waiting", async || match strategy {
        Strategy::Row => observer.waiters().await == SILENT,
        _ => silent.iter().all(|(_, proxy, asked)| proxy.requests() > *asked + 2),
    })
    .await;
    silent.iter().for_each(|(_, proxy, _)| proxy.stall());
    let waiting = wait(&live);
    let released = Instant::now();
    let before = guard.token();
    guard.release().await.unwrap();
    let next = soon("granted", waiting).await.unwrap().unwrap();
    let took = released.elapsed();
    assert!(took <= 3 * TTL + LATE, "{took:?}");
    assert!(next.token() > before);
    println!("{strategy:?}: the next one has it after {took:?}");
    // They learn by their own clocks that they have nothing, and come back when the network does.
    next.release().await.unwrap();
    for (waiting, proxy, _) in silent {
        proxy.heal();
        let guard = soon("granted", waiting).await.unwrap().unwrap();
        guard.release().await.unwrap();
    }
}

fn wait(locker: &Locker) -> JoinHandle<Result<Guard>> {
    let lock = locker.lock("a");
    tokio::spawn(async move { lock.acquire().await })
}
