//! `bare`: polylock's own scripts, sent by the driver alone. No retries, no renewal, no loss, no queue of its own.

use std::pin::Pin;
use std::task::{Context, Waker};

use benchmarks_load::{Client, Lock, Result, Subject};
use lock_redis::redis::aio::MultiplexedConnection;
use lock_redis::redis::{Script, Value};

use super::super::TTL;

/// The files of `lock-redis`.
#[derive(Clone)]
struct Scripts {
    acquire: Script,
    renew: Script,
    end: Script,
}

impl Scripts {
    fn new() -> Self {
        let fence = include_str!("../../../../lock-redis/src/scripts/fence.lua");
        let script = |text: &str| Script::new(&text.replace("-- include fence.lua\n", fence));
        Self {
            acquire: script(include_str!("../../../../lock-redis/src/scripts/acquire.lua")),
            renew: script(include_str!("../../../../lock-redis/src/scripts/renew.lua")),
            end: script(include_str!("../../../../lock-redis/src/scripts/end.lua")),
        }
    }
}

pub(crate) struct Bare(String);

pub(crate) struct BareClient(MultiplexedConnection, Scripts);

#[derive(Clone)]
pub(crate) struct BareLock {
    connection: MultiplexedConnection,
    scripts: Scripts,
    lock: String,
    fence: String,
}

impl Bare {
    pub(crate) fn new(url: &str) -> Self {
        Self(url.into())
    }
}

impl Subject for Bare {
    type Client = BareClient;

    async fn connect(&self) -> Result<BareClient> {
        let mut connection = super::connect(&self.0).await?;
        let scripts = Scripts::new();
        for script in [&scripts.acquire, &scripts.renew, &scripts.end] {
            script.prepare_invoke().load_async(&mut connection).await?;
        }
        Ok(BareClient(connection, scripts))
    }
}

impl Client for BareClient {
    type Lock = BareLock;

    async fn lock(&self, name: &str) -> Result<BareLock> {
        Ok(BareLock {
            connection: self.0.clone(),
            scripts: self.1.clone(),
            lock: format!("bare:{name}"),
            fence: format!("{{bare:{name}}}:fence"),
        })
    }
}

impl Lock for BareLock {
    type Held = String;

    async fn acquire(&mut self) -> Result<String> {
        let holder = format!("{:032x}", rand::random::<u128>());
        let mut script = self.scripts.acquire.key(&self.lock);
        let script = script.key(&self.fence).arg(&holder).arg(TTL.as_millis() as u64).arg("").arg("0");
        match script.invoke_async(&mut self.connection).await? {
            Value::BulkString(_) => Ok(holder),
            taken => Err(format!("nobody else wants it, and yet: {taken:?}").into()),
        }
    }

    async fn release(&mut self, holder: String) -> Result<()> {
        let mut script = self.scripts.end.key(&self.lock);
        match script.arg(holder).invoke_async(&mut self.connection).await? {
            1 => Ok(()),
            _ => Err("the lock was lost".into()),
        }
    }

    fn release_in_background(&mut self, holder: String) -> Result<()> {
        let mut this = self.clone();
        let mut release: Pin<Box<dyn Future<Output = _> + Send>> = Box::pin(async move { this.release(holder).await });
        // Sent before the next acquire is.
        if release.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending() {
            tokio::spawn(release);
        }
        Ok(())
    }
}

impl BareLock {
    /// Renews it for another ttl.
    pub(crate) async fn renew(&mut self, holder: &str) -> Result<()> {
        let mut script = self.scripts.renew.key(&self.lock);
        match script.arg(holder).arg(TTL.as_millis() as u64).invoke_async(&mut self.connection).await? {
            1 => Ok(()),
            _ => Err("the lock was lost".into()),
        }
    }
}
