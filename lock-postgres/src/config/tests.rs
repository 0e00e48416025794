use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use lock_core::{Credentials, ErrorKind};

use super::*;

#[test]
fn a_url_says_all_that_the_builder_says() {
    let url = "postgresql://us%40er:pa%2Fss@a,[::1]:7000,b:5433/shop?schema=s&table=t&connect_timeout=1s&response_timeout=2s&\
               pooler=transaction&listen=postgres%3A%2F%2Fdirect%2Fshop&retention=1h&checks=refuse&strategy=lease";
    let config = PostgresConfig::from_url(url).unwrap();
    let same = PostgresConfig::new("a", 5432)
        .with_host("::1", 7000)
        .with_host("b", 5433)
        .with_user("us@er")
        .with_password("pa/ss")
        .with_database("shop")
        .with_schema("s")
        .with_table("t")
        .with_connect_timeout(Duration::from_secs(1))
        .with_response_timeout(Duration::from_secs(2))
        .with_pooler(Pooler::Transaction)
        .with_listen(PostgresConfig::new("direct", 5432).with_database("shop"))
        .with_retention(Duration::from_secs(3600))
        .with_checks(Checks::Refuse);
    assert_eq!(format!("{config:?}"), format!("{same:?}"));
    assert_eq!(config.password, same.password);
    assert_eq!(config.address(), "a:5432,[::1]:7000,b:5433");
    let socket = PostgresConfig::from_url("postgres://localhost/shop?socket=/run/postgresql").unwrap();
    assert_eq!(socket.address(), "/run/postgresql/.s.PGSQL.5432");
}

/// Neither its own nor that of the server at which it listens.
#[test]
fn no_password_is_shown() {
    let config = PostgresConfig::from_url("postgres://app:se3ret@db/shop").unwrap();
    let listening = config
        .clone()
        .with_pooler(Pooler::Transaction)
        .with_listen(config.clone());
    let backend = crate::backend(listening.clone()).unwrap();
    for shown in [
        format!("{config:?} {config:#?}"),
        format!("{listening:?} {listening:#?}"),
        format!("{backend:?} {backend:#?}"),
    ] {
        assert!(!shown.contains("se3ret"), "{shown}");
    }
}

#[test]
fn a_url_of_sessions_says_all_that_the_builder_says() {
    let url = "postgres://db/shop?strategy=session&session_timeout=4s&restart_delay=1m&max_holds=7&max_connections=3&pooler=session";
    let config = PostgresConfig::from_url(url).unwrap();
    let same = PostgresConfig::new("db", 5432)
        .with_database("shop")
        .with_strategy(Strategy::Session)
        .with_session_timeout(Duration::from_secs(4))
        .with_restart_delay(Duration::from_secs(60))
        .with_max_holds(7)
        .with_max_connections(3)
        .with_pooler(Pooler::Session);
    assert_eq!(format!("{config:?}"), format!("{same:?}"));
    let default = PostgresConfig::from_url("postgres://db/shop?strategy=session&session_timeout=4s").unwrap();
    assert_eq!(default.sessions.restart_delay(), Duration::from_secs(4));
    assert_eq!(
        (config.strategy(), PostgresConfig::new("db", 5432).strategy()),
        (Strategy::Session, Strategy::Lease)
    );
}

/// A source may say another user than the configuration, and is asked for each login.
#[tokio::test]
async fn a_login_has_the_user_and_the_password_of_its_moment() {
    let limit = Duration::from_secs(5);
    let config = PostgresConfig::new("db", 5432).with_user("app").with_database("shop");
    let said = |user: &str, password: Option<&str>| (user.to_owned(), password.map(str::to_owned));
    assert_eq!(config.login(limit).await.unwrap(), said("app", None));
    let fixed = config.clone().with_password("first");
    assert_eq!(fixed.login(limit).await.unwrap(), said("app", Some("first")));
    let asked = Arc::new(AtomicU32::new(0));
    let source = CredentialSource::ask(move || {
        let number = asked.fetch_add(1, Ordering::Relaxed);
        async move {
            let credentials = Credentials::new(format!("password {number}"));
            Ok(match number {
                0 => credentials,
                _ => credentials.with_user("other"),
            })
        }
    });
    let changing = config.with_credentials(source);
    assert_eq!(changing.login(limit).await.unwrap(), said("app", Some("password 0")));
    assert_eq!(changing.login(limit).await.unwrap(), said("other", Some("password 1")));
}

#[test]
fn a_row_is_kept_for_a_week_by_default() {
    let week = PostgresConfig::from_url("postgres://db/shop?retention=7d").unwrap();
    assert_eq!(week.retention, PostgresConfig::new("db", 5432).retention);
}

