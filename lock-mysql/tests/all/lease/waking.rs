//! Waiters that other processes wake.

use lock_core::backend::{Attempt, DistributedLock, Mode, ReleaseOutcome};
use testbed::{in_some_run, stays_below};
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use super::sharing::{grant_in, permits};
use super::support::*;
use crate::support::*;

/// Without being woken, it would ask twice a second, and be granted that late.
#[testbed::test]
async fn a_waiter_sleeps_at_the_server_until_the_release_wakes_it() {
    let fixture = Fixture::own().await;
    let (first, second, mut observer) = (backend(&fixture), locker(&fixture), fixture.observer().await);
    // Until there is a connection that sleeps, the first waiter asks by itself.
    let mut took = Vec::new();
    for _ in 0..20 {
        let granted = grant(&first, "a", secs(600)).await;
        let lock = second.lock("a");
        let waiting = tokio::spawn(async move { lock.acquire().await.map(|guard| (guard, Instant::now())) });
        until("marked, and asleep", async || {
            let marked = in_row(&mut observer, &fixture, "a", "sleeper*(wanted>0)").await > 0;
            let statements = observer.statements().await;
            marked && statements.iter().any(|sql| sql.contains(":held"))
        })
        .await;
        let start = Instant::now();
        assert_eq!(granted.release().await, ReleaseOutcome::Released);
        let (guard, at) = soon("granted", waiting).await.unwrap().unwrap();
        took.push(at - start);
        assert!(guard.token().as_u64() > granted.token());
        guard.release().await.unwrap();
    }
    took.sort_unstable();
    println!("a turn of another process takes {:?}", took[took.len() / 2]);
    let granted = grant(&first, "a", secs(600)).await;
    let lock = second.lock("a");
    let waiting = tokio::spawn(async move { lock.acquire().await });
    until("marked, by one that sleeps", async || {
        in_row(&mut observer, &fixture, "a", "sleeper*(wanted>0)").await > 0
    })
    .await;
    let (before, start) = (counted(&mut observer, "COM_INSERT").await, Instant::now());
    sleep(secs(3)).await;
    let asked = counted(&mut observer, "COM_INSERT").await - before;
    let took = start.elapsed();
    let most = 2.0 + 2.0 * took.as_secs_f64();
    assert!((asked as f64) <= most, "{asked} questions in {took:?}");
    granted.release().await;
    drop(soon("granted", waiting).await.unwrap().unwrap());
}

/// All that is under way in a process ends with it.
#[testbed::test]
async fn a_process_that_ends_right_after_its_release_has_woken_the_next_one() {
    // On a machine that stands still, the waiter's mark in the row ends, and then nobody is woken.
    for mode in [Mode::Exclusive, permits(1, 1)] {
        in_some_run("the waiter is not woken", async || {
            is_woken_by_one_that_ends(mode).await
        })
        .await;
    }
}

async fn is_woken_by_one_that_ends(mode: Mode) -> bool {
    let fixture = Fixture::own().await;
    let (holding, held) = oneshot::channel();
    let (release, released) = oneshot::channel::<()>();
    let first = backend(&fixture);
    // Its connections end with its runtime, which nobody drives after the release.
    let process = tokio::task::spawn_blocking(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.unwrap().block_on(async {
            let granted = grant_in(&first, "a", mode).await;
            holding.send(()).unwrap();
            released.await.unwrap();
            granted.release().await
        })
    });
    soon("held", held).await.unwrap();
    let (waiter, mut observer) = (backend(&fixture), fixture.observer().await);
    let waiting = tokio::spawn(async move {
        let (request, control) = options("a", secs(600)).mode(mode).start();
        (waiter.acquire(&request).await, control)
    });
    until("marked or queued, and asleep", async || {
        let marked = in_row(&mut observer, &fixture, "a", "sleeper*(wanted>0)").await > 0;
        let waits = marked || queued(&mut observer, &fixture, "a").await > 0;
        waits && observer.statements().await.iter().any(|sql| sql.contains(":held"))
    })
    .await;
    let before = counted(&mut observer, "Com_kill").await;
    release.send(()).unwrap();
    assert_eq!(soon("released", process).await.unwrap(), ReleaseOutcome::Released);
    let is_woken = counted(&mut observer, "Com_kill").await > before;
    let (attempt, _control) = soon("granted", waiting).await.unwrap();
    assert!(matches!(attempt, Ok(Attempt::Granted(..))), "{attempt:?}");
    is_woken
}

/// The row has one mark. Who has been granted the name wakes one of the others, which leaves the next mark.
#[testbed::test]
async fn a_waiter_without_a_mark_is_called_by_the_next_grant() {
    // On a machine that stands still, the mark in the row ends, and then the release wakes nobody.
    in_some_run("not each of them called one", called_by_the_next_grant).await;
}

