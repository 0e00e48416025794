//! Names of their own: nobody waits for anybody.

use std::time::{Duration, Instant};

use crate::clocked::{Part, side_by_side};
use crate::figures::percentiles;
use crate::{Figures, Lock, Result, Unit};

pub(crate) async fn play<L: Lock>(locks: Vec<L>, background: bool, time: Duration) -> Result<(Vec<L>, Figures)> {
    let round = side_by_side(locks, time, |_, part, deadline| pairs(part, background, deadline)).await?;
    let mut figures = vec![(Unit::PairsPerSecond, round.pairs_per_second())];
    figures.extend(percentiles(&round.times()));
    Ok((round.locks(), figures))
}

async fn pairs<L: Lock>(mut part: Part<L>, background: bool, deadline: Instant) -> Result<Part<L>> {
    let mut begun = Instant::now();
    while begun < deadline {
        let held = part.lock.acquire().await?;
        if background {
            part.lock.release_in_background(held)?;
        } else {
            part.lock.release(held).await?;
        }
        let ended = Instant::now();
        part.note(ended - begun);
        begun = ended;
    }
    part.ended = begun;
    Ok(part)
}
