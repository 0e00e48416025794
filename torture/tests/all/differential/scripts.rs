//! The scripts of `lock-redis` as they stand there, run one by one on a server whose clock stands still.

use std::collections::HashMap;
use std::time::Duration;

use futures_util::StreamExt;
use lock_redis::redis::aio::{MultiplexedConnection, PubSub};
use lock_redis::redis::{self, FromRedisValue};
use testbed::Clock;

#[allow(dead_code, reason = "not all scripts are run")]
#[path = "../../../../lock-redis/src/protocol/arguments.rs"]
pub(crate) mod arguments;
#[allow(dead_code, reason = "not all scripts are run")]
#[path = "../../../../lock-redis/src/protocol/files.rs"]
pub(crate) mod files;

/// The number of the first entry of a queue, and how far below its number the score of one lies that is set aside.
const FIRST: f64 = -1e15;
const ASIDE: f64 = 2e15;

/// The message that is published when all news before it has arrived.
const END_OF_NEWS: &str = "end of news";

pub(crate) struct Scripts {
    server: testbed::Server,
    clock: Clock,
    raw: MultiplexedConnection,
    news: PubSub,
}

impl Scripts {
    pub(crate) async fn start() -> Self {
        let clock = Clock::new().expect("a clock");
        clock.run_faster(-1_000_000).expect("it stands still");
        let server = testbed::Redis::new().clock(&clock).start().await.expect("a Redis");
        let client = redis::Client::open(server.url()).expect("a good URL");
        let raw = client
            .get_multiplexed_async_connection_with_config(&super::patient())
            .await
            .expect("a connection");
        let mut news = client.get_async_pubsub().await.expect("a connection");
        news.subscribe(END_OF_NEWS).await.expect("a subscription");
        Self {
            server,
            clock,
            raw,
            news,
        }
    }

    /// Whether the server is not ours; then the test is skipped.
    pub(crate) fn skip_external(&self) -> bool {
        testbed::skip_external([&self.server])
    }

    pub(crate) fn move_clock(&self, by: i64) {
        self.clock.step(by * 1_000_000).expect("it is moved");
    }

    /// By the server's clock, in microseconds.
    pub(crate) async fn now(&self) -> u64 {
        let (seconds, micros): (u64, u64) = self.ask(redis::cmd("TIME")).await;
        seconds * 1_000_000 + micros
    }

    pub(crate) async fn run<T: FromRedisValue>(&self, text: &str, keys: &[&str], arguments: &[impl AsRef<str>]) -> T {
        let text = files::with_fragments(text);
        let mut command = redis::cmd("EVAL");
        command.arg(text).arg(keys.len()).arg(keys);
        for argument in arguments {
            command.arg(argument.as_ref());
        }
        self.ask(command).await
    }

    pub(crate) async fn ask<T: FromRedisValue>(&self, command: redis::Cmd) -> T {
        let answer = command.query_async(&mut self.raw.clone()).await;
        answer.unwrap_or_else(|error| panic!("{error}"))
    }

    /// Whether a key is there. A key that has ended is removed.
    pub(crate) async fn is_there(&self, key: &str) -> bool {
        let mut exists = redis::cmd("EXISTS");
        exists.arg(key);
        self.ask(exists).await
    }

    pub(crate) async fn hear(&mut self, inbox: &str) {
        self.news.subscribe(inbox).await.expect("a subscription");
    }

    pub(crate) async fn stop_hearing(&mut self, inbox: &str) {
        self.news.unsubscribe(inbox).await.expect("an end of it");
    }

    /// Who was told to look after how long, since this was asked last.
    pub(crate) async fn told(&mut self) -> Vec<(String, Duration)> {
        let mut publish = redis::cmd("PUBLISH");
        publish.arg(END_OF_NEWS).arg("");
        let heard: u8 = self.ask(publish).await;
        assert_eq!(heard, 1);
        let mut told = Vec::new();
        let mut news = self.news.on_message();
        while let Some(message) = news
            .next()
            .await
            .filter(|message| message.get_channel_name() != END_OF_NEWS)
        {
            let text: String = message.get_payload().expect("text");
            let (id, after) = text.split_once(' ').expect("an id and a time");
            let after = after.parse().expect("a number");
            told.push((id.to_owned(), Duration::from_millis(after)));
        }
        told
    }

    /// Queue entries and when they end, in their order, of those that have not ended, set aside or not.
    pub(crate) async fn entries(&self, queue: &str, now: Duration) -> Vec<(String, Duration)> {
        let mut range = redis::cmd("ZRANGE");
        range.arg(queue).arg(0).arg(-1).arg("WITHSCORES");
        let members: Vec<(String, f64)> = self.ask(range).await;
        let ends: HashMap<_, _> = members
            .iter()
            .filter_map(|(member, end)| Some((member.strip_prefix('>')?, *end)))
            .collect();
        let mut entries: Vec<_> = members
            .iter()
            .filter(|(member, _)| !member.starts_with('>'))
            .map(|(entry, score)| (entry, if *score < FIRST { score + ASIDE } else { *score }))
            .collect();
        entries.sort_by(|(_, one), (_, other)| one.total_cmp(other));
        entries
            .into_iter()
            .map(|(entry, _)| {
                let id = entry.split(' ').next().unwrap_or_default().to_owned();
                let end = format!("{:.0}", ends[&**entry]).parse().expect("milliseconds");
                (id, Duration::from_millis(end))
            })
            .filter(|(_, end)| *end > now)
            .collect()
    }
}
