//! Waits until replicas have what the server answered, over a connection of its own: `WAIT` blocks all that comes after it on
//! the same connection, but nothing else.

use std::time::Duration;

use lock_core::{Error, ErrorKind};
use redis::aio::MultiplexedConnection;
use redis::{ErrorKind as DriverKind, FromRedisValue, RedisResult, pipe};
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use super::dial::Opened;
use crate::names::Keys;

/// The second connection of a session, which a task drives until all clones of this are dropped.
#[derive(Clone)]
pub(super) struct Acknowledger {
    /// How many replicas have to acknowledge.
    replicas: u32,
    questions: mpsc::UnboundedSender<Question>,
}

/// How many replicas have all that the server did before this was asked, after so long at most.
struct Question {
    /// In a slot of the server, and of no lock.
    key: String,
    limit: Duration,
    answer: oneshot::Sender<u32>,
}

/// Why a write does not count.
#[derive(Debug)]
pub(super) enum Unacknowledged {
    /// Only so many replicas have acknowledged it in time.
    Short(u32),
    /// The connection has ended, or is silent.
    Unknown,
}

impl Acknowledger {
    /// To be called in the runtime of the connection. `silence` is how long it may be silent after a request.
    pub(super) fn start(opened: Opened, replicas: u32, silence: Duration) -> Self {
        let (questions, asked) = mpsc::unbounded_channel();
        tokio::spawn(answer_all(opened, replicas, silence, asked));
        Self { replicas, questions }
    }

    /// Waits until enough replicas have all that the server answered before this call, for a hold of this TTL and these keys.
    pub(super) async fn acknowledged(&self, keys: &Keys, ttl: Duration) -> Result<(), Unacknowledged> {
        let (answer, answered) = oneshot::channel();
        let (key, limit) = (keys.acknowledged(), limit(ttl));
        let asked = self.questions.send(Question { key, limit, answer });
        asked.map_err(|_| Unacknowledged::Unknown)?;
        match answered.await {
            Ok(count) if count >= self.replicas => Ok(()),
            Ok(count) => Err(Unacknowledged::Short(count)),
            Err(_) => Err(Unacknowledged::Unknown),
        }
    }

    /// The error for a write that only `count` replicas have acknowledged.
    pub(super) fn short(&self, count: u32, server: &dyn std::fmt::Display) -> Error {
        let what = format!(
            "{count} of {} replicas of Redis at {server} have acknowledged the write in time: check that they follow it",
            self.replicas
        );
        Error::new(ErrorKind::Unavailable, what)
    }
}

/// Answers all questions that have come so far at once. Ends when nobody can ask any more, or an answer is missing.
async fn answer_all(
    mut opened: Opened,
    replicas: u32,
    silence: Duration,
    mut asked: mpsc::UnboundedReceiver<Question>,
) {
    while let Some(first) = asked.recv().await {
        let mut questions = vec![first];
        while let Ok(question) = asked.try_recv() {
            questions.push(question);
        }
        // The longest: who asked for less would not be answered better.
        let limit = questions.iter().map(|question| question.limit).max();
        let limit = limit.unwrap_or_default();
        let counting = count(&mut opened.connection, &questions[0].key, replicas, limit);
        let counting = timeout(limit + silence, counting);
        let Ok(Ok(count)) = counting.await else { return };
        for question in questions {
            // Whoever has gone does not listen.
            let _ = question.answer.send(count);
        }
    }
}

/// How many replicas have all that the server did before, as soon as it is enough.
async fn count(connection: &mut MultiplexedConnection, key: &str, replicas: u32, limit: Duration) -> RedisResult<u32> {
    // `WAIT` waits for what its own connection wrote last, and so for all that was written before that. (On Redis 7.0 any
    // command would do in place of the write, on Redis 8 and Valkey 9 none.)
    let mut commands = pipe();
    commands.cmd("SET").arg(key).arg("").arg("PX").arg(1);
    commands.cmd("WAIT").arg(replicas).arg(limit.as_millis().max(1));
    let replies = connection.send_packed_commands(&commands, 0, 2).await?;
    let mut replies = replies.into_iter();
    // Without the write the count would say nothing.
    let written = replies.next().ok_or((DriverKind::Parse, "SET was not answered"))?;
    written.extract_error()?;
    let count = replies.next();
    let count = count.ok_or((DriverKind::Parse, "WAIT was not answered"))?;
    u32::from_redis_value(count.extract_error()?).map_err(Into::into)
}

/// How long replicas may take: short enough for a renewal to be repeated.
fn limit(ttl: Duration) -> Duration {
    const LONGEST: Duration = Duration::from_millis(200);
    (ttl / 12).clamp(Duration::from_millis(1), LONGEST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replicas_have_a_part_of_the_ttl() {
        let ms = Duration::from_millis;
        assert_eq!([ms(10), ms(1200), ms(60_000)].map(limit), [ms(1), ms(100), ms(200)]);
    }
}
