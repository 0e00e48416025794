//! The parts of a URL that logs may show.

use crate::connect::Scheme;

/// The scheme, hosts, ports, database and the names of the parameters. Nothing of it where a part may be a password in the wrong
/// place.
pub(super) fn shown(url: &str) -> String {
    let Some((scheme, rest)) = Scheme::split(url) else {
        return if url.is_empty() { "" } else { ".." }.into();
    };
    let word = url.split(':').next().unwrap_or_default();
    let rest = match scheme {
        Scheme::Memory => rest.bytes().all(is_plain).then(|| rest.to_owned()),
        Scheme::Quorum => Some(quorum(rest)),
        _ => rest
            .strip_prefix("//")
            .and_then(server)
            .map(|server| format!("//{server}")),
    };
    format!("{word}:{}", rest.as_deref().unwrap_or(".."))
}

fn quorum(rest: &str) -> String {
    let (parameters, nodes) = match rest.strip_prefix('?') {
        None => (String::new(), rest),
        Some(rest) => {
            let (parameters, nodes) = rest.split_once('|').unwrap_or((rest, ""));
            (format!("{}|", query(parameters)), nodes)
        }
    };
    let nodes: Vec<String> = nodes.split('|').map(shown).collect();
    parameters + &nodes.join("|")
}

/// The part after `//`. A password whose special characters are not encoded leaves an `@` behind the hosts.
fn server(rest: &str) -> Option<String> {
    let (authority, rest) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
    let (user, hosts) = match authority.rsplit_once('@') {
        Some((_, hosts)) => ("..@", hosts),
        None => ("", authority),
    };
    let (path, parameters) = rest.split_once('?').unwrap_or((rest, ""));
    let is_path = path.bytes().all(|byte| is_plain(byte) || byte == b'/');
    if rest.contains(['@', '#']) || !hosts.split(',').all(is_host) || !is_path {
        return None;
    }
    Some(format!("{user}{hosts}{path}{}", query(parameters)))
}

/// The parameters' names. If one of them has a secret, a piece of its value may look like a name.
fn query(parameters: &str) -> String {
    let names: Vec<&str> = parameters
        .split('&')
        .map(|parameter| parameter.split('=').next().unwrap_or_default())
        .collect();
    let is_secret = |name: &&str| {
        // These say where it is.
        let name = name.replace("password_file", "").replace("password_env", "");
        ["pass", "auth", "secret", "user"]
            .iter()
            .any(|sign| name.contains(sign))
    };
    let is_name = |name: &str| {
        name.bytes()
            .all(|byte| byte.is_ascii_lowercase() || b"_-".contains(&byte))
    };
    match names.as_slice() {
        [""] => String::new(),
        names if names.iter().any(is_secret) || !names.iter().all(|name| is_name(name)) => "?..".into(),
        names => {
            let names: Vec<String> = names.iter().map(|name| format!("{name}=..")).collect();
            format!("?{}", names.join("&"))
        }
    }
}

/// Empty, as for the path of a socket, a host, or a host and its port.
fn is_host(host: &str) -> bool {
    let (host, port) = match host.strip_prefix('[').and_then(|host| host.split_once(']')) {
        Some((address, port)) => {
            let is_address = address
                .bytes()
                .all(|byte| byte.is_ascii_hexdigit() || b":.".contains(&byte));
            return is_address && (port.is_empty() || port.strip_prefix(':').is_some_and(is_port));
        }
        None => host.split_once(':').unwrap_or((host, "")),
    };
    host.bytes().all(is_plain) && (port.is_empty() || !host.is_empty() && is_port(port))
}

fn is_port(port: &str) -> bool {
    port.parse::<u16>().is_ok()
}

fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"._-".contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_operator_sees_which_server_it_is() {
        for (url, expected) in [
            ("memory:", "memory:"),
            ("memory:jobs", "memory:jobs"),
            ("redis://cache", "redis://cache"),
            (
                "REDIS://app:secret@cache:6380/2?prefix=shop&grace=1s",
                "REDIS://..@cache:6380/2?prefix=..&grace=..",
            ),
            ("redis+sentinel://a,b:26380/main", "redis+sentinel://a,b:26380/main"),
            (
                "redis+sentinel://a/main?password_file=/p&sentinel_password_env=P",
                "redis+sentinel://a/main?password_file=..&sentinel_password_env=..",
            ),
            ("redis+unix:///run/redis.sock", "redis+unix:///run/redis.sock"),
            (
                "mysql://app:sec%40ret@[::1]:3307/shop?strategy=lease",
                "mysql://..@[::1]:3307/shop?strategy=..",
            ),
            (
                "postgres://app:secret@a,b:5433/shop?table=locks",
                "postgres://..@a,b:5433/shop?table=..",
            ),
            ("zookeeper://a:2181,b:2181/locks", "zookeeper://a:2181,b:2181/locks"),
            (
                "quorum:?patience=1s|redis://:secret@a|redis://b/1|memory:c",
                "quorum:?patience=..|redis://..@a|redis://b/1|memory:c",
            ),
        ] {
            assert_eq!(shown(url), expected);
        }
    }

    #[test]
    fn a_password_in_the_wrong_place_is_not_shown() {
        let schemes = [
            "redis",
            "mysql",
            "postgres",
            "zookeeper",
            "redis+sentinel",
            "quorum:redis",
        ];
        let rests = [
            "app:cret/x@host/db",
            "app:cret?x@host/db",
            "app:cret#x@host/db",
            "app:x/cret@host",
            "app:1?cret&x=y@host",
            "app:1/cret@host",
            ":cret",
            "cret:x y",
            "host/?password=ab&cret",
            "host/?sentinel_password=cret",
            "host/a#cret",
            "user@cret@host/db",
            "host?pass=a&cret=b",
            "host?auth=cret",
            "host?prefix=cret",
            "h\u{f6}cret",
            "app:%2Fcret",
        ];
        for scheme in schemes {
            for rest in rests {
                let shown = shown(&format!("{scheme}://{rest}"));
                assert!(!shown.contains("cret"), "{scheme}://{rest}: {shown}");
                assert!(shown.starts_with(scheme), "{shown}");
            }
        }
        for url in [
            "cret",
            "cret:6379",
            "user:cret@host",
            "postgres://user:cret@host",
            "memory:a/cret",
        ] {
            assert!(!shown(url).contains("cret"), "{url}");
        }
    }
}
