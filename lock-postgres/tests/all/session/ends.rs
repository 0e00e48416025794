//! What ends a hold, and who learns of it.

use lock_core::backend::{DistributedLock, LostCause};
use lock_core::{HoldState, LockName, Locker};

use super::locks;
use crate::lease::support::*;

/// Its timeout is a minute.
#[testbed::test]
async fn the_end_of_a_session_is_a_loss_at_once() {
    let fixture = Fixture::shared().await;
    let locker = Locker::from_backend(std::sync::Arc::new(fixture.sessions()));
    let guard = happens("an answer", locker.lock("a").ttl(secs(60)).acquire())
        .await
        .unwrap();
    let end = format!(
        "SELECT pg_terminate_backend(pid,20000) FROM pg_locks WHERE locktype='advisory' AND \
         ((classid::bigint<<32)|objid::bigint)={}",
        super::key(&fixture, "a")
    );
    assert_eq!(fixture.value(&end).await.as_deref(), Some("t"));
    let lost = happens("an answer", guard.lost()).await;
    assert_eq!(lost.cause(), LostCause::Disconnected);
    assert!(
        lost.error()
            .is_some_and(|error| error.to_string().contains("PostgreSQL")),
        "{lost}"
    );
    let again = happens("an answer", locker.lock("a").ttl(secs(60)).acquire())
        .await
        .unwrap();
    happens("an answer", again.release()).await.unwrap();
}

#[testbed::test]
async fn the_end_of_a_client_frees_its_names_at_once() {
    let fixture = Fixture::shared().await;
    let backend = fixture.sessions();
    let held = grant(&backend, "a", secs(60)).await;
    assert_eq!(locks(&fixture, "a", true).await, 1);
    drop(held);
    drop(backend);
    eventually("freeing the name", async || locks(&fixture, "a", true).await == 0).await;
}

#[testbed::test]
async fn a_server_that_is_silent_makes_its_holds_suspect_before_they_are_lost() {
    let fixture = Fixture::own(testbed::Postgres::new()).await;
    let config = fixture.session_config().with_session_timeout(secs(6));
    // If the machine stands still, the hold is lost before anybody looks.
    in_some_run("the hold is not suspect before it is lost", async || {
        let backend = lock_postgres::SessionBackend::new(config.clone()).unwrap();
        // The lock of the run before may still be there.
        let (request, _control) = options("a", secs(60)).start();
        let _hold = granted(answer_in_time(&backend, &request).await).expect("it is granted");
        fixture.server.pause().unwrap();
        let was_suspect = eventually("suspicion", async || match request.lease().state() {
            HoldState::Suspect => Some(true),
            HoldState::Lost(_) => Some(false),
            _ => None,
        })
        .await;
        let lost = eventually("the loss", async || match request.lease().state() {
            HoldState::Lost(lost) => Some(lost),
            _ => None,
        })
        .await;
        fixture.server.resume().unwrap();
        assert!(!was_suspect || lost.error().is_some(), "{lost}");
        was_suspect
    })
    .await;
}

/// A dropped hold is renewed no more, and unlocked when its lease has ended, in a session that goes on.
#[testbed::test]
async fn a_hold_that_is_dropped_without_a_release_ends_with_its_lease() {
    let fixture = Fixture::shared().await;
    let backend = lock_postgres::SessionBackend::new(fixture.session_config().with_session_timeout(secs(2))).unwrap();
    // If the machine stands still, the session itself may end.
    in_some_run("the session ends with the lease", async || {
        let kept = grant_in_time(&backend, "kept", secs(60)).await;
        drop(grant_in_time(&backend, "a", secs(60)).await);
        let before = locks(&fixture, "a", true).await;
        eventually("freeing the name", async || locks(&fixture, "a", true).await == 0).await;
        let goes_on = locks(&fixture, "kept", true).await;
        kept.release().await;
        (before, goes_on) == (1, 1)
    })
    .await;
}

#[testbed::test]
async fn an_acquire_that_is_dropped_leaves_nothing_once_it_was_abandoned() {
    let fixture = Fixture::shared().await;
    let backend = fixture.sessions();
    let kept = grant(&backend, "kept", secs(60)).await;
    for polls in 1..6 {
        let (request, _control) = options("a", secs(60)).waits(false).start();
        {
            let mut acquiring = Box::pin(backend.acquire(&request));
            for _ in 0..polls {
                let polled =
                    std::future::poll_fn(|context| std::task::Poll::Ready(acquiring.as_mut().poll(context).is_ready()));
                if polled.await {
                    break;
                }
                tokio::task::yield_now().await;
            }
        }
        happens("an answer", backend.abandon(&request)).await.unwrap();
        assert_eq!(locks(&fixture, "a", true).await, 0, "after {polls} polls");
    }
    // The session that it was sent in carries something else, and goes on.
    assert_eq!(locks(&fixture, "kept", true).await, 1);
    kept.release().await;
}

#[testbed::test]
async fn a_session_that_falls_silent_is_ended_by_the_server() {
    let fixture = Fixture::shared().await;
    let name = LockName::new("a").unwrap();
    let backend = lock_postgres::SessionBackend::new(fixture.session_config().with_session_timeout(secs(2))).unwrap();
    let stuck = std::thread::spawn({
        let backend = backend.clone();
        move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            let (request, control) = options("a", secs(60)).waits(false).start();
            let granted = granted(runtime.block_on(answer_in_time(&backend, &request))).expect("the name is free");
            // From here on nobody drives it: no heartbeat is sent, and its sockets stay open.
            (runtime, granted, request, control)
        }
    });
    let (runtime, _hold, request, _control) = stuck.join().unwrap();
    let observer = fixture.sessions();
    happens("an answer", observer.connect()).await.unwrap();
    eventually("ending the session", async || {
        // In this order: the belief may end while the server answers.
        let is_free = !observer.status(&name).await.unwrap().is_held();
        let is_believed = !matches!(request.lease().state(), HoldState::Lost(_));
        assert!(!(is_free && is_believed), "free, and its holder counts on it");
        is_free
    })
    .await;
    runtime.shutdown_background();
}

/// Its lock cannot be taken from a session that carries the holds of others.
#[testbed::test]
async fn an_abandon_spares_the_other_holds_of_a_session_whose_runtime_is_not_driven() {
    let fixture = Fixture::shared().await;
    let backend = fixture.sessions();
    let (runtime, holds) = std::thread::spawn({
        let backend = backend.clone();
        move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            let holds = ["kept", "a"].map(|of| {
                let (request, control) = options(of, secs(60)).waits(false).start();
                let attempt = runtime.block_on(backend.acquire(&request)).unwrap();
                (granted(attempt).expect("the name is free"), request, control)
            });
            (runtime, holds)
        }
    })
    .join()
    .unwrap();
    let [_, abandoned] = &holds;
    let error = happens("an answer", backend.abandon(&abandoned.1)).await.unwrap_err();
    assert!(
        error.is_retryable() && error.to_string().contains("drive the runtime"),
        "{error}"
    );
    assert_eq!(locks(&fixture, "kept", true).await, 1);
    runtime.shutdown_background();
    eventually("the end of the session", async || {
        locks(&fixture, "kept", true).await == 0
    })
    .await;
    happens("an answer", backend.abandon(&abandoned.1)).await.unwrap();
}
