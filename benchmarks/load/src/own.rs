//! Names of their own: nobody waits for anybody.

use std::time::{Duration, Instant};

use crate::clocked::{Part, side_by_side};
use crate::figures::percentiles;
use crate::seat::Seat;
use crate::{Figures, Lock, Result, Unit};

pub(crate) async fn play<L: Lock>(
    seats: Vec<Seat<L>>,
    background: bool,
    time: Duration,
) -> Result<(Vec<Seat<L>>, Figures)> {
    let round = side_by_side(seats, time, |_, part, deadline| pairs(part, background, deadline)).await?;
    let mut figures = vec![
        (Unit::PairsPerSecond, round.pairs_per_second()),
        (Unit::Pairs, round.pairs() as f64),
    ];
    figures.extend(percentiles(&round.times()));
    Ok((round.seats(), figures))
}

async fn pairs<L: Lock>(mut part: Part<Seat<L>>, background: bool, deadline: Instant) -> Result<Part<Seat<L>>> {
    let mut begun = Instant::now();
    while begun < deadline {
        let held = part.seat.lock.acquire().await?;
        if background {
            part.seat.lock.release_in_background(held)?;
            part.seat.take_next_name();
        } else {
            part.seat.lock.release(held).await?;
        }
        let ended = Instant::now();
        part.note(ended - begun);
        begun = ended;
    }
    part.ended = begun;
    Ok(part)
}
