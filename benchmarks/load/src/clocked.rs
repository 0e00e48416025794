//! Tasks that run side by side until the round is over.

use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use tokio::task::JoinSet;

use crate::Result;
use crate::figures::times;

/// One task's part of a round.
pub(crate) struct Part<S> {
    pub(crate) seat: S,
    /// Pairs begun before the end and completed.
    pub(crate) pairs: u64,
    pub(crate) times: Histogram<u64>,
    /// The longest wait for the write side.
    pub(crate) longest_write: Duration,
    /// When its last pair ended.
    pub(crate) ended: Instant,
}

impl<S> Part<S> {
    pub(crate) fn new(seat: S) -> Self {
        Self {
            seat,
            pairs: 0,
            times: times(),
            longest_write: Duration::ZERO,
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
pub(crate) struct Round<S> {
    pub(crate) parts: Vec<Part<S>>,
    started: Instant,
}

/// Has every seat played by a task of its own.
pub(crate) async fn side_by_side<S, F>(
    seats: Vec<S>,
    time: Duration,
    play: impl Fn(usize, Part<S>, Instant) -> F,
) -> Result<Round<S>>
where
    S: Send + 'static,
    F: Future<Output = Result<Part<S>>> + Send + 'static,
{
    let mut tasks = JoinSet::new();
    let started = Instant::now();
    let deadline = started + time;
    for (number, seat) in seats.into_iter().enumerate() {
        let part = play(number, Part::new(seat), deadline);
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

impl<S> Round<S> {
    pub(crate) fn pairs(&self) -> u64 {
        self.parts.iter().map(|part| part.pairs).sum()
    }

    pub(crate) fn pairs_per_second(&self) -> f64 {
        let ended = self.parts.iter().map(|part| part.ended).max().unwrap_or(self.started);
        self.pairs() as f64 / (ended - self.started).as_secs_f64()
    }

    pub(crate) fn times(&self) -> Histogram<u64> {
        let mut all = times();
        for part in &self.parts {
            all.add(&part.times).expect("they all have the same bounds");
        }
        all
    }

    pub(crate) fn seats(self) -> Vec<S> {
        self.parts.into_iter().map(|part| part.seat).collect()
    }
}
