//! Many at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use tokio::task::{JoinSet, yield_now};

use super::support::{Polls, all_end};
use crate::context::Cx;
use crate::subject::{Ask, Subject};
use crate::verdict::{OrFail, Stop, Verdict, ensure_safe_by_ttl};

/// A hundred tasks of several clients add to a number that nothing else protects, and no addition gets lost.
pub(crate) async fn a_hundred_tasks_lose_no_update(cx: &Cx) -> Verdict {
    const TASKS: u64 = 100;
    let (counter, ask) = (Arc::new(AtomicU64::new(0)), cx.ask("a").await);
    let clients = [cx.subject().await, cx.subject().await, cx.subject().await];
    let mut tasks = JoinSet::new();
    for number in 0..TASKS {
        let (client, counter, ask) = (clients[number as usize % 3].clone(), counter.clone(), ask.clone());
        tasks.spawn(async move {
            let Some(guard) = client.acquire(&ask).await.or_fail("acquire")? else {
                return Err(Stop::assertion("an acquire that waits for ever was busy"));
            };
            let read = counter.load(Ordering::SeqCst);
            yield_now().await;
            counter.store(read + 1, Ordering::SeqCst);
            guard.released().await
        });
    }
    all_end(cx, "a hundred tasks to take turns", tasks).await?;
    let counted = counter.load(Ordering::SeqCst);
    ensure_safe_by_ttl!(counted == TASKS, "of {TASKS} additions {counted} are left");
    Ok(())
}

/// Tries, waits, drops and acquires that are cut short, all at once: never two inside, tokens grow, and nothing is
/// left at the end.
pub(crate) async fn a_turmoil_leaves_nothing(cx: &Cx) -> Verdict {
    let shared = Arc::new(Shared {
        inside: AtomicU32::new(0),
        last_token: AtomicU64::new(0),
    });
    let ask = cx.ask("a").await;
    let mut tasks = JoinSet::new();
    for seed in 0..9 {
        let client = if seed % 3 == 0 {
            cx.subject().await
        } else {
            cx.observer().await.clone()
        };
        tasks.spawn(turmoil(client, ask.clone(), shared.clone(), seed));
    }
    all_end(cx, "the turmoil to end", tasks).await?;
    cx.until_free("a", "the turmoil").await
}

struct Shared {
    inside: AtomicU32,
    last_token: AtomicU64,
}

async fn turmoil(client: Arc<dyn Subject>, ask: Ask, shared: Arc<Shared>, seed: u32) -> Verdict {
    let mut dice = Dice(seed);
    for _ in 0..12 {
        let ask = match dice.roll(3) {
            0 => ask.clone().trying(),
            1 => ask.clone().within(Duration::from_millis(20)),
            _ => ask.clone(),
        };
        let polls = if dice.roll(3) == 0 { 1 + dice.roll(12) } else { u32::MAX };
        // Busy, timed out and cut short are all fine here.
        let Some(Ok(Some(guard))) = Polls::new(client.acquire(&ask), polls).await else {
            continue;
        };
        let others = shared.inside.fetch_add(1, Ordering::SeqCst);
        ensure_safe_by_ttl!(others == 0, "{others} were inside already");
        let (token, last) = (guard.token().as_u64(), shared.last_token.load(Ordering::SeqCst));
        ensure_safe_by_ttl!(token > last, "token {token} after {last}");
        shared.last_token.store(token, Ordering::SeqCst);
        for _ in 0..dice.roll(4) {
            yield_now().await;
        }
        shared.inside.fetch_sub(1, Ordering::SeqCst);
        match dice.roll(2) {
            0 => drop(guard),
            _ => guard.released().await?,
        }
    }
    Ok(())
}

/// A small generator, so that a failure can be repeated.
struct Dice(u32);

impl Dice {
    /// From 0 to one less than `sides`.
    fn roll(&mut self, sides: u32) -> u32 {
        self.0 = self.0.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (self.0 >> 16) % sides
    }
}
