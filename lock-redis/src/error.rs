//! The meaning of the driver's errors for a lock.

use std::borrow::Cow;
use std::fmt;

use lock_core::{Error, ErrorKind};
use redis::{ErrorKind as DriverKind, RedisError, ServerErrorKind};

/// Why a request failed.
#[derive(Clone, Debug)]
pub(crate) enum Failure {
    /// The server replied with an error.
    Rejected(RedisError),
    /// The connection ended before the reply came: why.
    NoReply(Error),
    /// No server executed it: the whole error.
    NotExecuted(Error),
}

impl Failure {
    /// True if the server replied, so that the request is no longer in flight.
    pub(crate) fn is_reply(&self) -> bool {
        matches!(self, Self::Rejected(_) | Self::NotExecuted(_))
    }

    /// True if the key has another type than ours, so that it belongs to another program.
    pub(crate) fn is_wrong_type(&self) -> bool {
        matches!(self, Self::Rejected(error) if code(error) == "WRONGTYPE")
    }

    /// The lock's error for a request to `server`.
    pub(crate) fn into_lock_error(self, server: &dyn fmt::Display) -> Error {
        match self {
            Self::Rejected(error) if is_not_executed(&error) => lock_error(error, server).not_executed(),
            Self::Rejected(error) => lock_error(error, server),
            Self::NoReply(why) => {
                let what = format!("Redis at {server} did not answer, so that the outcome is unknown");
                Error::new(ErrorKind::Unavailable, what).with_source(why)
            }
            Self::NotExecuted(error) => error.not_executed(),
        }
    }
}

/// The lock's error for a driver's error: what failed at `server` and what to do, with the driver's error as the source.
pub(crate) fn lock_error(error: RedisError, server: &dyn fmt::Display) -> Error {
    lock_error_with(
        error,
        &format_args!("Redis at {server}"),
        "grant what RedisConfig::acl_rules lists",
    )
}

/// The same with another name for the server, and another remedy for a missing permission.
pub(crate) fn lock_error_with(error: RedisError, server: &dyn fmt::Display, remedy: &str) -> Error {
    let (kind, what) = classify(&error, remedy);
    Error::new(kind, format!("{server} {what}")).with_source(error)
}

/// True if the server replied, even with a rejection, so that the request is no longer in flight.
pub(crate) fn is_reply(error: &RedisError) -> bool {
    matches!(error.kind(), DriverKind::Server(_) | DriverKind::Extension)
}

/// True if this server is not a primary, or no longer one. Another connection may lead to the primary.
pub(crate) fn is_read_only(error: &RedisError) -> bool {
    code(error) == "READONLY"
}

/// True if this server was promoted since the connection was made. Our own scripts report that where a grant depends on
/// it.
pub(crate) fn is_promoted(error: &RedisError) -> bool {
    code(error) == "PROMOTED"
}

/// True if this reply proves that the server did nothing for the request.
///
/// A server rejects a script as a whole, or the first command of it that writes: it checks its memory, its disk, its
/// replicas and its role before that command and never after it. Any other error within a script may come after a write,
/// which stays: of those, only our own errors that come before all writes count.
fn is_not_executed(error: &RedisError) -> bool {
    match code(error) {
        "OOM" | "MISCONF" | "NOREPLICAS" | "READONLY" => true,
        "LOADING" | "MASTERDOWN" | "BUSY" | "NOSCRIPT" | "NOAUTH" | "DENIED" => true,
        "MOVED" | "ASK" | "CROSSSLOT" | "TRYAGAIN" | "CLUSTERDOWN" => true,
        "EXHAUSTED" | "PROMOTED" => true,
        "NOPERM" => !is_within_script(error.detail().unwrap_or_default()),
        _ => false,
    }
}

/// True if this reply is about the server, so that it would refuse each of several requests alike.
pub(crate) fn refuses_all(error: &RedisError) -> bool {
    const CODES: [&str; 9] = [
        "OOM",
        "MISCONF",
        "NOREPLICAS",
        "READONLY",
        "PROMOTED",
        "LOADING",
        "MASTERDOWN",
        "BUSY",
        "CLUSTERDOWN",
    ];
    CODES.contains(&code(error))
}

/// True if a command within a script failed, in the words of any version since 7.0.
fn is_within_script(detail: &str) -> bool {
    detail.contains("script: ")
        || detail.contains("executing the script")
        || detail.starts_with("ACL failure in script")
}

/// True if it is pointless to connect again within the connect timeout.
pub(crate) fn is_permanent(error: &Error) -> bool {
    !error.is_retryable()
}

fn classify(error: &RedisError, remedy: &str) -> (ErrorKind, Cow<'static, str>) {
    if code(error) == "NOPERM" {
        let what = missing(error.detail().unwrap_or_default());
        let what = format!("does not permit this user {what}: {remedy}");
        return (ErrorKind::Denied, what.into());
    }
    let (kind, what) = classify_by_kind(error);
    (kind, what.into())
}

/// The permission that the server says is missing.
fn missing(detail: &str) -> Cow<'static, str> {
    // Redis 7.0 does not say which command it was if a script ran it.
    let named = detail
        .split_once(" the '")
        .and_then(|(_, rest)| rest.split_once("' command"));
    match named {
        Some((command, _)) => format!("the command {}", command.to_lowercase()).into(),
        None if detail.contains("channel") => "the channel of an inbox".into(),
        None if detail.contains("keys") || detail.contains("a key") => "a key that is needed".into(),
        None => "a command that is needed".into(),
    }
}

