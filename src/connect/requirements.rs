//! The parameters `require` and `trusting`, which URLs of all servers may have.

use lock_core::{Error, ErrorKind, Guarantee, Locker, Result};

use super::Scheme;

/// The guarantees that the application requires of its server, and those that an operator vouches for.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Requirements {
    require: Vec<Guarantee>,
    trusting: Vec<Guarantee>,
}

impl Requirements {
    /// The URL without these parameters, and what they say. Of a quorum's URL, those before its nodes.
    ///
    /// # Errors
    /// For what is no guarantee. The error repeats nothing that may be a part of a password.
    pub(super) fn split(url: &str) -> Result<(String, Self)> {
        let mut requirements = Self::default();
        let start = match Scheme::split(url) {
            // A node has none of its own.
            Some((Scheme::Quorum, rest)) if !rest.starts_with('?') => None,
            // Behind a `#` there are no parameters.
            _ => url.find(['?', '#']).filter(|at| url[*at..].starts_with('?')),
        };
        let Some(start) = start else {
            return Ok((url.to_owned(), requirements));
        };
        let (server, rest) = url.split_at(start);
        let (end, may_show) = match Scheme::split(url) {
            Some((Scheme::Quorum, _)) => (rest.find('|'), true),
            // Before an `@`, all may be a password in which the `?` is not percent-encoded.
            _ => (rest.find('#'), !rest.contains('@')),
        };
        let (query, rest) = rest.split_at(end.unwrap_or(rest.len()));
        let mut others = Vec::new();
        for parameter in query[1..].split('&') {
            match parameter.split_once('=') {
                Some(("require", list)) => requirements.require.extend(guarantees("require", list, may_show)?),
                Some(("trusting", list)) => requirements.trusting.extend(guarantees("trusting", list, may_show)?),
                _ => others.push(parameter),
            }
        }
        let query = match others.as_slice() {
            [] => String::new(),
            others => format!("?{}", others.join("&")),
        };
        // A quorum without settings begins with its first node.
        let rest = if query.is_empty() {
            rest.strip_prefix('|').unwrap_or(rest)
        } else {
            rest
        };
        Ok((format!("{server}{query}{rest}"), requirements))
    }

    pub(super) fn of(self, locker: Locker) -> Locker {
        required(locker, &self.require, &self.trusting)
    }
}

/// The locker, which requires these guarantees.
pub(crate) fn required(mut locker: Locker, require: &[Guarantee], trusting: &[Guarantee]) -> Locker {
    if !require.is_empty() {
        locker = locker.require(require.iter().copied());
    }
    if !trusting.is_empty() {
        locker = locker.trusting(trusting.iter().copied());
    }
    locker
}

/// `may_show`: whether an error may repeat what is no guarantee.
fn guarantees(parameter: &str, list: &str, may_show: bool) -> Result<Vec<Guarantee>> {
    // Some programs that put a URL together encode these.
    let list = list
        .replace("%2C", ",")
        .replace("%2c", ",")
        .replace("%3A", ":")
        .replace("%3a", ":");
    let no_list = || {
        let message =
            format!("the URL's parameter `{parameter}` is no list of guarantees: write {parameter}=fifo,ttl:1s");
        Error::new(ErrorKind::Misconfigured, message)
    };
    let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b",:-".contains(&byte);
    if !list.bytes().all(is_plain) {
        return Err(no_list());
    }
    let ids = list.split(',').filter(|id| !id.is_empty());
    let guarantees: Result<_> = ids.map(str::parse).collect();
    guarantees.map_err(|error| if may_show { error } else { no_list() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(url: &str) -> (String, Vec<String>, Vec<String>) {
        let (url, Requirements { require, trusting }) = Requirements::split(url).unwrap();
        let ids = |list: Vec<Guarantee>| list.iter().map(Guarantee::to_string).collect();
        (url, ids(require), ids(trusting))
    }

    #[test]
    fn only_these_parameters_are_taken_out() {
        for (url, rest, require, trusting) in [
            ("memory:", "memory:", "", ""),
            ("memory:a?require=fifo", "memory:a", "fifo", ""),
            (
                "redis://h/1?prefix=a&require=fifo,ttl:1s,permits:5&trusting=failover&grace=1s",
                "redis://h/1?prefix=a&grace=1s",
                "fifo ttl:1s permits:5",
                "failover",
            ),
            ("redis://h?require=fifo#x", "redis://h#x", "fifo", ""),
            (
                "redis://h?require=fifo#x?require=pass",
                "redis://h#x?require=pass",
                "fifo",
                "",
            ),
            ("redis://h#x?require=fifo", "redis://h#x?require=fifo", "", ""),
            ("redis://h?require=ttl%3A1s%2cfifo", "redis://h", "ttl:1s fifo", ""),
            ("mysql://h/d?require=", "mysql://h/d", "", ""),
            (
                "redis://h?require=fifo&require=failover",
                "redis://h",
                "fifo failover",
                "",
            ),
            ("zookeeper://a,b/c?acl=open", "zookeeper://a,b/c?acl=open", "", ""),
            (
                "quorum:?patience=1s&require=failover|redis://a?grace=1s|redis://b",
                "quorum:?patience=1s|redis://a?grace=1s|redis://b",
                "failover",
                "",
            ),
            (
                "quorum:?require=failover|redis://a|redis://b",
                "quorum:redis://a|redis://b",
                "failover",
                "",
            ),
            (
                "quorum:redis://a?require=fifo|redis://b",
                "quorum:redis://a?require=fifo|redis://b",
                "",
                "",
            ),
        ] {
            let (left, required, trusted) = split(url);
            assert_eq!(
                (&*left, required.join(" "), trusted.join(" ")),
                (rest, require.into(), trusting.into()),
                "{url}"
            );
        }
    }

    #[test]
    fn what_is_no_guarantee_is_refused_and_no_secret_is_repeated() {
        let refused = |url| {
            let error = Requirements::split(url).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Misconfigured);
            error.to_string()
        };
        assert!(refused("redis://h?require=fifoo").contains("`fifoo` is no guarantee: there are server-crash"));
        for url in ["redis://u:p?require=secreT@h", "redis://u:p?require=secret#@h"] {
            let error = refused(url);
            assert!(
                !error.to_lowercase().contains("secret") && error.contains("require=fifo,ttl:1s"),
                "{error}"
            );
        }
    }
}
