//! Breaks things and heals them, by a seeded schedule.

use std::sync::Arc;

use rand::SeedableRng;
use rand::rngs::StdRng;
use rustix::process::Signal;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use crate::clock;
use crate::error::{Error, Result};
use crate::fault::Fault;
use crate::names::lock_name;
use crate::process::WorkerProcess;
use crate::record::Strike;

use self::context::{Context, Struck};
use self::injection::Injection;

pub(crate) use self::context::Targets;

mod cluster;
mod context;
mod ensemble;
mod injection;
mod link;
mod mysql;
mod postgres;
mod process;
mod quorum;
mod redis;
mod sentinel;
mod server;

/// Breaks and heals until then; all is healed when it returns.
pub(crate) async fn run(targets: &Arc<Targets>, until: Instant) -> Result<()> {
    let config = &targets.config;
    let mut tasks = JoinSet::new();
    for (number, fault) in config.nemesis.iter().enumerate() {
        // A few at once where there are few kinds, but one server is broken by one at a time.
        let at_once = match config.nemesis.len() {
            _ if Injection::of(*fault).is_on_server() => 1,
            1 => 3,
            2 | 3 => 2,
            _ => 1,
        };
        for copy in 0..at_once {
            let context = Context {
                targets: targets.clone(),
                rng: StdRng::seed_from_u64(config.seed.wrapping_add(1 + number as u64 * 64 + copy)),
                until,
            };
            tasks.spawn(repeat(*fault, context));
        }
    }
    stop_some(targets, until).await;
    while let Some(done) = tasks.join_next().await {
        done.map_err(|error| Error::new(error.to_string()))??;
    }
    Ok(())
}

/// Stops the first processes until then, if what that costs is measured.
async fn stop_some(targets: &Targets, until: Instant) {
    let stopped = targets.config.measured.unwrap_or(0);
    let (processes, from) = (&targets.processes[..stopped], clock::now());
    for process in processes {
        process.signal(Signal::STOP);
    }
    sleep_until(until).await;
    for process in processes {
        process.signal(Signal::CONT);
        targets.history.line(&Strike {
            fault: Fault::Stop,
            process: Some(process.index),
            incarnation: 0,
            from,
            to: clock::now(),
            happened: true,
        });
    }
}

async fn repeat(fault: Fault, mut context: Context) -> Result<()> {
    let is_on_server = Injection::of(fault).is_on_server();
    loop {
        let pause = context.time(if is_on_server { 0.5..2.0 } else { 0.1..0.6 });
        // A server that is not trusted yet has nothing to lose.
        let trusted_after = context.targets.config.restart_delay.unwrap_or_default();
        sleep(trusted_after + pause).await;
        if Instant::now() >= context.until {
            return Ok(());
        }
        if let Some(strike) = strike(fault, &mut context).await? {
            context.targets.history.line(&strike);
        }
    }
}

/// Injects the fault once. `None` if all targets are in use.
async fn strike(fault: Fault, context: &mut Context) -> Result<Option<Strike>> {
    let targets = context.targets.clone();
    let (process, from, struck) = match Injection::of(fault) {
        Injection::Server(inject) => {
            let _one_at_a_time = targets.server_in_use.lock().await;
            let from = clock::now();
            (None, from, inject(context, &targets.server).await?)
        }
        Injection::Process(inject) => {
            let Some((process, _in_use)) = choose(context, &targets, |process| &process.in_use).await else {
                return Ok(None);
            };
            let of = (process.index, process.incarnation());
            let from = clock::now();
            (Some(of), from, inject(context, process).await?)
        }
        Injection::Link(inject) => {
            let Some((process, _in_use)) = choose(context, &targets, |process| &process.link_in_use).await else {
                return Ok(None);
            };
            let of = (process.index, process.incarnation());
            let from = clock::now();
            let struck = inject(context, &process.link).await;
            process.link.heal();
            (Some(of), from, struck?)
        }
    };
    Ok(Some(Strike {
        fault,
        process: process.map(|(index, _)| index),
        incarnation: process.map_or(0, |(_, incarnation)| incarnation),
        from: match struck {
            Struck::At(since) => since,
            Struck::AtOnce | Struck::Never => from,
        },
        to: clock::now(),
        happened: !matches!(struck, Struck::Never),
    }))
}

type InUse = tokio::sync::Mutex<()>;

/// A process that no other fault uses in this way; every other time one that holds something, if there is one.
async fn choose<'a>(
    context: &mut Context,
    targets: &'a Targets,
    in_use: fn(&WorkerProcess) -> &InUse,
) -> Option<(&'a WorkerProcess, tokio::sync::MutexGuard<'a, ()>)> {
    let processes = &targets.processes;
    let first = target(context).await;
    (0..processes.len()).find_map(|step| {
        let process = &processes[(first + step) % processes.len()];
        in_use(process).try_lock().ok().map(|free| (process, free))
    })
}

/// Every other time somebody who holds something just now.
async fn target(context: &mut Context) -> usize {
    let targets = context.targets.clone();
    let (anyone, lock) = (
        context.index(targets.processes.len()),
        context.index(targets.config.locks),
    );
    if context.chance(0.5) {
        return anyone;
    }
    let status = timeout(context.ttl() / 10, targets.locker.status(lock_name(lock))).await;
    let holder = status.ok().and_then(std::result::Result::ok).and_then(|status| {
        let label = status.holders.into_iter().next()?.label?;
        label.parse().ok()
    });
    holder.unwrap_or(anyone)
}
