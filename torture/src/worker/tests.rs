//! The actors on the memory backend: what a worker process does, without processes and faults.

use std::path::Path;
use std::time::Duration;

use lock_core::MemoryBackend;
use tokio::time::sleep;

use super::*;
use crate::clock;
use crate::config::RunConfig;
use crate::history::History;
use crate::matrix;
use crate::record::{NEMESIS, OUTCOME, Outcome, RESOURCE};
use crate::resource::Resource;
use crate::verdict::Verdict;

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
    sleep(Duration::from_secs(config.secs)).await;
    let healed = clock::now();
    for shared in &locked {
        shared.calm.store(true, Ordering::Relaxed);
    }
    sleep(Duration::from_millis(300)).await;
    for shared in &locked {
        shared.finishing.store(true, Ordering::Relaxed);
    }
    for actor in actors {
        actor.await.unwrap().unwrap();
    }
    let mut leftovers = Vec::new();
    for shared in &locked {
        shared.locker.shutdown().await.unwrap();
        for lock in 0..config.locks {
            let status = shared.locker.status(crate::names::lock_name(lock)).await.unwrap();
            leftovers.extend(status.is_held().then(|| format!("{status:?}")));
        }
        shared.history.event(Event::Drained);
    }
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
    let dir = tempfile::tempdir().unwrap();
    // Many holds in a short time.
    let config = RunConfig {
        locks: 6,
        ttl: Duration::from_millis(200),
        ..config("redis/modes-stop")
    };
    let verdict = run(config, dir.path()).await;
    println!("{verdict}");
    assert_eq!(verdict.exit_code(), 0, "{verdict}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn holds_are_passed_on_with_tokens_in_order() {
    let dir = tempfile::tempdir().unwrap();
    // Short holds only.
    let config = RunConfig {
        secs: 1,
        procs: 2,
        measured: Some(0),
        ..config("redis/one-name")
    };
    let verdict = run(config, dir.path()).await;
    println!("{verdict}");
    assert_eq!(verdict.exit_code(), 0, "{verdict}");
    assert!(verdict.used.passed > verdict.holds / 4, "{verdict}");
}
