//! `idle-1000`: what row locks that are only kept cost this process and the server.

use std::fs;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use benchmarks_load::{Figures, Result, Unit};
use futures_util::stream::{self, StreamExt, TryStreamExt};
use lock_core::{Guard, Locker};
use lock_mysql::sqlx::mysql::MySqlConnectOptions;
use lock_mysql::sqlx::{self, ConnectOptions, Row};
use lock_mysql::{MySqlConfig, RowLockBackend};
use rustix::time::ClockId;
use tokio::time::sleep;

use super::super::TTL;
use super::super::weigh::cpu;
use crate::participant::Participant;
use crate::workload::MANY_CONNECTIONS;

/// Each lock is renewed once in the time.
const TIME: Duration = Duration::from_secs(10);
/// So many are acquired at the same time.
const AT_ONCE: usize = 16;

pub(crate) struct Idle {
    url: String,
    holds: Option<Holds>,
}

struct Holds {
    locker: Locker,
    guards: Vec<Guard>,
    server: u32,
}

impl Idle {
    pub(crate) fn new(url: &str) -> Self {
        Self {
            url: url.into(),
            holds: None,
        }
    }
}

#[async_trait]
impl Participant for Idle {
    async fn enter(&mut self) -> Result<()> {
        let config = MySqlConfig::from_url(&self.url)?.with_max_connections(MANY_CONNECTIONS);
        let locker = Locker::new(RowLockBackend::new(config)?).without_label().with_ttl(TTL);
        let acquire = |number| {
            let lock = locker.lock(format!("idle/{number}"));
            async move { lock.acquire().await }
        };
        let guards = stream::iter(0..MANY_CONNECTIONS).map(acquire).buffer_unordered(AT_ONCE);
        let guards = guards.try_collect().await?;
        self.holds = Some(Holds {
            guards,
            locker,
            server: pid(&self.url).await?,
        });
        Ok(())
    }

    async fn round(&mut self, _time: Duration) -> Result<Figures> {
        let holds = self.holds.as_ref().ok_or("it has not entered")?;
        let (start, ours, servers) = (
            Instant::now(),
            cpu(ClockId::ProcessCPUTime),
            cpu_of_process(holds.server)?,
        );
        sleep(TIME).await;
        let percent = |used: Duration| 100.0 * used.as_secs_f64() / start.elapsed().as_secs_f64();
        let figures = vec![
            (Unit::CpuPercent, percent(cpu(ClockId::ProcessCPUTime) - ours)),
            (Unit::ServerCpuPercent, percent(cpu_of_process(holds.server)? - servers)),
        ];
        for guard in &holds.guards {
            guard.check()?;
        }
        Ok(figures)
    }

    async fn leave(&mut self) {
        if let Some(Holds { locker, guards, .. }) = self.holds.take() {
            drop(guards);
            // What is left is the server's, which ends.
            let _ = locker.shutdown().await;
        }
    }
}

/// The server's process, which runs on this machine.
async fn pid(url: &str) -> Result<u32> {
    let options: MySqlConnectOptions = url.parse()?;
    let row = sqlx::query("SELECT CAST(@@pid_file AS CHAR)")
        .fetch_one(&mut options.connect().await?)
        .await?;
    let file: String = row.try_get(0)?;
    Ok(fs::read_to_string(file)?.trim().parse()?)
}

/// What a process has used so far.
fn cpu_of_process(pid: u32) -> Result<Duration> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    // The name of the program, in parentheses, may have blanks. User and system time are the 14th and 15th field.
    let (_, fields) = stat.rsplit_once(')').ok_or("there is no name in stat")?;
    let ticks: Vec<u64> = fields
        .split_whitespace()
        .skip(11)
        .take(2)
        .filter_map(|ticks| ticks.parse().ok())
        .collect();
    let per_second = rustix::param::clock_ticks_per_second();
    Ok(Duration::from_secs_f64(
        ticks.iter().sum::<u64>() as f64 / per_second as f64,
    ))
}
