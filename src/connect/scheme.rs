//! The first word of a URL.

/// The backend that a URL's scheme selects.
#[derive(Clone, Copy)]
pub(crate) enum Scheme {
    Memory,
    Redis,
    MySql,
    Postgres,
    ZooKeeper,
    Quorum,
}

impl Scheme {
    /// The scheme, in any case, and the rest of the URL. `None` for an unknown scheme.
    pub(crate) fn split(url: &str) -> Option<(Self, &str)> {
        let (scheme, rest) = url.split_once(':')?;
        let scheme = match scheme.to_ascii_lowercase().as_str() {
            "memory" => Self::Memory,
            "redis" | "rediss" | "redis+unix" | "unix" | "valkey" | "valkeys" | "valkey+unix" => Self::Redis,
            "redis+cluster" | "rediss+cluster" | "valkey+cluster" | "valkeys+cluster" => Self::Redis,
            "redis+sentinel" | "rediss+sentinel" | "valkey+sentinel" | "valkeys+sentinel" => Self::Redis,
            "mysql" | "mariadb" => Self::MySql,
            "postgres" | "postgresql" => Self::Postgres,
            "zookeeper" | "zookeeper+tls" => Self::ZooKeeper,
            "quorum" => Self::Quorum,
            _ => return None,
        };
        Some((scheme, rest))
    }
}

const KNOWN: &str =
    "memory:, redis://, redis+sentinel://, redis+cluster://, mysql://, postgres://, zookeeper:// or quorum:";

/// The error for a URL that has no known scheme.
pub(crate) fn unknown(url: &str) -> String {
    let Some(scheme) = named(url) else {
        return format!("the URL begins with no scheme: use {KNOWN}");
    };
    match meant(&scheme) {
        Some(hint) => format!("the URL begins with `{scheme}`, which polylock does not know: {hint}"),
        None => format!("the URL begins with `{scheme}`, which polylock does not know: use {KNOWN}"),
    }
}

/// The word before `://`, or `jdbc`. What stands before a `:` alone may be a user, a password or a host: it is not repeated.
fn named(url: &str) -> Option<String> {
    let (word, rest) = url.split_once(':')?;
    let is_scheme = rest.starts_with("//") || word.eq_ignore_ascii_case("jdbc");
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte);
    (is_scheme && (1..=30).contains(&word.len()) && word.bytes().all(is_word)).then(|| word.to_ascii_lowercase())
}

/// The advice for a scheme that people write by mistake.
fn meant(scheme: &str) -> Option<&'static str> {
    Some(match scheme {
        "jdbc" => "leave out `jdbc:`",
        "pg" | "pgsql" | "postgres+tls" | "postgresql+psycopg" => "write postgres://user:password@host/database",
        "redis-sentinel" | "sentinel" | "redis-sentinels" => "write redis+sentinel://host[,host...]/MASTER",
        "redis-cluster" | "cluster" => "write redis+cluster://host:port[,host:port...]",
        "redis-socket" | "redis+socket" => "write redis+unix:///path",
        "redis+tls" | "redis+ssl" => "write rediss://host",
        "mysql+pymysql" | "mysqlx" | "mysql2" | "mysqls" => "write mysql://user:password@host/database",
        "zk" | "zookeepers" | "zookeeper+ssl" => "write zookeeper://host, or zookeeper+tls://host",
        "memory" => "write memory: or memory:NAME",
        "http" | "https" | "tcp" => "name the lock server by redis://, mysql://, postgres:// or zookeeper://",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_scheme_is_named_with_the_one_that_is_meant() {
        for (url, said) in [
            (
                "etcd://user:secret@host",
                "`etcd`, which polylock does not know: use memory:",
            ),
            (
                "PgSQL://user:secret@host",
                "`pgsql`, which polylock does not know: write postgres://",
            ),
            ("jdbc:mysql://host/db", "leave out `jdbc:`"),
            ("redis-sentinel://host/main", "write redis+sentinel://"),
            ("zk://host", "write zookeeper://"),
        ] {
            let message = unknown(url);
            assert!(message.contains(said) && !message.contains("secret"), "{message}");
        }
    }

    #[test]
    fn what_may_be_a_secret_is_not_repeated() {
        for url in [
            "",
            "localhost",
            "secret",
            "secret:6379",
            "user:secret@host",
            "se cret://host",
            "s\u{e9}cret://host",
        ] {
            let message = unknown(url);
            assert!(
                message.contains("no scheme: use memory:") && !message.contains("cret") && !message.contains("user"),
                "{message}"
            );
        }
    }
}
