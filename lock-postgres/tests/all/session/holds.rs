//! What a hold is at the server.

use lock_core::ErrorKind;
use lock_core::backend::{DistributedLock, ReleaseOutcome};
use lock_postgres::{Checks, SessionBackend};
use testbed::Postgres;

use super::locks;
use crate::lease::support::*;

#[testbed::test]
async fn many_holds_share_one_connection() {
    let fixture = Fixture::shared().await;
    let backend = fixture.sessions();
    let mut held = Vec::new();
    for number in 0..50 {
        held.push(grant(&backend, &format!("name {number}"), secs(60)).await);
    }
    let mut processes = std::collections::BTreeSet::new();
    for number in 0..50 {
        let key = super::key(&fixture, &format!("name {number}"));
        let find = format!(
            "SELECT pid FROM pg_locks WHERE locktype='advisory' AND ((classid::bigint<<32)|objid::bigint)={key}"
        );
        processes.insert(fixture.number(&find).await);
    }
    assert_eq!(processes.len(), 1);
    for hold in held {
        assert_eq!(hold.release().await, ReleaseOutcome::Released);
    }
    assert_eq!(locks(&fixture, "name 7", true).await, 0);
}

#[testbed::test]
async fn a_name_is_excluded_within_a_process_too() {
    let fixture = Fixture::shared().await;
    let backend = fixture.sessions();
    let first = grant(&backend, "a", secs(60)).await;
    assert!(acquire(&backend, options("a", secs(60)).waits(false)).await.is_none());
    assert_eq!(locks(&fixture, "a", true).await, 1);
    let token = first.token();
    assert_eq!(first.release().await, ReleaseOutcome::Released);
    // A second release is one of nothing, whoever has the name by then.
    let second = grant(&backend, "a", secs(60)).await;
    assert_eq!(first.release().await, ReleaseOutcome::AlreadyLost);
    assert_eq!(locks(&fixture, "a", true).await, 1);
    assert!(second.token() > token);
}

#[testbed::test]
async fn clients_that_name_the_schema_and_those_that_do_not_exclude_each_other() {
    let fixture = Fixture::shared().await;
    let _held = grant(&fixture.sessions(), "a", secs(60)).await;
    let other = SessionBackend::new(fixture.session_config().with_schema("public")).unwrap();
    assert!(acquire(&other, options("a", secs(60)).waits(false)).await.is_none());
}

/// A lock of a session outlives the statement that took it.
#[testbed::test]
async fn an_acquire_that_fails_after_it_has_locked_leaves_nothing() {
    let fixture = Fixture::shared().await;
    let backend = fixture.sessions();
    grant(&backend, "b", secs(60)).await.release().await;
    let refuse = "CREATE FUNCTION {}_refuse() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RAISE ''no''; END';\
                  CREATE TRIGGER refuse BEFORE INSERT ON {}_tokens EXECUTE FUNCTION {}_refuse()";
    let observer = fixture.observer().await;
    observer
        .batch_execute(
            &refuse
                .replace("{}", &fixture.table)
                .replace("RAISE ''no''", "RAISE EXCEPTION ''no''"),
        )
        .await
        .unwrap();
    let (request, _control) = options("a", secs(60)).waits(false).start();
    let error = happens("an answer", backend.acquire(&request)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error}");
    assert!(error.is_not_executed(), "{error}");
    assert_eq!(locks(&fixture, "a", true).await, 0);
    let allow = format!("DROP TRIGGER refuse ON {}_tokens", fixture.table);
    observer.batch_execute(&allow).await.unwrap();
    grant(&backend, "a", secs(60)).await;
}

#[testbed::test]
async fn tables_that_are_dropped_are_made_anew() {
    let fixture = Fixture::shared().await;
    let backend = fixture.sessions();
    let first = grant(&backend, "a", secs(60)).await;
    let drop = format!("DROP TABLE {0}_tokens,{0}_readers", fixture.table);
    fixture.observer().await.batch_execute(&drop).await.unwrap();
    grant(&backend, "b", secs(60)).await;
    // The hold is the lock, whatever becomes of the tables.
    assert!(
        acquire(&fixture.sessions(), options("a", secs(60)).waits(false))
            .await
            .is_none()
    );
    let token = first.token();
    first.release().await;
    assert!(grant(&backend, "a", secs(60)).await.token() > token);
}

/// The commit of a token waits for nothing, unless a crash could bring the token back.
#[testbed::test]
async fn a_token_ahead_of_the_clock_survives_a_crash() {
    let fixture = Fixture::own(Postgres::new()).await;
    let backend = fixture.sessions();
    grant(&backend, "a", secs(60)).await.release().await;
    let day = 86_400_000_000_u64;
    let ahead = format!(
        "UPDATE {}_tokens SET last_token=last_token+{day} WHERE name='a'",
        fixture.table
    );
    fixture.observer().await.batch_execute(&ahead).await.unwrap();
    let token = grant(&backend, "a", secs(60)).await.token();
    fixture.server.kill().unwrap();
    fixture.server.restart().await.unwrap();
    let again = fixture.sessions();
    eventually("a grant", async || again.connect().await.is_ok()).await;
    assert!(grant(&again, "a", secs(60)).await.token() > token);
}

/// Of the connections of a process, only those that carry locks are checked.
#[testbed::test]
async fn a_setting_that_is_refused_keeps_nobody_from_a_status() {
    let fixture = Fixture::own(Postgres::new()).await;
    let backend = SessionBackend::new(fixture.session_config().with_checks(Checks::Refuse)).unwrap();
    let held = grant(&backend, "a", secs(60)).await;
    fixture.turn_off("full_page_writes").await;
    let end = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE application_name LIKE 'polylock%' \
               AND pid NOT IN (SELECT pid FROM pg_locks WHERE locktype='advisory')";
    assert!(fixture.number(end).await > 0);
    eventually("a status", async || {
        backend
            .status(&name("a"))
            .await
            .is_ok_and(|status| status.holders.len() == 1)
    })
    .await;
    assert_eq!(held.release().await, ReleaseOutcome::Released);
}

/// Their commits wait for nothing, and no check may take that for a setting of the server.
#[testbed::test]
async fn the_checks_of_the_server_do_not_see_what_a_session_sets() {
    let fixture = Fixture::shared().await;
    let backend = SessionBackend::new(fixture.session_config().with_checks(Checks::Refuse)).unwrap();
    grant(&backend, "a", secs(60)).await.release().await;
}
