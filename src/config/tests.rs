use super::*;

#[test]
fn never_shows_the_password() {
    let config = |url: &str| Config {
        label: Some("me".into()),
        ..Config::new(url)
    };
    let shown = format!("{:?}", config("Redis://user:secret@host"));
    assert!(
        !shown.contains("secret") && shown.contains("Redis://..@host") && shown.contains("me"),
        "{shown}"
    );
    for url in ["secret@host:6379", "user:secret@host", "secret", "secret://host"] {
        let shown = format!("{:?}", config(url));
        assert!(!shown.contains("secret") && !shown.contains("user"), "{shown}");
    }
}

#[test]
fn never_shows_the_passwords_of_a_quorum() {
    let shown = format!("{:?}", Config::of_quorum(["redis://user:secret@host", "secret"]));
    assert!(!shown.contains("secret") && !shown.contains("user"), "{shown}");
    assert!(shown.contains(r#"url: , urls: ["redis://..@host", ".."]"#), "{shown}");
}

fn of_quorum(config: Config, settings: QuorumOptions) -> Config {
    Config {
        quorum: Some(settings),
        ..config
    }
}

fn refusal(config: &Config) -> String {
    let error = config.connect_lazy().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error}");
    error.to_string()
}

#[test]
fn servers_are_named_in_one_way() {
    let both = Config {
        urls: vec!["memory:secret".to_owned()],
        ..Config::new("memory:secret")
    };
    for (config, advice) in [
        (Config::new(""), "write its `url`, or `urls`"),
        (Config::of_quorum([""; 0]), "write its `url`, or `urls`"),
        (of_quorum(Config::new(""), QuorumOptions::new()), "write `urls`"),
        (Config::of_quorum(["memory:secret", " "]), "one of the `urls` is empty"),
        (
            of_quorum(Config::new("memory:secret"), QuorumOptions::new()),
            "need `urls`",
        ),
        (both, "both `url` and `urls`"),
    ] {
        let refused = refusal(&config);
        assert!(refused.contains(advice) && !refused.contains("secret"), "{refused}");
    }
}

#[test]
#[cfg(not(feature = "quorum"))]
fn a_quorum_needs_its_feature() {
    assert!(refusal(&Config::of_quorum(["memory:a"])).contains("--features quorum"));
}

#[tokio::test]
#[cfg(feature = "quorum")]
async fn a_quorum_is_of_the_servers_that_are_listed() {
    let urls = ["memory:c1", "memory:c2", "memory:c3"];
    let settings = QuorumOptions::new()
        .with_patience(Duration::from_secs(1))
        .with_restart_delay(Duration::from_secs(60));
    let listed = of_quorum(Config::of_quorum(urls), settings).connect().await.unwrap();
    let other = Config::new("quorum:memory:c1|memory:c2|memory:c3");
    let error = other.connect().await.unwrap_err().to_string();
    assert!(
        error.contains("a restart_delay of 60s, and this one with no"),
        "{error}"
    );
    let in_a_url = Config::new("quorum:?restart_delay=60s|memory:c1|memory:c2|memory:c3")
        .connect()
        .await
        .unwrap();
    let guard = listed.lock("a").acquire().await.unwrap();
    assert!(in_a_url.lock("a").try_acquire().await.unwrap().is_none());
    guard.release().await.unwrap();
    let minutes = listed
        .lock("a")
        .ttl(Duration::from_secs(61))
        .try_acquire()
        .await
        .unwrap_err();
    assert_eq!(minutes.kind(), ErrorKind::Misconfigured, "{minutes}");
}

#[test]
#[cfg(feature = "quorum")]
fn settings_of_a_quorum_that_cannot_work_are_refused() {
    let hasty = QuorumOptions::new().with_patience(Duration::from_millis(1));
    for (config, advice) in [
        (of_quorum(Config::of_quorum(["memory:"]), hasty), "choose 10ms to 60s"),
        (
            Config::of_quorum(["memory:", "etcd://user:secret@a"]),
            "node 2 of the quorum",
        ),
        (Config::of_quorum(["quorum:memory:"]), "list all servers in one quorum"),
    ] {
        let refused = refusal(&config);
        assert!(refused.contains(advice) && !refused.contains("secret"), "{refused}");
    }
}

#[test]
fn every_option_reaches_the_locker() {
    let options = |config: Config| config.connect_lazy().unwrap().lock("a").options();
    let ttl = Duration::from_secs(90);
    let mut config = Config::new("memory:");
    (config.ttl, config.label) = (Some(ttl), Some("me".into()));
    assert_eq!(options(config.clone()).ttl, ttl);
    assert_eq!(options(config.clone()).label.as_deref(), Some("me"));
    config.label = Some(String::new());
    config.token_floor = FencingToken::new(1 << 40);
    assert_eq!(options(config.clone()).label, None);
    assert_eq!(options(config.clone()).token_floor, config.token_floor);
    let by_default = options(Config::new("memory:")).label.unwrap();
    assert!(
        by_default.ends_with(&format!(":{}", std::process::id())),
        "{by_default}"
    );
}

/// For each backend, and for each node of a quorum.
#[test]
#[cfg(all(
    feature = "redis",
    feature = "mysql",
    feature = "postgres",
    feature = "zookeeper",
    feature = "quorum"
))]
fn a_password_comes_from_one_place() {
    let source = || CredentialSource::env("POLYLOCK_NO_PASSWORD");
    let from_source = |config: Config| config.with_credentials(source());
    for scheme in ["redis", "mysql", "postgres", "zookeeper", "redis+cluster"] {
        let url = |user: &str, parameters: &str| match scheme {
            "mysql" => format!("mysql://{user}@a/db?strategy=lease{}", parameters.replace('?', "&")),
            "postgres" => format!("postgres://{user}@a/db{parameters}"),
            scheme => format!("{scheme}://{user}@a:1{parameters}"),
        };
        for good in [
            from_source(Config::new(url("app", ""))),
            from_source(Config::of_quorum([url("app", ""), url("app", ""), "memory:".into()])),
            from_source(Config::new(format!("quorum:{0}|{0}|memory:", url("app", "")))),
            Config::new(url("app", "?password_env=POLYLOCK_NO_PASSWORD")),
            Config::new(url("app", "?password_file=/run/secrets/a%20b")),
        ] {
            good.connect_lazy().unwrap();
        }
        for twice in [
            from_source(Config::new(url("app:s3cret", ""))),
            from_source(Config::of_quorum([url("app:s3cret", "")])),
            Config::new(url("app:s3cret", "?password_file=/run/secrets/a")),
        ] {
            let refused = refusal(&twice);
            assert!(
                refused.contains("is given in two ways") && !refused.contains("s3cret"),
                "{refused}"
            );
        }
        let twice = refusal(&Config::new(url("app", "?password_file=a&password_env=B")));
        assert!(twice.contains("says twice where the password is"), "{twice}");
    }
    from_source(Config::new("memory:")).connect_lazy().unwrap();
    let shown = format!("{:?}", from_source(Config::new("memory:")));
    assert!(
        shown.contains(r#"credentials: Some(Env("POLYLOCK_NO_PASSWORD"))"#),
        "{shown}"
    );
}

/// The variable is read when a connection is made.
#[tokio::test]
#[cfg(all(
    feature = "redis",
    feature = "mysql",
    feature = "postgres",
    feature = "zookeeper",
    feature = "quorum"
))]
async fn a_variable_that_is_not_set_is_said_by_every_backend() {
    for url in [
        "redis://app@127.0.0.1:1",
        "redis+sentinel://127.0.0.1:1/m?sentinel_password_env=POLYLOCK_NO_PASSWORD",
        "redis+cluster://app@127.0.0.1:1",
        "mysql://app@127.0.0.1:1/db",
        "mysql://app@127.0.0.1:1/db?strategy=lease",
        "postgres://app@127.0.0.1:1/db",
        "zookeeper://app@127.0.0.1:1",
        "quorum:redis://app@127.0.0.1:1|mysql://app@127.0.0.1:1/db?strategy=lease|memory:",
    ] {
        let config = Config::new(url).with_credentials(CredentialSource::env("POLYLOCK_NO_PASSWORD"));
        let error = config.connect().await.unwrap_err();
        let said = "the environment variable POLYLOCK_NO_PASSWORD, which is to have the password, is not set";
        assert!(error.to_string().contains(said), "{url}: {error}");
    }
}

