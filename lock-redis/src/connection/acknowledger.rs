//! Waits until replicas have the writes that the server answered, over a connection of its own: `WAIT` blocks all
//! requests after it on the same connection, but nothing else.

use std::iter::repeat_with;
use std::time::Duration;

use lock_core::{Error, ErrorKind};
use redis::{ErrorKind as DriverKind, FromRedisValue, RedisError, Value, pipe};
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use super::opened::{Opened, Role};
use crate::protocol::{self, WRITE_AGAIN};

/// The second connection of a session, which a task drives until all clones of this are dropped.
#[derive(Clone)]
pub(super) struct Acknowledger {
    /// The number of replicas that have to acknowledge.
    replicas: u32,
    questions: mpsc::UnboundedSender<Question>,
}

/// Asks for the number of replicas that have all writes before it, and waits for at most `limit`.
struct Question {
    /// Of a lock that was granted or renewed.
    key: String,
    limit: Duration,
    answer: oneshot::Sender<Answer>,
}

type Answer = Result<u32, Unacknowledged>;

/// Why a write does not count.
#[derive(Clone, Debug)]
pub(super) enum Unacknowledged {
    /// Only this number of replicas have acknowledged it in time.
    Short(u32),
    /// Others kept the connection waiting for too long.
    Late,
    /// The server has no such lock any more.
    Gone,
    /// The server rejected the question.
    Rejected(RedisError),
    /// The connection has ended, or is silent.
    Unknown,
}

impl Acknowledger {
    /// To be called in the runtime of the connection. `silence` is how long it may be silent after a request.
    pub(super) fn start(opened: Opened, role: Role, replicas: u32, silence: Duration) -> Self {
        let (questions, asked) = mpsc::unbounded_channel();
        let counter = Counter {
            opened,
            role,
            replicas,
            silence,
        };
        tokio::spawn(answer_all(counter, asked));
        Self { replicas, questions }
    }

    /// Waits until enough replicas have all that the server answered before this call, for a hold of this TTL, whose lock has
    /// this key.
    pub(super) async fn acknowledged(&self, key: &str, ttl: Duration) -> Result<(), Unacknowledged> {
        let (answer, answered) = oneshot::channel();
        let (key, limit) = (key.to_owned(), limit(ttl));
        let asked = self.questions.send(Question { key, limit, answer });
        asked.map_err(|_| Unacknowledged::Unknown)?;
        let answer = timeout(patience(ttl), answered).await;
        match answer.map_err(|_| Unacknowledged::Late)? {
            Ok(Ok(count)) if count >= self.replicas => Ok(()),
            Ok(Ok(count)) => Err(Unacknowledged::Short(count)),
            Ok(Err(why)) => Err(why),
            Err(_) => Err(Unacknowledged::Unknown),
        }
    }

    /// The error for a write that not enough replicas have acknowledged in time; `None`: nobody knows how many have.
    pub(super) fn short(&self, count: Option<u32>, server: &dyn std::fmt::Display) -> Error {
        let count = count.map_or_else(|| "not all".into(), |count| count.to_string());
        let what = format!(
            "{count} of {} replicas of Redis at {server} have acknowledged the write in time: check that they follow it",
            self.replicas
        );
        Error::new(ErrorKind::Unavailable, what)
    }
}

/// Answers all questions that have come so far at once. Ends when nobody can ask any more, or an answer is missing.
async fn answer_all(mut counter: Counter, mut asked: mpsc::UnboundedReceiver<Question>) {
    /// The most writes in front of one `WAIT`.
    const MOST: usize = 64;
    let mut questions: Vec<Question> = Vec::new();
    // One write is enough for all. After none was accepted, more are tried.
    let mut writes = 1;
    loop {
        if questions.is_empty() {
            let Some(first) = asked.recv().await else { return };
            questions.push(first);
        }
        while let Ok(question) = asked.try_recv() {
            questions.push(question);
        }
        // A caller that has gone does not listen.
        questions.retain(|question| !question.answer.is_closed());
        // The longest limit: a caller with a shorter one stops waiting by itself.
        let Some(limit) = questions.iter().map(|question| question.limit).max() else {
            continue;
        };
        let keys = questions.iter().take(writes).map(|question| &*question.key);
        let Some((written, count)) = counter.count(keys, limit).await else {
            return;
        };
        let was_written = written.iter().any(Result::is_ok);
        let failures = written.into_iter().map(Result::err).chain(repeat_with(|| None));
        let mut rest = Vec::new();
        for (question, failure) in questions.into_iter().zip(failures) {
            let answer = match failure {
                Some(why) => Err(why),
                None if was_written => count.clone(),
                // Without a write, the count says nothing about this key.
                None => {
                    rest.push(question);
                    continue;
                }
            };
            let _ = question.answer.send(answer);
        }
        questions = rest;
        writes = match was_written {
            true => 1,
            false => (2 * writes).min(MOST),
        };
    }
}

