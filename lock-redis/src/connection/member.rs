//! Since when a server can be trusted to have forgotten no lock that lives.
//!
//! A mark at the server says which run of which server wrote it, and when. A server that was restarted, or promoted from a
//! replica, has another one's mark or none. A master of a cluster has several, in slots of its own, so that it knows them again
//! when some of its slots move away.

use std::collections::HashSet;
use std::ops::Range;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{ErrorKind, RedisError, RedisResult, ServerErrorKind, Value, cmd, from_redis_value, pipe};
use tokio::time::Instant;

use super::identity::Identity;
use crate::error::code;
use crate::names::{self, SLOTS};
use crate::protocol::arguments::MarkArguments;
use crate::protocol::{MARK, PubSub};

/// The facts that a connection knows of its server.
#[derive(Clone, Debug)]
pub(super) struct Member {
    /// From when on the server gives fresh grants, as long as it has the same data.
    pub(super) fresh_from: Instant,
    /// False for a master without slots, which can have no mark.
    pub(super) has_marks: bool,
    /// The id of its data. A connection outlives a master's demotion and the promotion after it, so each script that grants
    /// looks whether the server still has this one. To look there costs the server a few microseconds and no round trip, and
    /// nothing can happen between the look and the grant.
    pub(super) data: String,
}

impl Member {
    /// Reads the server's marks, and writes those that are missing. A master without slots can have none: requests that keep holds are sent on
    /// to it, and for fresh grants its delay begins now.
    pub(super) async fn new(
        connection: &mut MultiplexedConnection,
        prefix: &str,
        identity: &Identity,
        delay: Duration,
        of_cluster: bool,
    ) -> RedisResult<Self> {
        let marks = match of_cluster {
            true => find(connection, prefix).await?,
            false => vec![(names::mark(prefix, 0), None)],
        };
        let rest = match marks.is_empty() {
            true => delay,
            false => {
                let read = read(connection, &marks, identity).await;
                let (since, now) = if of_cluster { read.map_err(as_passing) } else { read }?;
                remaining(since, now, delay)
            }
        };
        Ok(Self {
            // After the answer: by then the server's clock says at least its `now`.
            fresh_from: Instant::now() + rest,
            has_marks: !marks.is_empty(),
            data: identity.data.clone(),
        })
    }
}

/// The key of a mark, and its value.
type Mark = (String, Option<String>);

/// The number of marks of a master of a cluster.
const MARKS: usize = 3;

/// By then every slot has one almost certainly: a slot has none with the probability `e^-32`.
const MOST_NUMBERS: u32 = 32 * SLOTS as u32;

const CLUSTER_DOWN: ErrorKind = ErrorKind::Server(ServerErrorKind::ClusterDown);

/// The marks in slots that the server has, and those that it lacks: the first ones by their numbers.
///
/// # Errors
/// Any answer but a mark, or that the master lacks its slot. A cluster that is down must not pass for one in which this master has
/// other slots: its marks would be missed and written anew, and its delay would begin again.
async fn find(connection: &mut MultiplexedConnection, prefix: &str) -> RedisResult<Vec<Mark>> {
    let mut marks = Vec::new();
    let mut elsewhere = HashSet::new();
    let mut numbers = 0..MOST_NUMBERS;
    while elsewhere.len() < usize::from(SLOTS) && !numbers.is_empty() {
        let keys = next_keys(prefix, &mut numbers, &elsewhere);
        let mut commands = pipe();
        for key in &keys {
            commands.add_command(cmd("GET").arg(key).to_owned());
        }
        let replies = connection.send_packed_commands(&commands, 0, keys.len()).await?;
        for (key, reply) in keys.into_iter().zip(replies) {
            match reply.extract_error() {
                Ok(mark) => marks.push((key, from_redis_value(mark)?)),
                Err(error) if is_of_slot(&error) => drop(elsewhere.insert(names::slot(&key))),
                Err(error) => return Err(error),
            }
            if marks.len() == MARKS {
                return Ok(marks);
            }
        }
    }
    Ok(marks)
}

/// Whether the master only lacks the slot: another one has it, takes it over, or nobody has it. It may serve all others.
fn is_of_slot(error: &RedisError) -> bool {
    match code(error) {
        "MOVED" | "ASK" => true,
        "CLUSTERDOWN" => error.detail().is_some_and(|why| why.contains("slot not served")),
        _ => false,
    }
}

/// The marks that are asked for next: a few at first, since most masters have many slots, and one for a slot, unless another
/// master has that.
fn next_keys(prefix: &str, numbers: &mut Range<u32>, elsewhere: &HashSet<u16>) -> Vec<String> {
    const LEAST: usize = 16;
    const MOST: usize = 1024;
    let at_most = (8 * elsewhere.len()).clamp(LEAST, MOST);
    let mut slots = elsewhere.clone();
    let keys = numbers.map(|number| names::mark(prefix, number));
    keys.filter(|key| slots.insert(names::slot(key)))
        .take(at_most.min(usize::from(SLOTS) - elsewhere.len()))
        .collect()
}

/// Since when the server has its data, and the time, in milliseconds of the server's clock.
async fn read(connection: &mut MultiplexedConnection, marks: &[Mark], identity: &Identity) -> RedisResult<(u64, u64)> {
    let known = known(marks.iter().filter_map(|(_, mark)| mark.as_deref()), identity);
    let known = known.map_or_else(String::new, |since| since.to_string());
    let mut commands = pipe();
    for (key, _) in marks {
        let arguments = MarkArguments {
            own_run: (&*identity.run).into(),
            own_promotion: (&*identity.promotion).into(),
            known_since: (&*known).into(),
        };
        commands.add_command(MARK.form(PubSub::Plain).run_with_text(&[key], &arguments.all()));
    }
    latest(connection.send_packed_commands(&commands, 0, marks.len()).await?)
}

