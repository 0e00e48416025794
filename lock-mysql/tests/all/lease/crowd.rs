//! Many processes that wait for one name.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use lock_core::backend::ReleaseOutcome;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::support::*;
use crate::support::*;

/// `POLYLOCK_CROWD=128` for more.
fn crowd() -> u32 {
    let crowd = std::env::var("POLYLOCK_CROWD").ok();
    crowd.map_or(12, |crowd| crowd.parse().expect("a number"))
}

/// One of them has its mark in the row. The others, which nobody would wake, once asked 20 to 40 times a second each.
#[testbed::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crowd_asks_seldom_and_each_has_its_turn() {
    const TURNS: usize = 3;
    let fixture = Fixture::own_with(["--max-connections=1000"]).await;
    let (first, mut observer) = (backend(&fixture), fixture.observer().await);
    let granted = grant(&first, "a", secs(600)).await;
    let released = Arc::new(Mutex::new(None::<Instant>));
    let mut waiting = JoinSet::new();
    for _ in 0..crowd() {
        let (lock, released) = (locker(&fixture).lock("a").ttl(secs(600)), released.clone());
        waiting.spawn(async move {
            let mut took = Vec::new();
            for _ in 0..TURNS {
                let guard = lock.acquire().await.unwrap();
                took.extend(released.lock().unwrap().take().map(|at| at.elapsed()));
                sleep(Duration::from_millis(3)).await;
                *released.lock().unwrap() = Some(Instant::now());
                guard.release().await.unwrap();
                sleep(Duration::from_millis(2)).await;
            }
            took
        });
    }
    // Until each has its connections, the one to sleep on among them.
    let asleep =
        "SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE INFO LIKE '%:held%' AND ID<>CONNECTION_ID()";
    until("asleep", async || observer.number(asleep).await == u64::from(crowd())).await;
    // And until the pauses that were begun before are over.
    sleep(secs(2)).await;
    let (before, start) = (counted(&mut observer, "COM_INSERT").await, Instant::now());
    sleep(secs(2)).await;
    let asked = counted(&mut observer, "COM_INSERT").await - before;
    println!("{} wait, and ask {asked} times in {:?}", crowd(), start.elapsed());
    let most = f64::from(crowd()) * (1.0 + 5.0 * start.elapsed().as_secs_f64());

    let (before, start) = (counted(&mut observer, "Questions").await, Instant::now());
    assert_eq!(granted.release().await, ReleaseOutcome::Released);
    let mut took: Vec<_> = all_soon("all had their turns", waiting.join_all()).await.concat();
    let statements = counted(&mut observer, "Questions").await - before;
    took.sort_unstable();
    println!(
        "{} turns, of {:?} in the middle, nine of ten below {:?}, with {statements} statements in {:?}",
        took.len(),
        took[took.len() / 2],
        took[took.len() * 9 / 10],
        start.elapsed()
    );
    assert!((asked as f64) < most, "{asked} questions are too many");
    until("without queue entries", async || {
        queued(&mut observer, &fixture, "a").await == 0
    })
    .await;
}
