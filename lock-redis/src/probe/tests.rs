use super::*;

fn text(text: &str) -> Value {
    Value::BulkString(text.into())
}

fn refused() -> Value {
    let refusal = redis::parse_redis_value(b"-NOPERM this user has no permissions\r\n");
    refusal.expect("an error line")
}

/// As a server would answer.
fn answers(info: &str, appendfsync: &str) -> [Value; 2] {
    answers_of(
        info,
        &[("appendfsync", appendfsync), ("no-appendfsync-on-rewrite", "no")],
    )
}

fn answers_of(info: &str, settings: &[(&str, &str)]) -> [Value; 2] {
    let info = info.replace(' ', "\r\n");
    let config = settings.iter().map(|(name, setting)| (text(name), text(setting)));
    [text(&format!("# Server\r\n{info}\r\n")), Value::Map(config.collect())]
}

fn facts(info: &str, appendfsync: &str) -> Facts {
    let [info, config] = answers(info, appendfsync);
    Facts::new(&info, &config)
}

fn evicts(policy: &str) -> Finding {
    Finding::Evicts { policy: policy.into() }
}

fn delayed_fsync(appendfsync: &str) -> Finding {
    Finding::DelayedFsync {
        appendfsync: appendfsync.into(),
    }
}

#[test]
fn settings_that_lose_locks() {
    let cases = [
        ("maxmemory_policy:noeviction aof_enabled:1", "always", vec![]),
        (
            "maxmemory_policy:allkeys-lru aof_enabled:1",
            "always",
            vec![evicts("allkeys-lru")],
        ),
        (
            "maxmemory_policy:volatile-ttl aof_enabled:1",
            "always",
            vec![evicts("volatile-ttl")],
        ),
        (
            "maxmemory_policy:noeviction aof_enabled:0",
            "always",
            vec![Finding::NotPersistent],
        ),
        (
            "maxmemory_policy:noeviction aof_enabled:1",
            "everysec",
            vec![delayed_fsync("everysec")],
        ),
        ("aof_enabled:1", "no", vec![delayed_fsync("no")]),
        (
            "maxmemory_policy:volatile-lru aof_enabled:0",
            "everysec",
            vec![evicts("volatile-lru"), Finding::NotPersistent],
        ),
        ("redis_version:7.0.15", "everysec", vec![]),
        ("role:master connected_slaves:0", "always", vec![]),
        (
            "role:master connected_slaves:2",
            "always",
            vec![Finding::GrantsAlone { replicas: 2 }],
        ),
        (
            "role:master connected_slaves:2 min_slaves_good_slaves:2",
            "always",
            vec![],
        ),
    ];
    for (info, appendfsync, expected) in cases {
        assert_eq!(
            findings(&facts(info, appendfsync), false),
            expected,
            "{info} {appendfsync}"
        );
    }
}

#[test]
fn a_server_that_does_not_fsync_while_it_saves_can_lose_locks() {
    let found = |aof: &str, appendfsync: &str, on_rewrite: &str, is_delayed| {
        let settings = [("appendfsync", appendfsync), ("no-appendfsync-on-rewrite", on_rewrite)];
        let [info, config] = answers_of(&format!("aof_enabled:{aof}"), &settings);
        findings(&Facts::new(&info, &config), is_delayed)
    };
    assert_eq!(found("1", "always", "yes", false), [Finding::SuspendedFsync]);
    assert_eq!(found("1", "always", "no", false), []);
    assert_eq!(found("1", "always", "yes", true), []);
    assert_eq!(found("1", "everysec", "yes", false), [delayed_fsync("everysec")]);
    assert_eq!(found("0", "always", "yes", false), [Finding::NotPersistent]);
    // As a server that knows no such setting.
    let [info, config] = answers_of("aof_enabled:1", &[("appendfsync", "always")]);
    assert_eq!(findings(&Facts::new(&info, &config), false), []);

    let probe = Probe::new(Checks::Refuse, Setup::default());
    let settings = [("appendfsync", "always"), ("no-appendfsync-on-rewrite", "yes")];
    let answers = answers_of("aof_enabled:1 maxmemory_policy:noeviction", &settings);
    let error = probe.evaluate(&answers, &"cache:6379").expect_err("it is strict");
    assert!(
        error.to_string().contains("set no-appendfsync-on-rewrite no"),
        "{error}"
    );
}

