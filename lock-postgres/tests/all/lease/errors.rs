//! What cannot work is told at once, with what to do.

use std::time::Duration;

use lock_core::backend::{DistributedLock, ReleaseOutcome, Renewal};
use lock_core::{Error, ErrorKind, Guarantee};
use lock_postgres::{Checks, LeaseTableBackend, Pooler, PostgresConfig};
use testbed::{PgBouncer, Postgres};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::support::*;

async fn refused(config: PostgresConfig) -> Error {
    let backend = LeaseTableBackend::new(config).unwrap();
    let error = happens("an answer to the connect", backend.connect())
        .await
        .unwrap_err();
    assert!(error.is_not_executed() || error.kind() == ErrorKind::Denied, "{error}");
    assert!(!format!("{error:?}").contains("se3ret"), "{error:?}");
    error
}

fn assert_says(error: &Error, kind: ErrorKind, said: &str) {
    assert_eq!(error.kind(), kind, "{error:?}");
    assert!(error.to_string().contains(said), "{error}");
}

#[testbed::test]
async fn a_wrong_login_and_a_missing_database() {
    let fixture = Fixture::shared().await;
    let error = refused(fixture.config().with_password("se3ret")).await;
    assert_says(&error, ErrorKind::Denied, "check user and password");
    let error = refused(fixture.config().with_database("nowhere")).await;
    assert_says(&error, ErrorKind::Misconfigured, "the database does not exist");
    let error = refused(fixture.config().with_schema("nowhere")).await;
    assert_says(&error, ErrorKind::Misconfigured, "the schema does not exist");
}

#[testbed::test]
async fn tables_that_are_missing_and_may_not_be_made() {
    let fixture = Fixture::shared().await;
    let (user, schema) = (format!("{}_u", fixture.table), format!("{}_s", fixture.table));
    let observer = fixture.observer().await;
    let sql = format!(
        "CREATE ROLE \"{user}\" LOGIN PASSWORD 'app';CREATE SCHEMA \"{schema}\";GRANT USAGE ON SCHEMA \"{schema}\" TO \"{user}\""
    );
    observer.batch_execute(&sql).await.unwrap();
    let config = fixture
        .config()
        .with_schema(&schema)
        .with_user(&user)
        .with_password("app");
    let error = refused(config.clone()).await;
    assert_says(&error, ErrorKind::Denied, "CREATE TABLE IF NOT EXISTS");
    // With these tables and the least permissions it works.
    let tables = lock_postgres::schema::lease_table(Some(&schema), &fixture.table).unwrap();
    observer.batch_execute(&tables).await.unwrap();
    let error = refused(config.clone()).await;
    assert_says(&error, ErrorKind::Denied, "lacks a permission");
    let table = |ending: &str| format!("\"{schema}\".\"{}_{ending}\"", fixture.table);
    let grant = format!(
        "GRANT SELECT,INSERT,UPDATE ON {} TO \"{user}\";GRANT SELECT,INSERT,UPDATE,DELETE ON {},{} TO \"{user}\"",
        table("leases"),
        table("holders"),
        table("waiters")
    );
    observer.batch_execute(&grant).await.unwrap();
    let backend = LeaseTableBackend::new(config).unwrap();
    backend.connect().await.unwrap();
    super::support::grant(&backend, "a", secs(60)).await.release().await;
    let denied = backend.clean_up().await.unwrap_err();
    assert_says(&denied, ErrorKind::Denied, "grant it DELETE");
}

#[testbed::test]
async fn a_server_that_forgets_in_a_crash_is_refused_where_that_is_asked() {
    let fixture = Fixture::own(Postgres::new().setting("fsync", "off")).await;
    let error = refused(fixture.config().with_checks(Checks::Refuse)).await;
    assert_says(&error, ErrorKind::Misconfigured, "with fsync=off");
    let backend = fixture.backend();
    backend.connect().await.unwrap();
    assert!(!backend.keeps(Guarantee::ServerCrash).is_yes());
}