fn classify_by_kind(error: &RedisError) -> (ErrorKind, &'static str) {
    use ErrorKind::{Denied, Misconfigured, Unavailable, Unexpected};
    match error.kind() {
        DriverKind::Io if error.is_timeout() => (
            Unavailable,
            "did not answer in time, so that the outcome is unknown: is it overloaded or cut off?",
        ),
        DriverKind::Io => (
            Unavailable,
            "cannot be reached: check that it runs and that the address is right",
        ),
        DriverKind::InvalidClientConfig => (Unavailable, "cannot be reached: its host name has no address"),
        DriverKind::Parse => (
            Misconfigured,
            "is not a Redis server, or wants TLS: check host and port in the URL",
        ),
        DriverKind::RESP3NotSupported => (Misconfigured, "is too old: version 7.0 or newer is needed"),
        DriverKind::AuthenticationFailed => (Denied, "refuses the user name or the password"),
        DriverKind::Server(_) | DriverKind::Extension => {
            classify_by_code(code(error), error.detail().unwrap_or_default())
        }
        _ => (Unexpected, "failed in a way that we did not expect"),
    }
}

fn classify_by_code(code: &str, detail: &str) -> (ErrorKind, &'static str) {
    use ErrorKind::{Denied, Misconfigured, Unavailable, Unexpected};
    match code {
        "NOAUTH" => (
            Denied,
            "wants a password: put it into the URL (redis://:password@host for requirepass, redis://user:password@host for a user)",
        ),
        "WRONGPASS" => (Denied, "refuses the user name or the password"),
        "DENIED" => (
            Denied,
            "refuses connections from elsewhere (protected mode): give it a password or bind it to an address",
        ),
        "READONLY" => (
            Unavailable,
            "is a read-only replica: it may be failing over, else put the primary's address into the URL",
        ),
        "PROMOTED" => (
            Unavailable,
            "was promoted since the connection was made, so it may have forgotten locks: it gives no new ones until the \
             restart_delay is over",
        ),
        "LOADING" => (Unavailable, "is still loading its data"),
        "MASTERDOWN" => (
            Unavailable,
            "is a replica without its primary: put the primary's address into the URL",
        ),
        "OOM" => (Unavailable, "is out of memory: raise its maxmemory or free some"),
        "MISCONF" => (
            Unavailable,
            "refuses writes because it cannot save them: its log says why (disk full?)",
        ),
        "NOREPLICAS" => (Unavailable, "refuses writes because too few replicas follow it"),
        "BUSY" => (
            Unavailable,
            "is busy with somebody's script: wait, or stop it with SCRIPT KILL",
        ),
        "TRYAGAIN" | "CLUSTERDOWN" => (Unavailable, "is part of a cluster that cannot serve at the moment"),
        "MOVED" | "ASK" | "CROSSSLOT" => (
            Misconfigured,
            "is one node of a Redis Cluster: begin the URL with redis+cluster://",
        ),
        "NOPROTO" => (Misconfigured, "is too old: version 7.0 or newer is needed"),
        "WRONGTYPE" => (
            Misconfigured,
            "has something else under a key of this lock: another program uses that key, so choose another prefix",
        ),
        "EXHAUSTED" => (
            Misconfigured,
            "has no larger fencing token left for this lock: somebody set its fence key, or a token floor, far too high",
        ),
        "ERR" if detail.starts_with("max number of clients") => {
            (Unavailable, "has too many clients: raise its maxclients or close some")
        }
        "ERR" if detail.contains("DB index") || detail.contains("switch database") => {
            (Misconfigured, "has no database of that number")
        }
        "ERR" if detail.contains("cluster support disabled") => (
            Misconfigured,
            "is no node of a Redis Cluster: begin the URL with redis://",
        ),
        // Its slot moved on while a script ran.
        "ERR" if detail.contains("non local key") || detail.contains("while the cluster is down") => {
            (Unavailable, "is part of a cluster that cannot serve at the moment")
        }
        "ERR" if detail.contains("unknown command") => (
            Misconfigured,
            "does not know a command that locks need: it is too old (before version 7.0), is no Redis, or the command was renamed",
        ),
        _ => (Unexpected, "answered with an error that we did not expect"),
    }
}

/// The server's code for an error. That of a command within a script is wrapped in text before version 7, and later too
/// where a permission is missing.
pub(crate) fn code(error: &RedisError) -> &str {
    let code = match error.kind() {
        DriverKind::Server(ServerErrorKind::ResponseError) => "ERR",
        _ => error.code().unwrap_or_default(),
    };
    let detail = error.detail().unwrap_or_default();
    // As 7.0 says it, and as later ones do.
    let is_missing = |detail: &str| {
        detail.contains("user executing the script can't") || detail.starts_with("ACL failure in script")
    };
    if code == "ERR" && is_missing(detail) {
        return "NOPERM";
    }
    if code != "ERR" || !detail.starts_with("Error running script") {
        return code;
    }
    const WRAPPED: [&str; 7] = [
        "WRONGTYPE",
        "READONLY",
        "OOM",
        "MISCONF",
        "NOREPLICAS",
        "NOPERM",
        "MOVED",
    ];
    let is_in = |code: &&str| detail.contains(&format!("-{code} ")) || detail.contains(&format!(": {code} "));
    WRAPPED.into_iter().find(is_in).unwrap_or("ERR")
}

#[cfg(test)]
mod tests;
