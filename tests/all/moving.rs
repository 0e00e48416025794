//! Moving fenced data from each lock server to each other, by the steps of docs/moving.md.

use lock_redis::Fence;
use lock_redis::redis::{AsyncConnectionConfig, Client, aio::MultiplexedConnection, cmd};
use polylock::{FencingToken, Locker, Stale};

/// A token that no server reaches without a floor. As the time in microseconds, it is in the year 2112.
const AHEAD: u64 = 1 << 52;

const SERVERS: [&str; 4] = ["redis", "mysql", "postgres", "zookeeper"];

struct Servers {
    redis: testbed::Server,
    mysql: testbed::Server,
    postgres: testbed::Server,
    zookeeper: testbed::Server,
}

impl Servers {
    async fn start() -> Self {
        let (redis, mysql, postgres, zookeeper) = tokio::join!(
            testbed::Redis::new().start(),
            testbed::MariaDb::new().start(),
            testbed::Postgres::new().start(),
            testbed::ZooKeeper::new().start()
        );
        Self {
            redis: redis.expect("a Redis"),
            mysql: mysql.expect("a MariaDB"),
            postgres: postgres.expect("a PostgreSQL"),
            zookeeper: zookeeper.expect("a ZooKeeper"),
        }
    }

    /// A locker that starts after the last one was stopped. Moves do not share a root path, and so no token offset.
    async fn locker(&self, server: &str, data: &str) -> Locker {
        let url = match server {
            "redis" => self.redis.url().to_owned(),
            "mysql" => self.mysql.url().to_owned(),
            "postgres" => self.postgres.url(),
            _ => format!("zookeeper://{}/{data}?acl=open", self.zookeeper.address()),
        };
        polylock::connect(&url).await.expect("a locker")
    }
}

/// Fenced data.
struct Data {
    name: String,
    redis: MultiplexedConnection,
}

impl Data {
    async fn new(name: String, servers: &Servers) -> Self {
        let client = Client::open(servers.redis.url()).expect("a good URL");
        // The driver's defaults, a second to connect and half a second for an answer, are what a busy machine may take.
        let patience = Some(std::time::Duration::from_secs(60));
        let patient = AsyncConnectionConfig::new()
            .set_connection_timeout(patience)
            .set_response_timeout(patience);
        let redis = client.get_multiplexed_async_connection_with_config(&patient).await;
        let redis = redis.expect("a connection");
        Self { name, redis }
    }

    /// Writes under the lock. The error is that of the fence.
    async fn write(&self, locks: &Locker) -> polylock::Result<FencingToken> {
        let fence = Fence::new(self.redis.clone(), self.name.as_str())?;
        let guard = locks.lock(&self.name).acquire().await?;
        let written = async { fence.enter(guard.token()).await?.set("written").await };
        let (written, token) = (written.await, guard.token());
        guard.release().await?;
        written.map(|()| token)
    }

    async fn largest_token(&self) -> FencingToken {
        let key = format!("{{{}}}:entered", self.name);
        let token: String = cmd("GET")
            .arg(key)
            .query_async(&mut self.redis.clone())
            .await
            .expect("somebody has written");
        token.parse().expect("it holds a token")
    }
}

/// Writes at the new server. The fence rejects that without a floor if the new server's tokens are smaller, and accepts it
/// with one. Afterwards it accepts writes without a floor, too.
async fn moves(servers: &Servers, data: &Data, to: &str, is_rejected: bool) {
    let largest = data.largest_token().await;
    let without_floor = servers.locker(to, &data.name).await;
    match data.write(&without_floor).await {
        Ok(token) => assert!(
            !is_rejected && token > largest,
            "{}: {token} after {largest}",
            data.name
        ),
        Err(error) => {
            assert!(is_rejected && error.is_lost(), "{}: {error}", data.name);
            let stale = error.cause().and_then(|cause| cause.downcast_ref::<Stale>());
            assert_eq!(stale.and_then(|stale| stale.newest), Some(largest));
            let advice = error.to_string();
            assert!(
                advice.contains("Locker::with_token_floor") && advice.contains("docs/moving.md"),
                "{advice}"
            );
        }
    }
    let largest = data.largest_token().await;
    let with_floor = servers.locker(to, &data.name).await.with_token_floor(largest);
    let mut last = largest;
    for locks in [&with_floor, &with_floor, &without_floor] {
        let token = data.write(locks).await.expect("the token is above the floor");
        assert!(token > last, "{}: {token} after {last}", data.name);
        last = token;
    }
}

#[testbed::test]
async fn fenced_data_moves_from_each_server_to_each_other() {
    let servers = Servers::start().await;
    for from in SERVERS {
        for to in SERVERS.into_iter().filter(|to| *to != from) {
            // The tokens of ZooKeeper are smaller, and those of the others follow the clock.
            let data = Data::new(format!("{from}-to-{to}"), &servers).await;
            data.write(&servers.locker(from, &data.name).await)
                .await
                .expect("a first write");
            moves(&servers, &data, to, to == "zookeeper").await;

            // The data has seen tokens that no server has reached.
            let data = Data::new(format!("{from}-to-{to}-ahead"), &servers).await;
            let floor = FencingToken::new(AHEAD).expect("a token");
            let ahead = servers.locker(from, &data.name).await.with_token_floor(floor);
            data.write(&ahead).await.expect("a first write");
            moves(&servers, &data, to, true).await;
        }
    }
}

#[testbed::test]
async fn every_server_takes_the_highest_floor_of_the_page() {
    let servers = Servers::start().await;
    let floor = FencingToken::new((1 << 63) - (1 << 56)).expect("a token");
    for server in SERVERS {
        let locks = servers.locker(server, "highest").await;
        let mut last = floor;
        for locks in [locks.clone().with_token_floor(floor), locks] {
            let guard = locks.lock("highest").acquire().await.expect("a grant above the floor");
            assert!(guard.token() > last, "{server}: {} after {last}", guard.token());
            last = guard.token();
            guard.release().await.expect("it was held");
        }
    }
}
