use std::io;

use super::*;

fn replied(line: &str) -> RedisError {
    let value = redis::parse_redis_value(format!("-{line}\r\n").as_bytes()).expect("an error line");
    value.extract_error().expect_err("it is an error")
}

#[test]
fn every_reply_has_its_kind() {
    use ErrorKind::{Denied, Misconfigured, Unavailable, Unexpected};
    let replies = [
        (
            "NOAUTH HELLO must be called with the client already authenticated",
            Denied,
        ),
        ("WRONGPASS invalid username-password pair or user is disabled.", Denied),
        (
            "NOPERM this user has no permissions to run the 'evalsha' command",
            Denied,
        ),
        (
            "ERR The user executing the script can't run this command or subcommand script: 0a1, on @user_script:9.",
            Denied,
        ),
        (
            "ERR ACL failure in script: User app has no permissions to run the 'set' command script: 0a1, on @user_script:9.",
            Denied,
        ),
        ("DENIED Redis is running in protected mode", Denied),
        ("READONLY You can't write against a read only replica.", Unavailable),
        ("LOADING Redis is loading the dataset in memory", Unavailable),
        ("MASTERDOWN Link with MASTER is down", Unavailable),
        ("OOM command not allowed when used memory > 'maxmemory'.", Unavailable),
        ("MISCONF Redis is configured to save RDB snapshots", Unavailable),
        ("BUSY Redis is busy running a script.", Unavailable),
        ("ERR max number of clients reached", Unavailable),
        ("MOVED 866 127.0.0.1:7001", Misconfigured),
        (
            "WRONGTYPE Operation against a key holding the wrong kind of value",
            Misconfigured,
        ),
        (
            "ERR unknown command `EVALSHA`, with args beginning with:",
            Misconfigured,
        ),
        ("ERR something new", Unexpected),
        ("NEW something new", Unexpected),
    ];
    for (line, kind) in replies {
        let error = replied(line);
        assert!(is_reply(&error), "{line}");
        let error = lock_error(error, &"cache:6379");
        assert_eq!(error.kind(), kind, "{line}");
        assert_eq!(error.is_retryable(), kind == Unavailable, "{line}");
        let source = error.cause().and_then(|source| source.downcast_ref::<RedisError>());
        assert!(source.is_some(), "the source of {line:?} is kept");
    }
}

#[test]
fn an_error_within_a_script_of_an_old_server_counts() {
    let error = replied(
        "ERR Error running script (call to f_0a1): @user_script:12: WRONGTYPE Operation against a key holding the wrong kind of value",
    );
    assert!(Failure::Rejected(error).is_wrong_type());
    let error = replied("ERR Error running script (call to f_0a1): @user_script:12: -READONLY You can't write");
    assert!(is_read_only(&error));
}

#[test]
fn what_the_server_certainly_did_not_do() {
    let is_not_executed = |line: &str| {
        let error = Failure::Rejected(replied(line)).into_lock_error(&"cache:6379");
        error.is_not_executed()
    };
    for line in [
        "OOM command not allowed when used memory > 'maxmemory'. script: 0a1, on @user_script:9.",
        "OOM allow-oom flag is not set on the script, can not run it when used memory > 'maxmemory'",
        "NOREPLICAS Not enough good replicas to write.",
        "READONLY You can't write against a read only replica. script: 0a1, on @user_script:9.",
        "MISCONF Redis is configured to save RDB snapshots",
        "MASTERDOWN Link with MASTER is down",
        "LOADING Redis is loading the dataset in memory",
        "BUSY Redis is busy running a script.",
        "NOSCRIPT No matching script.",
        "NOPERM User app has no permissions to run the 'evalsha' command",
        "NOPERM No permissions to access a key",
        "EXHAUSTED no token is larger than the last",
        "PROMOTED this server may have other data than when the connection was made",
    ] {
        assert!(is_not_executed(line), "{line}");
    }
    for line in [
        "WRONGTYPE Operation against a key holding the wrong kind of value script: 0a1, on @user_script:9.",
        "ERR The user executing the script can't run this command or subcommand script: 0a1, on @user_script:9.",
        "ERR ACL failure in script: User app has no permissions to run the 'publish' command script: 0a1, on @user_script:9.",
        "NOPERM User app has no permissions to run the 'publish' command script: 0a1, on @user_script:9.",
        "ERR Error running script (call to f_0a1): @user_script:12: killed",
        "NEW something new",
    ] {
        assert!(!is_not_executed(line), "{line}");
    }
}

#[test]
fn a_missing_permission_is_named() {
    let cases = [
        (
            "NOPERM this user has no permissions to run the 'evalsha' command",
            "the command evalsha",
        ),
        (
            "ERR ACL failure in script: User app has no permissions to run the 'pexpire' command script: on @user_script:1.",
            "the command pexpire",
        ),
        (
            "NOPERM this user has no permissions to access one of the keys used as arguments",
            "a key that is needed",
        ),
        ("NOPERM No permissions to access a key", "a key that is needed"),
        (
            "ERR ACL failure in script: No permissions to access a channel script: on @user_script:1.",
            "the channel of an inbox",
        ),
        (
            "NOPERM this user has no permissions to access one of the channels used as arguments",
            "the channel of an inbox",
        ),
        (
            "ERR The user executing the script can't run this command or subcommand script: 0a1, on @user_script:9.",
            "a command that is needed",
        ),
    ];
    for (line, what) in cases {
        let error = lock_error(replied(line), &"cache:6379");
        let said = format!("does not permit this user {what}: grant what RedisConfig::acl_rules lists");
        assert!(error.to_string().contains(&said), "{line}: {error}");
    }
}

#[test]
fn no_reply_is_unavailable_and_unknown() {
    for kind in [
        io::ErrorKind::TimedOut,
        io::ErrorKind::ConnectionReset,
        io::ErrorKind::NotFound,
    ] {
        let error = RedisError::from(io::Error::from(kind));
        assert!(!is_reply(&error));
        assert_eq!(lock_error(error, &"x").kind(), ErrorKind::Unavailable, "{kind:?}");
    }
    let garbage = redis::parse_redis_value(b"HTTP/1.1 400 Bad Request\r\n").expect_err("it is no reply");
    let error = lock_error(garbage, &"web:80");
    assert_eq!(error.kind(), ErrorKind::Misconfigured);
    assert!(error.to_string().contains("web:80 is not a Redis server"), "{error}");
}
