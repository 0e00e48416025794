//! Sentinels that name the master: failovers, and what is wrong with a set-up.

use std::time::Duration;

use lock_core::backend::{DistributedLock, HolderId, Renewal};
use lock_core::{Error, ErrorKind, Locker};
use lock_redis::{Finding, RedisBackend, RedisConfig};
use redis::{Client, FromRedisValue, PushInfo, PushKind, Value};
use testbed::happens;
use testbed::{Redis, Watched};
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::restart_delay::aged;
use crate::support::{
    LONG, SECOND, TTL, eventually, explained, in_the_end, in_the_end_granted, in_the_end_released, release, request,
    shown, stays_below, take, with_config,
};

mod durable;

/// So long may it take from the first announcement of a new master to the next grant, beyond what a new client takes to connect.
const AFTER_THE_SWITCH: Duration = Duration::from_millis(200);

struct Fixture {
    watched: Watched,
    prefix: String,
}

impl Fixture {
    async fn new(replicas: usize) -> Self {
        Self::of(Redis::new(), replicas).await
    }

    async fn of(redis: Redis, replicas: usize) -> Self {
        Self {
            watched: redis.start_watched(replicas).await.expect("it starts"),
            prefix: format!("test-{}:", HolderId::random()),
        }
    }

    fn config(&self) -> RedisConfig {
        let config = RedisConfig::from_url(&self.watched.url()).expect("a good URL");
        config.with_prefix(&self.prefix)
    }

    fn backend(&self) -> RedisBackend {
        with_config(self.config())
    }

    /// What a server says to somebody else.
    async fn raw(&self, server: usize, command: &[&str]) -> String {
        self.watched.redis().call(server, command).await.expect("an answer")
    }

    async fn token(&self, server: usize, name: &str) -> String {
        self.raw(server, &["GET", &format!("{{{}{name}}}:fence", self.prefix)])
            .await
    }

    /// Makes the mark of a server so old that its `restart_delay` is over.
    async fn age_mark(&self, server: usize) {
        let mark = format!("{}}}member", self.prefix);
        let value = self.raw(server, &["GET", &mark]).await;
        self.raw(server, &["SET", &mark, &aged(&value)]).await;
    }

    /// Waits until a replica has the hold of a name.
    async fn replicated(&self, replica: usize, name: &str) {
        let key = format!("{}{name}", self.prefix);
        eventually("the replica has it", async || {
            !self.raw(replica, &["GET", &key]).await.is_empty()
        })
        .await;
    }

    /// How many backends of this test are connected to a server.
    async fn connected(&self, server: usize) -> usize {
        let pattern = format!("{}inbox:*", self.prefix);
        let channels = self.raw(server, &["PUBSUB", "CHANNELS", &pattern]).await;
        channels.lines().count()
    }

    /// The server's number of the only backend's connection.
    async fn subscriber(&self, server: usize) -> String {
        let clients = self.raw(server, &["CLIENT", "LIST", "TYPE", "pubsub"]).await;
        let mut ours = clients.lines().filter(|line| !line.contains(" name=sentinel-"));
        let client = ours.next().expect("it is connected");
        assert_eq!(ours.next(), None);
        client.split(' ').next().expect("it has a number").to_owned()
    }

    /// Hears the announcements of failovers, from all Sentinels.
    async fn switches(&self) -> Switches {
        let (heard, switches) = mpsc::unbounded_channel();
        let mut connections = Vec::new();
        for sentinel in self.watched.sentinels() {
            let url = format!("redis://{}?protocol=resp3", sentinel.address());
            let heard = heard.clone();
            let config = crate::support::patient().set_push_sender(move |push: PushInfo| {
                if let (PushKind::Message, Some(Value::BulkString(_))) = (push.kind, push.data.get(1)) {
                    let message = String::from_redis_value(push.data[1].clone()).expect("text");
                    let _ = heard.send((Instant::now(), message));
                }
                Ok::<(), std::convert::Infallible>(())
            });
            let client = Client::open(url).expect("a good URL");
            let mut connection = client
                .get_multiplexed_async_connection_with_config(&config)
                .await
                .expect("it is there");
            connection.subscribe("+switch-master").await.expect("it may");
            connections.push(connection);
        }
        Switches {
            switches,
            _connections: connections,
        }
    }
}