/// Each request for a row that stays locked would occupy a connection of the pool.
#[testbed::test]
async fn a_pooler_of_transactions_without_a_limit_for_waits_is_refused() {
    let server = Postgres::new().setting("lock_timeout", "0");
    let fixture = Fixture::own(server).await;
    let pool = PgBouncer::of(fixture.server.port()).start().await.unwrap();
    let pooled = || {
        let config = PostgresConfig::from_url(&pool.url()).unwrap();
        let config = config.with_connect_timeout(PATIENCE).with_response_timeout(PATIENCE);
        config.with_table(&fixture.table).with_pooler(Pooler::Transaction)
    };
    let error = refused(pooled()).await;
    assert_says(&error, ErrorKind::Misconfigured, "SET lock_timeout='1s'");
    let limit = "ALTER ROLE CURRENT_USER SET lock_timeout='1s'";
    fixture.observer().await.batch_execute(limit).await.unwrap();
    // It counts for sessions that begin after that.
    let end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid<>pg_backend_pid() AND backend_type='client backend'";
    fixture.observer().await.batch_execute(end).await.unwrap();
    let backend = LeaseTableBackend::new(pooled()).unwrap();
    eventually("connected", async || backend.connect().await.is_ok()).await;
    grant(&backend, "a", secs(60)).await.release().await;
}

/// A crash would empty it, and the names that it has would be free.
#[testbed::test]
async fn a_table_that_a_crash_empties_is_refused_where_that_is_asked() {
    let fixture = Fixture::shared().await;
    let set = async |what: &str| {
        let change = format!("ALTER TABLE {}_leases SET {what}", fixture.table);
        fixture.observer().await.batch_execute(&change).await.unwrap();
    };
    set("UNLOGGED").await;
    let config = fixture.config().with_checks(Checks::Refuse);
    let said = format!("SET LOGGED for {}_leases", fixture.table);
    for config in [config.clone(), config.clone().with_schema("public")] {
        let error = refused(config).await;
        assert_says(&error, ErrorKind::Misconfigured, &said);
    }
    let backend = fixture.backend();
    backend.connect().await.unwrap();
    for guarantee in [Guarantee::ServerCrash, Guarantee::Failover] {
        let verdict = backend.keeps(guarantee).to_string();
        assert!(verdict.contains(&said), "{verdict}");
    }
    set("LOGGED").await;
    backend.connect().await.unwrap();
    assert!(backend.keeps(Guarantee::ServerCrash).is_yes());
    LeaseTableBackend::new(config).unwrap().connect().await.unwrap();
}

/// The connections break after an administrator has changed it.
#[testbed::test]
async fn a_setting_that_is_refused_ends_no_hold_and_keeps_none_from_its_release() {
    let fixture = Fixture::own(Postgres::new()).await;
    let careful = LeaseTableBackend::new(fixture.config().with_checks(Checks::Refuse)).unwrap();
    let held = grant(&careful, "a", secs(600)).await;
    fixture.turn_off("full_page_writes").await;
    let end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name='polylock'";
    fixture.observer().await.batch_execute(end).await.unwrap();
    eventually("a renewal", async || {
        matches!(held.hold.renew(secs(600)).await, Ok(Renewal::Renewed(_)))
    })
    .await;
    let (request, _control) = options("b", secs(600)).waits(false).start();
    let error = careful.acquire(&request).await.unwrap_err();
    assert_says(&error, ErrorKind::Misconfigured, "with full_page_writes=off");
    happens("the undo", careful.abandon(&request)).await.unwrap();
    assert_eq!(held.release().await, ReleaseOutcome::Released);
    careful.clean_up().await.unwrap();
}

#[testbed::test]
async fn another_kind_of_server_is_named() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let serve = async {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await;
            let _ = stream.read(&mut [0; 64]).await;
        }
    };
    let config = PostgresConfig::new("127.0.0.1", port).with_database("d");
    let error = tokio::select! {
        error = refused(config) => error,
        () = serve => unreachable!("it serves for ever"),
    };
    assert_says(&error, ErrorKind::Misconfigured, "an HTTP server answers there");
}

#[testbed::test]
async fn a_server_that_is_not_there_is_unavailable_and_the_next_host_is_tried() {
    let fixture = Fixture::shared().await;
    let nowhere = |config: PostgresConfig| config.with_connect_timeout(Duration::from_millis(500));
    let error = refused(nowhere(PostgresConfig::new("127.0.0.1", 1).with_database("d"))).await;
    assert_says(&error, ErrorKind::Unavailable, "cannot be reached");
    let url = fixture.server.url();
    let url = url.replacen("127.0.0.1:", "127.0.0.1:1,127.0.0.1:", 1);
    let config = PostgresConfig::from_url(&url)
        .unwrap()
        .with_connect_timeout(PATIENCE)
        .with_response_timeout(PATIENCE)
        .with_table(&fixture.table);
    let backend = LeaseTableBackend::new(config).unwrap();
    backend.connect().await.unwrap();
    grant(&backend, "a", secs(60)).await.release().await;
}
