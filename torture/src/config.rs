//! The configuration of a run: backend, faults, sizes.

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::backend::Backend;
use crate::fault::{Effect, Fault};
use crate::mutant::Mutant;

/// A master that is cut off may need half of this to stop: then holds with this ttl outlast it.
pub(crate) const LONG_SPLIT_TTL: Duration = Duration::from_secs(6);

/// So many holds of a process show something.
pub(crate) const ENOUGH_HOLDS: usize = 10;

/// Everything about a run that its history must tell to judge it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RunConfig {
    pub(crate) backend: Backend,
    pub(crate) procs: usize,
    pub(crate) locks: usize,
    pub(crate) secs: u64,
    pub(crate) ttl: Duration,
    pub(crate) nemesis: Vec<Fault>,
    pub(crate) seed: u64,
    /// Whether the processes check their guard before they write.
    pub(crate) deadline_checks: bool,
    pub(crate) mutant: Option<Mutant>,
    /// The number of tasks in one process that take locks, so that its own queue and its passes are tested too.
    #[serde(default = "two")]
    pub(crate) tasks: usize,
    /// So many processes are stopped all the time, and whoever is left holds shortly: to measure what the stopped cost.
    #[serde(default)]
    pub(crate) measured: Option<usize>,
    /// Whether names are also held by readers and by permits.
    #[serde(default)]
    pub(crate) modes: bool,
    /// For how long a Redis that may have forgotten holds gives no fresh grant. Then it is no fault that it forgets.
    #[serde(default)]
    pub(crate) restart_delay: Option<Duration>,
    /// The number of replicas that must have a grant before it counts.
    #[serde(default)]
    pub(crate) replicas: u32,
    /// Whether there are two replicas, and a master that neither follows refuses writes (`min-replicas-to-write 1`).
    #[serde(default)]
    pub(crate) min_replicas: bool,
    /// The program of another version, which every other process runs.
    #[serde(default)]
    pub(crate) beside: Option<PathBuf>,
}

/// Before there was a choice.
fn two() -> usize {
    2
}

impl RunConfig {
    /// The longest minimum hold.
    pub(crate) fn longest_minimum(&self) -> Duration {
        self.ttl.mul_f64(1.5)
    }

    /// The time to which an extended hold is prolonged.
    pub(crate) fn extension(&self) -> Duration {
        self.ttl * 3
    }

    /// The longest that a dead process's hold survives.
    pub(crate) fn longest_hold(&self) -> Duration {
        if self.backend.extends() {
            self.extension()
        } else {
            self.ttl
        }
    }

    pub(crate) fn has(&self, effect: Effect) -> bool {
        self.nemesis.iter().any(|fault| fault.has(effect))
    }

    /// Whether the faults may cost no hold. A process that is stopped to measure the cost loses its holds.
    pub(crate) fn keeps_holds(&self) -> bool {
        self.measured.is_none() && self.nemesis.iter().all(|fault| fault.has(Effect::KeepsHolds))
    }

    /// Whether believed intervals may never overlap. Otherwise they are reported, and the fence alone protects.
    pub(crate) fn promises_exclusion(&self) -> bool {
        let is_outside = |fault: &Fault| fault.is_outside_model_of(self.backend) && !self.makes_up_for(*fault);
        !self.nemesis.iter().any(is_outside)
    }

    /// Whether the configuration requires a setting that keeps locks which the fault would lose otherwise.
    fn makes_up_for(&self, fault: Fault) -> bool {
        let is_delayed = self.restart_delay.is_some();
        let is_acknowledged = self.replicas >= self.replicas_each();
        match fault {
            Fault::ServerLose | Fault::Failover | Fault::Demotion => is_delayed,
            // It must stop before the others have waited for long enough.
            Fault::SplitBrain => is_acknowledged || (is_delayed && self.min_replicas && self.ttl >= LONG_SPLIT_TTL),
            // Slots may move to a master that is trusted, from one that has forgotten their locks.
            _ if self.moves_slots() => is_acknowledged,
            _ => self.backend.is_replicated() && (is_acknowledged || is_delayed),
        }
    }

    fn moves_slots(&self) -> bool {
        let moves = [Fault::Reshard, Fault::SlotHalfway];
        self.nemesis.iter().any(|fault| moves.contains(fault))
    }

    /// The number of replicas of each master.
    pub(crate) fn replicas_each(&self) -> u32 {
        if self.min_replicas { 2 } else { 1 }
    }

    /// Why nothing can be run like this, if it cannot.
    pub(crate) fn refused(&self) -> Option<String> {
        let fault = self.nemesis.iter().find_map(|fault| {
            let why = fault.refused_by(self.backend)?;
            Some(format!("no {fault} on {}: {why}", self.backend))
        });
        if self.replicas > 0 && !self.backend.is_replicated() {
            return Some(format!("no replica follows {}", self.backend));
        }
        if self.min_replicas && self.backend != Backend::RedisSentinel {
            return Some(format!("no replicas are asked for by {}", self.backend));
        }
        fault
    }

