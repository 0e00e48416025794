//! Names with a hold or a queue, by `SCAN` on each master.

use std::collections::BTreeSet;
use std::future::pending;

use lock_core::backend::{ListFrom, ListPage};
use lock_core::{Error, ErrorKind, LockName, Result};
use redis::{Cmd, Value, cmd};

use crate::client::Client;
use crate::connection::Session;
use crate::error::Failure;
use crate::names::{as_pattern, has_plain_keys, name_of};
use crate::protocol::unexpected_reply;
use crate::servers::next_scanned;

/// The most keys that one `SCAN` reads. The server serves nobody else meanwhile, for about a tenth of a
/// millisecond.
const KEYS_AT_ONCE: usize = 500;

/// The most scans for one page. The page is short if most of those keys are not locks.
const SCANS: usize = 200;

/// The number of keys that the next `SCAN` of a page reads. The first one reads as many as the page has names, so that a short page stays
/// short. If most keys are not locks, the next ones read more.
fn more_keys(keys: usize) -> usize {
    (2 * keys).min(KEYS_AT_ONCE)
}

/// The position of a listing: `CURSOR RUN ADDRESS`, and the addresses of the masters that are done.
#[derive(Debug, Default, PartialEq, Eq)]
struct Place {
    cursor: u64,
    /// The run of the server whose cursor it is. To another one it says nothing.
    run: String,
    /// Of a master of a cluster; else empty.
    address: String,
    done: Vec<String>,
}

impl Place {
    fn of(from: &ListFrom) -> Result<Self> {
        let Some(note) = from.after() else {
            return Ok(Self::default());
        };
        let mut words = note.split(' ').map(str::to_owned);
        let parsed = match (words.next().map(|cursor| cursor.parse()), words.next(), words.next()) {
            (Some(Ok(cursor)), Some(run), Some(address)) => Some(Self {
                cursor,
                run,
                address,
                done: words.collect(),
            }),
            _ => None,
        };
        parsed.ok_or_else(|| {
            let message = "a page of names begins where another backend's page has ended";
            Error::new(ErrorKind::Misconfigured, message)
        })
    }

    fn note(&self) -> String {
        let own = format!("{} {} {}", self.cursor, self.run, self.address);
        self.done.iter().fold(own, |note, done| [&note, " ", done].concat())
    }

    /// Goes on at this server. Where it is another one than before, or has been started anew, that is its beginning.
    fn go_on_at(&mut self, address: String, run: String) {
        if (&self.address, &self.run) != (&address, &run) {
            (self.cursor, self.address, self.run) = (0, address, run);
        }
    }

    /// The server has no more keys.
    fn finish_server(&mut self) {
        (self.cursor, self.run) = (0, String::new());
        self.done.push(std::mem::take(&mut self.address));
    }
}

impl Client {
    /// The next names. A key that is there during the whole scan is found at least once; it may be found twice.
    pub(crate) async fn list(&self, from: &ListFrom, at_most: usize) -> Result<ListPage> {
        let mut place = Place::of(from)?;
        let pattern = self.pattern(from.name_prefix());
        let mut names = BTreeSet::new();
        let mut servers = self.servers.scanned().await?;
        let mut keys_at_once = at_most.clamp(1, KEYS_AT_ONCE);
        for _ in 0..SCANS {
            let Some(server) = next_scanned(&servers, &place.address, &place.done) else {
                return Ok(ListPage::new(names, None));
            };
            if names.len() >= at_most {
                break;
            }
            let connection = &server.connection;
            let session = match connection.session(pending()).await {
                Ok(session) => session,
                Err(error) => {
                    // Its replica may have taken its place since.
                    let now = self.servers.scanned().await?;
                    if now.iter().any(|known| known.address == server.address) {
                        return Err(error);
                    }
                    servers = now;
                    continue;
                }
            };
            let run = connection.run_of(&session).await?;
            place.go_on_at(
                server.address.clone(),
                run.unwrap_or_else(|| self.unknown_run(&session)),
            );
            let scan = scan(place.cursor, pattern.as_deref(), keys_at_once);
            keys_at_once = more_keys(keys_at_once);
            let reply = connection.send(&session, &scan).await;
            let reply = reply.map_err(|failure: Failure| connection.lock_error(failure))?;
            let (cursor, keys) = scanned(&reply).ok_or_else(unexpected_reply)?;
            let found = keys.iter().filter_map(|key| name_of(&self.prefix, key));
            names.extend(found.filter(|name: &LockName| name.as_str().starts_with(from.name_prefix())));
            place.cursor = cursor;
            if cursor == 0 {
                place.finish_server();
            }
        }
        Ok(ListPage::new(names, Some(from.go_on_after(place.note()))))
    }

