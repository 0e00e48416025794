//! The fixtures: a Redis, backends on it, and a connection that observes the server from outside.

use std::sync::Arc;
use std::time::Duration;

use lock_core::backend::request::{RequestControl, RequestOptions, Terms};
use lock_core::backend::{
    AcquireRequest, Attempt, Busy, DistributedLock, Hold, HolderId, Mode, ReleaseOptions, ReleaseOutcome,
};
use lock_core::{Error, ErrorKind, FencingToken, LockName};
use lock_redis::{RedisBackend, RedisConfig};
use proxy::Proxy;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, FromRedisValue, RedisResult};

pub(crate) use testbed::steady::AT_MOST;
pub(crate) use testbed::{eventually, in_some_run, stays_below};

pub(crate) mod link;
pub(crate) mod proxy;
pub(crate) mod scripts;
pub(crate) mod slow;
pub(crate) mod waiter;

pub(crate) const SECOND: Duration = Duration::from_secs(1);

pub(crate) const TTL: Duration = Duration::from_secs(60);

/// So long that nobody who fails "at once" has waited for it.
pub(crate) const LONG: Duration = Duration::from_secs(600);

/// The longest grace that may be set: so long that whoever waits for it is seen to do so.
pub(crate) const LONG_GRACE: Duration = Duration::from_secs(5);

/// Of a scenario in which the name is on offer to somebody who does not take it.
pub(crate) const OFFER_IS_OVER: &str = "the offer may be over before it is seen";

/// How long a connection may be silent that a test cuts off: longer than a busy machine keeps an answer waiting.
pub(crate) const QUICK: Duration = SECOND;

/// A server with a connection to it.
pub(crate) struct Fixture {
    pub(crate) server: testbed::Server,
    /// Of this test alone, also on a server that others use.
    pub(crate) prefix: String,
    raw: MultiplexedConnection,
}

impl Fixture {
    pub(crate) async fn new() -> Self {
        Self::of(testbed::Redis::new()).await
    }

    /// The same; `None`, and the test is skipped, for a server that it may not change, since it was there before.
    pub(crate) async fn own() -> Option<Self> {
        Self::own_of(testbed::Redis::new()).await
    }

    pub(crate) async fn own_of(redis: testbed::Redis) -> Option<Self> {
        let fixture = Self::of(redis).await;
        (!testbed::skip_external([&fixture.server])).then_some(fixture)
    }

    pub(crate) async fn of(redis: testbed::Redis) -> Self {
        Self::at(redis.start().await.expect("a Redis")).await
    }

    /// Of a server that runs.
    pub(crate) async fn at(server: testbed::Server) -> Self {
        let raw = connect(&server.url()).await;
        let prefix = format!("test-{}:", HolderId::random());
        Self { server, prefix, raw }
    }

    /// Nothing stands between that may hang, so it connects in the end.
    pub(crate) fn config(&self) -> RedisConfig {
        RedisConfig::from_url(&self.server.url())
            .expect("a good URL")
            .with_prefix(&self.prefix)
            .with_connect_timeout(AT_MOST)
    }

    /// By another way to the server.
    pub(crate) fn config_at(&self, address: &str) -> RedisConfig {
        RedisConfig::from_url(&self.server.url_at(address))
            .expect("a good URL")
            .with_prefix(&self.prefix)
            .with_connect_timeout(AT_MOST)
    }

    pub(crate) fn backend(&self) -> RedisBackend {
        with_config(self.config())
    }

    /// A backend of which the waiters are served in their order, also on a busy machine: whoever is woken has so long to
    /// confirm before the next one asks.
    pub(crate) fn with_long_grace(&self) -> RedisBackend {
        with_config(self.config().with_grace(LONG_GRACE))
    }

    /// What the server says to somebody else.
    pub(crate) async fn raw<T: FromRedisValue>(&self, command: &[&str]) -> T {
        self.try_raw(command).await.expect("a good command")
    }

    pub(crate) async fn try_raw<T: FromRedisValue>(&self, command: &[&str]) -> RedisResult<T> {
        let mut packed = redis::cmd(command[0]);
        packed.arg(&command[1..]);
        packed.query_async(&mut self.raw.clone()).await
    }

    /// The same after the server was restarted.
    pub(crate) async fn reconnect(&mut self) {
        self.raw = connect(&self.server.url()).await;
    }

