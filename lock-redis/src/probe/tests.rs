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
    let info = info.replace(' ', "\r\n");
    let config = vec![(text("appendfsync"), text(appendfsync))];
    [text(&format!("# Server\r\n{info}\r\n")), Value::Map(config)]
}

fn facts(info: &str, appendfsync: &str) -> Facts {
    let [info, config] = answers(info, appendfsync);
    Facts::new(&info, &config)
}

fn evicts(policy: &str) -> Finding {
    Finding::Evicts { policy: policy.into() }
}

fn keeps_late(appendfsync: &str) -> Finding {
    Finding::KeepsLate {
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
            vec![Finding::KeepsNothing],
        ),
        (
            "maxmemory_policy:noeviction aof_enabled:1",
            "everysec",
            vec![keeps_late("everysec")],
        ),
        ("aof_enabled:1", "no", vec![keeps_late("no")]),
        (
            "maxmemory_policy:volatile-lru aof_enabled:0",
            "everysec",
            vec![evicts("volatile-lru"), Finding::KeepsNothing],
        ),
        ("redis_version:7.0.15", "everysec", vec![]),
    ];
    for (info, appendfsync, expected) in cases {
        assert_eq!(findings(&facts(info, appendfsync)), expected, "{info} {appendfsync}");
    }
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
        ("redis_version:6.2.14 role:master", Some(Obstacle::Old("6.2.14".into()))),
        (
            "redis_version:7.0.0 role:slave slave_read_only:1",
            Some(Obstacle::Replica),
        ),
        (
            "redis_version:7.0.0 role:slave slave_read_only:0",
            Some(Obstacle::Replica),
        ),
        (
            "redis_version:7.0.0 redis_mode:cluster role:slave",
            Some(Obstacle::Cluster),
        ),
        (
            "redis_version:7.2.4 server_mode:cluster role:master",
            Some(Obstacle::Cluster),
        ),
        ("redis_version:7.0.0 redis_mode:sentinel", Some(Obstacle::Sentinel)),
        ("role:master", None),
    ];
    for (info, expected) in cases {
        assert_eq!(obstacle(&facts(info, "always")), expected, "{info}");
    }
}

#[test]
fn what_is_not_told_is_not_held_against_it() {
    let checker = Checker::new(Checks::Warn);
    checker
        .judge(&[refused(), refused()], &"cache:6379")
        .expect("nothing is known");
    assert_eq!(checker.findings(), []);
    let [info, _] = answers("aof_enabled:1 maxmemory_policy:noeviction", "");
    checker.judge(&[info, refused()], &"cache:6379").expect("it is fine");
    assert_eq!(checker.findings(), []);

    let strict = Checker::new(Checks::Refuse);
    let error = strict
        .judge(&[refused(), refused()], &"cache:6379")
        .expect_err("it asks");
    assert_eq!(error.kind(), ErrorKind::Denied);
    assert!(error.to_string().contains("+info"), "{error}");
    assert_eq!(Checker::new(Checks::Off).questions().len(), 0);
    Checker::new(Checks::Off)
        .judge(&[], &"cache:6379")
        .expect("nothing was asked");
}

#[test]
fn refusing_says_everything_at_once() {
    let checker = Checker::new(Checks::Refuse);
    let answers = answers("aof_enabled:0 maxmemory_policy:allkeys-lru", "always");
    let error = checker.judge(&answers, &"cache:6379").expect_err("it is strict");
    assert_eq!(error.kind(), ErrorKind::Misconfigured);
    for part in ["cache:6379", "set maxmemory-policy noeviction", "set appendonly yes"] {
        assert!(error.to_string().contains(part), "{error}");
    }
}

#[test]
fn a_replica_may_become_a_primary() {
    let answers = answers("role:slave", "always");
    let error = Checker::new(Checks::Warn)
        .judge(&answers, &"cache:6379")
        .expect_err("it is one");
    assert!(error.is_retryable(), "{error}");
}

#[test]
fn each_run_is_told_once() {
    let checker = Checker::new(Checks::Warn);
    let run = |run: &str| Some(String::from(run));
    let both = vec![evicts("allkeys-lru"), Finding::KeepsNothing];
    assert_eq!(checker.news(run("a"), both.clone()), both);
    assert_eq!(checker.news(run("a"), both.clone()), []);
    assert_eq!(checker.findings(), both);
    assert_eq!(checker.news(run("a"), vec![keeps_late("no")]), [keeps_late("no")]);
    assert_eq!(checker.news(run("b"), both.clone()), both);
    assert_eq!(checker.news(run("b"), vec![]), []);
    assert_eq!(checker.findings(), []);
}
