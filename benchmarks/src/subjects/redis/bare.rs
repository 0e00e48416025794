//! The bare client: polylock's own scripts, sent by the driver alone. No retries, no renewal, no loss, no waiting.

use benchmarks_load::Result;
use lock_redis::redis::aio::MultiplexedConnection;
use lock_redis::redis::{FromRedisValue, Script};

use super::super::TTL;
use super::scripts::Scripts;

#[derive(Clone)]
pub(crate) struct BareClient {
    connection: MultiplexedConnection,
    scripts: Scripts,
    inbox: String,
}

/// Of one name, as the scripts expect them.
pub(crate) type Keys = [String; 3];

impl BareClient {
    pub(crate) async fn connect(url: &str) -> Result<Self> {
        Ok(Self {
            connection: super::connect(url).await?,
            scripts: Scripts::read(),
            inbox: format!("bare:inbox:{}", holder()),
        })
    }

    pub(crate) async fn acquire(&mut self, keys: &Keys) -> Result<String> {
        let (holder, ttl) = (holder(), TTL.as_millis().to_string());
        let arguments = [&*holder, &ttl, "", "0", &self.inbox, "10000", "100", ""];
        let _token: String = run(&mut self.connection, &self.scripts.acquire, keys, &arguments).await?;
        Ok(holder)
    }

    pub(crate) async fn hand_over(&mut self, keys: &Keys, giver: &str) -> Result<String> {
        let (holder, ttl) = (holder(), TTL.as_millis().to_string());
        let arguments = [&*holder, &ttl, "", "0", giver, ""];
        let _token: String = run(&mut self.connection, &self.scripts.hand_over, keys, &arguments).await?;
        Ok(holder)
    }

    pub(crate) async fn renew(&mut self, keys: &Keys, holder: &str) -> Result<()> {
        let arguments = [holder, &TTL.as_millis().to_string()];
        is_ours(run(&mut self.connection, &self.scripts.renew, &keys[..1], &arguments).await?)
    }

    pub(crate) async fn release(&mut self, keys: &Keys, holder: &str) -> Result<()> {
        let arguments = [holder, "100", "", "", ""];
        is_ours(run(&mut self.connection, &self.scripts.end, keys, &arguments).await?)
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
