//! What a run is made of: backend, faults, sizes.

use std::fmt;
use std::time::Duration;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use crate::mutant::Mutant;

/// Which lock server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Backend {
    Redis,
    MysqlRow,
    Zookeeper,
}

/// What breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Fault {
    /// A process is stopped with SIGSTOP.
    Stop,
    /// A process stops itself between its check and its write, for longer than its lease.
    Gap,
    /// A process is killed with SIGKILL, and another one started in its place.
    Kill,
    /// Nothing passes between a process and the server; connections stay open.
    Hole,
    /// Requests pass, replies do not; connections stay open.
    Oneway,
    /// Every message takes longer.
    Delay,
    /// A process's connections are reset.
    Reset,
    /// One reply is lost with its connection, after its request took effect.
    ReplyLoss,
    /// The server is killed with SIGKILL, and started again with its data.
    ServerKill,
    /// The server is stopped with SIGSTOP.
    ServerStop,
    /// The server is killed, and started again without its data.
    ServerLose,
    /// The server's wall clock jumps forward, and back later.
    Clock,
    /// The server's wall clock goes back for a while.
    ClockBack,
    /// The server's wall clock goes back, and stays there.
    ClockBackForGood,
    /// The server's wall clock runs as much faster as the failure model allows.
    ClockRate,
    /// The server forgets its scripts, again and again.
    ScriptFlush,
    /// The server ends all connections, again and again.
    ClientKill,
    /// The server may use no more memory.
    MemoryFull,
    /// There is no room on the server's disk: it refuses writes, or ends.
    DiskFull,
    /// A replica that had fallen behind takes over.
    Failover,
}

impl Fault {
    /// Whether a process has to connect again after it.
    fn cuts_connections(self) -> bool {
        matches!(
            self,
            Self::Hole
                | Self::Oneway
                | Self::Reset
                | Self::ReplyLoss
                | Self::ServerKill
                | Self::ServerLose
                | Self::ClientKill
                | Self::DiskFull
                | Self::Failover
        )
    }

    /// Whether it strikes the server, and so all processes at once.
    pub(crate) fn is_servers(self) -> bool {
        match self {
            Self::Stop | Self::Gap | Self::Kill => false,
            _ => !self.is_links(),
        }
    }

    /// Whether it needs a clock that can be set.
    pub(crate) fn is_clocks(self) -> bool {
        matches!(
            self,
            Self::Clock | Self::ClockBack | Self::ClockBackForGood | Self::ClockRate
        )
    }

    /// Whether the way between a process and the server does it.
    pub(crate) fn is_links(self) -> bool {
        matches!(
            self,
            Self::Hole | Self::Oneway | Self::Delay | Self::Reset | Self::ReplyLoss
        )
    }
}

/// Whether believed intervals may overlap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Model {
    /// Never.
    Inside,
    /// They are reported; the fence alone protects.
    Outside,
}

impl Backend {
    pub(crate) const ALL: [Self; 3] = [Self::Redis, Self::MysqlRow, Self::Zookeeper];

    /// The ttl of a run that names none. A row lock counts whole seconds, ZooKeeper's sessions several ticks.
    pub(crate) fn default_ttl(self) -> Duration {
        match self {
            Self::Redis => Duration::from_millis(500),
            Self::MysqlRow | Self::Zookeeper => Duration::from_secs(2),
        }
    }

    /// How coarsely the server counts.
    pub(crate) fn tick(self) -> Duration {
        match self {
            Self::Redis => Duration::from_millis(100),
            Self::MysqlRow => Duration::from_secs(1),
            Self::Zookeeper => Duration::from_millis(500),
        }
    }

    /// Why the fault cannot be caused here, if it cannot.
    pub(crate) fn refuses(self, fault: Fault) -> Option<&'static str> {
        match (self, fault) {
            (Self::Redis, _) => None,
            (_, fault) if fault.is_clocks() => Some("only the testbed's Redis runs on a clock that can be set"),
            (_, Fault::ScriptFlush) => Some("only Redis has scripts"),
            (_, Fault::ClientKill | Fault::MemoryFull) => Some("only Redis is told so"),
            (_, Fault::DiskFull) => Some("only the testbed's Redis writes to a disk that can be filled"),
            (_, Fault::Failover) => Some("only the testbed's Redis has a replica"),
            _ => None,
        }
    }

    /// What the contract says of exclusion under this fault.
    pub(crate) fn model(self, fault: Fault) -> Model {
        let outside = match self {
            // It counts by its wall clock: set back for good, it makes holds longer, which harms nobody's belief.
            Self::Redis => matches!(
                fault,
                Fault::ServerLose | Fault::Failover | Fault::Clock | Fault::ClockBack
            ),
            // The connection is the hold: whatever ends it at the server alone lets the next one in.
            Self::MysqlRow => matches!(
                fault,
                Fault::ServerLose | Fault::ServerKill | Fault::Reset | Fault::ReplyLoss
            ),
            Self::Zookeeper => matches!(fault, Fault::ServerLose),
        };
        if outside { Model::Outside } else { Model::Inside }
    }

    /// Whether a hold can be extended by hand.
    pub(crate) fn extends(self) -> bool {
        self != Self::Zookeeper
    }
}