    pub(crate) fn lock_key(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }

    pub(crate) fn fence_key(&self, name: &str) -> String {
        format!("{{{}{name}}}:fence", self.prefix)
    }

    pub(crate) fn queue_key(&self, name: &str) -> String {
        format!("{{{}{name}}}:queue", self.prefix)
    }

    /// The holder ids that wait, in their order.
    pub(crate) async fn queue(&self, name: &str) -> Vec<String> {
        let entries: Vec<String> = self.raw(&["ZRANGEBYSCORE", &self.queue_key(name), "-inf", "(0"]).await;
        entries
            .iter()
            .map(|entry| entry[..HolderId::HEX_DIGITS].to_owned())
            .collect()
    }

    /// What the server has under the lock's key; empty: nothing.
    pub(crate) async fn value(&self, name: &str) -> String {
        let value: Option<String> = self.raw(&["GET", &self.lock_key(name)]).await;
        value.unwrap_or_default()
    }

    /// The value of the fence key.
    pub(crate) async fn fence(&self, name: &str) -> String {
        self.raw(&["GET", &self.fence_key(name)]).await
    }

    /// How often clients have run scripts.
    pub(crate) async fn scripts_run(&self) -> u64 {
        self.calls("eval").await
    }

    /// How often commands were called whose names begin like this.
    pub(crate) async fn calls(&self, command: &str) -> u64 {
        let info: String = self.raw(&["INFO", "commandstats"]).await;
        let prefix = format!("cmdstat_{command}");
        let lines = info.lines().filter(|line| line.starts_with(&prefix));
        let calls = |line: &str| -> u64 { line.split(['=', ',']).nth(1).expect("calls").parse().expect("a number") };
        lines.map(calls).sum()
    }

    /// The server's clock.
    pub(crate) async fn now(&self) -> Duration {
        let (seconds, micros): (u64, u64) = self.raw(&["TIME"]).await;
        Duration::from_secs(seconds) + Duration::from_micros(micros)
    }

    /// Waits until so many backends of this test are connected.
    pub(crate) async fn until_connected(&self, count: usize) {
        eventually("the server has so many inboxes", async || {
            let pattern = format!("{}inbox:*", self.prefix);
            let channels: Vec<String> = self.raw(&["PUBSUB", "CHANNELS", &pattern]).await;
            channels.len() == count
        })
        .await;
    }

    pub(crate) async fn exists(&self, name: &str) -> bool {
        self.raw(&["EXISTS", &self.lock_key(name)]).await
    }

    /// What is left of a hold, as the server sees it.
    pub(crate) async fn rest(&self, name: &str) -> Duration {
        let left: i64 = self.raw(&["PTTL", &self.lock_key(name)]).await;
        Duration::from_millis(u64::try_from(left).expect("it is held for a time"))
    }

    /// Ends a hold by time, as if its ttl were over.
    pub(crate) async fn expire(&self, name: &str) {
        assert!(
            self.raw::<bool>(&["PEXPIRE", &self.lock_key(name), "1"]).await,
            "it was held"
        );
        eventually("it has expired", async || !self.exists(name).await).await;
    }

    /// All keys of this test.
    pub(crate) async fn keys(&self) -> Vec<String> {
        let mut keys: Vec<String> = self.raw(&["KEYS", &format!("*{}*", self.prefix)]).await;
        keys.sort();
        keys
    }
}

pub(crate) fn with_config(config: RedisConfig) -> RedisBackend {
    RedisBackend::new(config).expect("a good configuration")
}

/// A backend that reaches the server through a proxy.
pub(crate) struct Proxied {
    pub(crate) proxy: Proxy,
    pub(crate) backend: RedisBackend,
}

impl Proxied {
    /// One that is connected, and replaces a connection that is silent for as long as [`QUICK`].
    pub(crate) async fn quick(fixture: &Fixture) -> Self {
        let proxied = Self::new(fixture, |config| config.with_response_timeout(QUICK)).await;
        in_the_end(async || proxied.backend.connect().await).await;
        proxied
    }

    pub(crate) async fn new(fixture: &Fixture, configure: impl FnOnce(RedisConfig) -> RedisConfig) -> Self {
        let proxy = Proxy::start(fixture.server.address()).await;
        let backend = with_config(configure(fixture.config_at(&proxy.address)));
        Self { proxy, backend }
    }
}

