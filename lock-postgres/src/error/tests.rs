use tokio::io::{AsyncWriteExt, duplex};
use tokio_postgres::config::SslMode;
use tokio_postgres::{Config, NoTls};

use super::*;
use crate::connection::scripted::message;

/// The driver's error for a client that gets this answer to its login. The server then hangs up.
async fn answered(config: &Config, answer: &[u8]) -> tokio_postgres::Error {
    let (client, mut server) = duplex(1024);
    server.write_all(answer).await.unwrap();
    server.shutdown().await.unwrap();
    let connected = config.connect_raw(client, NoTls).await;
    connected.err().expect("the answer lets nobody in")
}

/// The driver's error for one of the server's.
pub(crate) async fn said(severity: &str, code: &str) -> tokio_postgres::Error {
    let fields = format!("S{severity}\0V{severity}\0C{code}\0Mwords\0\0");
    answered(Config::new().user("u"), &message(b'E', fields.as_bytes())).await
}

/// The driver's error for one of PgBouncer's own, which have no field `V`.
pub(crate) async fn from_pgbouncer(words: &str) -> tokio_postgres::Error {
    let fields = format!("SFATAL\0C08P01\0M{words}\0\0");
    answered(Config::new().user("u"), &message(b'E', fields.as_bytes())).await
}

/// The driver's error for one of the server's with these fields, each with a zero behind it.
pub(crate) fn answered_with(fields: &[u8]) -> tokio_postgres::Error {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let answer = message(b'E', &[fields, &[0]].concat());
    runtime.block_on(answered(Config::new().user("u"), &answer))
}

/// The same where the server hangs up in the middle of a message.
pub(crate) async fn broken() -> tokio_postgres::Error {
    answered(Config::new().user("u"), b"?").await
}

#[test]
fn only_a_refusal_and_an_unsent_request_were_certainly_not_executed() {
    for unsent in [SqlError::NotConnected, SqlError::NotSent(Duration::from_secs(1))] {
        let error = unsent.into_lock_error();
        assert!(error.is_not_executed() && error.is_retryable(), "{error}");
    }
    for unknown in [
        SqlError::Disconnected(None),
        SqlError::TimedOut(Duration::from_secs(1)),
        SqlError::RuntimeNotDriven,
    ] {
        let error = unknown.into_lock_error();
        assert!(!error.is_not_executed() && error.is_retryable(), "{error}");
    }
}

#[tokio::test]
async fn every_code_says_what_to_do() {
    for (code, kind) in [
        ("28P01", ErrorKind::Denied),
        ("42501", ErrorKind::Denied),
        ("3D000", ErrorKind::Misconfigured),
        ("08P01", ErrorKind::Misconfigured),
        ("57P01", ErrorKind::Unavailable),
        ("53100", ErrorKind::Unavailable),
        ("XX000", ErrorKind::Unexpected),
    ] {
        let refused = said("ERROR", code).await;
        assert_eq!(meaning_of(refused.as_db_error().unwrap()).0, kind, "{code}");
    }
    for (code, words) in [
        ("28P01", "check user and password"),
        ("42501", "lacks a permission"),
        ("3D000", "database does not exist"),
        ("3F000", "schema does not exist"),
        ("42P01", "tables are missing"),
        ("42703", "other columns"),
        ("23514", "a trigger or a constraint"),
        ("22003", "used up"),
        ("26000", "pooler=transaction"),
        ("53300", "max_connections"),
        ("25006", "connect to the primary"),
        ("55P03", "end the transaction"),
        ("57014", "end the transaction"),
        ("40P01", "being changed elsewhere"),
        ("40001", "being changed elsewhere"),
        ("57P03", "starts, or shuts down"),
        ("57P01", "ended the connection"),
        ("53200", "max_locks_per_transaction"),
        ("53100", "disk is full: make room"),
        ("58030", "see its log"),
        ("08006", "broke"),
        ("25P02", "with error 25P02"),
        ("XX000", "with error XX000"),
    ] {
        let refused = said("ERROR", code).await;
        let message = meaning_of(refused.as_db_error().unwrap()).1;
        assert!(message.contains(words), "{code}: {message}");
    }
}

#[tokio::test]
async fn the_server_refuses_a_statement_unless_it_ends_the_connection() {
    for (severity, is_refusal) in [("ERROR", true), ("FATAL", false), ("PANIC", false)] {
        let error = SqlError::from(said(severity, "53100").await);
        let says = (error.is_refusal(), error.is_not_executed(), error.is_disconnect());
        assert_eq!(says, (is_refusal, is_refusal, !is_refusal), "{severity}");
        assert_eq!(error.to_string(), "words (53100)");
        let error = error.into_lock_error();
        assert_eq!(error.is_not_executed(), is_refusal, "{severity}");
        assert!(error.to_string().contains("disk is full"), "{error}");
    }
    let broken = SqlError::from(broken().await);
    assert!(broken.is_disconnect() && !broken.is_not_executed() && broken.code().is_none());
    assert!(
        broken.to_string().starts_with("error communicating with the server: "),
        "{broken}"
    );
    assert!(broken.into_lock_error().to_string().contains("broke"));
}

