//! The actors on the memory backend: what a worker process does, without processes and faults.

use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use lock_core::MemoryBackend;
use tokio::time::{Instant, sleep};

use super::canary::Pulse;
use super::*;
use crate::check::Check;
use crate::clock;
use crate::config::{ENOUGH_HOLDS, RunConfig};
use crate::history::History;
use crate::matrix;
use crate::record::{NEMESIS, OUTCOME, Outcome, RESOURCE};
use crate::resource::Resource;
use crate::verdict::Verdict;

/// The verdict on the first run that the machine did not disturb, or on the last one. On a busy machine a run may come
/// to nothing, and may exceed the limits of times.
async fn judged(config: RunConfig) -> Verdict {
    const TRIES: usize = 5;
    let mut tries = 0;
    loop {
        let dir = tempfile::tempdir().unwrap();
        let verdict = run(config.clone(), dir.path()).await;
        println!("{verdict}");
        tries += 1;
        let broken = verdict.broken();
        let is_timed = |check: &Check| matches!(check, Check::LateLoss | Check::LostHold | Check::Recovery);
        let is_disturbed = verdict.exit_code() != 0 && broken.iter().all(is_timed);
        if !is_disturbed || tries == TRIES {
            return verdict;
        }
    }
}

/// Runs the actors of so many lockers on one server, and judges what they did.
async fn run(config: RunConfig, dir: &Path) -> Verdict {
    let resource = Writer::create(&dir.join(RESOURCE)).unwrap();
    let resource = Resource::start(config.locks, resource).await.unwrap();
    let server = MemoryBackend::new();
    let (mut locked, mut actors) = (Vec::new(), Vec::new());
    let begin = clock::now();
    for process in 0..config.procs {
        let job = Job {
            config: config.clone(),
            process,
            incarnation: 0,
            ways: Vec::new(),
            url: String::new(),
            address: resource.address(),
            resource: resource.address(),
            dir: dir.to_owned(),
            parent: 0,
        };
        let history = Writer::create(&dir.join(process_file(process, 0))).unwrap();
        let observed = Observed::new(Arc::new(server.clone()), history.clone());
        let locker = Locker::new(observed).with_ttl(job.config.ttl);
        let shared = Arc::new(Shared::new(job, locker, history));
        for number in 0..config.tasks {
            let resource = Client::connect(process, resource.address()).await.unwrap();
            let rng = StdRng::seed_from_u64(seed(&shared.job, number));
            actors.push(tokio::spawn(Actor::new(shared.clone(), resource, rng).run()));
        }
        locked.push(shared);
    }
    let over = Arc::new(AtomicBool::new(false));
    let canary = std::thread::spawn({
        let (over, locked) = (over.clone(), locked.clone());
        move || {
            let mut pulse = Pulse::new();
            while !over.load(Ordering::Relaxed) {
                if let Some(starved) = pulse.beat() {
                    locked.iter().for_each(|shared| shared.history.line(&starved));
                }
            }
        }
    });
    sleep(Duration::from_secs(config.secs)).await;
    let healed = clock::now();
    for shared in &locked {
        shared.calm.store(true, Ordering::Relaxed);
    }
    sleep(Duration::from_millis(300)).await;
    let deadline = Instant::now() + testbed::steady::AT_MOST;
    let has_recovered = |shared: &Arc<Shared>| shared.calm_holds.load(Ordering::Relaxed) >= ENOUGH_HOLDS;
    while !locked.iter().all(has_recovered) && Instant::now() < deadline {
        sleep(Duration::from_millis(10)).await;
    }
    for shared in &locked {
        shared.finishing.store(true, Ordering::Relaxed);
    }
    for actor in actors {
        actor.await.unwrap().unwrap();
    }
    for shared in &locked {
        shared.locker.shutdown().await.unwrap();
        shared.history.event(Event::Drained);
    }
    // A minimum hold may outlast its holder.
    let deadline = Instant::now() + config.lingering();
    let mut leftovers = left(&locked[0].locker, config.locks).await;
    while !leftovers.is_empty() && Instant::now() < deadline {
        sleep(Duration::from_millis(10)).await;
        leftovers = left(&locked[0].locker, config.locks).await;
    }
    over.store(true, Ordering::Relaxed);
    canary.join().unwrap();
    Writer::create(&dir.join(NEMESIS)).unwrap();
    let outcome = Outcome {
        config,
        about: "memory".to_owned(),
        begin,
        healed,
        end: clock::now(),
        leftovers,
        connections: (0, 0),
        problems: Vec::new(),
    };
    std::fs::write(dir.join(OUTCOME), serde_json::to_string(&outcome).unwrap()).unwrap();
    History::read(dir).unwrap().judge()
}

/// The names that are held.
async fn left(locker: &Locker, locks: usize) -> Vec<String> {
    let mut left = Vec::new();
    for lock in 0..locks {
        let status = locker.status(crate::names::lock_name(lock)).await.unwrap();
        left.extend(status.is_held().then(|| format!("{status:?}")));
    }
    left
}

/// As of a run of that cell, whose backend can do what the memory backend can.
fn config(cell: &str) -> RunConfig {
    let cell = matrix::cells(false).into_iter().find(|known| known.name == cell);
    RunConfig {
        secs: 2,
        nemesis: Vec::new(),
        ..cell.expect("a cell of the matrix").config
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_and_permits_are_kept() {
    // Many holds in a short time.
    let config = RunConfig {
        locks: 6,
        ttl: Duration::from_millis(200),
        ..config("redis/modes-stop")
    };
    let verdict = judged(config).await;
    assert_eq!(verdict.exit_code(), 0, "{verdict}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn holds_are_passed_on_with_tokens_in_order() {
    // Short holds only.
    let config = RunConfig {
        secs: 1,
        procs: 2,
        measured: Some(0),
        ..config("redis/one-name")
    };
    let verdict = judged(config).await;
    assert_eq!(verdict.exit_code(), 0, "{verdict}");
    assert!(verdict.used.passed > verdict.holds / 4, "{verdict}");
}