#[test]
fn servers_that_cannot_keep_locks() {
    let cases = [
        ("redis_version:7.0.15 redis_mode:standalone role:master", None),
        ("redis_version:10.0.0 role:master", None),
        (
            "redis_version:7.2.4 server_name:valkey valkey_version:9.1.2 role:master",
            None,
        ),
        ("redis_version:v1.2", None),
        (
            "redis_version:6.2.14 role:master",
            Some(Unsuitable::Old("6.2.14".into())),
        ),
        (
            "redis_version:7.0.0 role:slave slave_read_only:1",
            Some(Unsuitable::Replica),
        ),
        (
            "redis_version:7.0.0 role:slave slave_read_only:0",
            Some(Unsuitable::Replica),
        ),
        (
            "redis_version:7.0.0 redis_mode:cluster role:slave",
            Some(Unsuitable::Cluster),
        ),
        (
            "redis_version:7.2.4 server_mode:cluster role:master",
            Some(Unsuitable::Cluster),
        ),
        ("redis_version:7.0.0 redis_mode:sentinel", Some(Unsuitable::Sentinel)),
        ("role:master", None),
    ];
    for (info, expected) in cases {
        assert_eq!(unsuitable(&facts(info, "always")), expected, "{info}");
    }
}

#[test]
fn unknown_settings_are_no_findings() {
    let probe = Probe::new(Checks::Warn, Setup::default());
    probe
        .evaluate(&[refused(), refused()], &"cache:6379")
        .expect("nothing is known");
    assert_eq!(probe.findings(), []);
    let [info, _] = answers("aof_enabled:1 maxmemory_policy:noeviction", "");
    probe.evaluate(&[info, refused()], &"cache:6379").expect("it is fine");
    assert_eq!(probe.findings(), []);

    let strict = Probe::new(Checks::Refuse, Setup::default());
    let error = strict
        .evaluate(&[refused(), refused()], &"cache:6379")
        .expect_err("it asks");
    assert_eq!(error.kind(), ErrorKind::Denied);
    assert!(error.to_string().contains("+info"), "{error}");
    assert_eq!(Probe::new(Checks::Off, Setup::default()).commands().len(), 0);
    Probe::new(Checks::Off, Setup::default())
        .evaluate(&[], &"cache:6379")
        .expect("nothing was asked");
}

#[test]
fn a_refusal_names_all_findings() {
    let probe = Probe::new(Checks::Refuse, Setup::default());
    let answers = answers("aof_enabled:0 maxmemory_policy:allkeys-lru", "always");
    let error = probe.evaluate(&answers, &"cache:6379").expect_err("it is strict");
    assert_eq!(error.kind(), ErrorKind::Misconfigured);
    for part in ["cache:6379", "set maxmemory-policy noeviction", "set appendonly yes"] {
        assert!(error.to_string().contains(part), "{error}");
    }
}

#[test]
fn a_replica_may_become_a_primary() {
    let answers = answers("role:slave", "always");
    let error = Probe::new(Checks::Warn, Setup::default())
        .evaluate(&answers, &"cache:6379")
        .expect_err("it is one");
    assert!(error.is_retryable(), "{error}");
}

#[test]
fn each_finding_is_reported_once_per_run() {
    let probe = Probe::new(Checks::Warn, Setup::default());
    let run = |run: &str| Facts {
        run: Some(run.into()),
        ..Facts::default()
    };
    let both = vec![evicts("allkeys-lru"), Finding::NotPersistent];
    assert_eq!(probe.unreported(run("a"), both.clone()), both);
    assert_eq!(probe.unreported(run("a"), both.clone()), []);
    assert_eq!(probe.findings(), both);
    assert_eq!(
        probe.unreported(run("a"), vec![delayed_fsync("no")]),
        [delayed_fsync("no")]
    );
    assert_eq!(probe.unreported(run("b"), both.clone()), both);
    assert_eq!(probe.unreported(run("b"), vec![]), []);
    assert_eq!(probe.findings(), []);
}
