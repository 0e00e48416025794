//! Readers, writers and permits of many processes on the same names, while their connections are killed.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lock_core::backend::Mode::{Exclusive, Shared};
use lock_core::backend::{Attempt, DistributedLock, Mode};
use lock_mysql::LeaseTableBackend;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::contention::stress_time;
use super::sharing::permits;
use super::support::*;
use crate::support::*;

/// The limit of all requests for permits.
const LIMIT: u32 = 4;

/// Who is in, and the largest token that was ever granted.
#[derive(Debug, Default)]
struct Watched {
    writers: u32,
    readers: u32,
    permits: u32,
    last: u64,
    /// The most that were in together.
    most: (u32, u32),
}

impl Watched {
    fn enter(&mut self, mode: Mode, token: u64, before: u64) {
        assert!(token > before, "{token} followed {before}");
        self.last = self.last.max(token);
        *self.count(mode) += weight(mode);
        let kinds = [self.writers, self.readers, self.permits];
        let is_alone = kinds.iter().filter(|count| **count > 0).count() == 1;
        assert!(is_alone && self.writers <= 1 && self.permits <= LIMIT, "{self:?}");
        self.most = (self.most.0.max(self.readers), self.most.1.max(self.permits));
    }

    fn leave(&mut self, mode: Mode) {
        *self.count(mode) -= weight(mode);
    }

    fn count(&mut self, mode: Mode) -> &mut u32 {
        match mode {
            Exclusive => &mut self.writers,
            Shared => &mut self.readers,
            _ => &mut self.permits,
        }
    }
}

fn weight(mode: Mode) -> u32 {
    match mode {
        Mode::Permits(permits) => permits.take(),
        _ => 1,
    }
}

type Names = Arc<HashMap<String, Mutex<Watched>>>;

/// A grant, whatever is killed meanwhile.
async fn acquire(backend: &LeaseTableBackend, name: &str, mode: Mode) -> Granted {
    let (request, _control) = options(name, secs(60)).mode(mode).start();
    let mut failures = 0;
    loop {
        match backend.acquire(&request).await {
            Ok(Attempt::Granted(hold, _armed)) => return Granted::new(hold, request, _control),
            Ok(Attempt::Busy(busy)) => sleep(busy.ask_again.unwrap()).await,
            Ok(other) => panic!("{other:?}"),
            Err(error) => {
                failures += 1;
                assert!(error.is_retryable() && failures < 2000, "failure {failures}: {error:?}");
                sleep(Duration::from_millis(5)).await;
            }
        }
    }
}

async fn end(granted: &Granted) {
    let mut failures = 0;
    while let Err(error) = granted.hold.release(Default::default()).await {
        failures += 1;
        assert!(error.is_retryable() && failures < 2000, "failure {failures}: {error:?}");
        sleep(Duration::from_millis(5)).await;
    }
}

/// Acquires and releases in all modes until the time is up, and returns how often in each.
async fn take_turns(backend: LeaseTableBackend, names: Names, until: Instant, mut number: usize) -> [usize; 3] {
    let mut turns = [0; 3];
    while turns == [0; 3] || goes_on(&names, until) {
        let modes = [
            Shared,
            permits(1, LIMIT),
            Exclusive,
            Shared,
            permits(3, LIMIT),
            permits(1, LIMIT),
            Shared,
        ];
        for (name, watched) in &*names {
            number += 1;
            let mode = modes[number % modes.len()];
            let before = watched.lock().unwrap().last;
            let granted = acquire(&backend, name, mode).await;
            watched.lock().unwrap().enter(mode, granted.token(), before);
            sleep(Duration::from_micros(rand_micros(number))).await;
            if mode == Shared && number.is_multiple_of(4) {
                // It may fail, as its connection may be killed.
                drop(granted.hold.renew(secs(60)).await);
            }
            let is_downgraded = mode == Exclusive && number.is_multiple_of(2);
            if is_downgraded {
                {
                    // Whatever comes of it, nobody else writes.
                    let mut watched = watched.lock().unwrap();
                    watched.leave(Exclusive);
                    watched.enter(Shared, granted.token(), 0);
                }
                drop(granted.hold.downgrade(secs(60)).await);
                sleep(Duration::from_millis(1)).await;
            }
            watched.lock().unwrap().leave(if is_downgraded { Shared } else { mode });
            end(&granted).await;
            turns[match mode {
                Exclusive => 0,
                Shared => 1,
                _ => 2,
            }] += 1;
        }
    }
    turns
}

