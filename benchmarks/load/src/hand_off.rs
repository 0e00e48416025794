//! One name that goes from client to client: how long from the moment when one sends its release until the next one,
//! who was waiting then, has the lock.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tokio::time::sleep;

use crate::clocked::{Part, side_by_side};
use crate::figures::percentiles;
use crate::inside::Inside;
use crate::seat::Seat;
use crate::{Figures, Lock, Mode, Result};

/// Longer than the pause: of two clients, too, the other one waits when one releases.
const HOLD: Duration = Duration::from_millis(3);
const PAUSE: Duration = Duration::from_millis(2);

/// Who released last, and when. Only a holder writes, and only the next holder reads it.
struct Last {
    base: Instant,
    nanos: AtomicU64,
    client: AtomicUsize,
}

const NOBODY: usize = usize::MAX;

/// A lock that its own releaser takes again at once is not handed on: those do not count.
pub(crate) async fn play<L: Lock>(
    seats: Vec<Seat<L>>,
    inside: Arc<Inside>,
    time: Duration,
) -> Result<(Vec<Seat<L>>, Figures)> {
    let last = Arc::new(Last {
        base: Instant::now(),
        nanos: AtomicU64::new(0),
        client: AtomicUsize::new(NOBODY),
    });
    let round = side_by_side(seats, time, |_, part, deadline| {
        turns(part, last.clone(), inside.clone(), deadline)
    })
    .await?;
    let figures = percentiles(&round.times());
    Ok((round.seats(), figures))
}

async fn turns<L: Lock>(
    mut part: Part<Seat<L>>,
    last: Arc<Last>,
    inside: Arc<Inside>,
    deadline: Instant,
) -> Result<Part<Seat<L>>> {
    let client = part.seat.client;
    loop {
        let begun = Instant::now();
        if begun >= deadline {
            return Ok(part);
        }
        let held = part.seat.lock.acquire().await?;
        let acquired = Instant::now();
        inside.enter(Mode::Exclusive)?;
        let released = last.base + Duration::from_nanos(last.nanos.load(Ordering::Acquire));
        let from = last.client.load(Ordering::Acquire);
        if from != NOBODY && from != client && begun < released && acquired < deadline {
            part.note(acquired - released);
        }
        if acquired < deadline {
            sleep(HOLD).await;
        }
        let now = Instant::now() - last.base;
        last.client.store(client, Ordering::Release);
        last.nanos
            .store(u64::try_from(now.as_nanos()).unwrap_or(u64::MAX), Ordering::Release);
        inside.leave(Mode::Exclusive);
        part.seat.lock.release(held).await?;
        sleep(PAUSE).await;
    }
}
