//! One name that all tasks want, all the time.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::task::yield_now;

use crate::clocked::{Part, Round, side_by_side};
use crate::figures::{percentiles, share};
use crate::inside::Inside;
use crate::seat::Seat;
use crate::{Figures, Lock, Mode, Result, Unit};

/// One pair of so many, reads and writes alike, stays inside for a moment: somebody whom it excludes would meet it.
const STAYS: usize = 7;

/// The times are of waiting for the lock.
pub(crate) async fn play<L: Lock>(
    seats: Vec<Seat<L>>,
    inside: Arc<Inside>,
    time: Duration,
) -> Result<(Vec<Seat<L>>, Figures)> {
    let round = side_by_side(seats, time, |task, part, deadline| {
        pairs(part, task, inside.clone(), deadline)
    })
    .await?;
    let mut figures = vec![
        (Unit::PairsPerSecond, round.pairs_per_second()),
        (Unit::Pairs, round.pairs() as f64),
    ];
    figures.extend(percentiles(&round.times()));
    if round.parts.len() > 1 {
        figures.push((Unit::Share, share(shares(&round).into_iter())));
    }
    if round.parts.iter().any(|part| part.seat.write.is_some()) {
        let longest = round.parts.iter().map(|part| part.longest_write).max();
        let micros = longest.unwrap_or_default().as_secs_f64() * 1e6;
        figures.push((Unit::MicrosLongestWrite, micros));
    }
    Ok((round.seats(), figures))
}

async fn pairs<L: Lock>(
    mut part: Part<Seat<L>>,
    task: usize,
    inside: Arc<Inside>,
    deadline: Instant,
) -> Result<Part<Seat<L>>> {
    // They do not all write at the same time.
    for number in task * 7.. {
        let Seat { lock, mode, write, .. } = &mut part.seat;
        let (lock, mode) = match write {
            Some((write, percent)) if writes(number, *percent) => (write, Mode::Exclusive),
            _ => (lock, *mode),
        };
        let begun = Instant::now();
        if begun >= deadline {
            break;
        }
        let held = lock.acquire().await?;
        let acquired = Instant::now();
        inside.enter(mode)?;
        if number % STAYS == 0 {
            yield_now().await;
        }
        inside.leave(mode);
        lock.release(held).await?;
        if part.seat.write.is_some() && mode == Mode::Exclusive {
            part.longest_write = part.longest_write.max(acquired - begun);
        }
        // Those who come at last, when fewer and fewer compete, do not count.
        if acquired < deadline {
            part.note(acquired - begun);
            part.ended = acquired;
        }
    }
    Ok(part)
}

/// Evenly among the reads.
fn writes(number: usize, percent: usize) -> bool {
    let writes = 100 - percent;
    (number + 1) * writes / 100 > number * writes / 100
}

/// Of each client; of each task, where there is but one.
fn shares<L>(round: &Round<Seat<L>>) -> Vec<u64> {
    let clients = round.parts.iter().map(|part| part.seat.client + 1).max().unwrap_or(0);
    if clients == 1 {
        return round.parts.iter().map(|part| part.pairs).collect();
    }
    let mut shares = vec![0; clients];
    for part in &round.parts {
        shares[part.seat.client] += part.pairs;
    }
    shares
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_are_the_rest_of_a_hundred() {
        for percent in [0, 50, 90, 99] {
            let writes = (0..1000).filter(|number| writes(*number, percent)).count();
            assert_eq!(writes, 1000 - 10 * percent);
        }
    }
}