/// The SQL of what `migrate` makes.
#[test]
#[cfg(all(feature = "redis", feature = "mysql", feature = "postgres", feature = "quorum"))]
fn the_tables_are_those_of_the_url() {
    let schema = |url: &str| Config::new(url).schema().unwrap();
    let (mysql, postgres) = (
        "mysql://app@a/db?strategy=lease&table=shop&require=failover&trusting=failover",
        "postgres://app@a/db?schema=locks&require=fifo",
    );
    assert_eq!(schema(mysql).matches("TABLE IF NOT EXISTS `shop").count(), 5);
    assert_eq!(
        schema(postgres)
            .matches("TABLE IF NOT EXISTS \"locks\".\"polylock_")
            .count(),
        6
    );
    assert_eq!(schema("redis://a"), "");
    let both = schema(mysql) + &schema(postgres);
    let (mysql, postgres) = (
        "mysql://app@a/db?strategy=lease&table=shop",
        "postgres://app@a/db?schema=locks",
    );
    let quorum = format!("quorum:?require=failover|{mysql}|redis://b|{postgres}|{mysql}");
    assert_eq!(schema(&quorum), both);
    assert_eq!(
        Config::of_quorum([mysql, "redis://b", postgres]).schema().unwrap(),
        both
    );
    let refused = Config::new("etcd://user:secret@a").schema().unwrap_err().to_string();
    assert!(refused.contains("`etcd`") && !refused.contains("secret"), "{refused}");
}