/// Behind a pooler of transactions nobody can listen.
#[test]
fn waiters_listen_at_the_server_itself() {
    let direct = PostgresConfig::new("db", 5432).with_database("shop");
    let pooled = PostgresConfig::new("pooler", 6432)
        .with_database("shop")
        .with_pooler(Pooler::Transaction);
    let at = |config: &PostgresConfig| config.listens_at().map(PostgresConfig::address);
    assert_eq!(at(&direct).as_deref(), Some("db:5432"));
    assert_eq!(at(&pooled), None);
    let listening = pooled.clone().with_listen(direct);
    assert_eq!(at(&listening).as_deref(), Some("db:5432"));
    listening.check().unwrap();
    let error = listening.with_listen(pooled).check().unwrap_err();
    assert!(
        error.to_string().contains("without a pooler of transactions"),
        "{error}"
    );
}

/// A quorum sorts its nodes by it.
#[test]
fn clients_of_the_same_tables_have_the_same_address() {
    let config = PostgresConfig::new("DB", 5432).with_database("shop").with_table("t");
    assert_eq!(config.server_and_database(), "postgres db:5432/shop//t");
    assert_eq!(
        config.with_schema("s").server_and_database(),
        "postgres db:5432/shop/s/t"
    );
}

#[test]
fn a_limit_itself_is_allowed() {
    let url = "postgres://db/shop?strategy=session&restart_delay=24h&max_connections=2&max_holds=1";
    drop(PostgresConfig::from_url(url).unwrap());
}

#[test]
fn a_url_that_cannot_work_is_refused_without_showing_a_password() {
    for (url, said) in [
        ("mysql://app:se3ret@db/shop", "no PostgreSQL URL"),
        ("postgres://app:se3ret@db", "no database is named"),
        ("postgres://app:se3ret@/shop", "host is empty"),
        ("postgres://app:se3ret@db,/shop", "host is empty"),
        ("postgres://app:se3ret/x@db/shop", "not percent-encoded"),
        ("postgres://app:se3ret@db:port/shop", "a port in the URL"),
        ("postgres://app:se3ret@[::1]5432/shop", "a port in the URL"),
        ("postgres://app:se3ret@db/shop?socket=", "host is empty"),
        ("postgres://app:se3ret%00@db/shop", "must not contain a NUL"),
        ("postgres://app:se3ret@db%00/shop", "must not contain a NUL"),
        ("postgres://app:se3ret@db/shop?socket=%00", "must not contain a NUL"),
        ("postgres://app:se3ret@db/shop/x", "not percent-encoded"),
        ("postgres://app:se3ret@db/shop?tabel=x", "did you mean `table`"),
        (
            "postgres://app:se3ret@db/shop?table=a%22b",
            "table's name is not allowed",
        ),
        ("postgres://app:se3ret@db/shop?schema=", "schema's name is not allowed"),
        (
            "postgres://app:se3ret@db/shop?pooler=odd",
            "must be none, session or transaction",
        ),
        (
            "postgres://app:se3ret@db/shop?connect_timeout=0s",
            "connect_timeout must be",
        ),
        ("postgres://app:se3ret@db/shop?retention=1s", "retention must be"),
        ("postgres://app:se3ret@db/shop?password_env=X", "given in two ways"),
        ("postgres://app:se3ret@db/shop?ca=x", "add tls=true"),
        ("postgres://app:se3ret@a,b/shop?socket=/run", "one host"),
        (
            "postgres://app:se3ret@db/shop?session_timeout=5s",
            "need strategy=session",
        ),
        (
            "postgres://app:se3ret@db/shop?strategy=session&pooler=transaction",
            "use strategy=lease",
        ),
        (
            "postgres://app:se3ret@db/shop?strategy=session&listen=postgres%3A%2F%2Fdb%2Fshop",
            "strategy=lease alone",
        ),
        (
            "postgres://app:se3ret@db/shop?strategy=session&session_timeout=1ms",
            "session_timeout must be",
        ),
        (
            "postgres://app:se3ret@db/shop?strategy=session&restart_delay=86401s",
            "restart_delay must be from 0s to 24h",
        ),
        (
            "postgres://app:se3ret@db/shop?strategy=session&max_holds=0",
            "max_holds must be at least 1",
        ),
        (
            "postgres://app:se3ret@db/shop?strategy=session&max_holds=x",
            "max_holds in the URL",
        ),
        (
            "postgres://app:se3ret@db/shop?strategy=session&max_connections=1",
            "max_connections at least 2",
        ),
        (
            "postgres://app:se3ret@db/shop?listen=postgres%3A%2F%2Fdb",
            "no database is named",
        ),
    ] {
        let error = PostgresConfig::from_url(url).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Misconfigured, "{url}");
        let text = error.to_string();
        assert!(text.contains(said) && !text.contains("se3ret"), "{url}: {text}");
    }
}

#[tokio::test]
async fn a_nul_from_a_source_is_refused() {
    let source = CredentialSource::ask(async || Ok(Credentials::new("se3ret\0")));
    let config = PostgresConfig::new("db", 5432)
        .with_database("shop")
        .with_credentials(source);
    let error = config.login(Duration::from_secs(1)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Misconfigured);
    let shown = format!("{error} {error:?}");
    assert!(shown.contains("a NUL") && !shown.contains("se3ret"), "{shown}");
}
