//! Lists of hosts in a URL, which a parser of URLs refuses.

use lock_core::Result;

use super::misconfigured;

/// Host and port.
pub(crate) type Address = (String, u16);

/// Splits what stands behind `scheme://`: returns the hosts of its list, and the same text with the first host alone.
///
/// # Errors
/// Does not show any part of the text: it may be a part of the password.
pub(super) fn split(rest: &str, default_port: u16) -> Result<(Vec<Address>, String)> {
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, behind) = rest.split_at(end);
    let (credentials, list) = match authority.rsplit_once('@') {
        Some((credentials, list)) => (format!("{credentials}@"), list),
        None => (String::new(), authority),
    };
    let hosts = list.split(',').map(|host| address(host.trim(), default_port));
    let hosts: Option<Vec<Address>> = hosts.collect();
    let hosts = hosts.ok_or_else(|| {
        misconfigured("a host of the list in the URL lacks its name or has a bad port: write host:port,host:port")
    })?;
    let first = list.split(',').next().unwrap_or_default().trim();
    Ok((hosts, format!("{credentials}{first}{behind}")))
}

/// `host`, `host:port`, `[::1]` or `[::1]:port`.
fn address(text: &str, default_port: u16) -> Option<Address> {
    let (host, port) = match text.strip_prefix('[') {
        Some(bracketed) => {
            let (host, behind) = bracketed.split_once(']')?;
            (
                host,
                if behind.is_empty() {
                    None
                } else {
                    Some(behind.strip_prefix(':')?)
                },
            )
        }
        None => match text.rsplit_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (text, None),
        },
    };
    let port = match port {
        Some(port) => port.parse().ok().filter(|port| *port != 0)?,
        None => default_port,
    };
    (!host.is_empty()).then(|| (host.to_owned(), port))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_split_and_the_rest_kept() {
        let host = |host: &str, port| (host.to_owned(), port);
        let cases = [
            ("a", vec![host("a", 6379)], "a"),
            ("a:1,b", vec![host("a", 1), host("b", 6379)], "a:1"),
            (
                "ann:x%2Cy@[::1]:7000,[::2],c:3/0?grace=1s",
                vec![host("::1", 7000), host("::2", 6379), host("c", 3)],
                "ann:x%2Cy@[::1]:7000/0?grace=1s",
            ),
            (":p@w@a,b?x=,", vec![host("a", 6379), host("b", 6379)], ":p@w@a?x=,"),
        ];
        for (rest, hosts, first) in cases {
            assert_eq!(split(rest, 6379).expect("a list"), (hosts, first.to_owned()), "{rest}");
        }
        for bad in ["", "a,", ",a", "a:0", "a:x", "secret@a:70000", "[::1", "[::1]7", ":1"] {
            let error = split(bad, 6379).expect_err(bad);
            assert!(!error.to_string().contains("secret"), "{error}");
        }
    }
}
