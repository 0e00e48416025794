use std::error::Error as _;

use testbed_fuzz::{assert_hidden, fuzz};

use super::*;
use crate::Config;

const WORDS: &[&str] = &[
    "redis://",
    "rediss://",
    "redis+cluster://",
    "redis+sentinel://",
    "redis+unix:///",
    "valkey://",
    "mysql://",
    "mariadb://",
    "postgres://",
    "postgresql://",
    "zookeeper://",
    "zookeeper+tls://",
    "quorum:",
    "quorum:?",
    "memory:",
    "sesame",
    "app",
    ":sesame",
    "@",
    "@h",
    "|",
    "/",
    "?",
    "#",
    "&",
    "=",
    "%",
    "%40",
    "%2F",
    "%7C",
    "h",
    "h:6379",
    "[::1]",
    ",",
    "prefix=",
    "connect_timeout=",
    "response_timeout=",
    "session_timeout=",
    "5s",
    "500ms",
    "1",
    "18446744073709551615s",
    "checks=",
    "warn",
    "grace=",
    "replicas=",
    "restart_delay=",
    "password_file=",
    "password_env=",
    "sentinel_user=",
    "sentinel_password=",
    "sentinel_password_file=",
    "previous_password=",
    "pass=",
    "user=",
    "db=",
    "tls=",
    "true",
    "ca=",
    "cert=",
    "key=",
    "ssl-mode=",
    "ssl-ca=",
    "socket=",
    "strategy=",
    "lease",
    "row",
    "table=",
    "retention=",
    "max_connections=",
    "auth=",
    "sasl",
    "acl=",
    "open",
    "sessions=",
    "session",
    "pooler=",
    "transaction",
    "listen=",
    "postgres%3A%2F%2F",
    "schema=",
    "max_holds=",
    "heartbeat=",
    "write",
    "require=",
    "trusting=",
    "fifo",
    "ttl:1s",
    "permits:",
    "patience=",
    "\u{e9}",
    " ",
    "\t",
    "jdbc:",
    "://",
    "master",
    "/0",
    "/d",
    "..",
    "-",
];

/// Whatever the text is, reading it as a URL does not panic, and nothing that is made of it shows a password.
#[test]
fn urls() {
    let seeds = &[
        "redis://app:p%40sesame@cache:6380/2?prefix=shop&connect_timeout=2s&grace=40ms&replicas=2&restart_delay=90s",
        "redis+sentinel://app:sesame@s1,s2:26380,[::1]/mymaster/2?sentinel_user=watch&sentinel_password=sesame",
        "redis+cluster://app:sesame@a:1,b:2",
        "redis+unix:///run/redis.sock?db=3&user=u&pass=sesame",
        "rediss://:sesame@h?tls=true&ca=c.pem",
        "mysql://app:sesame@[::1]:3307/shop?strategy=lease&table=t&ssl-mode=REQUIRED&socket=/s",
        "mariadb://h/d?max_connections=3&retention=7d&checks=off",
        "zookeeper://app:sesame@a:2181,b/locks?session_timeout=10s&previous_password=sesame&acl=open&sessions=2&heartbeat=write",
        "postgres://app:p%40sesame@a,[::1]:5433/shop?schema=s&table=t&pooler=transaction&listen=postgres%3A%2F%2Fapp%3Asesame%40h%2Fd",
        "postgresql://app:sesame@h/d?strategy=session&session_timeout=10s&restart_delay=30s&max_holds=1&max_connections=2&socket=/s",
        "quorum:?patience=300ms&restart_delay=60s&require=fifo|redis://:sesame@a|mysql://u:sesame@b/d|zookeeper://c",
        "memory:a?require=fifo,ttl:1s",
        "redis://app:12?sesame@h:6379",
        "redis://app:12/sesame@h",
        "redis://app:12#sesame@h",
        "mysql://app:sesame:@h/",
        "postgres://app:12/sesame@h/d",
        "postgres://h/d?pooler=transaction&listen=postgres%3A%2F%2Fapp:sesame/x%40h",
        "zookeeper://app:se@sesame@h",
        "redis://app:sesame@h?connect_timeout=18446744073709551615s",
        "sesame",
        "redis://u:p?require=Sesame@h",
        "redis+unix:///s|redis://:sesame@h",
        "redis://h?require=fifo#x?require=X",
        "redis://u:p?require=sesame#@h",
    ];
    fuzz!(WORDS, seeds, |url| {
        let config = Config::new(url);
        let shown = format!("{config:?} {config:#?}");
        assert_hidden(url, &shown);
        for quorum in [Config::of_quorum([url]), Config::of_quorum(url.split('|'))] {
            assert_hidden(url, &format!("{quorum:?} {}", outcome(quorum.connect_lazy())));
        }
        assert_hidden(url, &outcome(config.connect_lazy()));
        assert_hidden(url, &outcome(connect_lazy(url)));
        backends(url);
        if let Ok((rest, requirements)) = Requirements::split(url) {
            // They are taken out once and for all, if a URL still begins with its scheme.
            let again = Requirements::split(&rest).expect("what is left is a URL as well");
            assert_eq!(again, (rest, Requirements::default()), "{url:?} {requirements:?}");
        }
    });
}

/// What each backend makes of a URL.
fn backends(url: &str) {
    let outcomes: &[String] = &[
        #[cfg(feature = "redis")]
        outcome(crate::redis::RedisConfig::from_url(url)),
        #[cfg(feature = "mysql")]
        outcome(crate::mysql::MySqlConfig::from_url(url)),
        #[cfg(feature = "postgres")]
        outcome(crate::postgres::PostgresConfig::from_url(url)),
        #[cfg(feature = "zookeeper")]
        outcome(crate::zookeeper::ZooKeeperConfig::from_url(url)),
        #[cfg(feature = "quorum")]
        outcome(QuorumConfig::from_url(url).map(|(config, _urls)| config)),
    ];
    for outcome in outcomes {
        assert_hidden(url, outcome);
    }
}

/// All that a program may log of it.
fn outcome<T: std::fmt::Debug>(made: Result<T>) -> String {
    let error = match made {
        Ok(made) => return format!("{made:?}"),
        Err(error) => error,
    };
    let mut shown = format!("{error} {error:?}");
    let mut source = error.source();
    while let Some(error) = source {
        shown += &format!(" {error} {error:?}");
        source = error.source();
    }
    shown
}