struct Switches {
    switches: mpsc::UnboundedReceiver<(Instant, String)>,
    _connections: Vec<redis::aio::MultiplexedConnection>,
}

impl Switches {
    /// When the first Sentinel announced a new master.
    async fn first(&mut self) -> Instant {
        let switch = happens("in time", self.switches.recv()).await;
        switch.expect("somebody listens").0
    }
}

async fn refused(config: RedisConfig) -> Error {
    match with_config(config.clone()).connect().await {
        Err(error) => error,
        Ok(()) => panic!("it is connected: {config:?}"),
    }
}

/// A grant, as soon as there is one; and when it came.
async fn next_grant(backend: &RedisBackend, name: &str) -> Instant {
    let (request, _control) = request(name, TTL);
    let hold = in_the_end_granted(backend, &request).await;
    let at = Instant::now();
    in_the_end_released(&hold).await;
    at
}

#[testbed::test]
async fn the_next_grant_comes_soon_after_the_switch_of_a_master_that_was_killed_stopped_or_replaced() {
    let fixture = Fixture::new(2).await;
    let redis = fixture.watched.redis();
    // Also on a busy machine, where connecting takes longer.
    let of_a_new_client = async || {
        let asked = Instant::now();
        next_grant(&fixture.backend(), "b").await - asked
    };
    for fault in ["kill", "stop", "failover"] {
        stays_below(AFTER_THE_SWITCH, fault, async || {
            let backend = fixture.backend();
            let master = fixture.watched.settled().await.expect("all is well");
            let mut switches = fixture.switches().await;
            in_the_end(async || backend.connect().await).await;
            let before = take(&backend, "a").await;
            assert!(release(&before).await);
            let control = of_a_new_client().await;
            match fault {
                "kill" => redis[master].kill().expect("it is ours"),
                "stop" => redis[master].pause().expect("it runs"),
                _ => {
                    let watched = fixture.watched.clone();
                    // Until all Sentinels have announced it.
                    tokio::spawn(async move { watched.fail_over().await.expect("it is replaced") });
                }
            }
            let switched = switches.first().await;
            let grant = next_grant(&backend, "b").await;
            match fault {
                "kill" => redis[master].restart().await.expect("it starts again"),
                "stop" => redis[master].resume().expect("it is there"),
                _ => {}
            }
            let next = fixture.watched.settled().await.expect("it follows");
            assert_ne!(next, master);
            let later = take(&backend, "a").await;
            assert!(later.token() > before.token(), "{fault}");
            assert!(release(&later).await);
            let control = control.max(of_a_new_client().await);
            grant.saturating_duration_since(switched).saturating_sub(control)
        })
        .await;
    }
}

#[testbed::test]
async fn a_hold_that_was_replicated_survives_a_failover() {
    let fixture = Fixture::new(1).await;
    let backend = fixture.backend();
    in_the_end(async || backend.connect().await).await;
    let hold = take(&backend, "a").await;
    fixture.replicated(1, "a").await;
    let next = fixture.watched.fail_over().await.expect("it is replaced");
    let renewal = in_the_end(async || hold.renew(TTL).await).await;
    assert!(matches!(renewal, Renewal::Renewed(_)), "{renewal:?}");
    assert_eq!(fixture.connected(next).await, 1);
    let other = fixture.backend();
    let refused = in_the_end(async || other.acquire(&request("a", TTL).0).await).await;
    assert!(format!("{refused:?}").contains("Busy"), "{refused:?}");
    assert!(release(&hold).await);
    let token = take(&other, "a").await.token();
    assert!(token > hold.token());
    assert!(!fixture.token(next, "a").await.is_empty());
}

