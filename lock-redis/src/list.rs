//! Names with a hold or a queue, by `SCAN` on each master.

use std::collections::BTreeSet;
use std::future::pending;

use lock_core::backend::{ListFrom, ListPage};
use lock_core::{Error, ErrorKind, LockName, Result};
use redis::{Cmd, Value, cmd};

use crate::client::Client;
use crate::error::Failure;
use crate::names::{as_pattern, has_plain_keys, name_of};
use crate::protocol::unexpected_reply;

/// The number of keys that one `SCAN` reads. The server serves nobody else meanwhile, for about a tenth of a
/// millisecond.
const KEYS_AT_ONCE: usize = 500;

/// The most scans for one page. The page is short if most of those keys are not locks.
const SCANS: usize = 200;

/// The position of a listing: `CURSOR ADDRESS`, where the address is that of a master of a cluster.
struct Place {
    cursor: u64,
    address: String,
}

impl Place {
    fn of(from: &ListFrom) -> Result<Self> {
        let Some(note) = from.after() else {
            return Ok(Self {
                cursor: 0,
                address: String::new(),
            });
        };
        let parsed = note.split_once(' ').and_then(|(cursor, address)| {
            Some(Self {
                cursor: cursor.parse().ok()?,
                address: address.to_owned(),
            })
        });
        parsed.ok_or_else(|| {
            let message = "a page of names begins where another backend's page has ended";
            Error::new(ErrorKind::Misconfigured, message)
        })
    }

    fn note(&self) -> String {
        format!("{} {}", self.cursor, self.address)
    }
}

impl Client {
    /// The next names. A key that is there during the whole scan is found at least once; it may be found twice.
    pub(crate) async fn list(&self, from: &ListFrom, at_most: usize) -> Result<ListPage> {
        let mut place = Place::of(from)?;
        let pattern = self.pattern(from.name_prefix());
        let mut names = BTreeSet::new();
        for _ in 0..SCANS {
            let Some(server) = self.servers.scanned(&place.address).await? else {
                return Ok(ListPage::new(names, None));
            };
            if server.address != place.address {
                // The master of before is done, or has gone.
                place = Place {
                    cursor: 0,
                    address: server.address,
                };
            }
            let connection = server.connection;
            let session = connection.session(pending()).await?;
            let scan = scan(place.cursor, pattern.as_deref());
            let reply = connection.send(&session, &scan).await;
            let reply = reply.map_err(|failure: Failure| connection.lock_error(failure))?;
            let (cursor, keys) = scanned(&reply).ok_or_else(unexpected_reply)?;
            let found = keys.iter().filter_map(|key| name_of(&self.prefix, key));
            names.extend(found.filter(|name: &LockName| name.as_str().starts_with(from.name_prefix())));
            place.cursor = cursor;
            if cursor == 0 {
                let Some(next) = self.servers.scanned_after(&place.address).await? else {
                    return Ok(ListPage::new(names, None));
                };
                place.address = next.address;
            }
            if names.len() >= at_most {
                break;
            }
        }
        Ok(ListPage::new(names, Some(from.go_on_after(place.note()))))
    }

    /// The pattern of all keys whose names begin with the prefix, if the keys contain the names as they are.
    fn pattern(&self, prefix: &str) -> Option<String> {
        let plain = [&self.prefix, prefix].concat();
        has_plain_keys(&plain).then(|| format!("*{}*", as_pattern(&plain)))
    }
}

fn scan(cursor: u64, pattern: Option<&str>) -> Cmd {
    let mut command = cmd("SCAN");
    command.arg(cursor);
    if let Some(pattern) = pattern {
        command.arg("MATCH").arg(pattern);
    }
    command.arg("COUNT").arg(KEYS_AT_ONCE);
    command
}

/// The next cursor, and the keys that are text.
fn scanned(reply: &Value) -> Option<(u64, Vec<&str>)> {
    let Value::Array(parts) = reply else { return None };
    let [Value::BulkString(cursor), Value::Array(keys)] = &parts[..] else {
        return None;
    };
    let cursor = std::str::from_utf8(cursor).ok()?.parse().ok()?;
    let keys = keys.iter().filter_map(|key| match key {
        Value::BulkString(key) => std::str::from_utf8(key).ok(),
        _ => None,
    });
    Some((cursor, keys.collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_goes_on_where_the_one_before_ended() {
        let place = Place {
            cursor: 77,
            address: "[::1]:7000".into(),
        };
        let from = ListFrom::prefix("a").go_on_after(place.note());
        let same = Place::of(&from).expect("ours");
        assert_eq!((same.cursor, &*same.address), (77, "[::1]:7000"));
        let strange = Place::of(&ListFrom::all().go_on_after("x"));
        assert_eq!(strange.map(|_| ()).unwrap_err().kind(), ErrorKind::Misconfigured);
    }
}
