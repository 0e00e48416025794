//! One name that all tasks of a client want, all the time.

use std::time::{Duration, Instant};

use crate::clocked::{Part, side_by_side};
use crate::figures::{percentiles, share};
use crate::{Figures, Lock, Result, Unit};

/// The times are of waiting for the lock.
pub(crate) async fn play<L: Lock>(locks: Vec<L>, time: Duration) -> Result<(Vec<L>, Figures)> {
    let round = side_by_side(locks, time, |_, part, deadline| pairs(part, deadline)).await?;
    let mut figures = vec![(Unit::PairsPerSecond, round.pairs_per_second())];
    figures.extend(percentiles(&round.times()));
    if round.parts.len() > 1 {
        figures.push((Unit::Share, share(round.parts.iter().map(|part| part.pairs))));
    }
    Ok((round.locks(), figures))
}

async fn pairs<L: Lock>(mut part: Part<L>, deadline: Instant) -> Result<Part<L>> {
    loop {
        let begun = Instant::now();
        if begun >= deadline {
            return Ok(part);
        }
        let held = part.lock.acquire().await?;
        let acquired = Instant::now();
        part.lock.release(held).await?;
        // Those who come at last, when fewer and fewer compete, do not count.
        if acquired < deadline {
            part.note(acquired - begun);
            part.ended = acquired;
        }
    }
}
