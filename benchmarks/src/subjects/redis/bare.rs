//! The bare client: polylock's own scripts, sent by the driver alone. No retries, no renewal, no loss, no waiting.

use benchmarks_load::Result;
use lock_redis::redis::aio::MultiplexedConnection;
use lock_redis::redis::{FromRedisValue, Script};

use super::super::TTL;
use super::scripts::Scripts;
use super::scripts::arguments::{AcquireArguments, EndArguments, RenewArguments};

#[derive(Clone)]
pub(crate) struct BareClient {
    connection: MultiplexedConnection,
    scripts: Scripts,
    inbox: String,
}

/// Of one name, as the scripts expect them.
pub(crate) type Keys = [String; 5];

impl BareClient {
    pub(crate) async fn connect(url: &str) -> Result<Self> {
        Ok(Self {
            connection: super::connect(url).await?,
            scripts: Scripts::read(),
            inbox: format!("bare:inbox:{}", holder()),
        })
    }

    pub(crate) async fn acquire(&mut self, keys: &Keys) -> Result<String> {
        let holder = holder();
        let arguments = AcquireArguments {
            holder: (&*holder).into(),
            ttl: TTL.as_millis().to_string().into(),
            floor: "0".into(),
            mode: "x".into(),
            grace: "100".into(),
            inbox: (&*self.inbox).into(),
            lifetime: "15000".into(),
            ..AcquireArguments::default()
        };
        let _token: String = run(&mut self.connection, &self.scripts.acquire, keys, &arguments.all()).await?;
        Ok(holder)
    }

    /// A release and an acquire in one round trip.
    pub(crate) async fn follow(&mut self, keys: &Keys, former: &str) -> Result<String> {
        let mut releasing = self.clone();
        let (released, holder) = tokio::join!(releasing.release(keys, former), self.acquire(keys));
        released?;
        holder
    }

    pub(crate) async fn renew(&mut self, keys: &Keys, holder: &str) -> Result<()> {
        let arguments = RenewArguments {
            holder: holder.into(),
            ttl: TTL.as_millis().to_string().into(),
        };
        is_ours(run(&mut self.connection, &self.scripts.renew, &keys[..1], &arguments.all()).await?)
    }

    pub(crate) async fn release(&mut self, keys: &Keys, holder: &str) -> Result<()> {
        let arguments = EndArguments {
            holder: holder.into(),
            grace: "100".into(),
            mode: "x".into(),
            ..EndArguments::default()
        };
        is_ours(run(&mut self.connection, &self.scripts.end, keys, &arguments.all()).await?)
    }
}

async fn run<T: FromRedisValue>(
    on: &mut MultiplexedConnection,
    script: &Script,
    keys: &[String],
    arguments: &[&str],
) -> Result<T> {
    let mut invocation = script.prepare_invoke();
    Ok(invocation.key(keys).arg(arguments).invoke_async(on).await?)
}

fn holder() -> String {
    format!("{:032x}", rand::random::<u128>())
}

fn is_ours(answer: u8) -> Result<()> {
    (answer == 1).then_some(()).ok_or_else(|| "the lock was lost".into())
}

#[cfg(test)]
mod tests {
    use std::future::Future;

    use lock_core::Locker;
    use lock_redis::redis::{Value, cmd, from_redis_value};
    use lock_redis::{RedisBackend, RedisConfig};

    use super::*;

    /// The scripts that the server was told to run, with the arguments by which they differ made equal.
    async fn told(connection: &mut MultiplexedConnection, life: impl Future<Output = ()>) -> Vec<Vec<String>> {
        let () = cmd("SLOWLOG").arg("RESET").query_async(connection).await.unwrap();
        life.await;
        let entries: Vec<Vec<Value>> = cmd("SLOWLOG").arg("GET").arg(-1).query_async(connection).await.unwrap();
        let words = |entry: Vec<Value>| from_redis_value::<Vec<String>>(entry.into_iter().nth(3)?).ok();
        let commands = entries.into_iter().rev().filter_map(words);
        let scripts = commands.filter(|words| words.first().is_some_and(|name| name.eq_ignore_ascii_case("evalsha")));
        scripts
            .map(|words| words.into_iter().map(without_ids).collect())
            .collect()
    }

    /// Holder ids, alone or in the name of an inbox.
    fn without_ids(word: String) -> String {
        let is_id = |id: &str| id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit());
        match word.rsplit(':').next() {
            Some(id) if is_id(id) => word.replace(id, "ID"),
            _ => word,
        }
    }

    #[testbed::test]
    async fn sends_what_polylock_sends() {
        let server = testbed::Redis::new().start().await.unwrap();
        let config = RedisConfig::from_url(&server.url()).unwrap().with_prefix("bare:");
        let lock = Locker::new(RedisBackend::new(config).unwrap())
            .without_label()
            .lock("same")
            .ttl(TTL);
        lock.acquire().await.unwrap().release().await.map(drop).unwrap();
        let keys = [
            "bare:same",
            "{bare:same}:fence",
            "{bare:same}:queue",
            "{bare:same}:ends",
            "{bare:same}:terms",
        ]
        .map(String::from);
        let mut bare = BareClient::connect(&server.url()).await.unwrap();
        let first = bare.acquire(&keys).await.unwrap();
        bare.release(&keys, &first).await.unwrap();
        let mut log = super::super::connect(&server.url()).await.unwrap();
        let mut set = cmd("CONFIG");
        set.arg("SET").arg("slowlog-log-slower-than").arg(0);
        let () = set.query_async(&mut log).await.unwrap();

        let polylocks = told(&mut log, async {
            let guard = lock.acquire().await.unwrap();
            guard.extend(TTL).await.unwrap();
            // Who waits in this process by the time of the release asks right behind it; a fixed lease is not passed on.
            let fixed = lock.clone().fixed_lease();
            let (next, released) = tokio::join!(fixed.acquire(), guard.release());
            released.unwrap();
            next.unwrap().release().await.map(drop).unwrap();
        })
        .await;
        let bares = told(&mut log, async {
            let giver = bare.acquire(&keys).await.unwrap();
            bare.renew(&keys, &giver).await.unwrap();
            let holder = bare.follow(&keys, &giver).await.unwrap();
            bare.release(&keys, &holder).await.unwrap();
        })
        .await;
        assert_eq!(polylocks.len(), 5, "{polylocks:#?}");
        assert_eq!(polylocks, bares);
    }
}