    /// Why tokens may fail to grow, and the fence with them, if they may.
    pub(crate) fn excludes_tokens(&self) -> Option<&'static str> {
        let is_behind = self.has(Effect::ClockBehind) || self.has(Effect::ClockBehindForGood);
        let ends_holds = self.has(Effect::KillsProcess) || self.has(Effect::CutsConnections);
        if self.backend == Backend::MysqlRow && is_behind && ends_holds {
            return Some("a row lock that ended without a release took its token along, and the clock was behind that");
        }
        if self.backend == Backend::PostgresSession && is_behind && self.has(Effect::CutsConnections) {
            return Some("a crash undid a token that was not on the disk yet, and the clock was behind that");
        }
        if !self.has(Effect::LosesData) {
            return None;
        }
        if self.backend.is_zookeeper() {
            return Some("the server lost its data, and ZooKeeper declares no durable tokens");
        }
        let is_behind = self.has(Effect::ClockBehind);
        is_behind.then_some("the server lost its data, and its clock was behind the last token")
    }

    /// The largest step by which the server's clock is moved for a while.
    pub(crate) fn clock_step(&self) -> Duration {
        self.ttl * 4
    }

    /// The time after the end for which the server may still have something, by its own clock.
    pub(crate) fn lingering(&self) -> Duration {
        /// A place that was taken before the clock was set back.
        const LONGEST_PLACE: Duration = Duration::from_secs(15);
        let more = match self.has(Effect::ClockBehindForGood) {
            true => LONGEST_PLACE,
            false => Duration::ZERO,
        };
        self.ttl * 2 + self.backend.tick() + more
    }

    /// By when everyone has acquired after the last fault was healed.
    pub(crate) fn recovery_limit(&self) -> Duration {
        /// Before a backend connects again after many failures, with jitter.
        const LONGEST_PAUSE: Duration = Duration::from_secs(2);
        /// A version without readers and permits tells none that wait of its release: they look for themselves.
        const REFRESH: Duration = Duration::from_secs(5);
        /// In a row within a process, as the lockers here have it.
        const PASSES: usize = 16;
        /// Most are shorter.
        const LONG_HOLD: Duration = Duration::from_millis(25);
        let mut limit = self.ttl * 3 + self.backend.tick();
        if self.has(Effect::KillsProcess) {
            // A hold that was extended outlasts its process.
            limit += self.longest_hold().saturating_sub(self.ttl);
        }
        // One after the other in the server's queue, and each with its own waiters in between.
        let turns = self.procs * if self.tasks > 1 { 1 + PASSES } else { 1 };
        limit += LONG_HOLD * u32::try_from(turns).unwrap_or(u32::MAX);
        if self.has(Effect::CutsConnections) {
            limit += LONGEST_PAUSE;
        }
        if self.beside.is_some() {
            limit += REFRESH;
        }
        limit += self.restart_delay.unwrap_or_default();
        if self.has(Effect::ClockAhead) {
            // A hold taken while the clock was ahead lasts until the clock has caught up.
            limit += self.clock_step();
        }
        limit
    }
}

#[cfg(test)]
mod tests {
    use crate::matrix;

    #[test]
    fn what_makes_up_for_a_fault_decides_on_overlaps() {
        let cells = matrix::cells(false);
        let promises = |name: &str| {
            let cell = cells.iter().find(|cell| cell.name == name);
            cell.expect("there is such a cell").config.promises_exclusion()
        };
        for (kept, names) in [
            (
                true,
                &[
                    "redis-sentinel/stop",
                    "redis-sentinel/all",
                    "redis-sentinel/master-kill-acknowledged",
                    "redis-sentinel/master-stop-delayed",
                    "redis-sentinel/split-brain-acknowledged",
                    "redis-sentinel/split-brain-min-replicas-delayed",
                    "redis-cluster/planned-failover",
                    "redis-cluster/stale-replica-delayed",
                    "redis/failover-delayed",
                    "postgres-standby/master-kill-acknowledged",
                    "postgres-standby/stale-replica-acknowledged",
                ][..],
            ),
            (
                false,
                &[
                    "redis-sentinel/master-kill",
                    "redis-sentinel/planned-failover",
                    "redis-sentinel/split-brain",
                    "redis-sentinel/split-brain-min-replicas",
                    "redis-cluster/stale-replica",
                    "redis/failover",
                    "postgres-standby/master-kill",
                    "mysql-row/server-kill",
                ],
            ),
        ] {
            for name in names {
                assert_eq!(promises(name), kept, "{name}");
            }
        }
    }
}
