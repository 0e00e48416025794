//! The buyers of one process.

use std::error::Error;
use std::ops::Range;
use std::time::{Duration, Instant};

use polylock::{Config, FencingToken, Locker};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::report::Event;
use crate::stock::{self, Stock};
use crate::{Options, report};

/// Runs these buyers to the end, and tells of each as it finishes.
pub(crate) async fn run(
    options: &Options,
    stock: &Stock,
    buyers: Range<u32>,
    mut tell: impl FnMut(Event),
) -> Result<(), Box<dyn Error + Send + Sync>> {
    let mut config = Config::new(&options.backend);
    config.ttl = Some(options.ttl);
    let locks = config.connect().await?;
    let (sender, mut events) = mpsc::unbounded_channel();
    let mut tasks = JoinSet::new();
    for number in buyers {
        let (options, stock, locks, sender) = (options.clone(), stock.clone(), locks.clone(), sender.clone());
        tasks.spawn(async move {
            let event = match buy(&options, &stock, &locks, number).await {
                Ok(event) => event,
                Err(error) => Event::Failed(format!("buyer {number}: {}", report::chain(error.as_ref()))),
            };
            // The receiver lives until all senders have gone.
            let _ = sender.send(event);
        });
    }
    drop(sender);
    while let Some(event) = events.recv().await {
        tell(event);
    }
    while let Some(ended) = tasks.join_next().await {
        ended?;
    }
    locks.shutdown().await?;
    Ok(())
}

async fn buy(
    options: &Options,
    stock: &Stock,
    locks: &Locker,
    number: u32,
) -> Result<Event, Box<dyn Error + Send + Sync>> {
    let started = Instant::now();
    if options.no_lock {
        return Ok(take_one(options, stock, None).await?.event(started.elapsed()));
    }
    let label = format!("buyer {number} of process {}", std::process::id());
    let lock = locks.lock("productA").label(label);
    let guard = match options.wait {
        Some(wait) => lock.acquire_within(wait).await?,
        None => lock.acquire().await?,
    };
    let waited = started.elapsed();
    let outcome = guard.run(take_one(options, stock, Some(guard.token()))).await??;
    guard.release().await?;
    Ok(outcome.event(waited))
}

enum Outcome {
    Bought,
    SoldOut,
}

impl Outcome {
    fn event(&self, waited: Duration) -> Event {
        match self {
            Self::Bought => Event::Sold(waited),
            Self::SoldOut => Event::SoldOut(waited),
        }
    }
}

/// What the lock protects.
async fn take_one(options: &Options, stock: &Stock, token: Option<FencingToken>) -> stock::Result<Outcome> {
    let left = stock.read(token).await?;
    let Some(rest) = left.checked_sub(1) else {
        return Ok(Outcome::SoldOut);
    };
    let think = rand::random_range(0..=options.think_ms);
    tokio::time::sleep(Duration::from_millis(think)).await;
    stock.sell_down_to(rest, token).await?;
    Ok(Outcome::Bought)
}
