//! The bare client: polylock's own scripts, sent by the driver alone. No retries, no renewal, no loss, no waiting.

use benchmarks_load::Result;
use lock_redis::redis::aio::MultiplexedConnection;
use lock_redis::redis::{FromRedisValue, Script};

use super::super::TTL;
use super::scripts::Scripts;
use super::scripts::arguments::{AcquireArguments, EndArguments, RenewArguments, YES};

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

    /// Returns the value of the lock's key, which begins with the holder id.
    pub(crate) async fn acquire(&mut self, keys: &Keys) -> Result<String> {
        let holder = holder();
        let arguments = AcquireArguments {
            holder: (&*holder).into(),
            ttl: TTL.as_millis().to_string().into(),
            is_plain: YES.into(),
            purpose_at: purpose_at(keys).into(),
            floor: "0".into(),
            mode: "x".into(),
            grace: "100".into(),
            inbox: (&*self.inbox).into(),
            lifetime: "15000".into(),
            ..AcquireArguments::default()
        };
        let token: String = run(
            &mut self.connection,
            &self.scripts.acquire,
            &keys[..2],
            &arguments.all(),
        )
        .await?;
        Ok(format!("{holder} {token} {}", TTL.as_millis()))
    }

    /// A release and an acquire in one round trip.
    pub(crate) async fn follow(&mut self, keys: &Keys, former: &str) -> Result<String> {
        let mut releasing = self.clone();
        let (released, held) = tokio::join!(releasing.release(keys, former), self.acquire(keys));
        released?;
        held
    }

    pub(crate) async fn renew(&mut self, keys: &Keys, held: &str) -> Result<()> {
        let arguments = RenewArguments {
            holder: held[..HOLDER_DIGITS].into(),
            ttl: TTL.as_millis().to_string().into(),
        };
        is_ours(run(&mut self.connection, &self.scripts.renew, &keys[..1], &arguments.all()).await?)
    }

    pub(crate) async fn release(&mut self, keys: &Keys, held: &str) -> Result<()> {
        let arguments = EndArguments {
            held: held.into(),
            purpose_at: purpose_at(keys).into(),
            grace: "100".into(),
            mode: "x".into(),
            ..EndArguments::default()
        };
        let [lock, _fence, queue, ..] = keys;
        let keys = [lock.clone(), queue.clone()];
        is_ours(run(&mut self.connection, &self.scripts.end, &keys, &arguments.all()).await?)
    }
}

async fn run<T: FromRedisValue>(
    on: &mut MultiplexedConnection,
    script: &Script,
    keys: &[String],
    arguments: &[impl AsRef<str>],
) -> Result<T> {
    let mut invocation = script.prepare_invoke();
    invocation.key(keys);
    for argument in arguments {
        invocation.arg(argument.as_ref());
    }
    Ok(invocation.invoke_async(on).await?)
}

/// Where the purpose stands in all keys but the lock's.
fn purpose_at([_lock, fence, ..]: &Keys) -> String {
    fence.find(":fence").unwrap_or_default().to_string()
}

/// Of a holder id.
const HOLDER_DIGITS: usize = 32;

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

    /// Holder ids: alone, before a token, or in the name of an inbox.
    fn without_ids(word: String) -> String {
        let is_id = |id: &str| id.len() == HOLDER_DIGITS && id.bytes().all(|byte| byte.is_ascii_hexdigit());
        if let Some(id) = word.rsplit(':').next().filter(|id| is_id(id)) {
            return word.replace(id, "ID");
        }
        match word.splitn(3, ' ').collect::<Vec<_>>()[..] {
            [id, _token, ttl] if is_id(id) => format!("ID TOKEN {ttl}"),
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
