//! Acquires that are cancelled in large numbers: what was not sent is not undone, and undos go out together.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use lock_core::Locker;
use lock_core::backend::request::RequestControl;
use lock_core::backend::{AcquireRequest, DistributedLock, Mode};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use crate::support::waiter::Waiter;
use crate::support::{
    AT_MOST, Fixture, SECOND, TTL, granted, in_some_run, release, request, request_in, take, with_config,
};

/// The most acquires that are unanswered on a connection.
const WINDOW: usize = 1024;

/// Tasks that acquire fresh names with a short timeout, and drop what they get.
struct Load {
    tasks: JoinSet<()>,
    acquired: Arc<AtomicUsize>,
    cancelled: Arc<AtomicUsize>,
}

impl Load {
    fn start(locks: &Locker, tasks: usize, patience: Duration) -> Self {
        let load = Self {
            tasks: JoinSet::new(),
            acquired: Arc::default(),
            cancelled: Arc::default(),
        };
        (0..tasks).fold(load, |mut load, task| {
            let (locks, acquired, cancelled) = (locks.clone(), load.acquired.clone(), load.cancelled.clone());
            load.tasks.spawn(async move {
                for number in 0.. {
                    let lock = locks.lock(format!("order/{task}/{number}"));
                    let count = match timeout(patience, lock.acquire()).await {
                        Ok(guard) => guard.map(|_guard| &acquired).expect("only silence, and no error"),
                        Err(_elapsed) => &cancelled,
                    };
                    count.fetch_add(1, Ordering::SeqCst);
                }
            });
            load
        })
    }

    /// Fails if it takes long until so many more are counted.
    async fn until_more(&self, count: &AtomicUsize, more: usize) -> Result<(), String> {
        let before = count.load(Ordering::SeqCst);
        let counted = || count.load(Ordering::SeqCst) - before;
        let end = Instant::now() + AT_MOST;
        while counted() < more {
            if Instant::now() >= end {
                return Err(format!("{} of {more}", counted()));
            }
            sleep(SECOND / 100).await;
        }
        Ok(())
    }
}

/// A timeout that few miss on this machine as it is now: two and a half times what so many acquires at a time take, and at least 20 ms.
async fn short_timeout(locks: &Locker, tasks: usize) -> Duration {
    let start = Instant::now();
    let names = (0..tasks).map(|task| locks.lock(format!("before/{task}")));
    let acquired = join_all(names.map(async |lock| lock.acquire().await)).await;
    assert!(acquired.iter().all(Result::is_ok), "{acquired:?}");
    start.elapsed().mul_f32(2.5).max(SECOND / 50)
}

#[testbed::test]
async fn acquires_that_were_cancelled_in_an_outage_leave_nothing_and_keep_nobody_from_acquiring() {
    in_some_run(
        "nobody acquires after the outage",
        acquire_before_in_and_after_an_outage,
    )
    .await;
}

async fn acquire_before_in_and_after_an_outage() -> Result<(), String> {
    let Some(fixture) = Fixture::own().await else {
        return Ok(());
    };
    // The connection outlasts the silence.
    let backend = with_config(fixture.config().with_response_timeout(AT_MOST));
    let locks = Locker::new(backend).with_ttl(TTL);
    locks.connect().await.expect("it is there");
    let patience = short_timeout(&locks, 100).await;
    let fences = async || {
        let keys = fixture.keys().await;
        keys.iter().filter(|key| key.contains("fence")).count()
    };
    let before = fences().await;

    fixture.server.pause().expect("it runs");
    let mut load = Load::start(&locks, 100, patience);
    load.until_more(&load.cancelled, 4 * WINDOW).await?;
    fixture.server.resume().expect("it was paused");
    let cancelled = load.cancelled.load(Ordering::SeqCst);
    load.until_more(&load.acquired, 100).await?;
    load.tasks.shutdown().await;

    locks.shutdown().await.expect("nothing is left to undo");
    let sent = fences().await - before - load.acquired.load(Ordering::SeqCst);
    let after = load.cancelled.load(Ordering::SeqCst) - cancelled;
    assert!(sent <= WINDOW + 100 + after, "{sent} were sent, {after} of them later");
    let left = fixture.keys().await;
    assert!(left.iter().all(|key| key.contains("fence")), "{left:?}");
    Ok(())
}

fn tries(count: usize) -> Vec<(AcquireRequest, RequestControl)> {
    let one = |number| request(&format!("tried/{number}"), TTL);
    (0..count).map(one).collect()
}

#[testbed::test]
async fn undos_go_out_in_calls_of_thirty_two_behind_the_first() {
    let fixture = Fixture::new().await;
    let backend = fixture.backend();
    let requests = tries(250);
    join_all(requests[..200].iter().map(|(request, _)| granted(&backend, request))).await;
    let before = fixture.scripts_run().await;
    let undone = join_all(requests.iter().map(|(request, _)| backend.abandon(request))).await;
    assert!(undone.iter().all(Result::is_ok), "{undone:?}");
    assert_eq!(fixture.scripts_run().await - before, 1 + 249_u64.div_ceil(32));
    let left = fixture.keys().await;
    assert!(left.iter().all(|key| key.contains("fence")), "{left:?}");
}

#[testbed::test]
async fn undos_that_go_out_together_end_nothing_of_others() {
    let fixture = Fixture::new().await;
    let backend = fixture.backend();
    let requests = tries(4);
    join_all(requests.iter().map(|(request, _)| granted(&backend, request))).await;
    // One has a waiter, one is another holder's by now, one is another program's.
    let waiter = Waiter::queued(&fixture, &fixture.backend(), "tried/0", TTL).await;
    fixture.expire("tried/1").await;
    let other = take(&backend, "tried/1").await;
    let _: () = fixture.raw(&["DEL", &fixture.lock_key("tried/2")]).await;
    let _: () = fixture.raw(&["LPUSH", &fixture.lock_key("tried/2"), "another's"]).await;
    let reader = request_in(Mode::Shared, "read");
    granted(&backend, &reader.0).await;

    let all = requests.iter().chain([&reader]);
    let undone = join_all(all.map(|(request, _)| backend.abandon(request))).await;
    assert!(undone.iter().all(Result::is_ok), "{undone:?}");
    let next = waiter.granted().await;
    assert!(release(&next).await && release(&other).await);
    assert!(fixture.exists("tried/2").await, "another's");
    assert!(!fixture.exists("tried/3").await);
    assert!(!fixture.exists("read").await);
}