/// As after a restart of PostgreSQL behind it.
#[tokio::test]
async fn a_pgbouncer_that_ends_a_connection_is_an_outage() {
    for words in [
        "server conn crashed?",
        "query_wait_timeout",
        "no more connections allowed",
    ] {
        let error = SqlError::from(from_pgbouncer(words).await);
        assert!(error.is_disconnect() && !error.is_unprepared(), "{error}");
        let error = error.into_lock_error();
        assert!(
            error.kind() == ErrorKind::Unavailable && !error.is_not_executed(),
            "{error:?}"
        );
        let error = connect_error(from_pgbouncer(words).await, "db:5432");
        assert!(
            error.kind() == ErrorKind::Unavailable && error.is_not_executed(),
            "{error:?}"
        );
    }
}

#[tokio::test]
async fn a_pgbouncer_that_refuses_by_its_settings_says_what_to_do() {
    for (words, kind, advice) in [
        ("login rejected", ErrorKind::Denied, "check user and password"),
        ("SSL required", ErrorKind::Misconfigured, "set tls=true"),
        ("bouncer config error", ErrorKind::Misconfigured, "see the pooler's log"),
        ("PQexec disallowed", ErrorKind::Misconfigured, "set disable_pqexec=0"),
    ] {
        let error = connect_error(from_pgbouncer(words).await, "db:6432");
        assert!(error.kind() == kind && !error.is_retryable(), "{words}: {error:?}");
        assert!(error.to_string().contains(advice), "{words}: {error}");
    }
}

#[tokio::test]
async fn an_end_of_the_connection_is_no_refusal() {
    let closed = SqlError::from(answered(Config::new().user("u"), b"").await);
    assert!(matches!(closed, SqlError::Disconnected(None)), "{closed:?}");
    let because = SqlError::Disconnected(Some(Arc::new(said("FATAL", "57P01").await)));
    assert_eq!(because.to_string(), "the connection has ended: words (57P01)");
    for (error, is_disconnect) in [
        (SqlError::NotConnected, true),
        (closed, true),
        (because, true),
        (SqlError::TimedOut(Duration::from_secs(1)), false),
        (SqlError::NotSent(Duration::from_secs(1)), false),
        (SqlError::RuntimeNotDriven, false),
        (SqlError::UnexpectedAnswer("row"), false),
    ] {
        assert!(!error.is_refusal(), "{error}");
        assert_eq!(error.is_disconnect(), is_disconnect, "{error}");
    }
}

#[tokio::test]
async fn a_code_says_what_may_be_done() {
    type Says = fn(&SqlError) -> bool;
    let all: [(Says, &[&str]); 7] = [
        (SqlError::is_missing_table, &["42P01"]),
        (SqlError::is_hidden, &["42501", "42883", "0A000"]),
        (SqlError::is_denied, &["42501"]),
        (SqlError::is_locked, &["55P03", "57014"]),
        (SqlError::is_transient, &["40001", "40P01", "23505"]),
        (SqlError::is_unprepared, &["26000", "42P05", "08P01"]),
        (SqlError::is_read_only, &["25006"]),
    ];
    let codes = all.iter().flat_map(|(_, codes)| *codes);
    for code in codes.chain(&["XX000", "28P01"]) {
        let error = SqlError::from(said("ERROR", code).await);
        for (number, (says, of)) in all.iter().enumerate() {
            assert_eq!(says(&error), of.contains(code), "{code}, {number}");
        }
    }
    assert!(all.iter().all(|(says, _)| !says(&SqlError::NotConnected)));
}

#[tokio::test]
async fn nothing_is_in_a_table_that_is_missing() {
    let missing = SqlError::from(said("ERROR", "42P01").await);
    assert_eq!(unless_missing::<u8>(Err(missing)).unwrap(), 0);
    assert_eq!(unless_missing(Ok(7)).unwrap(), 7);
    let denied = SqlError::from(said("ERROR", "42501").await);
    assert_eq!(unless_missing::<u8>(Err(denied)).unwrap_err().kind(), ErrorKind::Denied);
}

#[tokio::test]
async fn a_login_that_fails_says_why() {
    let (mut plain, mut tls) = (Config::new(), Config::new());
    plain.user("u");
    tls.user("u").ssl_mode(SslMode::Require);
    let wants = |how: u8| message(b'R', &[0, 0, 0, how]);
    let (password, kerberos) = (wants(3), wants(2));
    let (early, odd) = (message(b'Z', b"I"), message(b'E', b"Swords\0\0"));
    for (config, answer, kind, said, is_foreign) in [
        (&tls, &b"N"[..], ErrorKind::Misconfigured, "set ssl=on", false),
        (&plain, &password, ErrorKind::Denied, "give a password", false),
        (&plain, &kerberos, ErrorKind::Denied, "give a password", false),
        (&plain, &early, ErrorKind::Misconfigured, "check host and port", true),
        (&plain, &odd, ErrorKind::Misconfigured, "check host and port", true),
        (&plain, b"?", ErrorKind::Unavailable, "cannot be reached", true),
        (&plain, b"", ErrorKind::Unavailable, "cannot be reached", true),
    ] {
        let error = answered(config, answer).await;
        assert_eq!(may_be_foreign(&error), is_foreign, "{error}");
        let error = connect_error(error, "db:5432");
        assert!(error.kind() == kind && error.is_not_executed(), "{error:?}");
        assert!(
            error.to_string().contains(said) && error.to_string().contains("db:5432"),
            "{error}"
        );
    }
    let refused = said("FATAL", "28P01").await;
    assert!(!may_be_foreign(&refused));
    let refused = connect_error(refused, "db:5432");
    assert!(
        refused.kind() == ErrorKind::Denied && refused.is_not_executed(),
        "{refused:?}"
    );
}
