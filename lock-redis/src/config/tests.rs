use lock_core::{Error, ErrorKind};

use super::*;

const MS: Duration = Duration::from_millis(1);

fn refused(url: &str) -> Error {
    match RedisConfig::from_url(url) {
        Ok(config) => panic!("{url} was taken as {config:?}"),
        Err(error) => error,
    }
}

#[test]
fn everything_in_a_url() {
    let config = RedisConfig::from_url(
        "redis://app:p%40ss%2Fw@cache:6380/2?prefix=shop%3A&connect_timeout=2s&response_timeout=250ms&grace=40ms\
         &replicas=2&restart_delay=90s",
    )
    .expect("a good URL");
    let settings = config.info.redis_settings();
    assert_eq!(config.info.addr(), &ConnectionAddr::Tcp("cache".into(), 6380));
    assert_eq!(
        (settings.username(), settings.password()),
        (Some("app"), Some("p@ss/w"))
    );
    assert_eq!((settings.db(), config.prefix()), (2, "shop:"));
    assert_eq!(config.connect_timeout(), Duration::from_secs(2));
    assert_eq!(config.response_timeout(), 250 * MS);
    assert_eq!(config.grace(), 40 * MS);
    assert_eq!(config.replicas(), 2);
    assert_eq!(config.restart_delay(), Some(Duration::from_secs(90)));
}

#[test]
fn defaults() {
    for url in ["redis://cache", "redis://cache:6379/", "valkey://cache/0"] {
        let config = RedisConfig::from_url(url).expect("a good URL");
        assert_eq!(
            format!("{config:?}"),
            format!("{:?}", RedisConfig::new("cache", 6379)),
            "{url}"
        );
        assert_eq!((config.prefix(), config.info.redis_settings().db()), ("polylock:", 0));
        assert_eq!(config.connect_timeout(), Duration::from_secs(5));
        assert_eq!(config.response_timeout(), Duration::from_secs(5));
        assert_eq!(config.grace(), 100 * MS);
        assert_eq!((config.replicas(), config.restart_delay()), (0, None));
    }
    let config = RedisConfig::from_url("redis://:pw@[::1]").expect("a good URL");
    assert_eq!(config.info.addr(), &ConnectionAddr::Tcp("::1".into(), 6379));
    assert_eq!(config.info.redis_settings().username(), None);
}

#[test]
fn unix_sockets() {
    for scheme in ["redis+unix", "unix", "valkey+unix"] {
        let url = format!("{scheme}:///run/user%401/redis.sock?db=3&user=u&pass=p&prefix=x");
        let config = RedisConfig::from_url(&url).expect("a good URL");
        let settings = config.info.redis_settings();
        assert_eq!(
            config.info.addr(),
            &ConnectionAddr::Unix("/run/user@1/redis.sock".into())
        );
        assert_eq!(
            (settings.db(), settings.username(), settings.password()),
            (3, Some("u"), Some("p"))
        );
        assert_eq!(config.prefix(), "x");
    }
}

#[test]
fn sentinels() {
    let config = RedisConfig::from_url(
        "redis+sentinel://app:p%40ss@s1,s2:26380,[::1]/mymaster/2?sentinel_user=watch&sentinel_password=se%2Fsame&prefix=x",
    )
    .expect("a good URL");
    let sentinels = config.sentinels().expect("it has Sentinels");
    let server = |host: &str, port| (host.to_owned(), port);
    assert_eq!(
        sentinels.servers,
        [server("s1", 26379), server("s2", 26380), server("::1", 26379)]
    );
    assert_eq!(sentinels.master, "mymaster");
    assert_eq!(
        (sentinels.user.as_deref(), sentinels.password.as_deref()),
        (Some("watch"), Some("se/same"))
    );
    let settings = config.info.redis_settings();
    assert_eq!((settings.username(), settings.password()), (Some("app"), Some("p@ss")));
    assert_eq!((settings.db(), config.prefix()), (2, "x"));
    let at_master = config.at_node(&server("10.0.0.1", 6379));
    assert_eq!(at_master.info.addr(), &ConnectionAddr::Tcp("10.0.0.1".into(), 6379));
    assert_eq!(at_master.info.redis_settings().password(), Some("p@ss"));
    let shown = format!("{config:?}");
    assert!(!shown.contains("sesame") && !shown.contains("p@ss"), "{shown}");
    RedisConfig::from_url("valkey+sentinel://s1/my-master.1_a").expect("a good URL");
}

