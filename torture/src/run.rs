//! One run: server, processes, nemesis, history.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use lock_core::Locker;
use rustix::process::Signal;
use tokio::time::{Instant, sleep};

use crate::clock;
use crate::error::{Error, Result};
use crate::nemesis::Nemesis;
use crate::record::{NEMESIS, OUTCOME, Outcome, RESOURCE, Writer};
use crate::resource::Resource;
use crate::servers::{self, LockServer};
use crate::setting::Setting;
use crate::slot::{Slot, Spawner};
use crate::worker::job::Order;

/// Many times what a process needs on an overloaded machine.
const PATIENCE: Duration = Duration::from_secs(30);

/// Runs it and leaves its history in `dir`, an empty directory.
pub(crate) async fn run(setting: Setting, dir: &Path) -> Result<()> {
    for fault in &setting.nemesis {
        if let Some(why) = setting.backend.refuses(*fault) {
            return Err(Error::new(format!("no {fault} on {}: {why}", setting.backend)));
        }
    }
    let server = LockServer::start(&setting).await?;
    let resource = Resource::start(setting.locks, Writer::create(&dir.join(RESOURCE))?).await?;
    let spawner = Spawner::start();
    let mut slots = Vec::new();
    for index in 0..setting.procs {
        let slot = Slot::new(
            index,
            &setting,
            &server,
            resource.address(),
            dir.to_owned(),
            spawner.clone(),
        );
        slots.push(slot.await?);
    }
    let slots = Arc::new(slots);
    let locker = Locker::from_backend(servers::backend(&setting, &server.server.url())?);
    locker.connect().await?;
    let before = server.connections().await?;
    let nemesis = Arc::new(Nemesis {
        setting: setting.clone(),
        slots: slots.clone(),
        server,
        resource,
        locker,
        history: Writer::create(&dir.join(NEMESIS))?,
        server_in_use: tokio::sync::Mutex::default(),
    });
    for slot in slots.iter() {
        slot.start(0).await?;
    }
    for slot in slots.iter() {
        if !slot.is_ready(PATIENCE).await {
            return Err(Error::new(format!(
                "process {} did not reach the server within {PATIENCE:?}",
                slot.index
            )));
        }
    }

    let begin = clock::now();
    nemesis.run(Instant::now() + Duration::from_secs(setting.secs)).await?;
    let healed = clock::now();
    tell_all(&slots, Order::Calm);
    sleep(setting.recovery_limit()).await;
    tell_all(&slots, Order::Finish);
    let (leftovers, connections, problems) = look_back(&nemesis, before).await?;

    let outcome = Outcome {
        setting,
        about: nemesis.server.version().await?,
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

fn tell_all(slots: &[Slot], order: Order) {
    for slot in slots {
        slot.order(order);
    }
}

/// What is left on the server, of holds and of connections, and what went wrong with the processes.
async fn look_back(nemesis: &Nemesis, before: usize) -> Result<(Vec<String>, usize, Vec<String>)> {
    let (setting, slots) = (&nemesis.setting, &nemesis.slots);
    let (mut leftovers, mut problems) = (Vec::new(), Vec::new());
    // Whoever waits longest waits for some holds of others in a row.
    let deadline = Instant::now() + setting.ttl * 10 + Duration::from_secs(5);
    for slot in slots.iter() {
        if slot.has_drained(deadline - Instant::now()).await {
            continue;
        }
        match slot.ended() {
            Some(status) => problems.push(format!("process {} ended by itself: {status}", slot.index)),
            None => leftovers.push(format!("process {} still waits or holds", slot.index)),
        }
    }
    sleep(setting.lingering()).await;
    leftovers.extend(nemesis.server.leftovers().await?);
    for slot in slots.iter() {
        slot.signal(Signal::CONT);
        match slot.end(PATIENCE).await {
            Some(status) if status.success() => {}
            Some(status) => problems.push(format!("process {} ended with {status}", slot.index)),
            None => problems.push(format!("process {} does not end", slot.index)),
        }
    }
    let mut connections = nemesis.server.connections().await?;
    let start = Instant::now();
    // The server notices closed connections in its own time.
    while connections > before && start.elapsed() < setting.ttl * 2 + Duration::from_secs(5) {
        sleep(Duration::from_millis(50)).await;
        connections = nemesis.server.connections().await?;
    }
    Ok((leftovers, connections, problems))
}
