//! A quorum of three Redis with a `restart_delay`, one of which forgets what it had.

use std::sync::Arc;
use std::time::Duration;

use lock_redis::redis::{AsyncConnectionConfig, Client, aio::MultiplexedConnection, cmd};
use polylock::backend::request::{RequestControl, RequestOptions, Terms};
use polylock::backend::{AcquireRequest, Attempt, DistributedLock, Hold, ReleaseOptions, ReleaseOutcome, Renewal};
use polylock::quorum::QuorumBackend;
use polylock::redis::{RedisBackend, RedisConfig};
use polylock::{Error, ErrorKind, HoldState, LockName, Result};
use testbed::{Redis, Server, eventually, in_some_run};
use tokio::time::Instant;

/// Long enough for a server to be started again on a busy machine.
const DELAY: Duration = Duration::from_secs(20);
const TTL: Duration = Duration::from_secs(19);
/// Of a test that waits until it is over. Its hold, which nobody renews, is to be there until it is released.
const SHORT: Duration = Duration::from_secs(5);
/// For whatever comes in the end.
const AT_MOST: Duration = testbed::steady::AT_MOST;

const PREFIX: &str = "quorum-test:";

struct Nodes([Server; 3]);

impl Nodes {
    /// Servers that everybody trusts: the delay of a new one is over. `None`, and the test is skipped, if they are not ours to break.
    async fn trusted() -> Option<Self> {
        let start = || async { Redis::new().start().await.expect("a server") };
        let nodes = Self([start().await, start().await, start().await]);
        if testbed::skip_external(&nodes.0) {
            return None;
        }
        for node in 0..3 {
            nodes.redis(node, DELAY).connect().await.expect("it is there");
            nodes.end_delay(node).await;
        }
        Some(nodes)
    }

    fn redis(&self, node: usize, delay: Duration) -> RedisBackend {
        let config = RedisConfig::from_url(&self.0[node].url()).expect("testbed's URL");
        RedisBackend::new(config.with_prefix(PREFIX).with_restart_delay(delay)).expect("a good configuration")
    }

    /// A process that does not reach one of the nodes.
    fn without(&self, cut: usize, delay: Duration) -> QuorumBackend {
        let nodes = (0..3).map(|node| {
            let node = match node == cut {
                // Nobody listens on port 1 of this machine.
                true => RedisBackend::from_url("redis://127.0.0.1:1").expect("a good URL"),
                false => self.redis(node, delay),
            };
            Arc::new(node) as Arc<dyn DistributedLock>
        });
        QuorumBackend::new(nodes).expect("three nodes")
    }

    /// Makes the server's mark so old that its delay is over for whoever connects from now on.
    async fn end_delay(&self, node: usize) {
        let mut raw = self.raw(node).await;
        let key = format!("{PREFIX}}}member");
        let mark: String = cmd("GET").arg(&key).query_async(&mut raw).await.expect("a mark");
        let (identity, _since) = mark.rsplit_once(' ').expect("an identity and a time");
        let mark = format!("{identity} 0");
        let set = cmd("SET").arg(&key).arg(mark).exec_async(&mut raw).await;
        set.expect("it is set");
    }

    /// What the server has as the holder of this name.
    async fn holder(&self, node: usize, name: &str) -> Option<String> {
        let mut raw = self.raw(node).await;
        let value = cmd("GET").arg(format!("{PREFIX}{name}")).query_async(&mut raw).await;
        value.expect("an answer")
    }

    async fn raw(&self, node: usize) -> MultiplexedConnection {
        let client = Client::open(self.0[node].url()).expect("testbed's URL");
        let patient = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(AT_MOST))
            .set_response_timeout(Some(AT_MOST));
        let connected = client.get_multiplexed_async_connection_with_config(&patient).await;
        connected.expect("it is there")
    }
}

/// A request that nobody renews.
fn request(ttl: Duration, waits: bool) -> (AcquireRequest, RequestControl) {
    let name = LockName::new("a").expect("a good name");
    RequestOptions::new(name, Terms::new(ttl)).waits(waits).start()
}

async fn granted(backend: &QuorumBackend, request: &AcquireRequest) -> Arc<dyn Hold> {
    match backend.acquire(request).await.expect("an answer") {
        Attempt::Granted(hold, _armed) => hold,
        other => panic!("{other:?}"),
    }
}

/// Has two of three nodes vote for a hold, one of which forgets it. Then another process asks, which does not reach the node that
/// remembers.
async fn asked_where_it_is_forgotten(nodes: &Nodes, delay: Duration) -> Result<Attempt> {
    let holder = nodes.without(2, delay);
    let (asked, _control) = request(TTL, false);
    let _hold = granted(&holder, &asked).await;
    assert!(nodes.holder(0, "a").await.is_some() && nodes.holder(1, "a").await.is_some());
    nodes.0[1].restart_without_data().await.expect("it starts again");
    assert!(nodes.holder(1, "a").await.is_none(), "it has forgotten");

    let other = nodes.without(0, delay);
    other.connect().await.expect("two of three are there");
    let (asked_later, _control) = request(TTL, false);
    let answer = other.acquire(&asked_later).await;
    assert_eq!(asked.lease().state(), HoldState::Held, "the first one still counts");
    answer
}