/// No server is at these addresses: nothing is asked of the one that needs tables.
#[tokio::test]
#[cfg(all(feature = "redis", feature = "mysql", feature = "quorum"))]
async fn what_connects_to_nothing_has_no_tables_either() {
    const MYSQL: &str = "mysql://app@127.0.0.1:1/db?strategy=lease";
    let secret = CredentialSource::env("POLYLOCK_NO_PASSWORD");
    for config in [
        Config::new("redis://127.0.0.1:1?no_such_parameter=1"),
        Config::new("memory:a/b"),
        Config::new("redis://app:password@127.0.0.1:1").with_credentials(secret),
        Config::new(format!("quorum:{MYSQL}|memory:a/b|redis://127.0.0.1:1")),
        Config::of_quorum([MYSQL, "redis://127.0.0.1:1?no_such_parameter=1"]),
        Config::of_quorum([MYSQL, "quorum:memory:a|memory:b|memory:c"]),
    ] {
        let expected = refusal(&config);
        assert_eq!(config.schema().unwrap_err().to_string(), expected);
        assert_eq!(config.migrate().await.unwrap_err().to_string(), expected);
    }
}

#[cfg(feature = "serde")]
fn read(json: &str) -> serde_json::Result<Config> {
    serde_json::from_str(json)
}

