//! The Sentinels that say which server is the master.

use std::fmt;

use lock_core::{CredentialSource, Result};
use lock_kit::url::two_passwords;

use super::hosts::Address;
use super::misconfigured;

/// The Sentinels of one master.
#[derive(Clone)]
pub(crate) struct Sentinels {
    pub(crate) servers: Vec<Address>,
    /// As the Sentinels call it.
    pub(crate) master: String,
    pub(crate) user: Option<String>,
    pub(crate) password: Option<String>,
    pub(crate) credentials: Option<CredentialSource>,
}

impl Sentinels {
    pub(super) fn new(servers: Vec<Address>, master: String) -> Self {
        Self {
            servers,
            master,
            user: None,
            password: None,
            credentials: None,
        }
    }

    pub(super) fn check(&self) -> Result<()> {
        let lacks = |(host, port): &Address| host.is_empty() || *port == 0;
        if self.servers.is_empty() || self.servers.iter().any(lacks) {
            return Err(misconfigured(
                "a Sentinel lacks its host or port: write redis+sentinel://host:port,host:port/MASTER",
            ));
        }
        // A Sentinel takes no others.
        let is_good = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
        if self.master.is_empty() || !self.master.chars().all(is_good) {
            return Err(misconfigured(
                "the name of the master is missing, or has other characters than letters, digits, '.', '-' and '_': write \
                 redis+sentinel://host:port,host:port/MASTER, with the name that `sentinel monitor` gives it",
            ));
        }
        match (&self.user, &self.password, &self.credentials) {
            (_, Some(_), Some(_)) => Err(two_passwords("the Sentinels")),
            (Some(_), None, None) => Err(misconfigured(
                "the user of the Sentinels has no password: set sentinel_password",
            )),
            _ => Ok(()),
        }
    }
}

impl fmt::Debug for Sentinels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sentinels")
            .field("servers", &self.servers)
            .field("master", &self.master)
            .field("user", &self.user)
            .field("credentials", &self.credentials)
            .finish_non_exhaustive()
    }
}

/// Splits `authority/MASTER/DATABASE?..`: returns the master's name, and the same text without it.
pub(super) fn split_master(rest: &str) -> (String, String) {
    let path = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(path);
    let Some(path) = path.strip_prefix('/') else {
        return (String::new(), rest.to_owned());
    };
    let end = path.find(['/', '?', '#']).unwrap_or(path.len());
    let (master, behind) = path.split_at(end);
    (master.to_owned(), format!("{authority}{behind}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_the_master_comes_before_the_database() {
        for (rest, master, others) in [
            ("a:1/m/2?x=y", "m", "a:1/2?x=y"),
            ("a:1/m?x=/y", "m", "a:1?x=/y"),
            ("u:p@a/m/", "m", "u:p@a/"),
            ("a?x=/y", "", "a?x=/y"),
            ("a/", "", "a"),
        ] {
            assert_eq!(split_master(rest), (master.to_owned(), others.to_owned()), "{rest}");
        }
    }
}