/// Until the end, and on a slow server until readers, and permits, have been held together.
fn goes_on(names: &Names, end: Instant) -> bool {
    let now = Instant::now();
    let met = |watched: &Mutex<Watched>| {
        let most = watched.lock().unwrap().most;
        most.0 > 1 && most.1 > 1
    };
    now < end || now < end + 2 * PATIENCE && !names.values().all(met)
}

fn rand_micros(number: usize) -> u64 {
    (number as u64 * 7919) % 3000
}

async fn run(fixture: &Fixture, kills: bool) -> Vec<[usize; 3]> {
    let mut observer = fixture.observer().await;
    let names: Names = Arc::new(HashMap::from(
        ["a", "b"].map(|name| (name.to_owned(), Mutex::default())),
    ));
    let end = Instant::now() + stress_time();
    let mut turns = JoinSet::new();
    for number in 0..12 {
        turns.spawn(take_turns(backend(fixture), names.clone(), end, 3 * number));
    }
    let mut killed = 0;
    while kills && Instant::now() < end {
        let busiest = "SELECT COALESCE(MIN(ID),0) FROM information_schema.PROCESSLIST \
                       WHERE USER='app' AND ID<>CONNECTION_ID() AND COMMAND<>'Sleep'";
        let any =
            "SELECT COALESCE(MIN(ID),0) FROM information_schema.PROCESSLIST WHERE USER='app' AND ID<>CONNECTION_ID()";
        let (sql, kill) = match killed % 3 {
            0 => (any, "CONNECTION"),
            1 => (busiest, "CONNECTION"),
            _ => (busiest, "QUERY"),
        };
        let id = observer.number(sql).await;
        if id > 0 {
            // It may have ended by itself.
            observer.try_run(&format!("KILL {kill} {id}")).await;
        }
        killed += 1;
        sleep(Duration::from_millis(killed % 9)).await;
    }
    let turns = all_soon("done", turns.join_all()).await;
    for (name, watched) in &*names {
        let watched = watched.lock().unwrap();
        println!("{name}: most readers and permits together: {:?}", watched.most);
        assert!(watched.most.0 > 1 && watched.most.1 > 1, "{watched:?}");
        assert_eq!((watched.writers, watched.readers, watched.permits), (0, 0, 0));
    }
    println!("writers, readers, permits: {turns:?}, {killed} kills");
    for name in ["a", "b"] {
        until("free", async || !is_held(&mut observer, fixture, name).await).await;
    }
    turns
}

#[testbed::test(flavor = "multi_thread", worker_threads = 2)]
async fn twelve_processes_in_all_modes_never_overlap_nor_deadlock() {
    let fixture = Fixture::own().await;
    let turns = run(&fixture, false).await;
    // Nobody promises an order, and the machine may be busy: so not each process in each mode.
    assert!(
        turns.iter().all(|process| process.iter().any(|turns| *turns > 0)),
        "a process starved: {turns:?}"
    );
    for mode in 0..3 {
        assert!(
            turns.iter().any(|process| process[mode] > 0),
            "a mode starved: {turns:?}"
        );
    }
    let mut observer = fixture.observer().await;
    assert_eq!(deadlocks(&mut observer).await, 0);
}

#[testbed::test(flavor = "multi_thread", worker_threads = 2)]
async fn killing_all_connections_again_and_again_breaks_no_rule() {
    let fixture = Fixture::own().await;
    run(&fixture, true).await;
    let mut observer = fixture.observer().await;
    assert_eq!(deadlocks(&mut observer).await, 0);
}
