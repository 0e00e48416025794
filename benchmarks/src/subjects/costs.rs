//! `costs-16`: what a pair costs the client and the server, beside how many of them there are in a second.
//!
//! On a machine that others use as well, a pair's CPU says more than its time.

use std::fs;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use benchmarks_load::{Figures, Result, Unit};
use rustix::time::ClockId;
use tokio::runtime::Handle;

use super::weigh::cpu;
use super::{postgres, redis};
use crate::participant::Participant;

/// The same with what it costs; also what it costs the server with this URL, a Redis or a PostgreSQL.
pub(crate) fn costed(player: Box<dyn Participant>, server: Option<String>) -> Box<dyn Participant> {
    Box::new(Costed { player, server })
}

struct Costed {
    player: Box<dyn Participant>,
    server: Option<String>,
}

/// What was used so far.
struct Used {
    cpu: Duration,
    parks: u64,
    /// `None` where the system does not say it.
    switches: Option<u64>,
}

impl Used {
    fn now() -> Self {
        let metrics = Handle::current().metrics();
        let workers = 0..metrics.num_workers();
        Self {
            cpu: cpu(ClockId::ProcessCPUTime),
            parks: workers.map(|worker| metrics.worker_park_count(worker)).sum(),
            switches: switches(),
        }
    }
}

/// What the server has used, if one is asked.
pub(super) async fn server_cpu(server: Option<&str>) -> Result<Option<Duration>> {
    Ok(match server {
        Some(url) if url.starts_with("postgres") => Some(postgres::cpu(url).await?),
        Some(url) => Some(redis::cpu(url).await?),
        None => None,
    })
}

#[async_trait]
impl Participant for Costed {
    async fn enter(&mut self) -> Result<()> {
        self.player.enter().await
    }

    async fn round(&mut self, time: Duration) -> Result<Figures> {
        let server = server_cpu(self.server.as_deref()).await?;
        let (started, before) = (Instant::now(), Used::now());
        let mut figures = self.player.round(time).await?;
        let (took, after) = (started.elapsed(), Used::now());
        let server = server.zip(server_cpu(self.server.as_deref()).await?);

        figures.retain(|(unit, _)| *unit == Unit::PairsPerSecond);
        let pairs = figures.iter().map(|(_, rate)| rate * took.as_secs_f64()).sum::<f64>();
        let micros = |time: Duration| time.as_secs_f64() * 1e6 / pairs;
        figures.push((Unit::CpuPerPair, micros(after.cpu - before.cpu)));
        if let Some((before, after)) = server {
            figures.push((Unit::ServerCpuPerPair, micros(after - before)));
        }
        figures.push((Unit::ParksPerPair, (after.parks - before.parks) as f64 / pairs));
        if let Some((before, after)) = before.switches.zip(after.switches) {
            // A thread that ended takes its count along.
            figures.push((Unit::SwitchesPerPair, after.saturating_sub(before) as f64 / pairs));
        }
        Ok(figures)
    }

    async fn leave(&mut self) {
        self.player.leave().await;
    }
}

/// How often the system took a thread of this process off its core, because it waited or because others came.
fn switches() -> Option<u64> {
    let threads = fs::read_dir("/proc/self/task").ok()?;
    let of_thread = |status: String| -> u64 {
        let counts = status.lines().filter(|line| line.contains("voluntary_ctxt_switches"));
        counts
            .filter_map(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok())
            .sum()
    };
    let statuses = threads.filter_map(|thread| fs::read_to_string(thread.ok()?.path().join("status")).ok());
    Some(statuses.map(of_thread).sum())
}
