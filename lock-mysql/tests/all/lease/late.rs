//! Statements that the server executes after their caller has stopped to wait.

use lock_core::Result;
use lock_core::backend::request::RequestControl;
use lock_core::backend::{AcquireRequest, Attempt, DistributedLock, ReleaseOptions, ReleaseOutcome};
use lock_mysql::LeaseTableBackend;
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinHandle;

use super::support::*;
use crate::support::*;

/// Locks the row, so that statements on it wait.
async fn lock_row(observer: &mut Observer, fixture: &Fixture) {
    let table = &fixture.table;
    observer
        .run(&format!("BEGIN;SELECT 1 FROM {table}_leases WHERE name='a' FOR UPDATE"))
        .await;
}

/// Whether the server executes an acquire.
async fn acquires(observer: &mut Observer, fixture: &Fixture) -> bool {
    let statements = observer.statements().await;
    statements
        .iter()
        .any(|sql| sql.contains(&fixture.table) && sql.contains("LAST_INSERT_ID(GREATEST"))
}

/// An acquire that waits for its row, with its request.
struct Waiting {
    asking: JoinHandle<Result<Attempt>>,
    request: AcquireRequest,
    control: RequestControl,
}

/// Asks for a name whose row is locked from here on. It waits for a second: a busy machine may look later, and asks
/// again.
async fn wait_for_row(
    backend: &LeaseTableBackend,
    locking: &mut Observer,
    observer: &mut Observer,
    fixture: &Fixture,
) -> Waiting {
    for _ in 0..20 {
        lock_row(locking, fixture).await;
        let (request, control) = options("a", secs(60)).start();
        let asking = tokio::spawn({
            let (backend, request) = (backend.clone(), request.clone());
            async move { backend.acquire(&request).await }
        });
        let mut waits = false;
        until("asked", async || {
            waits = acquires(observer, fixture).await;
            waits || asking.is_finished()
        })
        .await;
        if waits {
            return Waiting {
                asking,
                request,
                control,
            };
        }
        let error = asking.await.unwrap().unwrap_err();
        assert!(error.is_not_executed() && error.is_retryable(), "{error:?}");
        locking.run("COMMIT").await;
        // The next one waits for the row again.
        grant(backend, "a", secs(60)).await.release().await;
    }
    panic!("it is never seen to wait");
}

#[testbed::test]
async fn an_abandoned_acquire_that_waits_for_its_row_takes_nothing() {
    let fixture = Fixture::shared().await;
    let (backend, mut locking, mut observer) = (backend(&fixture), fixture.observer().await, fixture.observer().await);
    grant(&backend, "a", secs(60)).await.release().await;
    for _ in 0..5 {
        let Waiting {
            asking,
            request,
            control,
        } = wait_for_row(&backend, &mut locking, &mut observer, &fixture).await;
        // A short response timeout would end it as well, and on a busy machine also the requests that must be answered.
        asking.abort();
        drop(asking.await);
        control.give_up();
        // Its own statement waits for the row as well.
        let abandoning = tokio::spawn({
            let (backend, request) = (backend.clone(), request.clone());
            async move { while backend.abandon(&request).await.is_err() {} }
        });
        until("ended", async || !acquires(&mut observer, &fixture).await).await;
        locking.run("COMMIT").await;
        soon("abandoned", abandoning).await.unwrap();
        assert!(!is_held(&mut observer, &fixture, "a").await);
        grant(&backend, "a", secs(60)).await.release().await;
    }
}

/// After a repetition over another connection was granted, the first one is still under way: the release ends it.
#[testbed::test]
async fn a_release_ends_an_earlier_acquire_that_was_not_answered() {
    let fixture = Fixture::shared().await;
    let (backend, mut observer) = (backend(&fixture), fixture.observer().await);
    grant(&backend, "a", secs(60)).await.release().await;
    for _ in 0..5 {
        let mut locking = fixture.observer().await;
        let Waiting {
            asking,
            request,
            control: _control,
        } = wait_for_row(&backend, &mut locking, &mut observer, &fixture).await;
        // Dropped half-way, as when another runtime takes over.
        asking.abort();
        drop(asking.await);
        locking.run("COMMIT").await;
        let granted = match backend.acquire(&request).await.unwrap() {
            Attempt::Granted(hold, _) => hold,
            busy => panic!("{busy:?}"),
        };
        assert_eq!(
            granted.release(ReleaseOptions::default()).await.unwrap(),
            ReleaseOutcome::Released
        );
        assert!(!is_held(&mut observer, &fixture, "a").await);
        grant(&backend, "a", secs(60)).await.release().await;
    }
}

/// Its task lives on where nobody drives the runtime, and would take requests that are never sent.
#[testbed::test]
fn a_connection_that_was_ended_gets_no_further_request() {
    let (main, idle) = (
        Runtime::new().unwrap(),
        Builder::new_current_thread().enable_all().build().unwrap(),
    );
    let (fixture, mut locking, mut observer) = main.block_on(async {
        let fixture = Fixture::shared().await;
        let observers = (fixture.observer().await, fixture.observer().await);
        (fixture, observers.0, observers.1)
    });
    let backend = backend(&fixture);
    idle.block_on(async { grant(&backend, "a", secs(60)).await.release().await });
    let mut waiting = None;
    // It waits for a second: a busy machine may look later, and asks again.
    for _ in 0..20 {
        main.block_on(lock_row(&mut locking, &fixture));
        let (request, control) = options("a", secs(60)).start();
        let mut asking = Box::pin(backend.acquire(&request));
        let answer = idle.block_on(async {
            tokio::select! {
                answer = &mut asking => Some(answer),
                () = until("asked", async || acquires(&mut observer, &fixture).await) => None,
            }
        });
        drop(asking);
        let Some(answer) = answer else {
            waiting = Some((request, control));
            break;
        };
        let error = answer.unwrap_err();
        assert!(error.is_not_executed() && error.is_retryable(), "{error:?}");
        main.block_on(locking.run("COMMIT"));
        // The next one waits for the row again.
        idle.block_on(async { grant(&backend, "a", secs(60)).await.release().await });
    }
    let (request, control) = waiting.expect("it is seen to wait");
    control.give_up();
    main.block_on(async {
        locking.run("COMMIT").await;
        // First by the connections that nobody drives.
        soon("abandoned", async { while backend.abandon(&request).await.is_err() {} }).await;
        grant(&backend, "a", secs(60)).await.release().await;
    });
}
