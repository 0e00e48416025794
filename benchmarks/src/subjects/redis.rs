//! What Redis is compared with.

use std::pin::Pin;
use std::task::{Context, Waker};
use std::time::Duration;

use benchmarks_load::{Client, Lock, Result, Subject};
use lock_redis::redis::aio::MultiplexedConnection;
use lock_redis::redis::io::tcp::{TcpSettings, socket2::TcpKeepalive};
use lock_redis::redis::{self, AsyncConnectionConfig, IntoConnectionInfo, ProtocolVersion, Script};
use tokio::task::coop::unconstrained;
use tokio::time::sleep;

use super::{POLL, TTL};

use self::bare::{BareClient, Keys};

mod bare;
mod scripts;

/// As polylock connects.
async fn connect(url: &str) -> Result<MultiplexedConnection> {
    let info = url.into_connection_info()?;
    let settings = info.redis_settings().clone().set_protocol(ProtocolVersion::RESP3);
    let second = Duration::from_secs(1);
    let keepalive = TcpKeepalive::new().with_time(5 * second).with_interval(second);
    let tcp = TcpSettings::default().set_nodelay(true).set_keepalive(keepalive);
    #[cfg(target_os = "linux")]
    let tcp = tcp.set_user_timeout(10 * second);
    let client = redis::Client::open(info.set_redis_settings(settings).set_tcp_settings(tcp))?;
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(None)
        .set_response_timeout(Some(5 * second))
        .set_pipeline_buffer_size(1024);
    Ok(client.get_multiplexed_async_connection_with_config(&config).await?)
}

/// `bare`.
pub(crate) struct Bare(String);

impl Bare {
    pub(crate) fn new(url: &str) -> Self {
        Self(url.into())
    }
}

#[derive(Clone)]
pub(crate) struct BareLock {
    client: BareClient,
    keys: Keys,
}

impl Subject for Bare {
    type Client = BareClient;

    async fn connect(&self) -> Result<BareClient> {
        BareClient::connect(&self.0).await
    }
}

impl Client for BareClient {
    type Lock = BareLock;

    async fn lock(&self, name: &str) -> Result<BareLock> {
        let key = format!("bare:{name}");
        Ok(BareLock {
            client: self.clone(),
            keys: ["", "fence", "queue", "ends", "terms"].map(|purpose| match purpose {
                "" => key.clone(),
                _ => format!("{{{key}}}:{purpose}"),
            }),
        })
    }
}

impl Lock for BareLock {
    type Held = String;

    async fn acquire(&mut self) -> Result<String> {
        self.client.acquire(&self.keys).await
    }

    async fn release(&mut self, holder: String) -> Result<()> {
        self.client.release(&self.keys, &holder).await
    }

    fn release_in_background(&mut self, holder: String) -> Result<()> {
        let mut this = self.clone();
        let release = async move { this.release(holder).await };
        // Sent before the next acquire is, also in a task that tokio would rather have wait.
        let mut release: Pin<Box<dyn Future<Output = _> + Send>> = Box::pin(unconstrained(release));
        if release
            .as_mut()
            .poll(&mut Context::from_waker(Waker::noop()))
            .is_pending()
        {
            tokio::spawn(release);
        }
        Ok(())
    }
}

impl BareLock {
    pub(crate) async fn renew(&mut self, holder: &str) -> Result<()> {
        self.client.renew(&self.keys, holder).await
    }
}

/// `bare` of `one-16`: a release and an acquire together, in a loop: what any number of tasks of one process can have of the
/// server at most.
pub(crate) struct Releases(pub(crate) Bare);

pub(crate) struct ReleasesClient(BareClient);

pub(crate) struct Releasing {
    lock: BareLock,
    former: Option<String>,
}

impl Subject for Releases {
    type Client = ReleasesClient;

    async fn connect(&self) -> Result<ReleasesClient> {
        Ok(ReleasesClient(self.0.connect().await?))
    }
}

impl Client for ReleasesClient {
    type Lock = Releasing;

    async fn lock(&self, name: &str) -> Result<Releasing> {
        let lock = self.0.lock(name).await?;
        Ok(Releasing { lock, former: None })
    }
}

impl Lock for Releasing {
    type Held = ();

    async fn acquire(&mut self) -> Result<()> {
        let BareLock { client, keys } = &mut self.lock;
        self.former = Some(match &self.former {
            Some(former) => client.follow(keys, former).await?,
            None => client.acquire(keys).await?,
        });
        Ok(())
    }

    /// The next one gets it instead.
    async fn release(&mut self, (): ()) -> Result<()> {
        Ok(())
    }
}

/// `plain`, and `poll-10ms` where somebody competes: `SET NX PX`, and compare and delete. No token, no queue.
pub(crate) struct Plain(String);

impl Plain {
    pub(crate) fn new(url: &str) -> Self {
        Self(url.into())
    }
}

pub(crate) struct PlainClient(MultiplexedConnection, Script);

pub(crate) struct PlainLock {
    connection: MultiplexedConnection,
    delete: Script,
    key: String,
}

const COMPARE_AND_DELETE: &str =
    "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0";

impl Subject for Plain {
    type Client = PlainClient;

    async fn connect(&self) -> Result<PlainClient> {
        Ok(PlainClient(connect(&self.0).await?, Script::new(COMPARE_AND_DELETE)))
    }
}

