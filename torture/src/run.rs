//! One run: server, processes, nemesis, history.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use lock_core::Locker;
use rustix::process::Signal;
use tokio::time::{Instant, sleep};

use crate::clock;
use crate::config::RunConfig;
use crate::error::{Error, Result};
use crate::judge::MORE_CONNECTIONS;
use crate::nemesis::{self, Targets};
use crate::process::{Spawner, WorkerProcess};
use crate::record::{NEMESIS, OUTCOME, Outcome, RESOURCE, Writer};
use crate::resource::Resource;
use crate::servers::{self, LockServer};
use crate::worker::job::Order;

/// Many times what a process needs on an overloaded machine.
const PATIENCE: Duration = Duration::from_secs(30);

/// For how long an overloaded server may still execute requests of callers that have ended. What stays longer is left behind.
const LATE: Duration = Duration::from_secs(5);

/// Runs it and leaves its history in `dir`, an empty directory.
pub(crate) async fn run(config: RunConfig, dir: &Path) -> Result<()> {
    if let Some(why) = config.refused() {
        return Err(Error::new(why));
    }
    let server = LockServer::start(&config).await?;
    let resource = Resource::start(config.locks, Writer::create(&dir.join(RESOURCE))?).await?;
    let spawner = Spawner::start();
    let mut processes = Vec::new();
    for index in 0..config.procs {
        let process = WorkerProcess::new(
            index,
            &config,
            &server,
            resource.address(),
            dir.to_owned(),
            spawner.clone(),
        );
        processes.push(process.await?);
    }
    let locker = Locker::from_backend(servers::backend(&config, &server.url(), &[])?).with_ttl(config.ttl);
    locker.connect().await?;
    let before = server.connections().await?;
    let targets = Arc::new(Targets {
        config: config.clone(),
        processes,
        server,
        resource,
        locker,
        history: Writer::create(&dir.join(NEMESIS))?,
        server_in_use: tokio::sync::Mutex::default(),
    });
    for process in &targets.processes {
        process.start(0).await?;
    }
    for process in &targets.processes {
        if !process.is_ready(PATIENCE).await {
            return Err(Error::new(format!(
                "process {} did not reach the server within {PATIENCE:?}",
                process.index
            )));
        }
    }

    let begin = clock::now();
    nemesis::run(&targets, Instant::now() + Duration::from_secs(config.secs)).await?;
    let healed = clock::now();
    tell_all(&targets.processes, Order::Calm);
    // The history shows which one did not recover in time, and how much of the time the machine took.
    let deadline = Instant::now() + config.recovery_limit() + patience(&config);
    for process in &targets.processes {
        recover(process, deadline).await;
    }
    tell_all(&targets.processes, Order::Finish);
    let (leftovers, connections, problems) = look_back(&targets, before).await?;

    let outcome = Outcome {
        config,
        about: targets.server.version().await?,
        begin,
        healed,
        end: clock::now(),
        leftovers,
        connections: (before, connections),
        problems,
    };
    std::fs::write(dir.join(OUTCOME), serde_json::to_string_pretty(&outcome)?)?;
    Ok(())
}

/// The time to wait beyond the plan for a busy machine. A process that waits for a mutant may wait for ever.
fn patience(config: &RunConfig) -> Duration {
    match config.mutant {
        Some(_) => Duration::ZERO,
        None => PATIENCE,
    }
}

/// Waits until a process has recovered, or has ended.
async fn recover(process: &WorkerProcess, deadline: Instant) {
    const SLICE: Duration = Duration::from_millis(500);
    while process.ended().is_none() && Instant::now() < deadline {
        if process.has_recovered(SLICE.min(deadline - Instant::now())).await {
            return;
        }
        // On a busy machine a process may stop itself for a gap when the nemesis has given that up.
        process.signal(Signal::CONT);
        sleep(Duration::from_millis(5)).await;
    }
}

fn tell_all(processes: &[WorkerProcess], order: Order) {
    for process in processes {
        process.order(order);
    }
}

/// What is on the server although it should be gone. If the server is overloaded, what comes of the last requests goes later.
async fn left_behind(server: &LockServer) -> Result<Vec<String>> {
    let start = Instant::now();
    loop {
        let left = server.leftovers().await?;
        if left.is_empty() || start.elapsed() >= LATE {
            return Ok(left);
        }
        sleep(Duration::from_millis(50)).await;
    }
}

/// The holds and the number of connections that are left on the server, and the failures of the processes.
async fn look_back(targets: &Targets, before: usize) -> Result<(Vec<String>, usize, Vec<String>)> {
    let (config, processes) = (&targets.config, &targets.processes);
    let (mut leftovers, mut problems) = (Vec::new(), Vec::new());
    // Whoever waits longest waits for some holds of others in a row.
    let deadline = Instant::now() + config.ttl * 10 + Duration::from_secs(5) + patience(config);
    for process in processes.iter() {
        if process.has_drained(deadline - Instant::now()).await {
            continue;
        }
        match process.ended() {
            Some(status) => problems.push(format!("process {} ended by itself: {status}", process.index)),
            None => leftovers.push(format!("process {} still waits or holds", process.index)),
        }
    }
    sleep(config.lingering()).await;
    leftovers.extend(left_behind(&targets.server).await?);
    for process in processes.iter() {
        process.signal(Signal::CONT);
        match process.end(PATIENCE).await {
            Some(status) if status.success() => {}
            Some(status) => problems.push(format!("process {} ended with {status}", process.index)),
            None => problems.push(format!("process {} does not end", process.index)),
        }
    }
    let mut connections = targets.server.connections().await?;
    let start = Instant::now();
    // The server notices closed connections in its own time.
    while connections > before && start.elapsed() < config.ttl * 2 + Duration::from_secs(5)
        || connections > before + MORE_CONNECTIONS && start.elapsed() < PATIENCE
    {
        sleep(Duration::from_millis(50)).await;
        connections = targets.server.connections().await?;
    }
    Ok((leftovers, connections, problems))
}
