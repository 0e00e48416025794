//! Several runtimes in a process, of which some are driven only while somebody calls.

use std::future::poll_fn;
use std::sync::{Arc, mpsc};
use std::task::Poll;
use std::thread;

use lock_core::ErrorKind;
use lock_core::backend::DistributedLock;
use lock_redis::RedisBackend;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout};

use super::{Fixture, GIVES_UP, REFRESH};
use crate::runtimes::{driven, idle};
use crate::support::{
    AT_MOST, SECOND, TTL, eventually, in_the_end, in_the_end_granted, in_the_end_released, name, release, request,
    stays_below, take, with_config,
};

#[testbed::test]
fn a_waiter_gets_its_turn_though_the_runtime_of_its_connection_idles_since() {
    gets_its_turn(async |_| {});
}

/// The master is reached over another connection than that which wakes waiters.
#[testbed::test]
fn a_waiter_gets_its_turn_though_the_runtime_that_listens_idles_since() {
    gets_its_turn(async |backend| backend.connect().await.expect("all serve"));
}

/// With a backend that is made ready on a runtime that is driven. All else begins on one that idles later.
fn gets_its_turn(prepare: impl AsyncFn(&RedisBackend)) {
    let servers = driven();
    servers.block_on(stays_below(REFRESH, "it waited for its refresh", async || {
        let fixture = Arc::new(Fixture::shared().await);
        let backend = with_config(fixture.config().with_response_timeout(AT_MOST));
        prepare(&backend).await;
        let other = fixture.backend();
        let of = fixture.name_on(0).await;
        let earlier = fixture.name_on_beside(0, fixture.slot(&of).await).await;
        let holds = [take(&other, &earlier).await, take(&other, &of).await];
        let (listening, is_listening) = oneshot::channel();
        let (stop, stopped) = oneshot::channel::<()>();
        let (end, ended) = mpsc::channel::<()>();
        let first = thread::spawn({
            let (fixture, backend) = (fixture.clone(), backend.clone());
            move || {
                let runtime = idle();
                runtime.block_on(async {
                    fixture.queued(&backend, &earlier, TTL).await.leave().await;
                    listening.send(()).expect("somebody waits");
                    let _ = stopped.await;
                });
                // Nobody drives it from here on.
                let _ = ended.recv();
            }
        });
        is_listening.await.expect("no panic");
        let waiter = fixture.queued(&backend, &of, TTL).await;
        eventually("it knows that it waits", async || waiter.request.last_busy().is_some()).await;
        stop.send(()).expect("it runs");
        let start = Instant::now();
        let [earlier, hold] = holds;
        assert!(release(&hold).await);
        let hold = waiter.granted().await;
        let waited = start.elapsed();
        in_the_end_released(&hold).await;
        assert!(release(&earlier).await);
        drop(end);
        first.join().expect("no panic");
        waited
    }));
}

#[testbed::test]
fn room_is_not_waited_for_where_nobody_drives_the_runtime_of_the_connection() {
    let (servers, first) = (driven(), idle());
    let fixture = servers.block_on(Fixture::shared());
    let backend = with_config(fixture.config().with_response_timeout(AT_MOST));
    let of = servers.block_on(fixture.name_on(0));
    let name = |number: usize| format!("{{{}}}-{number}", fixture.key(&of));
    // More than may be unanswered on a connection.
    let (requests, _controls): (Vec<_>, Vec<_>) = (0..1100).map(|number| request(&name(number), TTL)).unzip();
    first.block_on(async {
        backend.connect().await.expect("all serve");
    });
    let mut acquiring: Vec<_> = requests.iter().map(|request| backend.acquire(request)).collect();
    first.block_on(poll_fn(|context| {
        for acquiring in &mut acquiring {
            assert!(acquiring.as_mut().poll(context).is_pending());
        }
        Poll::Ready(())
    }));
    servers.block_on(async {
        let taking = timeout(AT_MOST, in_the_end_granted(&backend, &request(&of, TTL).0)).await;
        in_the_end_released(&taking.expect("it ends in time")).await;
    });
    drop(acquiring);
}

#[testbed::test]
fn a_request_ends_in_time_though_an_idle_runtime_was_asking_for_the_masters() {
    let (servers, first) = (driven(), idle());
    let fixture = servers.block_on(Fixture::own(false));
    let backend = with_config(fixture.config().with_connect_timeout(GIVES_UP));
    let of = servers.block_on(async {
        in_the_end(async || backend.connect().await).await;
        name(&fixture.name_on(0).await)
    });
    fixture.cluster[0].kill().expect("it is ours");
    for node in [1, 2] {
        fixture.cluster[node].pause().expect("it is ours");
    }
    let mut asking = Box::pin(backend.status(&of));
    first.block_on(async {
        // Until it asks those that do not answer.
        while timeout(2 * SECOND, &mut asking).await.is_ok() {
            asking = Box::pin(backend.status(&of));
        }
    });
    let error = servers.block_on(async {
        let ended = timeout(AT_MOST, backend.status(&of)).await;
        ended.expect("it ends in time").expect_err("nobody answers")
    });
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
    drop(asking);
}
