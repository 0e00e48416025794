//! `instructions-64`: how many instructions a Redis spends on a pair. Unlike its time, they hardly depend on what else the machine does.
//!
//! The server runs under callgrind, which counts them. It also counts those of heartbeats and of the server's own timer, once a
//! second: by some thousandths.

use std::fs;
use std::path::PathBuf;
use std::process::Output;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use benchmarks_load::{self as load, Figures, Result, Unit};
use lock_redis::RedisBackend;
use tempfile::TempDir;
use testbed::{Redis, Server};
use tokio::process::Command;
use tokio::sync::Mutex;

use super::polylock::Polylock;
use super::redis;
use crate::entry::{Backend, Entry, MakeBackend};
use crate::participant::{Participant, local};
use crate::peers::Peers;

/// polylock, the bare client, the plain commands and other libraries, on one server.
pub(crate) async fn entries(tasks: usize) -> Vec<Entry> {
    match all(tasks).await {
        Ok(entries) => entries,
        Err(error) => vec![Entry {
            subject: "polylock".into(),
            participant: Err(format!("no server is counted, which needs valgrind: {error}")),
            is_optional: true,
        }],
    }
}

async fn all(tasks: usize) -> Result<Vec<Entry>> {
    let counted = Arc::new(Counted::start().await?);
    let url = counted.server.url();
    let own = load::Workload::Own {
        tasks,
        background: false,
    };
    let backend_url = url.clone();
    let make: MakeBackend = Arc::new(move || Ok(Arc::new(RedisBackend::from_url(&backend_url)?)));
    let players = [
        ("polylock", local(Polylock(make), own)),
        ("bare", local(redis::Bare::new(&url), own)),
        ("plain", local(redis::Plain::new(&url), own)),
    ];
    let players = players.map(|(subject, player)| Entry {
        subject: subject.into(),
        participant: Ok(player),
        is_optional: false,
    });
    let peers = Peers::start(Backend::Redis, &url).await.entries(own);
    Ok(players
        .into_iter()
        .chain(peers)
        .map(|entry| Entry {
            participant: entry.participant.map(|player| {
                let counted = counted.clone();
                Box::new(Instructions { player, counted }) as Box<dyn Participant>
            }),
            ..entry
        })
        .collect())
}

struct Instructions {
    player: Box<dyn Participant>,
    counted: Arc<Counted>,
}

#[async_trait]
impl Participant for Instructions {
    async fn enter(&mut self) -> Result<()> {
        self.player.enter().await
    }

    async fn round(&mut self, time: Duration) -> Result<Figures> {
        self.counted.since_last().await?;
        let figures = self.player.round(time).await?;
        let instructions = self.counted.since_last().await?;
        let pairs = figures.iter().find(|(unit, _)| *unit == Unit::Pairs);
        let (_, pairs) = pairs.ok_or("it does not say how many pairs there were")?;
        Ok(vec![(Unit::ServerInstructionsPerPair, instructions as f64 / pairs)])
    }

    async fn leave(&mut self) {
        self.player.leave().await;
    }
}

/// A Redis under callgrind.
struct Counted {
    server: Server,
    pid: u32,
    /// The number of the last dump.
    dumps: Mutex<u32>,
    /// Where callgrind writes.
    folder: TempDir,
}

impl Counted {
    async fn start() -> Result<Self> {
        let folder = TempDir::new()?;
        let out = folder.path().join("out.%p");
        let arguments = [
            "--tool=callgrind".to_owned(),
            // A script may start the server.
            "--trace-children=yes".to_owned(),
            format!("--callgrind-out-file={}", out.display()),
            prefix(&folder),
        ];
        let server = Redis::new().under("valgrind", arguments).setting("hz", ["1"]);
        let server = server.start().await?;
        if server.is_external() {
            return Err("a server that runs already is not counted: unset POLYLOCK_REDIS_URL".into());
        }
        redis::without_persistence(&server.url()).await?;
        let pid = redis::process(&server.url()).await?;
        Ok(Self {
            server,
            pid,
            dumps: Mutex::new(0),
            folder,
        })
    }

    /// Those since the last call.
    async fn since_last(&self) -> Result<u64> {
        let mut dumps = self.dumps.lock().await;
        let mut vgdb = Command::new("vgdb");
        vgdb.arg(prefix(&self.folder)).arg(format!("--pid={}", self.pid));
        let Output { status, stderr, .. } = vgdb.arg("dump").kill_on_drop(true).output().await?;
        if !status.success() {
            return Err(format!("vgdb failed: {status}: {}", String::from_utf8_lossy(&stderr)).into());
        }
        *dumps += 1;
        let dump = self.dump(*dumps);
        let text = fs::read_to_string(&dump).map_err(|error| format!("{}: {error}", dump.display()))?;
        fs::remove_file(dump)?;
        total(&text).ok_or_else(|| "callgrind's dump has no total".into())
    }

    fn dump(&self, number: u32) -> PathBuf {
        self.folder.path().join(format!("out.{}.{number}", self.pid))
    }
}

/// Where valgrind and vgdb meet.
fn prefix(folder: &TempDir) -> String {
    format!("--vgdb-prefix={}", folder.path().join("vgdb").display())
}

/// The instructions of a dump.
fn total(dump: &str) -> Option<u64> {
    dump.lines()
        .find_map(|line| line.strip_prefix("totals: "))?
        .trim()
        .parse()
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dump_says_how_many() {
        let dump = "version: 1\npart: 1\nevents: Ir\nsummary: 17\n\nfn=(1) main\n5 12\n\ntotals: 17\n";
        assert_eq!(total(dump), Some(17));
        assert_eq!(total("version: 1\n"), None);
    }
}