/// Also one that nothing is sent to.
#[testbed::test]
async fn a_demoted_master_is_left_and_waiters_are_served_by_the_next() {
    let fixture = Fixture::new(1).await;
    let (idle, holder) = (fixture.backend(), Locker::new(fixture.backend()));
    in_the_end(async || idle.connect().await).await;
    let guard = holder.lock("a").acquire().await.expect("it is free");
    let waiter = Locker::new(fixture.backend());
    let waiting = tokio::spawn({
        let lock = waiter.lock("a");
        async move { lock.acquire().await }
    });
    let queue = format!("{{{}a}}:queue", fixture.prefix);
    eventually("it is in the queue", async || {
        fixture.raw(0, &["ZCARD", &queue]).await != "0"
    })
    .await;
    assert_eq!(fixture.connected(0).await, 3);
    fixture.replicated(1, "a").await;

    let next = fixture.watched.fail_over().await.expect("it is replaced");
    eventually("all are at the next one", async || fixture.connected(next).await == 3).await;
    eventually("nobody is at the former one", async || fixture.connected(0).await == 0).await;
    guard.release().await.expect("it was kept");
    let guard = happens("in time", waiting).await.expect("no panic");
    guard.expect("it is free").release().await.expect("it was kept");
}

/// Each Sentinel announces it, one after the other.
#[testbed::test]
async fn a_switch_to_the_same_address_is_ignored() {
    let fixture = Fixture::new(1).await;
    let backend = fixture.backend();
    in_the_end(async || backend.connect().await).await;
    let mut switches = fixture.switches().await;
    let next = fixture.watched.fail_over().await.expect("it is replaced");
    eventually("it is at the next one", async || fixture.connected(next).await == 1).await;
    let client = fixture.subscriber(next).await;
    for _ in fixture.watched.sentinels() {
        switches.first().await;
    }
    for _ in 0..20 {
        let hold = take(&backend, "b").await;
        assert!(release(&hold).await);
    }
    assert_eq!(fixture.subscriber(next).await, client);
}

#[testbed::test]
async fn a_master_that_is_cut_off_stops_with_min_replicas_and_its_holds_are_not_granted_twice() {
    let redis = Redis::new()
        .setting("min-replicas-to-write", ["1"])
        .setting("min-replicas-max-lag", ["1"]);
    let fixture = Fixture::of(redis, 2).await;
    let old = fixture.backend();
    // It hears of nothing, since it is connected to no Sentinel.
    let master = fixture.watched.redis()[0].address().to_owned();
    let direct = RedisConfig::from_url(&format!("redis://{master}")).expect("a good URL");
    let cut_off = with_config(direct.with_prefix(&fixture.prefix));
    in_the_end(async || cut_off.connect().await).await;
    in_the_end(async || old.connect().await).await;
    assert_eq!(old.findings(), []);

    let isolated = fixture.watched.isolate(0).await.expect("it answers");
    let error = eventually("it grants nothing", async || {
        cut_off.acquire(&request("b", TTL).0).await.err()
    })
    .await;
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.to_string().contains("too few replicas"), "{error}");
    fixture.watched.master_after(0).await.expect("it is replaced");
    let hold = in_the_end_granted(&old, &request("a", TTL).0).await;
    cut_off
        .acquire(&request("a", TTL).0)
        .await
        .expect_err("it has too few replicas");
    isolated.heal().expect("it answers");
    in_the_end_released(&hold).await;
}

