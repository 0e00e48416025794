//! The map from hash slots to nodes of a cluster, as nodes report it.

use redis::{RedisError, Value};

use crate::error::code;
use crate::names::SLOTS;

/// The hash slots from the first to the last, and their master. Its host is `None` where the node that was asked has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Range {
    pub(super) first: u16,
    pub(super) last: u16,
    pub(super) host: Option<String>,
    pub(super) port: u16,
}

/// Why a node did not serve a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Redirect {
    /// Another one has the hash slot: from now on.
    Moved(Option<String>, u16),
    /// Another one is taking the slot over: for this request.
    Ask(Option<String>, u16),
    /// The slot is being moved, and not all keys of this request are in one place: for now.
    Apart,
    /// Nobody serves the slot: for now.
    Later,
}

/// The reply to `CLUSTER SLOTS`. `None`: it is none.
pub(super) fn ranges(reply: &Value) -> Option<Vec<Range>> {
    let Value::Array(ranges) = reply else { return None };
    ranges.iter().map(range).collect()
}

fn range(range: &Value) -> Option<Range> {
    let Value::Array(parts) = range else { return None };
    let [Value::Int(first), Value::Int(last), Value::Array(master), ..] = &parts[..] else {
        return None;
    };
    let [host, Value::Int(port), ..] = &master[..] else {
        return None;
    };
    let slot = |number: &i64| u16::try_from(*number).ok().filter(|slot| *slot < SLOTS);
    Some(Range {
        first: slot(first)?,
        last: slot(last)?,
        host: match host {
            Value::BulkString(host) => known(std::str::from_utf8(host).ok()?),
            Value::SimpleString(host) => known(host),
            _ => None,
        },
        port: u16::try_from(*port).ok()?,
    })
}

/// `None`: the error has nothing to do with the cluster.
pub(super) fn redirect(error: &RedisError) -> Option<Redirect> {
    let destination = || {
        let (_slot, address) = error.detail()?.split_once(' ')?;
        let (host, port) = address.split_whitespace().next()?.rsplit_once(':')?;
        Some((known(host), port.parse().ok()?))
    };
    Some(match code(error) {
        "MOVED" => destination().map_or(Redirect::Later, |(host, port)| Redirect::Moved(host, port)),
        "ASK" => destination().map_or(Redirect::Later, |(host, port)| Redirect::Ask(host, port)),
        "TRYAGAIN" => Redirect::Apart,
        "CLUSTERDOWN" => Redirect::Later,
        _ => return None,
    })
}

fn known(host: &str) -> Option<String> {
    (!host.is_empty() && host != "?").then(|| host.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(reply: &str) -> redis::RedisResult<Value> {
        redis::parse_redis_value(reply.as_bytes()).and_then(Value::extract_error)
    }

    #[test]
    fn slots_are_read_with_and_without_hosts() {
        let reply = "*2\r\n*4\r\n:0\r\n:5461\r\n*4\r\n$9\r\n127.0.0.1\r\n:7000\r\n$1\r\na\r\n*0\r\n*3\r\n$9\r\n127.0.0.1\r\n:7003\r\n$1\r\nb\r\n\
                     *3\r\n:5462\r\n:16383\r\n*3\r\n$-1\r\n:7001\r\n$1\r\nc\r\n";
        let range = |first, last, host: Option<&str>, port| Range {
            first,
            last,
            host: host.map(String::from),
            port,
        };
        let known = ranges(&parse(reply).expect("a reply"));
        let expected = vec![range(0, 5461, Some("127.0.0.1"), 7000), range(5462, 16383, None, 7001)];
        assert_eq!(known, Some(expected));
        assert_eq!(ranges(&parse("*0\r\n").expect("a reply")), Some(vec![]));
        for bad in [
            "+OK\r\n",
            "*1\r\n:1\r\n",
            "*1\r\n*3\r\n:0\r\n:99999\r\n*2\r\n$1\r\na\r\n:1\r\n",
        ] {
            assert_eq!(ranges(&parse(bad).expect("a reply")), None, "{bad}");
        }
    }

    #[test]
    fn redirections_are_told_apart() {
        use Redirect::{Apart, Ask, Later, Moved};
        let host = |host: &str| Some(host.to_owned());
        let cases = [
            ("MOVED 3999 127.0.0.1:6381", Some(Moved(host("127.0.0.1"), 6381))),
            ("MOVED 3999 ::1:6381", Some(Moved(host("::1"), 6381))),
            ("MOVED 3999 :6381", Some(Moved(None, 6381))),
            ("ASK 3999 shard-2.cache:6381", Some(Ask(host("shard-2.cache"), 6381))),
            ("MOVED garbled", Some(Later)),
            ("TRYAGAIN Multiple keys request during rehashing of slot", Some(Apart)),
            ("CLUSTERDOWN Hash slot not served", Some(Later)),
            ("READONLY You can't write against a read only replica.", None),
            ("ERR something else", None),
        ];
        for (line, expected) in cases {
            let error = parse(&format!("-{line}\r\n")).expect_err("an error");
            assert_eq!(redirect(&error), expected, "{line}");
        }
    }
}