/// The latest of the moments since when the server has its data, and the newest time, in the replies to several marks.
fn latest(replies: Vec<Value>) -> RedisResult<(u64, u64)> {
    let mut read = None;
    for reply in replies {
        let (since, now): (u64, u64) = from_redis_value(reply.extract_error()?)?;
        let latest = read.map_or(since, |(latest, _)| since.max(latest));
        read = Some((latest, now));
    }
    read.ok_or_else(|| (ErrorKind::Parse, "a mark was not answered").into())
}

/// A slot whose mark was just found may move before the mark is written. The next connection finds another one.
fn as_passing(error: RedisError) -> RedisError {
    match is_of_slot(&error) {
        true => (CLUSTER_DOWN, "the slot of a mark has moved").into(),
        false => error,
    }
}

/// Since when this run has its data, by its own marks.
fn known<'a>(marks: impl Iterator<Item = &'a str>, identity: &Identity) -> Option<u64> {
    let was_promoted = identity.promotion.contains(|digit| digit != '0');
    let own = marks.filter_map(|mark| {
        let mut words = mark.split(' ');
        let (run, promotion, since) = (words.next()?, words.next()?, words.next()?.parse().ok()?);
        let is_own = run == identity.run && (promotion == identity.promotion || !was_promoted);
        is_own.then_some(since)
    });
    // The others may be from before a promotion that the server does not know any more.
    own.max()
}

/// The rest of the delay.
fn remaining(since: u64, now: u64, delay: Duration) -> Duration {
    delay.saturating_sub(Duration::from_millis(now.saturating_sub(since)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::lock_error;

    #[test]
    fn the_delay_is_counted_from_the_mark() {
        let (delay, ms) = (Duration::from_secs(60), Duration::from_millis);
        assert_eq!(remaining(1000, 1000, delay), delay);
        assert_eq!(remaining(1000, 60_999, delay), ms(1));
        assert_eq!(remaining(1000, 61_000, delay), ms(0));
    }

    /// Otherwise a user who has a URL of a cluster is told to use one.
    #[test]
    fn a_mark_whose_slot_moves_meanwhile_is_found_by_the_next_connection() {
        let reply = |line: &str| redis::parse_redis_value(format!("{line}\r\n").as_bytes()).expect("a reply");
        let marks = |third| vec![reply("*2\r\n:5\r\n:9"), reply("*2\r\n:7\r\n:9"), reply(third)];
        assert_eq!(latest(marks("*2\r\n:6\r\n:10")).expect("all are marks"), (7, 10));
        let is_retryable = |third| {
            let error = latest(marks(third)).map_err(as_passing);
            lock_error(error.expect_err("one is an error"), &"cache:6379").is_retryable()
        };
        assert!(is_retryable("-MOVED 3999 127.0.0.1:6381"));
        assert!(is_retryable("-ASK 3999 127.0.0.1:6381"));
        assert!(is_retryable("-CLUSTERDOWN Hash slot not served"));
        assert!(!is_retryable(
            "-NOPERM this user has no permissions to run the 'eval' command"
        ));
    }

    #[test]
    fn only_some_errors_are_of_one_slot() {
        let error = |line: &str| {
            let reply = redis::parse_redis_value(format!("-{line}\r\n").as_bytes());
            let error = reply.and_then(Value::extract_error);
            error.expect_err("an error")
        };
        for line in [
            "MOVED 3999 127.0.0.1:6381",
            "ASK 3999 127.0.0.1:6381",
            "CLUSTERDOWN Hash slot not served",
        ] {
            assert!(is_of_slot(&error(line)), "{line}");
        }
        for line in [
            "CLUSTERDOWN The cluster is down",
            "NOPERM this user has no permissions to run the 'get' command",
            "LOADING Redis is loading the dataset in memory",
            "ERR something else",
        ] {
            assert!(!is_of_slot(&error(line)), "{line}");
        }
    }

    /// As a master of one slot answers.
    #[test]
    fn a_slot_is_asked_for_once_until_all_were() {
        let (mut elsewhere, mut numbers, mut asked) = (HashSet::new(), 0..MOST_NUMBERS, Vec::new());
        while elsewhere.len() < SLOTS.into() {
            let keys = next_keys("a:", &mut numbers, &elsewhere);
            assert!(
                !keys.is_empty(),
                "{} slots have no mark",
                usize::from(SLOTS) - elsewhere.len()
            );
            elsewhere.extend(keys.iter().map(|key| names::slot(key)));
            asked.push(keys.len());
        }
        assert_eq!(asked[..3], [16, 128, 1024]);
        assert_eq!(asked.iter().sum::<usize>(), usize::from(SLOTS));
    }

    #[test]
    fn any_mark_of_the_run_counts_since_its_last_promotion() {
        let identity = |promotion: &str| Identity {
            run: "a".into(),
            promotion: promotion.into(),
            data: "d".into(),
        };
        let known = |promotion: &str, marks: &[&str]| known(marks.iter().copied(), &identity(promotion));
        assert_eq!(known("00", &[]), None);
        assert_eq!(known("00", &["b 00 1", "odd", "a 00", "a 00 x"]), None);
        assert_eq!(known("00", &["b 00 1", "a 00 5"]), Some(5));
        assert_eq!(known("00", &["a 00 5", "a 07 9"]), Some(9), "promoted long ago");
        assert_eq!(known("07", &["a 00 99", "a 07 9", "a 07 8"]), Some(9));
        assert_eq!(known("07", &["a 00 5", "b 07 9"]), None);
    }
}
