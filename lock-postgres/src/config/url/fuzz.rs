use std::error::Error as _;

use lock_core::ErrorKind;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use testbed_fuzz::assert_hidden;

use super::*;

const WORDS: &[&str] = &[
    "postgres://",
    "postgresql://",
    "postgres%3A%2F%2F",
    "sesame",
    "app",
    ":sesame",
    "@",
    "%40",
    "@h",
    "@h/d",
    "/",
    "/d",
    "?",
    "#",
    "&",
    "=",
    "%",
    "%2F",
    "%00",
    "%FF",
    "%C3%A9",
    "h",
    "h:5433",
    "[::1]",
    "[::1]:5433",
    "[",
    "]",
    ",",
    "strategy=",
    "session",
    "lease",
    "table=",
    "schema=",
    "connect_timeout=",
    "response_timeout=",
    "pooler=",
    "transaction",
    "none",
    "listen=",
    "retention=",
    "session_timeout=",
    "restart_delay=",
    "max_holds=",
    "max_connections=",
    "checks=",
    "refuse",
    "password_file=",
    "password_env=",
    "tls=true",
    "ca=",
    "cert=",
    "key=",
    "socket=",
    "5s",
    "500ms",
    "7d",
    "18446744073709551615s",
    "2",
    "\u{e9}",
    " ",
    "\t",
    "..",
    "%2E%2E",
    "65536",
    "+",
];

const SEEDS: &[&str] = &[
    "postgres://app:p%40sesame@a,[::1]:5433,b/shop?schema=s&table=t&connect_timeout=2s&checks=refuse",
    "postgres://app@h/d?pooler=transaction&listen=postgres%3A%2F%2Fapp%3Asesame%40h%2Fd&retention=7d",
    "postgresql://app:sesame@h/d?strategy=session&session_timeout=10s&restart_delay=30s&max_holds=1&max_connections=2",
    "postgres://app:sesame@h/d?socket=/run&response_timeout=500ms",
    "postgres://app@h/d?tls=true&ca=a&cert=b&key=c&password_file=/f",
    "postgres://app:sesame/12@h/d",
    "postgres://app:12?sesame@h/d",
    "postgres://h/d?listen=postgres://u:sesame@h/d",
    "postgres://[::1]5433/d",
    "postgres://u:%00@h/d",
    "postgres://h%00/d",
    "postgres://h/d?socket=%00",
    "postgres://h/d?socket=",
    "postgres://h/%FF",
    "postgres://a,,b/d",
    "postgres://h:+5/d",
    "postgres://h:/d",
    "sesame",
];

/// What is read of a URL can be written as a URL, and what cannot be read is an error that shows no password.
#[test]
fn urls() {
    testbed_fuzz::fuzz!(WORDS, SEEDS, |url| {
        let config = match PostgresConfig::from_url(url) {
            Ok(config) => config,
            Err(error) => {
                let mut shown = format!("{error} {error:?}");
                let mut source = error.source();
                while let Some(error) = source {
                    shown += &format!(" {error} {error:?}");
                    source = error.source();
                }
                assert_hidden(url, &shown);
                assert_eq!(error.kind(), ErrorKind::Misconfigured, "{url:?}: {error}");
                return;
            }
        };
        assert_hidden(url, &format!("{config:?} {config:#?} {}", config.server_and_database()));
        // Each listening server is a configuration of its own.
        let mut listening = Some(&config);
        while let Some(config) = listening {
            assert_same(config);
            listening = config.listen.as_deref();
        }
    });
}

/// Written as a URL, the servers and the login of a configuration are read again.
fn assert_same(config: &PostgresConfig) {
    let texts = [Some(&config.user), config.password(), Some(&config.database)];
    assert!(!texts.iter().flatten().any(|text| text.contains('\0')), "{config:?}");
    let hosts = config.hosts.iter().map(|host| match host {
        Host::Tcp(host, port) => {
            assert!(!host.is_empty() && !host.contains('\0'), "{config:?}");
            Some(format!("{}:{port}", encoded(host)))
        }
        Host::Socket(directory, _) => {
            let directory = directory.to_str().expect("it is from a text");
            assert!(!directory.is_empty() && !directory.contains('\0'), "{config:?}");
            None
        }
    });
    let Some(hosts) = hosts.collect::<Option<Vec<_>>>() else {
        return;
    };
    // For a URL, they are the folder itself and the one above it.
    if [".", ".."].contains(&config.database.as_str()) {
        return;
    }
    let [user, database] = [&config.user, &config.database].map(|text| encoded(text));
    let login = match config.password() {
        Some(password) => format!("{user}:{}", encoded(password)),
        None => user,
    };
    let written = format!("postgres://{login}@{}/{database}", hosts.join(","));
    let read = PostgresConfig::from_url(&written).expect("a URL");
    assert_eq!(
        (&read.hosts, &read.user, &read.database),
        (&config.hosts, &config.user, &config.database)
    );
    // A URL cannot tell an empty password from none.
    let password = |config: &PostgresConfig| config.password().filter(|text| !text.is_empty()).cloned();
    assert_eq!(password(&read), password(config), "{written:?}");
}

fn encoded(text: &str) -> String {
    utf8_percent_encode(text, NON_ALPHANUMERIC).to_string()
}

impl PostgresConfig {
    fn password(&self) -> Option<&String> {
        self.password.as_ref().map(|Secret(password)| password)
    }
}