/// The error with all that it was caused by, as people and as logs see it.
pub(crate) fn shown(error: &Error) -> String {
    format!("{error} {error:?}")
}

/// A connection of the driver's own.
pub(crate) async fn connect(url: &str) -> MultiplexedConnection {
    let client = redis::Client::open(url).expect("a good URL");
    client
        .get_multiplexed_async_connection_with_config(&patient())
        .await
        .expect("it is there")
}

/// The driver's defaults are a second to connect and half a second for an answer.
pub(crate) fn patient() -> AsyncConnectionConfig {
    AsyncConnectionConfig::new()
        .set_connection_timeout(Some(AT_MOST))
        .set_response_timeout(Some(AT_MOST))
}

pub(crate) fn name(name: &str) -> LockName {
    LockName::new(name).expect("a good name")
}

/// A try, without a deadline.
pub(crate) fn request(of: &str, ttl: Duration) -> (AcquireRequest, RequestControl) {
    RequestOptions::new(name(of), Terms::new(ttl)).waits(false).start()
}

/// A try in this mode.
pub(crate) fn request_in(mode: Mode, of: &str) -> (AcquireRequest, RequestControl) {
    options_in(mode, of).waits(false).start()
}

/// Of a request that waits.
pub(crate) fn options_in(mode: Mode, of: &str) -> RequestOptions {
    RequestOptions::new(name(of), Terms::new(TTL)).mode(mode)
}

pub(crate) async fn granted(backend: &RedisBackend, request: &AcquireRequest) -> Arc<dyn Hold> {
    match backend.acquire(request).await.expect("an answer") {
        Attempt::Granted(hold, _armed) => hold,
        other => panic!("{request:?} was not granted: {other:?}"),
    }
}

pub(crate) async fn busy(backend: &RedisBackend, request: &AcquireRequest) -> Busy {
    match backend.acquire(request).await.expect("an answer") {
        Attempt::Busy(busy) => busy,
        other => panic!("{request:?} is not busy: {other:?}"),
    }
}

/// True: released. False: it had been lost before.
pub(crate) async fn release(hold: &Arc<dyn Hold>) -> bool {
    let outcome = hold.release(ReleaseOptions::default()).await.expect("an answer");
    outcome == ReleaseOutcome::Released
}

/// Takes a free lock with a request of its own.
pub(crate) async fn take(backend: &RedisBackend, name: &str) -> Arc<dyn Hold> {
    granted(backend, &request(name, TTL).0).await
}

pub(crate) async fn refused(backend: &RedisBackend, name: &str) -> Error {
    match backend.acquire(&request(name, TTL).0).await {
        Err(error) => error,
        Ok(attempt) => panic!("{name:?} was answered: {attempt:?}"),
    }
}

/// Repeats what fails as unavailable, as core would.
pub(crate) async fn in_the_end<T>(mut work: impl AsyncFnMut() -> lock_core::Result<T>) -> T {
    eventually("an answer", async || match work().await {
        Err(error) if error.kind() == ErrorKind::Unavailable => Err(error),
        Err(error) => panic!("{error:?}"),
        done => done,
    })
    .await
}

/// A grant, however often it takes an answer.
pub(crate) async fn in_the_end_granted(backend: &RedisBackend, request: &AcquireRequest) -> Arc<dyn Hold> {
    match in_the_end(async || backend.acquire(request).await).await {
        Attempt::Granted(hold, _armed) => hold,
        other => panic!("{request:?} was not granted: {other:?}"),
    }
}

/// A release, however often it takes an answer: so it cannot be told whether the hold had been lost before.
pub(crate) async fn in_the_end_released(hold: &Arc<dyn Hold>) {
    in_the_end(async || hold.release(ReleaseOptions::default()).await).await;
}

/// The error of what fails after a time. A busy machine may not come to know in that time why it fails.
pub(crate) async fn explained(is_explained: impl Fn(&Error) -> bool, mut failing: impl AsyncFnMut() -> Error) -> Error {
    in_some_run("no error says why", async || {
        let error = failing().await;
        if is_explained(&error) { Ok(error) } else { Err(error) }
    })
    .await
}

/// The last of the tokens that an exclusive grant reserves, which its fence remembers.
pub(crate) fn last_reserved(token: FencingToken) -> u64 {
    token.as_u64() + 16
}
