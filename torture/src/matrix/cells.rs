//! Which runs there are.

use clap::ValueEnum;

use crate::backend::Backend;
use crate::config::RunConfig;
use crate::fault::Fault;
use crate::mutant::Mutant;
use crate::names::name_of;

/// One run of the matrix.
#[derive(Clone, Debug)]
pub(crate) struct Cell {
    pub(crate) name: String,
    pub(crate) config: RunConfig,
}

/// Every backend with every fault that can be caused there, then with all at once; the control; the mutants; what
/// stopped waiters cost.
pub(crate) fn cells(long: bool) -> Vec<Cell> {
    let secs = if long { 60 } else { 10 };
    let seeds = if long { 1..=5 } else { 1..=1 };
    let mut cells = Vec::new();
    for seed in seeds {
        for backend in Backend::ALL {
            let mut add = |name: &str, config: RunConfig| {
                let name = format!("{backend}/{name}");
                cells.push(Cell { name, config });
            };
            let breaking = |nemesis: &[Fault]| RunConfig {
                nemesis: nemesis.to_vec(),
                ..usual(backend, secs, seed)
            };
            let possible: Vec<Fault> = Fault::value_variants()
                .iter()
                .copied()
                .filter(|fault| fault.refused_by(backend).is_none())
                .collect();
            for fault in &possible {
                add(&name_of(fault), breaking(&[*fault]));
            }
            let inside: Vec<Fault> = possible
                .into_iter()
                .filter(|fault| !fault.is_outside_model_of(backend))
                .collect();
            let all = RunConfig {
                secs: match backend {
                    // The most kinds at the longest ttl: in the usual time, not every one would strike somebody.
                    Backend::ZookeeperEnsemble => 2 * secs,
                    _ => secs,
                },
                ..breaking(&inside)
            };
            add("all", all);
            let one_name = RunConfig {
                locks: 1,
                tasks: 2 * TASKS,
                ..breaking(&[Fault::Stop, Fault::Kill])
            };
            add("one-name", one_name);
            for faults in modes(backend) {
                let names: Vec<String> = faults.iter().map(name_of).collect();
                let modes = RunConfig {
                    modes: true,
                    ..breaking(faults)
                };
                add(&format!("modes-{}", names.join("-")), modes);
            }
            if backend.is_mysql() {
                let stopped = RunConfig {
                    procs: 8,
                    locks: 1,
                    tasks: 1,
                    measured: Some(3),
                    ..breaking(&[])
                };
                add("stopped-3-of-8", stopped);
            }
            if backend == Backend::Redis {
                let unchecked = RunConfig {
                    deadline_checks: false,
                    ..breaking(&[Fault::Stop])
                };
                add("unchecked", unchecked);
                add("late-and-killed", breaking(&[Fault::Kill, Fault::ClockBackForGood]));
                add("forgetful-and-late", breaking(&[Fault::ServerLose, Fault::ClockBack]));
            }
        }
        cells.extend(Mutant::value_variants().iter().map(|mutant| mutant_cell(*mutant, seed)));
    }
    // Those with and those without stopped ones in turns, since machines have moods.
    for round in 1..=ROUNDS {
        cells.extend([0, STOPPED].map(|stopped| waiters(stopped, secs, round)));
    }
    cells
}

/// What breaks while names are also held by readers and by permits.
fn modes(backend: Backend) -> &'static [&'static [Fault]] {
    match backend {
        Backend::Redis | Backend::MysqlLease => MODES,
        Backend::MysqlRow => &MODES[..4],
        // The server's clock decides nothing there.
        Backend::Zookeeper | Backend::ZookeeperEnsemble => &MODES[..6],
    }
}

const MODES: &[&[Fault]] = &[
    &[Fault::Stop],
    &[Fault::Gap],
    &[Fault::Kill],
    &[Fault::Hole],
    &[Fault::Reset, Fault::ReplyLoss],
    &[Fault::ServerKill],
    &[Fault::ClockBackForGood],
    &[Fault::ClockRate],
    &[Fault::Stop, Fault::Kill],
];

/// How many tasks of a process take locks.
const TASKS: usize = 4;

/// How often it is measured what stopped waiters cost, and how many of how many are stopped.
const ROUNDS: u64 = 3;
const STOPPED: usize = 20;
const WAITERS: usize = 40;

fn usual(backend: Backend, secs: u64, seed: u64) -> RunConfig {
    RunConfig {
        backend,
        procs: 6,
        locks: 3,
        secs,
        ttl: backend.default_ttl(),
        nemesis: Vec::new(),
        seed,
        deadline_checks: true,
        mutant: None,
        tasks: TASKS,
        measured: None,
        modes: false,
        beside: None,
    }
}

fn mutant_cell(mutant: Mutant, seed: u64) -> Cell {
    Cell {
        name: format!("mutant/{}", name_of(&mutant)),
        config: RunConfig {
            locks: mutant.locks(),
            nemesis: mutant.nemesis(),
            mutant: Some(mutant),
            modes: mutant.needs_modes(),
            ..usual(Backend::Redis, mutant.secs(), seed)
        },
    }
}

fn waiters(stopped: usize, secs: u64, round: u64) -> Cell {
    Cell {
        name: format!("redis/waiters-{stopped}-of-{WAITERS}"),
        config: RunConfig {
            procs: WAITERS,
            locks: 1,
            tasks: 1,
            measured: Some(stopped),
            ..usual(Backend::Redis, secs, round)
        },
    }
}