#[test]
fn what_is_wrong_with_a_url_of_sentinels() {
    for (url, hint) in [
        ("redis+sentinel://s1,s2", "the name of the master is missing"),
        ("redis+sentinel://s1/", "the name of the master is missing"),
        ("redis+sentinel://s1/a%20b", "has other characters"),
        ("redis+sentinel://s1,/m", "a host of the list"),
        ("redis+sentinel://s1:port/m", "bad port"),
        ("redis+sentinel://s1/m/db", "names no Redis server"),
        ("redis+sentinel://s1/m?sentinel_user=a", "set sentinel_password"),
        (
            "redis+sentinel://s1/m?wait=5",
            "key, sentinel_user, sentinel_password, sentinel_password_file,",
        ),
        ("redis://s1/0?sentinel_password=a", "allowed are prefix"),
        ("redis://s1/0?sentinel_password_file=a", "allowed are prefix"),
        (
            "redis+sentinel://s1/m?sentinel_password=a&sentinel_password_env=A",
            "of the Sentinels is given in two ways",
        ),
        ("redis+unix+sentinel:///s1/m", "redis+sentinel://"),
    ] {
        let error = refused(url);
        assert_eq!(error.kind(), ErrorKind::Misconfigured, "{url}: {error}");
        assert!(error.to_string().contains(hint), "{url}: {error}");
    }
    for url in [
        "redis+sentinel://app:12/sesame@s1/m",
        "redis+sentinel://app:sesame@s1,s2:x/m",
        "redis+sentinel://s1/m?sentinel_password=sesame&sentinel_user=a&x=1",
        "redis+sentinel://s1/m?sentinel_password=12#sesame",
    ] {
        let shown = shown(&refused(url));
        assert!(!shown.contains("sesame"), "{url}: {shown}");
    }
}

#[test]
fn what_is_wrong_with_a_url() {
    let cases = [
        ("mysql://h", "redis://"),
        ("h:6379", "redis://"),
        ("redis://", "names no Redis server"),
        ("redis://h:port", "this is no URL"),
        ("redis://h/db", "names no Redis server"),
        ("redis://h/-1", "database"),
        ("redis://h/0?wait=5", "unknown parameter `wait`: allowed are prefix"),
        ("redis://h/0?protocol=3", "allowed are prefix"),
        ("redis://h/0?db=1", "allowed are prefix"),
        ("redis+unix:///s?wait=5", "password_env, db, user, pass;"),
        ("redis://h?checks=maybe", "must be warn, refuse or off"),
        ("redis://h?connect_timeout=5", "write 3s or 500ms"),
        ("redis://h?connect_timeout=0s", "from 1ms to 1h"),
        ("redis://h?response_timeout=2h", "from 1ms to 1h"),
        ("redis://h?grace=0s", "from 1ms to 5s"),
        ("redis://h?grace=6s", "from 1ms to 5s"),
        ("redis://h?restart_delay=60", "write 3s or 500ms"),
        ("redis://h?restart_delay=10ms", "from 1s to 24h"),
        ("redis://h?restart_delay=25h", "from 1s to 24h"),
        ("redis://h?replicas=all", "a number such as 2"),
        ("redis://h?replicas=-1", "a number such as 2"),
        ("redis://h?prefix={a}", "prefix"),
        ("redis+unix:///s?pass=x&password_file=y", "is given in two ways"),
        ("redis://h/0#insecure", "'#'"),
        ("redis+unix:///a|redis://:p@b", "@ as %40"),
        ("redis+unix:///s?pass=p@ss", "@ as %40"),
    ];
    for (url, hint) in cases {
        let error = refused(url);
        assert_eq!(error.kind(), ErrorKind::Misconfigured, "{url}: {error}");
        assert!(error.to_string().contains(hint), "{url}: {error}");
        assert!(!error.is_retryable(), "{url}: {error}");
    }
}

#[test]
#[cfg(not(feature = "tls"))]
fn tls_is_not_silently_left_out() {
    for url in ["rediss://h", "valkeys://h", "redis://h?tls=true", "redis://h?ca=ca.pem"] {
        let error = refused(url);
        assert_eq!(error.kind(), ErrorKind::Misconfigured);
        assert!(error.to_string().contains("--features tls"), "{error}");
    }
    RedisConfig::from_url("redis://h?tls=false").expect("a good URL");
}

