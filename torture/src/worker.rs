//! A worker process: takes locks through the public API, and uses the resource under them.

use std::io::BufRead;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use lock_core::Locker;
use rand::SeedableRng;
use rand::rngs::StdRng;
use rustix::process::{Signal, getppid, set_parent_process_death_signal};

use crate::error::{Error, Result};
use crate::observed::Observed;
use crate::record::{Event, Writer, process_file};
use crate::resource::Client;
use crate::servers;

use self::actor::Actor;
use self::job::{DRAINED, Job, Order, READY, say};
use self::mutants::with_mutant;
use self::shared::Shared;

mod actor;
mod canary;
mod handle;
pub(crate) mod job;
mod mutants;
mod plan;
mod shared;
#[cfg(test)]
mod tests;

/// The whole life of a worker process.
pub(crate) fn main(job: &str) -> Result<()> {
    let job: Job = serde_json::from_str(job)?;
    // Also a stopped one must not outlive the runner.
    set_parent_process_death_signal(Some(Signal::KILL)).map_err(std::io::Error::from)?;
    if getppid().is_none_or(|parent| parent.as_raw_nonzero().get().cast_unsigned() != job.parent) {
        return Err(Error::new("the runner has gone"));
    }
    let history = Writer::create(&job.dir.join(process_file(job.process, job.incarnation)))?;
    history.event(Event::Start {
        pid: std::process::id(),
    });
    report_panics(history.clone());
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    runtime.block_on(work(job, history))
}

async fn work(job: Job, history: Writer) -> Result<()> {
    let backend = with_mutant(
        servers::backend(&job.config, &job.url, &job.ways)?,
        job.config.mutant,
        &job.url,
        job.address,
    );
    let locker = Locker::new(Observed::new(backend, history.clone())).with_ttl(job.config.ttl);
    let shared = Arc::new(Shared::new(job, locker, history));
    std::thread::spawn({
        let shared = shared.clone();
        move || obey(&shared)
    });
    canary::start(shared.clone());
    // One that follows a killed one may find the server broken, and goes on all the same.
    if shared.job.incarnation == 0 {
        shared.locker.connect().await?;
    }
    say(READY);
    let mut actors = Vec::new();
    for number in 0..shared.job.config.tasks {
        let resource = Client::connect(shared.job.process, shared.job.resource).await?;
        let rng = StdRng::seed_from_u64(seed(&shared.job, number));
        actors.push(tokio::spawn(Actor::new(shared.clone(), resource, rng).run()));
    }
    for actor in actors {
        actor.await.map_err(|error| Error::new(error.to_string()))??;
    }
    shared.locker.shutdown().await?;
    shared.history.event(Event::Drained);
    say(DRAINED);
    // Until the runner has looked at what is left: what still runs in here must leave nothing.
    std::future::pending().await
}

/// Each actor of each incarnation its own, the same in every run of the seed.
fn seed(job: &Job, actor: usize) -> u64 {
    let place = (job.process as u64) << 32 | u64::from(job.incarnation) << 8 | actor as u64;
    job.config.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ place
}

fn obey(shared: &Shared) {
    for line in std::io::stdin().lock().lines().map_while(std::result::Result::ok) {
        let (flag, value) = match line.as_str() {
            word if word == Order::Calm.word() => (&shared.calm, true),
            word if word == Order::Finish.word() => (&shared.finishing, true),
            word if word == Order::Gap.word() => (&shared.gap, true),
            _ => (&shared.gap, false),
        };
        flag.store(value, Ordering::Relaxed);
    }
    // The runner has closed our input, or has gone.
    std::process::exit(0);
}

/// A panic anywhere in the process ends it: nothing that it says later counts.
fn report_panics(history: Writer) {
    let print = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        print(panic);
        history.event(Event::Panic {
            what: panic.to_string(),
        });
        std::process::exit(101);
    }));
}
