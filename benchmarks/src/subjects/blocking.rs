//! `blocking-1` and `blocking-16`: the API without async beside the async one, in as many threads and tasks.

use std::thread;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use benchmarks_load::{Figures, Result, Unit};
use lock_core::{Locker, blocking};
use tokio::task::JoinSet;

use super::TTL;
use super::weigh::apart;
use crate::entry::MakeBackend;
use crate::participant::Participant;

pub(crate) fn participants(make: &MakeBackend, threads: usize) -> Vec<(&'static str, Box<dyn Participant>)> {
    let make = make.clone();
    vec![
        ("polylock", Box::new(Tasks(make.clone(), threads))),
        ("polylock-blocking", Box::new(Threads(make, threads))),
    ]
}

/// So many tasks of this runtime, each with a name of its own.
struct Tasks(MakeBackend, usize);

/// So many threads, each with a name of its own.
struct Threads(MakeBackend, usize);

#[async_trait]
impl Participant for Tasks {
    async fn round(&mut self, time: Duration) -> Result<Figures> {
        let locks = locker(&self.0)?;
        locks.connect().await?;
        let (start, mut tasks) = (Instant::now(), JoinSet::new());
        for number in 0..self.1 {
            tasks.spawn(pairs(locks.lock(name(number)), start + time));
        }
        let mut done = 0;
        while let Some(pairs) = tasks.join_next().await {
            done += pairs??;
        }
        let figures = per_second(done, start);
        locks.shutdown().await?;
        Ok(figures)
    }
}

async fn pairs(lock: lock_core::Lock, end: Instant) -> Result<u64> {
    let mut done = 0;
    while Instant::now() < end {
        lock.acquire().await?.release().await?;
        done += 1;
    }
    Ok(done)
}

#[async_trait]
impl Participant for Threads {
    async fn round(&mut self, time: Duration) -> Result<Figures> {
        let (locks, threads) = (locker(&self.0)?.blocking(), self.1);
        apart(move || in_threads(&locks, threads, time)).await
    }
}

fn in_threads(locks: &blocking::Locker, threads: usize, time: Duration) -> Result<Figures> {
    locks.connect()?;
    let start = Instant::now();
    let done = thread::scope(|scope| {
        let running: Vec<_> = (0..threads)
            .map(|number| scope.spawn(move || blocking_pairs(&locks.lock(name(number)), start + time)))
            .collect();
        running
            .into_iter()
            .map(|thread| thread.join().expect("it does not panic"))
            .sum::<Result<u64>>()
    })?;
    let figures = per_second(done, start);
    locks.shutdown()?;
    Ok(figures)
}

fn blocking_pairs(lock: &blocking::Lock, end: Instant) -> Result<u64> {
    let mut done = 0;
    while Instant::now() < end {
        lock.acquire()?.release()?;
        done += 1;
    }
    Ok(done)
}

fn locker(make: &MakeBackend) -> Result<Locker> {
    Ok(Locker::from_backend(make()?).without_label().with_ttl(TTL))
}

fn name(number: usize) -> String {
    format!("blocking-{number}")
}

fn per_second(pairs: u64, start: Instant) -> Figures {
    vec![(Unit::PairsPerSecond, pairs as f64 / start.elapsed().as_secs_f64())]
}