impl Client for PlainClient {
    type Lock = PlainLock;

    async fn lock(&self, name: &str) -> Result<PlainLock> {
        Ok(PlainLock {
            connection: self.0.clone(),
            delete: self.1.clone(),
            key: format!("plain:{name}"),
        })
    }
}

impl Lock for PlainLock {
    type Held = String;

    async fn acquire(&mut self) -> Result<String> {
        let value = format!("{:032x}", rand::random::<u128>());
        let ttl = TTL.as_millis() as u64;
        loop {
            let mut set = redis::cmd("SET");
            set.arg(&self.key).arg(&value).arg("NX").arg("PX").arg(ttl);
            if set.query_async::<Option<String>>(&mut self.connection).await?.is_some() {
                return Ok(value);
            }
            sleep(POLL).await;
        }
    }

    async fn release(&mut self, value: String) -> Result<()> {
        let mut invocation = self.delete.key(&self.key);
        match invocation.arg(value).invoke_async(&mut self.connection).await? {
            1 => Ok(()),
            _ => Err("the lock was lost".into()),
        }
    }
}

/// A lock service is asked for its speed here, not its disk's.
pub(crate) async fn without_persistence(url: &str) -> Result<()> {
    let mut connection = connect(url).await?;
    let mut set = redis::cmd("CONFIG");
    set.arg("SET").arg("appendonly").arg("no");
    Ok(set.query_async(&mut connection).await?)
}

pub(crate) async fn version(url: &str) -> Result<String> {
    let info = info(url, "server").await?;
    let version = info.lines().find_map(|line| line.strip_prefix("redis_version:"));
    Ok(format!(
        "Redis {}, without persistence",
        version.unwrap_or("of an unknown version")
    ))
}

/// The number of the server's process.
pub(crate) async fn process(url: &str) -> Result<u32> {
    let info = info(url, "server").await?;
    let process = info.lines().find_map(|line| line.strip_prefix("process_id:"));
    Ok(process.ok_or("INFO has no process_id")?.trim().parse()?)
}

/// How many requests the server has served: scripts and heartbeats, not what scripts call.
pub(crate) async fn commands(url: String) -> Result<u64> {
    let info = info(&url, "commandstats").await?;
    let is_request = |command: &str| ["evalsha", "eval", "ping", "publish"].contains(&command);
    let requests = statistics(&info).filter(|(command, ..)| is_request(command));
    Ok(requests.map(|(_, calls, _)| calls).sum())
}

/// How many scripts the server was asked to run.
pub(crate) async fn scripts_called(url: &str) -> Result<u64> {
    let info = info(url, "commandstats").await?;
    let scripts = statistics(&info).filter(|(command, ..)| command.starts_with("eval"));
    Ok(scripts.map(|(_, calls, _)| calls).sum())
}

/// What the server did for locks: the commands, those within scripts included and the calls of scripts not, and the time that
/// scripts took, in microseconds.
pub(crate) async fn work(url: String) -> Result<(u64, u64)> {
    Ok(work_of(&info(&url, "commandstats").await?))
}

fn work_of(info: &str) -> (u64, u64) {
    // Of connections, and of this program.
    const OTHERS: [&str; 6] = ["ping", "info", "hello", "select", "config|set", "subscribe"];
    let (mut commands, mut micros) = (0, 0);
    for (command, calls, took) in statistics(info) {
        if command.starts_with("eval") {
            micros += took;
        } else if !OTHERS.contains(&command) && !command.starts_with("client") {
            commands += calls;
        }
    }
    (commands, micros)
}

/// Each command with its calls and its microseconds.
fn statistics(info: &str) -> impl Iterator<Item = (&str, u64, u64)> {
    info.lines().filter_map(|line| {
        let (command, rest) = line.strip_prefix("cmdstat_")?.split_once(":calls=")?;
        let (calls, rest) = rest.split_once(",usec=")?;
        Some((command, calls.parse().ok()?, rest.split(',').next()?.parse().ok()?))
    })
}

/// The CPU that the server has used so far.
pub(crate) async fn cpu(url: &str) -> Result<Duration> {
    let info = info(url, "cpu").await?;
    let seconds = |line: &str| {
        let (what, seconds) = line.split_once(':')?;
        let counts = ["used_cpu_sys", "used_cpu_user"].contains(&what);
        counts.then(|| seconds.trim().parse::<f64>().ok())?
    };
    Ok(Duration::from_secs_f64(info.lines().filter_map(seconds).sum()))
}

async fn info(url: &str, section: &str) -> Result<String> {
    let mut connection = connect(url).await?;
    Ok(redis::cmd("INFO").arg(section).query_async(&mut connection).await?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_scripts_call_is_their_work() {
        let info = "# Commandstats\r\n\
            cmdstat_evalsha:calls=2,usec=70,usec_per_call=35.00,rejected_calls=0,failed_calls=0\r\n\
            cmdstat_eval:calls=1,usec=30,usec_per_call=30.00\r\n\
            cmdstat_get:calls=4,usec=9,usec_per_call=2.00\r\n\
            cmdstat_ping:calls=3,usec=3,usec_per_call=1.00\r\n\
            cmdstat_client|setinfo:calls=2,usec=2,usec_per_call=1.00\r\n\
            cmdstat_publish:calls=1,usec=5,usec_per_call=5.00\r\n";
        assert_eq!(work_of(info), (5, 100));
    }
}
