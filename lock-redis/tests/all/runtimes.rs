//! Several runtimes in a process, of which some end and some are driven only while somebody calls.

use std::pin::pin;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use lock_core::HoldState;
use lock_core::backend::{DistributedLock, Renewal};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout};

use crate::support::waiter::Waiter;
use crate::support::{
    AT_MOST, Fixture, Proxied, TTL, granted, in_the_end, in_the_end_granted, in_the_end_released, release, request,
    stays_below, take, with_config,
};

/// Driven only while somebody calls.
pub(crate) fn idle() -> Runtime {
    Builder::new_current_thread().enable_all().build().expect("a runtime")
}

/// Driven all the time: for the test's own tasks.
pub(crate) fn driven() -> Runtime {
    let mut builder = Builder::new_multi_thread();
    builder.worker_threads(1).enable_all().build().expect("a runtime")
}

#[testbed::test]
fn a_backend_outlives_its_runtime() {
    let servers = driven();
    let fixture = servers.block_on(Fixture::new());
    let backend = fixture.backend();
    let first = idle();
    let hold = first.block_on(take(&backend, "a"));
    drop(first);
    for _ in 0..3 {
        let next = idle();
        let renewed = next.block_on(hold.renew(TTL)).expect("an answer");
        assert!(matches!(renewed, Renewal::Renewed(_)));
    }
    let last = idle();
    assert!(last.block_on(release(&hold)));
    assert!(!servers.block_on(fixture.exists("a")));
}

#[testbed::test]
fn a_connection_whose_runtime_idles_is_replaced_soon() {
    let servers = driven();
    let fixture = servers.block_on(Fixture::new());
    // Far below the time for which a connection may be silent.
    let config = fixture.config().with_response_timeout(AT_MOST);
    let bound = Duration::from_secs(5);
    servers.block_on(stays_below(bound, "it waited for the silence to end", async || {
        let backend = with_config(config.clone());
        tokio::task::block_in_place(|| {
            let (first, second) = (idle(), idle());
            let (wanted, _control) = request("a", TTL);
            let hold = first.block_on(granted(&backend, &wanted));
            let start = Instant::now();
            second.block_on(async {
                let renewing = in_the_end(async || hold.renew(TTL).await);
                assert!(matches!(renewing.await, Renewal::Renewed(_)));
            });
            let waited = start.elapsed();
            assert_eq!(wanted.lease().state(), HoldState::Held, "it outlived its connection");
            second.block_on(in_the_end_released(&hold));
            waited
        })
    }));
}

#[testbed::test]
fn any_number_of_runtimes_may_end_or_idle() {
    let servers = driven();
    let fixture = servers.block_on(Fixture::new());
    let backend = with_config(fixture.config().with_response_timeout(AT_MOST));
    let mut idling = vec![idle()];
    let (wanted, _control) = request("a", TTL);
    let hold = idling[0].block_on(granted(&backend, &wanted));
    for turn in 0..6 {
        let runtime = idle();
        runtime.block_on(async {
            in_the_end(async || hold.renew(TTL).await).await;
            let other = in_the_end_granted(&backend, &request("b", TTL).0).await;
            in_the_end_released(&other).await;
        });
        if turn % 2 == 0 {
            idling.push(runtime);
        }
    }
    // One that idled all the while.
    idling[0].block_on(async {
        in_the_end(async || hold.renew(TTL).await).await;
        assert_eq!(wanted.lease().state(), HoldState::Held);
        in_the_end_released(&hold).await;
    });
    assert!(!servers.block_on(fixture.exists("a")));
}

#[testbed::test]
fn a_waiter_gets_its_turn_though_the_runtime_of_its_connection_idles_since() {
    let servers = driven();
    // Long before the refresh of its entry, which comes after 4 s at least.
    let bound = Duration::from_secs(4);
    servers.block_on(stays_below(bound, "it waited for its refresh", async || {
        let fixture = Fixture::new().await;
        let config = fixture.config().with_response_timeout(AT_MOST);
        let backend = with_config(config);
        let hold = take(&fixture.backend(), "a").await;
        let (connected, is_connected) = oneshot::channel();
        let (stop, stopped) = oneshot::channel::<()>();
        let (end, ended) = mpsc::channel::<()>();
        let first = thread::spawn({
            let backend = backend.clone();
            move || {
                let runtime = idle();
                runtime.block_on(async {
                    backend.connect().await.expect("it is there");
                    connected.send(()).expect("somebody waits");
                    let _ = stopped.await;
                });
                // Nobody drives it from here on.
                let _ = ended.recv();
            }
        });
        is_connected.await.expect("no panic");
        let waiter = Waiter::queued(&fixture, &backend, "a", TTL).await;
        stop.send(()).expect("it runs");
        let start = Instant::now();
        assert!(release(&hold).await);
        let hold = waiter.granted().await;
        let waited = start.elapsed();
        in_the_end_released(&hold).await;
        drop(end);
        first.join().expect("no panic");
        waited
    }));
}

#[testbed::test]
fn what_was_sent_over_the_connection_of_an_idle_runtime_takes_nothing_after_its_abandon() {
    let servers = driven();
    let fixture = servers.block_on(Fixture::new());
    let Proxied { proxy, backend } =
        servers.block_on(Proxied::new(&fixture, |config| config.with_response_timeout(AT_MOST)));
    let (first, second) = (idle(), idle());
    let (late, _control) = request("a", TTL);
    first.block_on(async {
        backend.connect().await.expect("it is there");
        proxy.hold_requests();
        let acquiring = pin!(backend.acquire(&late));
        // Long enough for it to be sent.
        timeout(Duration::from_millis(200), acquiring)
            .await
            .expect_err("it never gets there");
    });
    second.block_on(in_the_end(async || backend.abandon(&late).await));
    assert!(proxy.connections() > 1, "over another connection");
    servers.block_on(async {
        let fence = fixture.fence("a").await;
        assert!(fence.contains(&late.holder().to_string()), "a tombstone: {fence}");
        proxy.let_go();
    });
    // Which ends its connection.
    drop(first);
    servers.block_on(async {
        proxy.drain_the_held().await;
        assert!(!fixture.exists("a").await, "an ended holder id came back");
        assert!(release(&take(&fixture.backend(), "a").await).await);
    });
}
