//! Tasks that run side by side until the round is over.

use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use tokio::task::JoinSet;

use crate::Result;
use crate::figures::times;

/// One task's part of a round.
pub(crate) struct Part<L> {
    pub(crate) lock: L,
    /// Pairs begun before the end and completed.
    pub(crate) pairs: u64,
    pub(crate) times: Histogram<u64>,
    /// When its last pair ended.
    pub(crate) ended: Instant,
}

impl<L> Part<L> {
    pub(crate) fn new(lock: L) -> Self {
        Self {
            lock,
            pairs: 0,
            times: times(),
            ended: Instant::now(),
        }
    }

    /// Another pair, of whose time this is what counts.
    pub(crate) fn note(&mut self, time: Duration) {
        self.pairs += 1;
        // A minute and more is a minute.
        self.times
            .saturating_record(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
    }
}

/// All parts of a round, in the order of their tasks.
pub(crate) struct Round<L> {
    pub(crate) parts: Vec<Part<L>>,
    started: Instant,
}

/// Has every lock played by a task of its own.
pub(crate) async fn side_by_side<L, F>(
    locks: Vec<L>,
    time: Duration,
    play: impl Fn(usize, Part<L>, Instant) -> F,
) -> Result<Round<L>>
where
    L: Send + 'static,
    F: Future<Output = Result<Part<L>>> + Send + 'static,
{
    let mut tasks = JoinSet::new();
    let started = Instant::now();
    let deadline = started + time;
    for (number, lock) in locks.into_iter().enumerate() {
        let part = play(number, Part::new(lock), deadline);
        tasks.spawn(async move { (number, part.await) });
    }
    let mut parts = Vec::new();
    while let Some(task) = tasks.join_next().await {
        let (number, part) = task?;
        parts.push((number, part?));
    }
    parts.sort_unstable_by_key(|(number, _)| *number);
    let parts = parts.into_iter().map(|(_, part)| part).collect();
    Ok(Round { parts, started })
}

impl<L> Round<L> {
    pub(crate) fn pairs_per_second(&self) -> f64 {
        let pairs: u64 = self.parts.iter().map(|part| part.pairs).sum();
        let ended = self.parts.iter().map(|part| part.ended).max().unwrap_or(self.started);
        pairs as f64 / (ended - self.started).as_secs_f64()
    }

    pub(crate) fn times(&self) -> Histogram<u64> {
        let mut all = times();
        for part in &self.parts {
            all.add(&part.times).expect("they all have the same bounds");
        }
        all
    }

    pub(crate) fn locks(self) -> Vec<L> {
        self.parts.into_iter().map(|part| part.lock).collect()
    }
}