#[testbed::test]
async fn a_node_that_forgot_gives_no_fresh_vote() {
    let Some(nodes) = Nodes::trusted().await else { return };
    let error = asked_where_it_is_forgotten(&nodes, DELAY)
        .await
        .expect_err("it is too early");
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    let line = error.to_string();
    assert!(line.contains("node 2") && line.contains("(restart_delay)"), "{line}");
}

/// What the delay is for.
#[testbed::test]
async fn without_a_delay_a_node_that_forgot_admits_a_second_holder() {
    let Some(nodes) = Nodes::trusted().await else { return };
    let answer = asked_where_it_is_forgotten(&nodes, Duration::ZERO).await;
    assert!(matches!(answer, Ok(Attempt::Granted(..))), "{answer:?}");
}

#[testbed::test]
async fn a_fresh_vote_waits_for_the_delay() {
    let Some(nodes) = Nodes::trusted().await else { return };
    let start = Instant::now();
    nodes.0[1].restart_without_data().await.expect("it starts again");
    let backend = nodes.without(0, SHORT);
    let (asked, _control) = request(SHORT, true);
    let hold = eventually("a grant", async || match backend.acquire(&asked).await {
        Ok(Attempt::Granted(hold, _armed)) => Ok(hold),
        Ok(other) => panic!("{other:?}"),
        Err(error) if error.is_retryable() => Err(error),
        Err(error) => panic!("{error}"),
    })
    .await;
    assert!(start.elapsed() >= SHORT, "{:?}", start.elapsed());
    let released = hold.release(ReleaseOptions::default()).await.expect("an answer");
    assert_eq!(released, ReleaseOutcome::Released);
}

#[testbed::test]
async fn a_vote_that_is_restored_does_not_wait() {
    let Some(nodes) = Nodes::trusted().await else { return };
    // Two nodes are all that it has: without the second one it is lost.
    let backend = nodes.without(2, DELAY);
    let (asked, _control) = request(TTL, false);
    let hold = granted(&backend, &asked).await;
    let (token, value) = (hold.token(), nodes.holder(1, "a").await);
    nodes.0[1].restart_without_data().await.expect("it starts again");
    eventually("a renewal", async || match hold.renew(TTL).await {
        Ok(Renewal::Renewed(_)) => Ok(()),
        Ok(lost) => panic!("{lost:?}"),
        Err(error) if error.is_retryable() => Err(error),
        Err(error) => panic!("{error}"),
    })
    .await;
    assert_eq!(asked.lease().state(), HoldState::Held);
    assert!(value.is_some() && nodes.holder(1, "a").await.is_some());

    // The other two nodes may decide who is next, and one of them has learnt the token anew.
    let released = hold.release(ReleaseOptions::default()).await.expect("an answer");
    assert_eq!(released, ReleaseOutcome::Released);
    nodes.end_delay(1).await;
    let other = nodes.without(0, DELAY);
    let (asked, _control) = request(TTL, false);
    let next = granted(&other, &asked).await;
    assert!(next.token() > token, "{:?} after {token:?}", next.token());
}

/// Its databases and prefixes keep votes apart, and one crash ends them all. During its delay it refuses each vote alike.
#[testbed::test]
async fn one_server_is_not_several_nodes() {
    let one = Redis::new().start().await.expect("a server");
    let other = Redis::new().start().await.expect("a server");
    if testbed::skip_external([&one, &other]) {
        return;
    }
    let url = one.url();
    let base = url.trim_end_matches('/');
    for (delay, second) in [
        ("", format!("{base}/1")),
        ("", format!("{url}?prefix=other:")),
        ("?restart_delay=600s|", format!("{base}/1")),
        ("?restart_delay=600s|", url.replace("127.0.0.1", "localhost")),
    ] {
        let list = format!("quorum:{delay}{url}|{}|{second}", other.url());
        // A connect waits for a majority alone: on a busy machine, a node that answers later is not compared, and a majority may be late.
        let error = in_some_run("it has one vote", async || match polylock::connect(&list).await {
            Err(error) if error.is_retryable() => Err(error),
            Err(error) => Ok(error),
            Ok(locks) => locks
                .shutdown()
                .await
                .and(Err(Error::new(ErrorKind::Unexpected, "accepted"))),
        })
        .await;
        assert_eq!(error.kind(), ErrorKind::Misconfigured, "{list}: {error}");
        assert!(
            error.to_string().contains("nodes 1 and 3 are the same server"),
            "{error}"
        );
    }
}

#[test]
fn an_address_has_no_password_and_tells_databases_apart() {
    let address = |url: &str| RedisBackend::from_url(url).expect("a good URL").address().expect("one");
    assert_eq!(address("redis://me:secret@A:6379"), address("redis://a"));
    assert_ne!(address("redis://a/1"), address("redis://a"));
    assert_ne!(address("redis://a?prefix=b"), address("redis://a"));
    let sentinels = ["redis+sentinel://a:1,b:2/m", "redis+sentinel://b:2,a:1/m"].map(address);
    assert_eq!(sentinels[0], sentinels[1]);
}