#[testbed::test]
async fn a_master_with_replicas_and_without_min_replicas_is_a_finding() {
    let fixture = Fixture::new(1).await;
    let backend = fixture.backend();
    in_the_end(async || backend.connect().await).await;
    let findings = backend.findings();
    assert_eq!(findings, [Finding::GrantsAlone { replicas: 1 }]);
    assert!(
        findings[0].to_string().contains("set min-replicas-to-write 1"),
        "{}",
        findings[0]
    );
    let error = refused(fixture.config().with_checks(lock_redis::Checks::Refuse)).await;
    assert!(error.to_string().contains("min-replicas-to-write"), "{error}");

    // A user of the Sentinels that may do what is documented.
    let rules = "reset on >pw +sentinel|get-master-addr-by-name +sentinel|master +subscribe &+switch-master";
    let rules = ["ACL", "SETUSER", "watch"].into_iter().chain(rules.split(' '));
    let rules: Vec<&str> = rules.collect();
    for sentinel in 0..3 {
        fixture.watched.ask(sentinel, &rules).await.expect("good rules");
    }
    let config = fixture
        .config()
        .with_sentinel_user("watch")
        .with_sentinel_password("pw");
    with_config(config).connect().await.expect("it may");

    // One Sentinel is enough to find the master.
    fixture.watched.sentinels()[0].kill().expect("it is ours");
    fixture.watched.sentinels()[1].pause().expect("it runs");
    next_grant(&fixture.backend(), "a").await;
    fixture.watched.sentinels()[2].kill().expect("it is ours");
    // Those that are connected stay so.
    next_grant(&backend, "a").await;
    fixture.watched.sentinels()[1].kill().expect("it is ours");
    next_grant(&backend, "a").await;
    let said = "no Sentinel of the master mymaster was reached";
    let is_said = |error: &Error| shown(error).contains(said);
    let failing = async || refused(fixture.config().with_connect_timeout(SECOND)).await;
    let error = explained(is_said, failing).await;
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(is_said(&error), "{}", shown(&error));
}

#[testbed::test]
async fn what_is_wrong_with_the_sentinels_is_said_at_once() {
    let rules = RedisConfig::sentinel([("localhost", 1)], "mymaster").acl_rules();
    let user = |name: &str| [name, "reset", "on", ">pw"].map(String::from);
    let all = user("app").into_iter().chain(rules.clone());
    let most = rules.into_iter().filter(|rule| rule != "+role");
    let redis = Redis::new()
        .setting("user", all)
        .setting("user", user("lacking").into_iter().chain(most));
    let watched = redis.start_watched_with_password(0, "sesame").await.expect("it starts");
    let url = watched.url().replace("://", "://app:pw@");
    let backend = with_config(RedisConfig::from_url(&url).expect("a good URL"));
    backend.connect().await.expect("it is right");
    assert!(release(&take(&backend, "a").await).await);
    let plain = watched.redis()[0].address();
    for (url, kind, hint) in [
        (
            url.replace("sesame", "other"),
            ErrorKind::Denied,
            "set sentinel_user and sentinel_password",
        ),
        (
            url.split('?').next().expect("it has a part").to_owned(),
            ErrorKind::Denied,
            "set sentinel_user and sentinel_password",
        ),
        (url.replace("app:pw", "app:other"), ErrorKind::Denied, "does not serve"),
        (url.replace("app:", "lacking:"), ErrorKind::Denied, "the command role"),
        (
            url.replace("mymaster", "another"),
            ErrorKind::Misconfigured,
            "knows no master another",
        ),
        (
            format!("redis+sentinel://{plain}/mymaster"),
            ErrorKind::Misconfigured,
            "is no Sentinel",
        ),
    ] {
        let config = RedisConfig::from_url(&url)
            .expect("a good URL")
            .with_connect_timeout(LONG);
        let error = happens("at once", refused(config)).await;
        assert_eq!(error.kind(), kind, "{error:?}");
        assert!(error.to_string().contains(hint), "{error}");
        let shown = shown(&error);
        assert!(!shown.contains("sesame"), "{shown}");
    }
    let sentinel = watched.sentinels()[0].address();
    let error = refused(RedisConfig::from_url(&format!("redis://:sesame@{sentinel}")).expect("a good URL")).await;
    assert!(error.to_string().contains("redis+sentinel://"), "{error}");
}
