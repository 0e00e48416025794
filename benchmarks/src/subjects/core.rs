//! `core-1`: what an acquire with its release costs where the server costs nothing.

use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use benchmarks_load::{Client, Figures, Lock, Result, Subject, Unit};
use lock_core::MemoryBackend;
use rustix::time::ClockId;

use super::memory::Mutexes;
use super::polylock::{Polylock, Raw};
use super::weigh::{apart, cpu, one_thread};
use crate::entry::MakeBackend;
use crate::participant::Participant;

/// Between two looks at the clock.
const BATCH: u64 = 1000;

pub(crate) fn participants() -> Vec<(&'static str, Box<dyn Participant>)> {
    let server = MemoryBackend::new();
    let make: MakeBackend = Arc::new(move || Ok(Arc::new(server.clone())));
    vec![
        ("polylock", Box::new(Core(Arc::new(Polylock(make.clone()))))),
        ("raw-trait", Box::new(Core(Arc::new(Raw(make))))),
        ("plain", Box::new(Core(Arc::new(Mutexes::default())))),
    ]
}

struct Core<S>(Arc<S>);

#[async_trait]
impl<S: Subject> Participant for Core<S> {
    async fn round(&mut self, time: Duration) -> Result<Figures> {
        let subject = self.0.clone();
        apart(move || round(&*subject, time)).await
    }
}

fn round<S: Subject>(subject: &S, time: Duration) -> Result<Figures> {
    let runtime = one_thread()?;
    let client = runtime.block_on(subject.connect())?;
    let mut lock = runtime.block_on(client.lock("core"))?;
    // Tables and queues have their size then.
    runtime.block_on(pairs(&mut lock, BATCH))?;

    // All of it is done on this thread, and nothing waits.
    let (started, before) = (Instant::now(), cpu(ClockId::ThreadCPUTime));
    let mut done = 0;
    while started.elapsed() < time {
        runtime.block_on(pairs(&mut lock, BATCH))?;
        done += BATCH;
    }
    let nanos = (cpu(ClockId::ThreadCPUTime) - before).as_nanos() as f64 / done as f64;

    let mut counted = Ok(());
    let allocations = allocation_counter::measure(|| counted = runtime.block_on(pairs(&mut lock, BATCH)));
    counted?;
    let allocations = allocations.count_total as f64 / BATCH as f64;
    Ok(vec![
        (Unit::NanosPerPair, nanos),
        (Unit::AllocationsPerPair, allocations),
    ])
}

async fn pairs(lock: &mut impl Lock, many: u64) -> Result<()> {
    for _ in 0..many {
        let held = lock.acquire().await?;
        lock.release(held).await?;
    }
    Ok(())
}