    /// For a server that does not state its run: no connection outlives that.
    fn unknown_run(&self, session: &Session) -> String {
        let channel = self.servers.channel();
        let own = channel.rsplit(':').next().unwrap_or_default();
        format!("{own}-{}", session.generation())
    }

    /// The pattern of all keys whose names begin with the prefix, if the keys contain the names as they are.
    fn pattern(&self, prefix: &str) -> Option<String> {
        let plain = [&self.prefix, prefix].concat();
        has_plain_keys(&plain).then(|| format!("*{}*", as_pattern(&plain)))
    }
}

fn scan(cursor: u64, pattern: Option<&str>, keys: usize) -> Cmd {
    let mut command = cmd("SCAN");
    command.arg(cursor);
    if let Some(pattern) = pattern {
        command.arg("MATCH").arg(pattern);
    }
    command.arg("COUNT").arg(keys);
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

    fn place(done: &[&str]) -> Place {
        Place {
            cursor: 77,
            run: "run".into(),
            address: "[::1]:7000".into(),
            done: done.iter().map(|done| (*done).to_owned()).collect(),
        }
    }

    #[test]
    fn a_page_goes_on_where_the_one_before_ended() {
        let alone = Place {
            address: String::new(),
            ..place(&[])
        };
        for place in [place(&[]), place(&["a:1", "b:2"]), alone] {
            let from = ListFrom::prefix("a").go_on_after(place.note());
            assert_eq!(Place::of(&from).expect("ours"), place);
        }
        for strange in ["x", "7", "7 run", "x run a:1", ""] {
            let strange = Place::of(&ListFrom::all().go_on_after(strange));
            assert_eq!(strange.unwrap_err().kind(), ErrorKind::Misconfigured);
        }
    }

    /// A cursor of another server, or of one that was started anew, would pass over names.
    #[test]
    fn a_cursor_is_of_one_run_of_a_server() {
        let go_on_at = |address: &str, run: &str| {
            let mut place = place(&["a:1"]);
            place.go_on_at(address.to_owned(), run.to_owned());
            assert_eq!((&*place.address, &*place.run, place.done.len()), (address, run, 1));
            place.cursor
        };
        assert_eq!(go_on_at("[::1]:7000", "run"), 77);
        assert_eq!([go_on_at("[::1]:7000", "next"), go_on_at("b:2", "run")], [0, 0]);
    }

    #[test]
    fn a_page_of_few_names_among_many_keys_reads_many_of_them() {
        let reads = std::iter::successors(Some(1), |keys| Some(more_keys(*keys)));
        assert!(reads.take(SCANS).sum::<usize>() > 95_000);
        assert_eq!(more_keys(KEYS_AT_ONCE), KEYS_AT_ONCE);
    }

    #[test]
    fn a_server_without_more_keys_is_done() {
        let mut place = place(&["a:1"]);
        place.finish_server();
        assert_eq!((place.cursor, &*place.run, &*place.address), (0, "", ""));
        assert_eq!(place.done, ["a:1", "[::1]:7000"]);
    }
}
