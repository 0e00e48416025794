//! `held-10000`: what it costs to keep many locks.

use std::future::Future;
use std::pin::Pin;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use benchmarks_load::{Client, Figures, Lock, Result, Subject, Unit};
use futures_util::StreamExt;
use futures_util::stream::{self, TryStreamExt};
use lock_core::{Guard, Locker};
use rustix::time::ClockId;
use tokio::time::{sleep, sleep_until};

use super::costs::server_cpu;
use super::redis::Bare;
use super::weigh::{apart, bytes_each, cpu, one_thread};
use crate::entry::MakeBackend;
use crate::participant::Participant;
use crate::workload::MANY;

/// Every lock is renewed once in the time. Where a session keeps them, they may have to live longer.
const TTL: Duration = Duration::from_secs(6);
const RENEWED: Duration = Duration::from_secs(2);

/// So many requests are under way while the locks are taken.
const AT_ONCE: usize = 64;

/// Asks a server how many requests it has served.
pub(crate) type Commands = Box<dyn Fn() -> Pin<Box<dyn Future<Output = Result<u64>> + Send>> + Send + Sync>;

/// polylock's.
pub(crate) struct Held {
    make: MakeBackend,
    commands: Commands,
    /// The URL of the server, if that can be asked: what it costs is a figure, too.
    server: Option<String>,
}

impl Held {
    pub(crate) fn new(make: MakeBackend, commands: Commands, server: Option<String>) -> Self {
        Self { make, commands, server }
    }
}

#[async_trait]
impl Participant for Held {
    async fn round(&mut self, _time: Duration) -> Result<Figures> {
        let locker = Locker::from_backend((self.make)()?).without_label();
        locker.connect().await?;
        let guards = take(&locker).await?;
        let before = (self.commands)().await?;
        let server = server_cpu(self.server.as_deref()).await?;
        let start = cpu(ClockId::ProcessCPUTime);
        sleep(RENEWED).await;
        let cpu = cpu_since(start);
        let server = server.zip(server_cpu(self.server.as_deref()).await?);
        let commands = (self.commands)().await? - before;
        for guard in &guards {
            guard.check()?;
        }
        give_back(guards).await?;
        locker.shutdown().await?;

        let make = self.make.clone();
        let bytes = apart(move || {
            let runtime = one_thread()?;
            let locker = Locker::from_backend(make()?).without_label();
            // The connection is not the lock's.
            let first = runtime.block_on(locker.lock("first").acquire())?;
            let (bytes, guards) = bytes_each(MANY, &runtime, take(&locker))?;
            runtime.block_on(async {
                first.release().await.map(drop)?;
                give_back(guards).await?;
                locker.shutdown().await
            })?;
            Ok(bytes)
        });
        let mut figures = vec![(Unit::CpuPerLockMinute, cpu), (Unit::BytesPerLock, bytes.await?)];
        if let Some((before, after)) = server {
            figures.push((Unit::ServerCpuPerLockMinute, in_lock_minutes(after - before)));
        }
        if commands > 0 {
            figures.push((Unit::CommandsPerLockMinute, per_lock_minute(commands as f64)));
        }
        Ok(figures)
    }
}

async fn take(locker: &Locker) -> Result<Vec<Guard>> {
    let ttl = TTL.max(locker.capabilities().shortest_ttl);
    let acquire = |number| async move { locker.lock(format!("held/{number}")).ttl(ttl).acquire().await };
    let guards = stream::iter(0..MANY).map(acquire).buffer_unordered(AT_ONCE);
    Ok(guards.try_collect().await?)
}

async fn give_back(guards: Vec<Guard>) -> lock_core::Result<()> {
    let release = |guard: Guard| async move { guard.release().await.map(drop) };
    let released = stream::iter(guards).map(release).buffer_unordered(AT_ONCE);
    released.try_collect().await
}

/// The bare client's, which renews in order and at an even pace.
pub(crate) struct HeldBare {
    subject: Bare,
    redis: String,
    held: Vec<(<<Bare as Subject>::Client as Client>::Lock, String)>,
}

impl HeldBare {
    pub(crate) fn new(redis: String) -> Self {
        Self {
            subject: Bare::new(&redis),
            redis,
            held: Vec::new(),
        }
    }
}

#[async_trait]
impl Participant for HeldBare {
    async fn enter(&mut self) -> Result<()> {
        let client = self.subject.connect().await?;
        for number in 0..MANY {
            let mut lock = client.lock(&format!("held/{number}")).await?;
            let held = lock.acquire().await?;
            self.held.push((lock, held));
        }
        Ok(())
    }

    async fn round(&mut self, _time: Duration) -> Result<Figures> {
        const TOGETHER: usize = 50;
        let server = server_cpu(Some(&self.redis)).await?;
        let (start, started) = (cpu(ClockId::ProcessCPUTime), Instant::now());
        let pace = RENEWED / u32::try_from(MANY / TOGETHER)?;
        let batches = self.held.chunks_mut(TOGETHER);
        for (due, batch) in (0_u32..).map(|number| started + pace * number).zip(batches) {
            sleep_until(due.into()).await;
            let renewals = batch.iter_mut().map(|(lock, held)| lock.renew(held));
            futures_util::future::try_join_all(renewals).await?;
        }
        sleep_until((started + RENEWED).into()).await;
        let mut figures = vec![(Unit::CpuPerLockMinute, cpu_since(start))];
        if let Some((before, after)) = server.zip(server_cpu(Some(&self.redis)).await?) {
            figures.push((Unit::ServerCpuPerLockMinute, in_lock_minutes(after - before)));
        }
        Ok(figures)
    }

    async fn leave(&mut self) {
        for (mut lock, held) in self.held.drain(..) {
            // What is left is the server's, which ends.
            let _ = lock.release(held).await;
        }
    }
}

fn cpu_since(before: Duration) -> f64 {
    in_lock_minutes(cpu(ClockId::ProcessCPUTime) - before)
}

fn in_lock_minutes(cpu: Duration) -> f64 {
    per_lock_minute(cpu.as_secs_f64() * 1000.0)
}

fn per_lock_minute(in_a_round: f64) -> f64 {
    let lock_minutes = MANY as f64 * RENEWED.as_secs_f64() / 60.0;
    in_a_round / lock_minutes
}
