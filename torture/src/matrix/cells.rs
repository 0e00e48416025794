//! Which runs there are.

use std::time::Duration;

use clap::ValueEnum;

use crate::backend::Backend;
use crate::config::{LONG_SPLIT_TTL, RunConfig};
use crate::fault::{Effect, Fault};
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
            let delayed = |nemesis: &[Fault]| RunConfig {
                // Between two faults the server has to be trusted again.
                secs: 3 * secs,
                restart_delay: Some(4 * backend.default_ttl()),
                ..breaking(nemesis)
            };
            if backend == Backend::Quorum5 {
                add("minority-kill", breaking(&[Fault::MinorityKill]));
                add("stop", breaking(&[Fault::Stop]));
                let restarts = [Fault::ServerKill, Fault::ServerLose];
                add("killed-and-emptied", breaking(&restarts));
                add("killed-and-emptied-delayed", delayed(&restarts));
                continue;
            }
            if backend == Backend::PostgresStandby {
                for fault in [Fault::MasterKill, Fault::StaleReplica] {
                    let outlasting = RunConfig {
                        // The killed server copies all data before the next fault.
                        secs: 4 * secs,
                        ..outlasting(breaking(&[fault]))
                    };
                    let acknowledged = RunConfig {
                        replicas: 1,
                        ..outlasting.clone()
                    };
                    add(&name_of(&fault), outlasting);
                    add(&format!("{}-acknowledged", name_of(&fault)), acknowledged);
                }
                continue;
            }
            let possible: Vec<Fault> = Fault::value_variants()
                .iter()
                .copied()
                .filter(|fault| fault.refused_by(backend).is_none())
                .collect();
            for fault in &possible {
                add(&name_of(fault), outlasting(breaking(&[*fault])));
            }
            let inside: Vec<Fault> = possible
                .iter()
                .copied()
                .filter(|fault| !fault.is_outside_model_of(backend))
                .collect();
            let all = RunConfig {
                secs: match backend {
                    // Many kinds at the longest ttl: in the usual time, not every one would strike somebody.
                    Backend::Zookeeper | Backend::ZookeeperEnsemble => 4 * secs,
                    Backend::MysqlRow | Backend::PostgresSession | Backend::PostgresLease => 3 * secs,
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
            if backend.is_sql() {
                let stopped = RunConfig {
                    procs: 8,
                    locks: 1,
                    tasks: 1,
                    measured: Some(3),
                    ..breaking(&[])
                };
                add("stopped-3-of-8", stopped);
            }
            if backend.is_replicated() {
                for (name, durable) in durable(breaking(&possible)) {
                    add(&name, durable);
                }
            }
            if backend == Backend::Quorum3 {
                add("server-lose-delayed", delayed(&[Fault::ServerLose]));
                let beside = [Fault::ServerLose, Fault::Stop, Fault::NodeCut];
                add("server-lose-stop-node-cut-delayed", delayed(&beside));
            }
            if backend == Backend::Redis {
                let unchecked = RunConfig {
                    deadline_checks: false,
                    ..breaking(&[Fault::Stop])
                };
                add("unchecked", unchecked);
                for fault in [Fault::ServerLose, Fault::Failover, Fault::Demotion] {
                    add(&format!("{}-delayed", name_of(&fault)), delayed(&[fault]));
                }
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

/// The same with holds that outlast the time until a master is replaced: others cannot be granted twice. On more names, so that
/// some are free when a replica falls behind.
fn outlasting(config: RunConfig) -> RunConfig {
    const OUTLASTS: Duration = Duration::from_secs(4);
    if !config.has(Effect::ReplacesMaster) {
        return config;
    }
    RunConfig {
        secs: 2 * config.secs,
        ttl: OUTLASTS,
        locks: 8,
        ..config
    }
}

/// The faults that replace a master, or move its locks, in setups where they may lose no lock: because the only replica
/// has each lock, or because the next master waits.
fn durable(all: RunConfig) -> Vec<(String, RunConfig)> {
    const FAULTS: [Fault; 9] = [
        Fault::ServerKill,
        Fault::MasterKill,
        Fault::MasterStop,
        Fault::StaleReplica,
        Fault::PlannedFailover,
        Fault::SplitBrain,
        Fault::Reshard,
        Fault::SlotHalfway,
        Fault::MemoryFull,
    ];
    let mut cells = Vec::new();
    for fault in FAULTS.into_iter().filter(|fault| all.nemesis.contains(fault)) {
        let name = name_of(&fault);
        let breaking = outlasting(RunConfig {
            nemesis: vec![fault],
            ..all.clone()
        });
        let acknowledged = RunConfig {
            replicas: 1,
            ..breaking.clone()
        };
        cells.push((format!("{name}-acknowledged"), acknowledged));
        let delayed = RunConfig {
            // Between two faults the server has to be trusted again.
            secs: 6 * all.secs,
            restart_delay: Some(4 * breaking.ttl),
            ..breaking.clone()
        };
        if fault != Fault::SplitBrain {
            cells.push((format!("{name}-delayed"), delayed));
            continue;
        }
        let minimum = RunConfig {
            min_replicas: true,
            ..breaking
        };
        cells.push((format!("{name}-min-replicas"), minimum.clone()));
        let delayed = RunConfig {
            secs: 9 * all.secs,
            ttl: LONG_SPLIT_TTL,
            restart_delay: Some(4 * LONG_SPLIT_TTL),
            ..minimum
        };
        cells.push((format!("{name}-min-replicas-delayed"), delayed));
    }
    cells
}

/// The faults that strike while names are also held by readers and by permits.
fn modes(backend: Backend) -> &'static [&'static [Fault]] {
    match backend {
        Backend::Redis | Backend::MysqlLease | Backend::PostgresLease => MODES,
        // A server that is killed may be replaced by one that lacks something.
        Backend::RedisSentinel | Backend::RedisCluster => &MODES[..5],
        Backend::MysqlRow | Backend::PostgresSession => &MODES[..4],
        // The server's clock decides nothing there.
        Backend::Zookeeper | Backend::ZookeeperEnsemble => &MODES[..6],
        // There are neither permits nor upgrades.
        Backend::Quorum3 | Backend::Quorum5 => &[],
        // The lease strategy has them without a standby.
        Backend::PostgresStandby => &[],
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

/// The number of tasks in a process that take locks.
const TASKS: usize = 4;

/// The number of times that the cost of stopped waiters is measured, the number of waiters that are stopped, and the
/// number of all waiters.
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
        restart_delay: None,
        replicas: 0,
        min_replicas: false,
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

#[cfg(test)]
mod tests {
    use super::*;

    /// The page says which cell shows what.
    #[test]
    fn the_cells_that_the_page_of_the_quorum_names_exist() {
        let page = include_str!("../../../docs/quorum.md");
        let cells: Vec<String> = cells(false).into_iter().map(|cell| cell.name).collect();
        let is_cell = |word: &&str| word.starts_with("quorum3/") || word.starts_with("quorum5/");
        let named: Vec<&str> = page.split('`').filter(is_cell).collect();
        assert!(named.len() > 10, "{named:?}");
        for cell in named {
            assert!(cells.iter().any(|known| known == cell), "there is no cell {cell}");
        }
    }
    /// The guarantee that a cell shows, by its id. With several faults, nobody knows which one it survived.
    fn proves(config: &RunConfig) -> Option<&'static str> {
        let [fault] = config.nemesis[..] else { return None };
        if !config.promises_exclusion() {
            return None;
        }
        Some(match fault {
            Fault::ServerKill => "server-crash",
            Fault::Failover
            | Fault::MasterKill
            | Fault::MasterStop
            | Fault::StaleReplica
            | Fault::PlannedFailover
            | Fault::LeaderKill
            | Fault::MinorityKill => "failover",
            Fault::SplitBrain | Fault::LeaderCut | Fault::NodeCut => "partition",
            Fault::Clock => "clock-step",
            Fault::Reset | Fault::ReplyLoss | Fault::ClientKill => "connection-loss",
            Fault::MemoryFull => "no-eviction",
            _ => return None,
        })
    }

    /// A "yes" on the page is shown by a cell whose fault is of that kind, and in which no overlap is allowed.
    #[test]
    fn the_cells_that_the_page_of_the_guarantees_names_show_them() {
        let page = include_str!("../../../docs/guarantees.md");
        let cells = cells(false);
        let mut named = 0;
        for row in page.lines().filter(|line| line.contains("| the torture cell `")) {
            let mut words = row.split('`').skip(1).step_by(2);
            let (id, name) = (words.next().expect("an id"), words.next().expect("a cell"));
            let cell = cells.iter().find(|cell| cell.name == name);
            let cell = cell.unwrap_or_else(|| panic!("there is no cell {name}"));
            assert_eq!(proves(&cell.config), Some(id), "{row}");
            named += 1;
        }
        assert!(named > 5, "{named}");
    }
}