/// Everything about a run that its history must tell to judge it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Setting {
    pub(crate) backend: Backend,
    pub(crate) procs: usize,
    pub(crate) locks: usize,
    pub(crate) secs: u64,
    pub(crate) ttl: Duration,
    pub(crate) nemesis: Vec<Fault>,
    pub(crate) seed: u64,
    /// Whether the processes look at their guard before they write.
    pub(crate) deadline_checks: bool,
    pub(crate) mutant: Option<Mutant>,
    /// How many take locks in one process, so that its own queue and its hand-overs are part of it.
    #[serde(default = "two")]
    pub(crate) tasks: usize,
    /// So many processes are stopped all the time, and whoever is left holds shortly: to measure what the stopped cost.
    #[serde(default)]
    pub(crate) measured: Option<usize>,
}

/// Before there was a choice.
fn two() -> usize {
    2
}

impl Setting {
    /// The longest minimum hold.
    pub(crate) fn longest_minimum(&self) -> Duration {
        self.ttl.mul_f64(1.5)
    }

    /// How far an extended hold reaches.
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

    pub(crate) fn model(&self) -> Model {
        let outside = |fault: &Fault| self.backend.model(*fault) == Model::Outside;
        if self.nemesis.iter().any(outside) {
            Model::Outside
        } else {
            Model::Inside
        }
    }

    /// Why tokens may fail to grow, and the fence with them, if they may.
    pub(crate) fn excludes_tokens(&self) -> Option<&'static str> {
        if !self.nemesis.contains(&Fault::ServerLose) {
            return None;
        }
        if self.backend == Backend::Zookeeper {
            return Some("the server lost its data, and ZooKeeper declares no durable tokens");
        }
        let clock_back = self.nemesis.contains(&Fault::ClockBack);
        clock_back.then_some("the server lost its data, and its clock was behind the last token")
    }

    /// How far the server's clock is moved, at most.
    pub(crate) fn clock_step(&self, fault: Fault) -> Duration {
        match fault {
            Fault::ClockBackForGood => self.ttl * 60,
            _ => self.ttl * 4,
        }
    }

    /// How long after the end the server may still have something, by its own clock.
    pub(crate) fn lingering(&self) -> Duration {
        /// A place that was taken before the clock was set back.
        const LONGEST_PLACE: Duration = Duration::from_secs(15);
        let more = match self.nemesis.contains(&Fault::ClockBackForGood) {
            true => LONGEST_PLACE,
            false => Duration::ZERO,
        };
        self.ttl * 2 + self.backend.tick() + more
    }

    /// By when everyone has acquired after the last fault was healed.
    pub(crate) fn recovery_limit(&self) -> Duration {
        /// Before a backend connects again after many failures, with jitter.
        const LONGEST_PAUSE: Duration = Duration::from_secs(2);
        /// In a row within a process, as the lockers here have it.
        const HAND_OVERS: usize = 16;
        /// Most are shorter.
        const LONG_HOLD: Duration = Duration::from_millis(25);
        let mut limit = self.ttl * 3 + self.backend.tick();
        if self.nemesis.contains(&Fault::Kill) {
            // What a killed process had extended lives on.
            limit += self.longest_hold().saturating_sub(self.ttl);
        }
        // One after the other in the server's queue, and each with its own waiters in between.
        let turns = self.procs * if self.tasks > 1 { 1 + HAND_OVERS } else { 1 };
        limit += LONG_HOLD * u32::try_from(turns).unwrap_or(u32::MAX);
        if self.nemesis.iter().any(|fault| fault.cuts_connections()) {
            limit += LONGEST_PAUSE;
        }
        if self.nemesis.contains(&Fault::Clock) {
            // A hold taken while the clock was ahead lasts until the clock has caught up.
            limit += self.clock_step(Fault::Clock);
        }
        limit
    }
}

impl fmt::Display for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&name_of(self))
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&name_of(self))
    }
}

/// As the command line writes it.
pub(crate) fn name_of(value: &impl ValueEnum) -> String {
    let possible = value.to_possible_value();
    possible.expect("no value is skipped").get_name().to_owned()
}
