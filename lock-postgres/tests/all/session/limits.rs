//! How much of the server one process may take.

use futures_util::future::join_all;
use lock_core::ErrorKind;
use lock_core::backend::{Attempt, DistributedLock};
use lock_postgres::SessionBackend;
use lock_postgres::tokio_postgres::{self, NoTls};
use testbed::stays_below;

use super::locks;
use super::log::{logged, that_logs};
use crate::lease::support::*;

#[testbed::test]
async fn no_more_names_than_allowed_are_asked_for() {
    let fixture = Fixture::shared().await;
    let backend = SessionBackend::new(fixture.session_config().with_max_holds(2)).unwrap();
    let (first, _second) = (
        grant(&backend, "a", secs(60)).await,
        grant(&backend, "b", secs(60)).await,
    );
    let (request, _control) = options("c", secs(60)).waits(false).start();
    let error = happens("an answer", backend.acquire(&request)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(
        error.is_not_executed() && error.to_string().contains("max_holds"),
        "{error}"
    );
    first.release().await;
    grant(&backend, "c", secs(60)).await;
}

#[testbed::test]
async fn no_more_names_than_allowed_are_waited_for() {
    let fixture = Fixture::shared().await;
    let (holder, backend) = (
        fixture.sessions(),
        SessionBackend::new(fixture.session_config().with_max_connections(2)).unwrap(),
    );
    let _held = (grant(&holder, "a", secs(60)).await, grant(&holder, "b", secs(60)).await);
    let (waits, _waiting) = options("a", secs(60)).start();
    let waiting = begin(&backend, &waits);
    eventually("waiting", async || locks(&fixture, "a", false).await == 1).await;
    let (other, _control) = options("b", secs(60)).start();
    let answer = happens("an answer", backend.acquire(&other)).await.unwrap();
    assert!(matches!(answer, Attempt::Busy(_)), "{answer:?}");
    // What is free can still be had.
    grant(&backend, "c", secs(60)).await;
    waiting.abort();
}

#[testbed::test]
async fn no_more_names_than_allowed_are_asked_for_at_once() {
    let fixture = Fixture::shared().await;
    let backend = SessionBackend::new(fixture.session_config().with_max_holds(2)).unwrap();
    let requests: Vec<_> = (0..20)
        .map(|number| options(&format!("name {number}"), secs(60)).waits(false).start())
        .collect();
    let asking: Vec<_> = requests.iter().map(|(request, _)| begin(&backend, request)).collect();
    let mut held = Vec::new();
    for asked in asking {
        match happens("an answer", asked).await.unwrap() {
            Ok(attempt) => held.push(granted(attempt).expect("the name is free")),
            Err(error) => assert!(
                error.is_not_executed() && error.to_string().contains("max_holds"),
                "{error}"
            ),
        }
    }
    assert!((1..=2).contains(&held.len()), "{} holds", held.len());
}

#[testbed::test]
async fn a_session_that_has_ended_takes_no_connection() {
    let fixture = Fixture::shared().await;
    let (holder, backend) = (
        fixture.sessions(),
        SessionBackend::new(fixture.session_config().with_max_connections(2)).unwrap(),
    );
    let mut lost = Vec::new();
    for of in ["a", "b"] {
        let held = grant(&holder, of, secs(60)).await;
        let (request, control) = options(of, secs(60)).start();
        let waiting = begin(&backend, &request);
        eventually("waiting", async || {
            locks(&fixture, of, false).await == 1 || waiting.is_finished()
        })
        .await;
        held.release().await;
        let granted = granted(happens("an answer", waiting).await.unwrap().unwrap()).expect("it waits for its turn");
        let end = format!(
            "SELECT pg_terminate_backend(pid,20000) FROM pg_locks WHERE locktype='advisory' AND \
             ((classid::bigint<<32)|objid::bigint)={}",
            super::key(&fixture, of)
        );
        assert_eq!(fixture.value(&end).await.as_deref(), Some("t"));
        eventually("the loss", async || {
            matches!(request.lease().state(), lock_core::HoldState::Lost(_))
        })
        .await;
        lost.push((granted, control));
    }
}

/// A server without room must not be dialled by each waiter again and again.
#[testbed::test]
async fn waiters_that_find_no_room_at_the_server_dial_one_at_a_time() {
    const WAITERS: usize = 12;
    let server = that_logs().setting("max_connections", "12");
    let fixture = Fixture::own(server).await;
    let (holder, backend) = (fixture.sessions(), fixture.sessions());
    let name = |number| format!("name {number}");
    let mut held = Vec::new();
    for number in 0..WAITERS {
        held.push(grant(&holder, &name(number), secs(60)).await);
    }
    grant(&backend, "own", secs(60)).await;
    let mut taken = Vec::new();
    while let Ok((client, connection)) = tokio_postgres::connect(&fixture.server.url(), NoTls).await {
        tokio::spawn(connection);
        taken.push(client);
    }
    stays_below(WAITERS as i64 / 2, "each waiter dials the server", async || {
        let refused = async || logged(&fixture, "too many [c]lients already").await;
        let before = refused().await;
        let requests: Vec<_> = (0..WAITERS)
            .map(|number| options(&name(number), secs(60)).start())
            .collect();
        let asked = join_all(requests.iter().map(|(request, _control)| backend.acquire(request)));
        for error in happens("all answers", asked).await {
            let error = error.unwrap_err();
            assert!(
                error.kind() == ErrorKind::Unavailable && error.is_not_executed(),
                "{error}"
            );
        }
        refused().await - before
    })
    .await;
    drop((taken, held));
}
