//! Many processes that want the same names.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lock_core::Locker;
use testbed::assert_safe;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::support::*;
use crate::support::*;

/// Who is in, and the last token.
#[derive(Debug, Default)]
struct Watched {
    is_held: AtomicBool,
    last: Mutex<u64>,
}

/// Acquires and releases for as long as it goes on, at least once, and returns how often.
async fn take_turns(locker: Locker, names: Arc<HashMap<String, Watched>>, goes_on: impl Fn() -> bool) -> usize {
    let mut turns = 0;
    while turns == 0 || goes_on() {
        for (name, watched) in &*names {
            let guard = locker.lock(name.as_str()).ttl(secs(60)).acquire().await.unwrap();
            assert_safe!(!watched.is_held.swap(true, Ordering::SeqCst), "two have {name}");
            {
                let mut last = watched.last.lock().unwrap();
                let token = guard.token().as_u64();
                assert_safe!(token > *last, "{last} was followed by {token}");
                *last = token;
            }
            tokio::task::yield_now().await;
            assert_safe!(watched.is_held.swap(false, Ordering::SeqCst), "two had {name}");
            guard.release().await.unwrap();
            turns += 1;
        }
    }
    turns
}

/// `POLYLOCK_STRESS_SECONDS=30` for longer.
pub(super) fn stress_time() -> Duration {
    let seconds = std::env::var("POLYLOCK_STRESS_SECONDS").ok();
    secs(seconds.map_or(3, |seconds| seconds.parse().expect("a number of seconds")))
}

#[testbed::test(flavor = "multi_thread", worker_threads = 2)]
async fn sixteen_processes_on_two_names_meet_no_deadlock() {
    let fixture = Fixture::own().await;
    let mut observer = fixture.observer().await;
    provoke_deadlock(&fixture).await;
    assert_eq!(deadlocks(&mut observer).await, 1, "the server counts them");
    let names = ["a", "b"].map(|name| (name.to_owned(), Watched::default()));
    let names = Arc::new(HashMap::from(names));
    let end = Instant::now() + stress_time();
    let mut turns = JoinSet::new();
    for _ in 0..16 {
        let goes_on = move || Instant::now() < end;
        turns.spawn(take_turns(locker(&fixture), names.clone(), goes_on));
    }
    let turns = turns.join_all().await;
    let most = turns.iter().max().unwrap();
    println!(
        "{} turns, from {} to {most}",
        turns.iter().sum::<usize>(),
        turns.iter().min().unwrap()
    );
    assert!(turns.iter().all(|turns| *turns > 0), "somebody starved: {turns:?}");
    assert_eq!(deadlocks(&mut observer).await, 1, "there is one that was provoked");
}

/// Whatever their connections are doing then: holds are rows, and nothing that was sent takes effect twice.
#[testbed::test(flavor = "multi_thread", worker_threads = 2)]
async fn killing_all_connections_again_and_again_costs_no_hold() {
    let fixture = Fixture::own().await;
    let mut observer = fixture.observer().await;
    let names = ["a", "b"].map(|name| (name.to_owned(), Watched::default()));
    let names = Arc::new(HashMap::from(names));
    let end = Instant::now() + stress_time();
    let is_over = Arc::new(AtomicBool::new(false));
    let mut turns = JoinSet::new();
    for _ in 0..4 {
        let is_over = is_over.clone();
        let goes_on = move || !is_over.load(Ordering::SeqCst);
        turns.spawn(take_turns(locker(&fixture), names.clone(), goes_on));
    }
    let mut killed = 0;
    // On a busy machine until it was often enough.
    while Instant::now() < end || killed <= 20 && Instant::now() < end + PATIENCE {
        let sql = "SELECT COALESCE(MIN(ID),0) FROM information_schema.PROCESSLIST \
                   WHERE USER='app' AND ID<>CONNECTION_ID()";
        let id = observer.number(sql).await;
        if id > 0 {
            // It may have ended by itself.
            observer.try_run(&format!("KILL CONNECTION {id}")).await;
            killed += 1;
        }
        sleep(Duration::from_millis(killed % 7)).await;
    }
    is_over.store(true, Ordering::SeqCst);
    let turns = all_soon("done", turns.join_all()).await;
    println!("{turns:?} turns with {killed} killed connections");
    assert!(killed > 20, "{killed}");
    for name in ["a", "b"] {
        until("free", async || !is_held(&mut observer, &fixture, name).await).await;
    }
}