/// Counts replicas.
struct Counter {
    opened: Opened,
    role: Role,
    replicas: u32,
    silence: Duration,
}

impl Counter {
    /// Writes each of these keys again. Returns the outcome of each write, and the number of replicas that have all
    /// earlier writes, as soon as there are enough. `None`: the connection has ended, or is silent.
    async fn count(
        &mut self,
        keys: impl Iterator<Item = &str>,
        limit: Duration,
    ) -> Option<(Vec<Result<(), Unacknowledged>>, Answer)> {
        // `WAIT` waits for what its own connection wrote last, and so for all that was written before that. (On Redis 7.0 any
        // command would do in place of the write, on Redis 8 and Valkey 9 none.)
        let script = WRITE_AGAIN.form(self.role.wakes());
        // A master that takes over a hash slot serves only requests that begin with ASKING.
        let asks = self.role == Role::Master;
        let mut commands = pipe();
        for key in keys {
            if asks {
                commands.cmd("ASKING");
            }
            commands.add_command(script.run_with_text(&[key], &[] as &[&str]));
        }
        commands.cmd("WAIT").arg(self.replicas).arg(limit.as_millis().max(1));
        let replying = (self.opened.connection).send_packed_commands(&commands, 0, commands.len());
        let mut replies = timeout(limit + self.silence, replying).await.ok()?.ok()?;
        let count = replies
            .pop()?
            .extract_error()
            .and_then(|count| Ok(u32::from_redis_value(count)?));
        let written = replies.chunks(if asks { 2 } else { 1 });
        let written = written.map(|of_one| written_again(of_one.last().cloned()));
        Some((written.collect(), count.map_err(Unacknowledged::Rejected)))
    }
}

/// The meaning of the reply to [`WRITE_AGAIN`].
fn written_again(reply: Option<Value>) -> Result<(), Unacknowledged> {
    let unexpected = || RedisError::from((DriverKind::Parse, "a write was not answered"));
    let reply = reply.ok_or_else(unexpected).and_then(Value::extract_error);
    match protocol::renewed(&reply.map_err(Unacknowledged::Rejected)?) {
        Some(true) => Ok(()),
        Some(false) => Err(Unacknowledged::Gone),
        None => Err(Unacknowledged::Rejected(unexpected())),
    }
}

/// The limit for replicas: short enough for a renewal to be repeated.
fn limit(ttl: Duration) -> Duration {
    const LONGEST: Duration = Duration::from_millis(200);
    (ttl / 12).clamp(Duration::from_millis(1), LONGEST)
}

/// The limit for an answer, which may wait for other answers: as long as a hold survives a round trip.
fn patience(ttl: Duration) -> Duration {
    (2 * ttl / 5).max(limit(ttl))
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn replicas_have_a_part_of_the_ttl() {
        assert_eq!([ms(10), ms(1200), ms(60_000)].map(limit), [ms(1), ms(100), ms(200)]);
        assert_eq!([ms(0), ms(10), ms(300)].map(patience), [ms(1), ms(4), ms(120)]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_short_ttl_does_not_wait_for_the_limit_of_a_longer_one() {
        // Nobody answers, as while others are answered.
        let (questions, _asked) = mpsc::unbounded_channel();
        let acknowledger = Acknowledger { replicas: 1, questions };
        let start = Instant::now();
        let answer = acknowledger.acknowledged("a", ms(300)).await;
        assert!(matches!(answer, Err(Unacknowledged::Late)), "{answer:?}");
        assert_eq!(start.elapsed(), ms(120));
        let said = acknowledger.short(None, &"a server").to_string();
        assert!(said.contains("not all of 1 replicas"), "{said}");
    }
}
