//! The URLs that servers are reached by.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

/// A server's URL, so that its address can be replaced by a proxy's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Url {
    /// With "://" and, if any, the credentials up to '@'.
    before: String,
    pub(crate) address: String,
    /// From the '/' of the path.
    after: String,
}

impl Url {
    pub(crate) fn new(scheme: &str, credentials: Option<(&str, &str)>, port: u16, path: &str) -> Self {
        let credentials = credentials.map(|(user, password)| format!("{}:{}@", encoded(user), encoded(password)));
        Self {
            before: format!("{scheme}://{}", credentials.unwrap_or_default()),
            address: format!("127.0.0.1:{port}"),
            after: path.into(),
        }
    }

    /// Takes a URL apart. Several hosts (ZooKeeper) stay together in the address.
    pub(crate) fn parse(url: &str) -> Option<Self> {
        let authority = url.find("://")? + 3;
        let path = url[authority..]
            .find(['/', '?', '#'])
            .map_or(url.len(), |at| authority + at);
        let address = url[authority..path]
            .rfind('@')
            .map_or(authority, |at| authority + at + 1);
        (address < path).then(|| Self {
            before: url[..address].into(),
            address: url[address..path].into(),
            after: url[path..].into(),
        })
    }

    /// The whole URL with another address.
    pub(crate) fn at(&self, address: &str) -> String {
        format!("{}{address}{}", self.before, self.after)
    }

    /// The port of the first host.
    pub(crate) fn port(&self) -> Option<u16> {
        self.address.split(',').next()?.rsplit_once(':')?.1.parse().ok()
    }
}

fn encoded(text: &str) -> impl std::fmt::Display {
    /// What RFC 3986 calls unreserved stays readable.
    const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');
    utf8_percent_encode(text, RESERVED)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_are_encoded() {
        let url = Url::new("mysql", Some(("app", "p@ss/w:rd")), 3306, "/db");
        assert_eq!(url.at(&url.address), "mysql://app:p%40ss%2Fw%3Ard@127.0.0.1:3306/db");
        assert_eq!(Url::parse(&url.at(&url.address)), Some(url));
    }

    #[test]
    fn any_part_may_be_left_out() {
        let url = Url::parse("redis://:pw@cache:6380/2?x=y").expect("a URL");
        assert_eq!((url.address.as_str(), url.port()), ("cache:6380", Some(6380)));
        assert_eq!(url.at("127.0.0.1:1"), "redis://:pw@127.0.0.1:1/2?x=y");
        let url = Url::parse("zookeeper://a:2181,b:2182/root").expect("a URL");
        assert_eq!((url.address.as_str(), url.port()), ("a:2181,b:2182", Some(2181)));
        assert_eq!(Url::parse("redis://host").expect("a URL").port(), None);
        assert_eq!(Url::parse("redis://"), None);
        assert_eq!(Url::parse("host:1"), None);
    }
}
