//! `names-100`: many who wait for many names.

use std::time::Duration;

use async_trait::async_trait;
use benchmarks_load::{Client, Figures, Lock, Mode, Result, Subject, Unit};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::participant::Participant;
use crate::workload::{NAMED_CLIENTS, NAMES};

/// Clients with connections of their own, each of which waits for each name once at a time. The first of them read.
pub(crate) struct Names<S: Subject> {
    subject: S,
    readers: usize,
    locks: Vec<<S::Client as Client>::Lock>,
}

impl<S: Subject> Names<S> {
    pub(crate) fn new(subject: S, readers: usize) -> Self {
        Self {
            subject,
            readers,
            locks: Vec::new(),
        }
    }
}

#[async_trait]
impl<S: Subject> Participant for Names<S> {
    async fn enter(&mut self) -> Result<()> {
        for number in 0..NAMED_CLIENTS {
            let client = self.subject.connect().await?;
            let mode = match number < self.readers {
                true => Mode::Shared,
                false => Mode::Exclusive,
            };
            for name in 0..NAMES {
                self.locks.push(client.lock_in(&format!("named/{name}"), mode).await?);
            }
        }
        Ok(())
    }

    async fn round(&mut self, time: Duration) -> Result<Figures> {
        let (started, mut tasks, mut pairs) = (Instant::now(), JoinSet::new(), 0_u32);
        for mut lock in self.locks.drain(..) {
            tasks.spawn(async move {
                let mut pairs = 0;
                while started.elapsed() < time {
                    let held = lock.acquire().await?;
                    lock.release(held).await?;
                    pairs += 1;
                }
                Result::Ok((lock, pairs))
            });
        }
        while let Some(ended) = tasks.join_next().await {
            let (lock, some) = ended??;
            self.locks.push(lock);
            pairs += some;
        }
        let rate = f64::from(pairs) / started.elapsed().as_secs_f64();
        Ok(vec![(Unit::PairsPerSecond, rate)])
    }

    async fn leave(&mut self) {
        self.locks.clear();
    }
}
