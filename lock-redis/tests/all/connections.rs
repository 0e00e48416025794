//! How many connections a process has, counted at the server: docs/production.md has the table.

use std::sync::Arc;

use lock_core::{Locker, Result};
use lock_redis::{RedisBackend, RedisConfig};
use testbed::Redis;
use tokio::task::JoinSet;

use crate::replicas::master_with;
use crate::support::{Fixture, TTL, eventually, in_the_end, with_config};

const NAMES: usize = 60;

/// A user of this test's own, by which the server tells its connections apart.
fn user(config: &RedisConfig, name: &str) -> Vec<String> {
    let rules = ["ACL", "SETUSER", name, "reset", "on", ">pw"].map(String::from);
    rules.into_iter().chain(config.acl_rules()).collect()
}

fn count(clients: &str, user: &str) -> usize {
    let of_user = format!(" user={user} ");
    clients.lines().filter(|client| client.contains(&of_user)).count()
}

/// Holds that are kept, and tasks that wait for each of them in another process. Returns when all wait.
async fn load(holder: &Locker, waiter: &Locker) -> Result<(Vec<lock_core::Guard>, JoinSet<Result<()>>)> {
    let (mut guards, mut waiting) = (Vec::new(), JoinSet::new());
    for number in 0..NAMES {
        let name = format!("name {number}");
        guards.push(in_the_end(async || holder.lock(&name).ttl(TTL).acquire().await).await);
        let lock = waiter.lock(&name).ttl(TTL);
        waiting.spawn(async move { lock.acquire().await?.release().await.map(drop) });
    }
    eventually("all wait", async || {
        for number in 0..NAMES {
            let status = holder.status(&format!("name {number}")).await;
            if status.is_ok_and(|status| status.waiting != Some(1)) {
                return false;
            }
        }
        true
    })
    .await;
    Ok((guards, waiting))
}

fn lockers(config: RedisConfig) -> (Arc<RedisBackend>, [Locker; 2]) {
    let backend = Arc::new(with_config(config.clone()));
    let lockers = [Locker::from_backend(backend.clone()), Locker::new(with_config(config))];
    (backend, lockers)
}

/// Two processes, as it were: each backend has connections of its own.
#[testbed::test]
async fn one_connection_serves_a_process() {
    let fixture = Fixture::new().await;
    let user = format!("count-{}", fixture.prefix.trim_end_matches(':'));
    let rules = self::user(&fixture.config(), &user);
    let _: () = fixture.raw(&rules.iter().map(String::as_str).collect::<Vec<_>>()).await;
    let config = fixture.config().with_user(&user).with_password("pw");
    let (_backend, [holder, waiter]) = lockers(config);
    let connections = async || count(&fixture.raw::<String>(&["CLIENT", "LIST"]).await, &user);
    assert_eq!(connections().await, 0);
    holder.connect().await.expect("it is there");
    assert_eq!(connections().await, 1);
    let (guards, mut waiting) = load(&holder, &waiter).await.expect("they are free");
    assert_eq!(connections().await, 2);
    for guard in guards {
        guard.release().await.expect("it is held");
    }
    while let Some(waited) = waiting.join_next().await {
        waited.expect("no panic").expect("it was released");
    }
    assert_eq!(connections().await, 2);
}

#[testbed::test]
async fn replicas_need_a_second_connection() {
    let (_servers, fixture) = master_with(1).await;
    let config = fixture.config().with_replicas(1).with_user("count").with_password("pw");
    let rules = user(&config, "count");
    let _: () = fixture.raw(&rules.iter().map(String::as_str).collect::<Vec<_>>()).await;
    let (_backend, [holder, _]) = lockers(config);
    in_the_end(async || holder.connect().await).await;
    assert_eq!(count(&fixture.raw::<String>(&["CLIENT", "LIST"]).await, "count"), 2);
}

#[testbed::test]
async fn each_sentinel_has_a_connection_and_the_master_one() {
    let watched = Redis::new().start_watched(0).await.expect("it starts");
    let may = [
        "+sentinel|get-master-addr-by-name",
        "+sentinel|master",
        "+subscribe",
        "&+switch-master",
    ];
    for sentinel in 0..3 {
        let command = [&["ACL", "SETUSER", "count", "reset", "on", ">pw"], &may[..]].concat();
        watched.ask(sentinel, &command).await.expect("good rules");
    }
    let config = RedisConfig::from_url(&watched.url()).expect("a good URL");
    let config = config.with_sentinel_user("count").with_sentinel_password("pw");
    let config = config.with_user("count").with_password("pw");
    let rules = user(&config, "count");
    let rules: Vec<&str> = rules.iter().map(String::as_str).collect();
    watched.redis().call(0, &rules).await.expect("good rules");
    let (_backend, [holder, _]) = lockers(config);
    in_the_end(async || holder.connect().await).await;
    for sentinel in 0..3 {
        eventually("each Sentinel is asked", async || {
            let clients = watched.ask(sentinel, &["CLIENT", "LIST"]).await;
            count(&clients.expect("an answer"), "count") == 1
        })
        .await;
    }
    let clients = watched.redis().call(0, &["CLIENT", "LIST"]).await;
    assert_eq!(count(&clients.expect("an answer"), "count"), 1);
}

/// The second connection to a master is made when somebody first waits for a name that it has.
#[testbed::test]
async fn a_master_of_a_cluster_has_two_at_most() {
    let fixture = crate::cluster::Fixture::own(false).await;
    let config = fixture.config().with_user("count").with_password("pw");
    let rules = user(&config, "count");
    let rules: Vec<&str> = rules.iter().map(String::as_str).collect();
    for node in 0..3 {
        fixture.cluster.call(node, &rules).await.expect("good rules");
    }
    let counts = async || {
        let mut counts = Vec::new();
        for node in 0..3 {
            let clients = fixture.cluster.call(node, &["CLIENT", "LIST"]).await;
            counts.push(count(&clients.expect("an answer"), "count"));
        }
        counts
    };
    let (_backend, [holder, waiter]) = lockers(config);
    let (guards, _waiting) = load(&holder, &waiter).await.expect("they are free");
    // One for the requests of each, and one for the wake-ups of the one that waits.
    assert_eq!(counts().await, [3, 3, 3]);
    drop(guards);
}