async fn called_by_the_next_grant() -> bool {
    let fixture = Fixture::own().await;
    let (first, mut observer) = (backend(&fixture), fixture.observer().await);
    let granted = grant(&first, "a", secs(600)).await;
    let mut waiting = JoinSet::new();
    let wait = |waiting: &mut JoinSet<_>| {
        let lock = locker(&fixture).lock("a").ttl(secs(600));
        waiting.spawn(async move { lock.acquire().await });
    };
    let calls = async |observer: &mut Observer| counted(observer, "Com_kill").await;
    let marked = async |observer: &mut Observer| in_row(observer, &fixture, "a", "sleeper*(wanted>0)").await > 0;
    wait(&mut waiting);
    until("marked", async || marked(&mut observer).await).await;
    assert_eq!(queued(&mut observer, &fixture, "a").await, 0);
    wait(&mut waiting);
    wait(&mut waiting);
    until("queued", async || queued(&mut observer, &fixture, "a").await == 2).await;
    let before = calls(&mut observer).await;
    assert_eq!(granted.release().await, ReleaseOutcome::Released);
    // Mostly the first, if its mark did not end before.
    let next = soon("granted", waiting.join_next()).await.unwrap().unwrap().unwrap();
    // By the release, and by the grant.
    let called = until("called", async || calls(&mut observer).await >= before + 2);
    let are_called = timeout(secs(10), called).await.is_ok();
    until("marked again", async || marked(&mut observer).await).await;
    until("one left the queue", async || {
        queued(&mut observer, &fixture, "a").await == 1
    })
    .await;
    next.release().await.unwrap();
    // Those that leave take their entries along.
    waiting.abort_all();
    until("without queue entries", async || {
        queued(&mut observer, &fixture, "a").await == 0
    })
    .await;
    are_called
}

/// A process that is gone has no entry, so that nobody calls it.
#[testbed::test]
async fn a_queue_entry_ends_with_its_connection() {
    let fixture = Fixture::own().await;
    let mut observer = fixture.observer().await;
    let guard = locker(&fixture).lock("a").ttl(secs(600)).acquire().await.unwrap();
    let mut waiting = JoinSet::new();
    for _ in 0..3 {
        let lock = locker(&fixture).lock("a").ttl(secs(600));
        waiting.spawn(async move { lock.acquire().await });
    }
    until("queued", async || queued(&mut observer, &fixture, "a").await == 2).await;
    let ids = "SELECT COALESCE(MIN(ID),0) FROM information_schema.PROCESSLIST WHERE USER='app' AND ID<>CONNECTION_ID()";
    for _ in 0..50 {
        let id = observer.number(ids).await;
        // It may have ended by itself.
        observer.try_run(&format!("KILL CONNECTION {id}")).await;
    }
    // They come back over new connections.
    until("queued again", async || queued(&mut observer, &fixture, "a").await == 2).await;
    guard.release().await.unwrap();
    while let Some(guard) = soon("granted", waiting.join_next()).await {
        guard.unwrap().unwrap().release().await.unwrap();
    }
    until("without queue entries", async || {
        queued(&mut observer, &fixture, "a").await == 0
    })
    .await;
}

/// The mark of one that is gone keeps nobody else away for long.
#[testbed::test]
async fn a_waiter_whose_process_ended_delays_nobody_for_long() {
    let fixture = Fixture::own().await;
    let (first, mut observer) = (backend(&fixture), fixture.observer().await);
    let mark = format!(
        "UPDATE {}_leases SET waiter='gone', sleeper=42, wanted=FLOOR(UNIX_TIMESTAMP(NOW(6))*1000000)+9000000",
        fixture.table
    );
    stays_below(secs(9), "the mark stays until its time is over", async || {
        let granted = grant(&first, "a", secs(600)).await;
        observer.run(&mark).await;
        let start = Instant::now();
        granted.release().await;
        // The server has no such connection: the mark is removed at once.
        until("unmarked", async || {
            in_row(&mut observer, &fixture, "a", "wanted").await == 0
        })
        .await;
        start.elapsed()
    })
    .await;
    grant(&first, "a", secs(60)).await;
}

/// The connection that sleeps is killed: then the waiter asks by itself, and later sleeps again.
#[testbed::test]
async fn without_its_connection_a_waiter_asks_by_itself() {
    let fixture = Fixture::own().await;
    let (first, second, mut observer) = (backend(&fixture), locker(&fixture), fixture.observer().await);
    let granted = grant(&first, "a", secs(600)).await;
    let lock = second.lock("a");
    let waiting = tokio::spawn(async move { lock.acquire().await });
    until("asleep", async || {
        let statements = observer.statements().await;
        statements.iter().any(|sql| sql.contains(":held"))
    })
    .await;
    let id = observer
        .number("SELECT ID FROM information_schema.PROCESSLIST WHERE INFO LIKE '%:held%' AND ID<>CONNECTION_ID()")
        .await;
    observer.run(&format!("KILL CONNECTION {id}")).await;
    granted.release().await;
    soon("granted", waiting)
        .await
        .unwrap()
        .unwrap()
        .release()
        .await
        .unwrap();
}

/// The server would let that connection sleep on.
#[testbed::test]
async fn a_client_that_goes_takes_its_sleeping_connection_along() {
    let fixture = Fixture::own().await;
    let (first, mut observer) = (backend(&fixture), fixture.observer().await);
    let granted = grant(&first, "a", secs(600)).await;
    let second = locker(&fixture);
    let lock = second.lock("a");
    let waiting = tokio::spawn(async move { lock.acquire().await });
    let is_asleep = async |observer: &mut Observer| {
        let statements = observer.statements().await;
        statements.iter().any(|sql| sql.contains(":held"))
    };
    until("asleep", async || is_asleep(&mut observer).await).await;
    waiting.abort();
    second.shutdown().await.unwrap();
    drop(second);
    // A sleep lasts for 20 s.
    let ended = until("without it", async || !is_asleep(&mut observer).await);
    let ended = timeout(secs(15), ended).await;
    ended.expect("the connection ends with its client");
    assert_eq!(granted.release().await, ReleaseOutcome::Released);
}