#[test]
#[cfg(feature = "serde")]
fn is_read_from_a_file_with_durations_as_people_write_them() {
    let text = r#"{"url": "memory:", "ttl": "1m 30s", "label": "", "passes": 4, "operation_timeout": "500ms"}"#;
    let config = Config {
        ttl: Some(Duration::from_secs(90)),
        label: Some(String::new()),
        passes: Some(4),
        operation_timeout: Some(Duration::from_millis(500)),
        ..Config::new("memory:")
    };
    assert_eq!(read(text).unwrap(), config);
    assert_eq!(
        read(r#"{"url": "memory:", "ttl": null}"#).unwrap(),
        Config::new("memory:")
    );
    assert!(read(r#"{"url": "memory:", "tll": "1s"}"#).is_err());
    for (field, source) in [
        (
            r#""password_file": "/run/secrets/a""#,
            CredentialSource::file("/run/secrets/a"),
        ),
        (r#""password_env": "A""#, CredentialSource::env("A")),
    ] {
        let config = read(&format!(r#"{{"url": "memory:", {field}}}"#)).unwrap();
        assert_eq!(config, Config::new("memory:").with_credentials(source));
    }
    let both = read(r#"{"url": "memory:", "password_file": "a", "password_env": "A"}"#).unwrap_err();
    assert!(both.to_string().contains("write one of them"), "{both}");
}

#[test]
#[cfg(feature = "serde")]
fn a_quorum_is_read_from_a_file() {
    let urls = ["redis://a", "redis://b", "zookeeper://c"];
    let text = |quorum| format!(r#"{{"urls": ["redis://a", "redis://b", "zookeeper://c"]{quorum}}}"#);
    assert_eq!(read(&text("")).unwrap(), Config::of_quorum(urls));
    assert_eq!(read(&text(r#", "quorum": null"#)).unwrap(), Config::of_quorum(urls));
    let settings = QuorumOptions::new()
        .with_patience(Duration::from_millis(300))
        .with_restart_delay(Duration::from_secs(30));
    assert_eq!(
        read(&text(r#", "quorum": {"restart_delay": "30s", "patience": "300ms"}"#)).unwrap(),
        of_quorum(Config::of_quorum(urls), settings)
    );
    for (json, message) in [
        ("{}", "write its `url`, or `urls`"),
        (r#"{"url": "memory:", "urls": ["memory:"]}"#, "both `url` and `urls`"),
        (r#"{"url": "memory:", "quorum": {}}"#, "need `urls`"),
        (r#"{"urls": "redis://:secret@a"}"#, "`urls` is a list"),
        (
            r#"{"urls": ["memory:"], "quorum": "redis://:secret@a"}"#,
            "`quorum` has settings",
        ),
        (
            r#"{"urls": ["memory:"], "quorum": {"delay": "1s"}}"#,
            "unknown field `delay`",
        ),
        (
            r#"{"urls": ["memory:"], "quorum": {"restart_delay": 30}}"#,
            "write 3s or 500ms",
        ),
    ] {
        let error = read(json).unwrap_err().to_string();
        assert!(error.contains(message) && !error.contains("secret"), "{json}: {error}");
    }
}

#[test]
#[cfg(feature = "serde")]
fn a_duration_without_a_unit_says_how_to_write_one() {
    for field in ["ttl", "operation_timeout"] {
        for value in ["3", "3.5", "\"3\"", "\"3 sekunden\"", "true"] {
            let error = read(&format!(r#"{{"url": "memory:", "{field}": {value}}}"#)).unwrap_err();
            assert!(error.to_string().contains("write 3s or 500ms"), "{value}: {error}");
        }
    }
}

#[tokio::test]
async fn what_the_url_and_the_code_require_is_refused_in_one_message() {
    let requiring = |url: &str, required: &[Guarantee]| Config {
        require: required.to_vec(),
        ..Config::new(url)
    };
    let config = requiring("memory:?require=durable-tokens,fifo", &[Guarantee::Failover]);
    let error = config.connect().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Misconfigured);
    let said = error.to_string();
    assert!(
        said.contains("durable-tokens (") && said.contains("failover (not known, as "),
        "{said}"
    );
    assert!(!said.contains("fifo"), "{said}");

    let config = requiring("memory:?trusting=failover", &[Guarantee::Failover, Guarantee::Fifo]);
    config.connect().await.unwrap();
    let mut config = requiring("memory:", &[Guarantee::Failover]);
    config.trusting = vec![Guarantee::Failover];
    config.connect().await.unwrap();
    // Without I/O, it shows at the first acquire.
    let locks = connect::lazy("memory:?require=failover", None).unwrap();
    assert_eq!(
        locks.lock("a").acquire().await.unwrap_err().kind(),
        ErrorKind::Misconfigured
    );
}

#[test]
#[cfg(feature = "serde")]
fn a_file_lists_what_is_required() {
    let file = |json: &str| serde_json::from_str::<Config>(json);
    let config = file(r#"{"url": "memory:", "require": ["fifo", "ttl:1s"], "trusting": ["failover"]}"#).unwrap();
    assert_eq!(
        config.require,
        [Guarantee::Fifo, Guarantee::Ttl(Duration::from_secs(1))]
    );
    assert_eq!(config.trusting, [Guarantee::Failover]);
    let error = file(r#"{"url": "memory:", "require": ["fifoo"]}"#).unwrap_err();
    assert!(error.to_string().contains("`fifoo` is no guarantee"), "{error}");
}
