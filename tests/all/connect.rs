//! What cannot work shows when the application connects, before any server is asked.

use std::net::TcpListener;
use std::time::Duration;

use polylock::{Config, Error, ErrorKind};

/// Nobody listens there, and the time to find that out is long.
const URLS: [(&str, &str); 3] = [
    ("redis://127.0.0.1:1/?connect_timeout=1h", "at least 10ms"),
    ("mysql://127.0.0.1:1/app?connect_timeout=1h", "at least 1s"),
    (
        "zookeeper://127.0.0.1:1/?connect_timeout=1h&session_timeout=12s&acl=open",
        "at least 12s",
    ),
];

async fn misconfigured(config: Config) -> Error {
    let error = config.connect().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error}");
    error
}

#[tokio::test]
async fn a_default_ttl_that_the_backend_cannot_keep() {
    for (url, hint) in URLS {
        let mut config = Config::new(url);
        config.ttl = Some(Duration::from_millis(5));
        let error = misconfigured(config).await;
        assert!(error.to_string().contains(hint), "{error}");
    }
}

#[tokio::test]
async fn a_label_that_is_too_long() {
    for (url, _) in URLS {
        let mut config = Config::new(url);
        config.label = Some("x".repeat(256));
        let error = misconfigured(config).await;
        assert!(error.to_string().contains("shorten it"), "{error}");
    }
}

/// The error of `hold_at_least` names the backends that have it.
#[tokio::test]
async fn a_minimum_hold_where_there_is_none() {
    for (url, _) in URLS {
        let locks = Config::new(url).connect_lazy().unwrap();
        let is_named = url.starts_with("redis:") || url.starts_with("zookeeper:");
        assert_eq!(locks.capabilities().minimum_hold, is_named, "{url}");
        if !is_named {
            let lock = locks.lock("nightly report").hold_at_least(Duration::from_secs(60));
            let error = lock.try_acquire().await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unsupported);
            assert!(error.to_string().contains("use Redis"), "{error}");
        }
    }
}

/// How long connecting may take is another setting: it stays at an hour.
#[tokio::test]
async fn the_operation_timeout_of_a_server_that_never_answers() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("redis://{}/?connect_timeout=1h", silent.local_addr().unwrap());
    let mut config = Config::new(url);
    config.operation_timeout = Some(Duration::from_millis(50));
    let error = config.connect_lazy().unwrap().status("a").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.to_string().contains("50ms"), "{error}");
}