#[test]
#[cfg(feature = "tls")]
fn tls_in_a_url() {
    use lock_tls::Tls;
    let config = |url: &str| RedisConfig::from_url(url).expect("a good URL");
    assert_eq!(config("redis://h").tls(), None);
    for url in ["rediss://h", "valkeys://h", "redis://h?tls=true", "REDISS://h?tls=true"] {
        assert_eq!(config(url).tls(), Some(&Tls::new()), "{url}");
        assert_eq!(config(url).info.addr(), &ConnectionAddr::Tcp("h".into(), 6379), "{url}");
    }
    let full = config("rediss://u:p@h:6380/1?ca=/c%20a.pem&cert=c.pem&key=k.pem&prefix=x");
    let tls = Tls::new().with_ca("/c a.pem").with_certificate("c.pem", "k.pem");
    assert_eq!((full.tls(), full.prefix()), (Some(&tls), "x"));
    for (url, hint) in [
        ("redis://h?ca=c.pem", "add tls=true"),
        ("rediss://h?tls=false", "choose one"),
        ("rediss://h?cert=c.pem", "set both"),
        ("rediss://h?tls=perhaps", "must be true or false"),
        ("rediss://a..b", "host"),
        ("redis+unix:///s?tls=true", "`tls`: allowed are prefix"),
    ] {
        let error = refused(url);
        assert_eq!(error.kind(), ErrorKind::Misconfigured, "{url}: {error}");
        assert!(error.to_string().contains(hint), "{url}: {error}");
    }
}

/// The error with all that it was caused by, as people and as logs see it.
fn shown(error: &Error) -> String {
    format!("{error} {error:?}")
}

#[test]
fn no_secret_is_shown() {
    let config = RedisConfig::from_url("redis://app:sesame@h").expect("a good URL");
    assert!(!format!("{config:?}").contains("sesame"), "{config:?}");
    for url in [
        "redis://app:sesame@h:port",
        "redis://app:sesame@h/db",
        "redis://app:sesame@h?x=1",
        "http://app:sesame@h",
        "rediss://app:sesame@h?tls=sesame",
        "redis://app:pw@h?ca=sesame",
        "redis://:sesame@",
        "redis://app:sesame@h?connect_timeout=1",
        "redis+unix:///s?pass=1&sesame=2",
        "redis+unix:///s?pass=1&checks=sesame",
        "redis+unix:///s?pass=1&grace=5sesame",
        "redis+unix:///s?pass=1&db=sesame",
        "redis+unix:///s?pass=1#sesame",
        "sesame@redis://h",
        "sesame",
    ] {
        let shown = shown(&refused(url));
        assert!(!shown.contains("sesame"), "{url}: {shown}");
    }
}

/// Each of these has a password that was not percent-encoded, so that a part of it passes for something else.
#[test]
fn a_password_that_was_not_encoded_is_not_shown_and_the_remedy_is() {
    for url in [
        "redis://app:12?sesame@h:6379",
        "redis://app:12?sesame=3@h:6379",
        "redis://app:12?grace=sesame@h",
        "redis://app:12?connect_timeout=5sesame@h",
        "redis://app:12?checks=sesame@h",
        "redis://app:12?prefix=sesame@h",
        "redis://app:12/sesame@h:6379",
        "redis://app:12#sesame@h:6379",
        "redis://app:sesame/@h:6379",
        "redis://app:sesame?@h:6379",
        "redis://app:sesame#@h:6379",
    ] {
        let shown = shown(&refused(url));
        assert!(!shown.contains("sesame"), "{url}: {shown}");
        assert!(shown.contains("/ as %2F, ? as %3F, # as %23"), "{url}: {shown}");
    }
}

#[test]
fn a_client_of_the_driver_gives_its_server() {
    let client = redis::Client::open("redis://app:pw@cache:6380/2").expect("a good URL");
    let config = RedisConfig::from_client(&client).with_prefix("shop:");
    assert_eq!(
        format!("{config:?}"),
        format!(
            "{:?}",
            RedisConfig::from_url("redis://app:pw@cache:6380/2?prefix=shop:").expect("a good URL")
        )
    );
}
