//! The faults. A new one is a row in the table below and an injection in [`crate::nemesis`].

use std::fmt;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use crate::backend::Backend;
use crate::names::name_of;

use self::Effect::*;

/// The facts about a fault, apart from its injection.
struct Facts {
    /// The only backends that it can be injected into, and why, if it is not all.
    only: Option<(&'static [Backend], &'static str)>,
    /// The backends whose failure model leaves it out: there believed intervals may overlap, and the fence alone
    /// protects.
    outside_model_of: &'static [Backend],
    needs: Option<Needs>,
    effects: &'static [Effect],
}

/// The options with which a server must be started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Needs {
    /// A clock that can be set.
    Clock,
    /// A disk that can be filled.
    Disk,
    Replica,
}

/// The effects of a fault, as far as the checks depend on them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    /// The process does not run meanwhile.
    StopsProcess,
    /// The process's holds last until they expire.
    KillsProcess,
    /// Processes have to connect again.
    CutsConnections,
    LosesData,
    /// The server's clock is ahead for a while.
    ClockAhead,
    /// The server's clock is behind for a while.
    ClockBehind,
    /// The server's clock is behind for good.
    ClockBehindForGood,
    ClockFaster,
    /// A replica takes the master's place.
    ReplacesMaster,
    /// A leader may have lost its quorum without noticing it.
    PartsLeader,
    /// Whoever holds goes on: no hold is lost by it.
    KeepsHolds,
}

/// Makes the enum and its table of facts.
macro_rules! faults {
    ($($(#[$doc:meta])+ $fault:ident: $facts:expr;)+) => {
        /// A fault.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, ValueEnum, Serialize, Deserialize)]
        #[serde(rename_all = "kebab-case")]
        pub(crate) enum Fault {
            $($(#[$doc])+ $fault,)+
        }

        impl Fault {
            const fn facts(self) -> Facts {
                match self {
                    $(Self::$fault => $facts,)+
                }
            }
        }
    };
}

const REDIS: &[Backend] = &[Backend::Redis];
const MEMORY: &[Backend] = &[Backend::Redis, Backend::RedisSentinel];
/// A hold ends with its connection, also if the server alone notices.
const BY_CONNECTION: &[Backend] = &[Backend::MysqlRow, Backend::PostgresSession];
const SESSIONS: &[Backend] = &[Backend::PostgresSession];
const CLUSTER: &[Backend] = &[Backend::RedisCluster];
const SENTINEL: &[Backend] = &[Backend::RedisSentinel];
/// A replica that takes over lacks what was not replicated yet.
const REPLICATED: &[Backend] = &[Backend::RedisSentinel, Backend::RedisCluster];
const WITH_STANDBY: &[Backend] = &[Backend::RedisSentinel, Backend::RedisCluster, Backend::PostgresStandby];
const BY_CONNECTION_AND_REPLICATED: &[Backend] = &[
    Backend::MysqlRow,
    Backend::PostgresSession,
    Backend::RedisSentinel,
    Backend::RedisCluster,
];
const SQL: &[Backend] = &[
    Backend::MysqlRow,
    Backend::MysqlLease,
    Backend::PostgresLease,
    Backend::PostgresSession,
];
/// Those whose holds are rows or keys that expire by the server's wall clock.
const BY_CLOCKS: &[Backend] = &[
    Backend::Redis,
    Backend::MysqlLease,
    Backend::PostgresLease,
    Backend::PostgresSession,
    Backend::Quorum3,
    Backend::Quorum5,
];

const EVERYWHERE: Facts = Facts {
    only: None,
    outside_model_of: &[],
    needs: None,
    effects: &[],
};
const ENSEMBLE: Facts = Facts {
    only: Some((&[Backend::ZookeeperEnsemble], "only an ensemble has several servers")),
    effects: &[CutsConnections],
    ..EVERYWHERE
};
const QUORUM: Facts = Facts {
    only: Some((QUORUMS, "only a quorum has several independent servers")),
    ..EVERYWHERE
};
const QUORUMS: &[Backend] = &[Backend::Quorum3, Backend::Quorum5];
const OF_CLUSTER: Facts = Facts {
    only: Some((CLUSTER, "only a Redis Cluster has hash slots")),
    effects: &[CutsConnections],
    ..EVERYWHERE
};
const OF_REPLICATED: Facts = Facts {
    only: Some((REPLICATED, "only Sentinels and a Redis Cluster replace a master")),
    outside_model_of: REPLICATED,
    effects: &[CutsConnections, ReplacesMaster],
    ..EVERYWHERE
};
const OF_STANDBY: Facts = Facts {
    only: Some((WITH_STANDBY, "nothing takes its master's place")),
    outside_model_of: WITH_STANDBY,
    ..OF_REPLICATED
};
const BUT_ENSEMBLE: &[Backend] = &[
    Backend::Redis,
    Backend::MysqlRow,
    Backend::MysqlLease,
    Backend::PostgresLease,
    Backend::PostgresSession,
    Backend::Zookeeper,
    Backend::Quorum3,
    Backend::Quorum5,
];
const BUT_ZOOKEEPER: &[Backend] = &[
    Backend::Redis,
    Backend::MysqlRow,
    Backend::MysqlLease,
    Backend::PostgresLease,
    Backend::PostgresSession,
    Backend::Quorum3,
    Backend::Quorum5,
];
const ON_DISK: &[Backend] = &[Backend::Redis, Backend::MysqlRow, Backend::MysqlLease];
const CLOCK: Facts = Facts {
    only: Some((
        BUT_ZOOKEEPER,
        "the testbed's ZooKeeper does not run on a clock that can be set",
    )),
    needs: Some(Needs::Clock),
    ..EVERYWHERE
};

faults! {
    /// A process is stopped with SIGSTOP.
    Stop: Facts { effects: &[StopsProcess], ..EVERYWHERE };
    /// A process stops itself between its check and its write, for longer than its lease.
    Gap: Facts { effects: &[StopsProcess], ..EVERYWHERE };
    /// A process is killed with SIGKILL, and another one started in its place.
    Kill: Facts { effects: &[KillsProcess], ..EVERYWHERE };
    /// Nothing passes between a process and the server; connections stay open.
    Hole: Facts { effects: &[CutsConnections], ..EVERYWHERE };
    /// Requests pass, replies do not; connections stay open.
    Oneway: Facts { effects: &[CutsConnections], ..EVERYWHERE };
    /// Every message takes longer.
    Delay: EVERYWHERE;
    /// A process's connections are reset.
    // The connection is a hold of these: if it ends at the server alone, the server grants the lock to the next one.
    Reset: Facts { effects: &[CutsConnections], outside_model_of: BY_CONNECTION, ..EVERYWHERE };
    /// One reply is lost with its connection, after its request took effect.
    ReplyLoss: Facts { effects: &[CutsConnections], outside_model_of: BY_CONNECTION, ..EVERYWHERE };
    /// The server, or any one of several, is killed with SIGKILL, and started again with its data.
    ServerKill: Facts { effects: &[CutsConnections], outside_model_of: BY_CONNECTION_AND_REPLICATED, ..EVERYWHERE };
    /// The server, or any one of several, is stopped with SIGSTOP.
    ServerStop: Facts { outside_model_of: REPLICATED, ..EVERYWHERE };
    /// The server, or any one of a quorum, is killed, and started again without its data.
    // A node that forgot may vote for another one while its old vote still counts.
    ServerLose: Facts {
        only: Some((BUT_ENSEMBLE, "an ensemble keeps its data as long as a majority of its servers does")),
        effects: &[CutsConnections, LosesData],
        outside_model_of: &Backend::ALL,
        ..EVERYWHERE
    };
    /// The server's wall clock, or that of one node of a quorum, jumps forward, and back later.
    // A hold of a quorum may have the votes of a bare majority, one of which ends early.
    Clock: Facts { effects: &[ClockAhead], outside_model_of: BY_CLOCKS, ..CLOCK };
    /// The server's wall clock goes back for a while.
    ClockBack: Facts { effects: &[ClockBehind], outside_model_of: BY_CLOCKS, ..CLOCK };
    /// The server's wall clock goes back, and stays there.
    // This makes holds longer, which breaks nobody's belief.
    ClockBackForGood: Facts { effects: &[ClockBehindForGood], ..CLOCK };
    /// The server's wall clock runs as much faster as the failure model allows.
    ClockRate: Facts { effects: &[ClockFaster], ..CLOCK };
    /// The server forgets its scripts, again and again.
    ScriptFlush: Facts { only: Some((REDIS, "only Redis has scripts")), ..EVERYWHERE };
    /// The server ends all connections, again and again.
    ClientKill: Facts {
        only: Some((BUT_ZOOKEEPER, "ZooKeeper has no command for it")),
        outside_model_of: BY_CONNECTION,
        effects: &[CutsConnections],
        ..EVERYWHERE
    };
    /// The server ends what its connections execute, again and again: also those that wait for a lock.
    QueryKill: Facts { only: Some((SQL, "only SQL servers have a command for it")), ..EVERYWHERE };
    /// The server is locked against writes for longer than a lease, as for a backup.
    ReadLock: Facts { only: Some((SQL, "only SQL servers have a command for it")), ..EVERYWHERE };
    /// The server has no connection to spare, and processes need new ones.
    // Of sessions, those that carry holds: the server grants the lock to the next one at once.
    ConnectionsFull: Facts {
        only: Some((SQL, "only SQL servers have a limit of connections that a test can reach")),
        outside_model_of: SESSIONS,
        effects: &[CutsConnections],
        ..EVERYWHERE
    };
    /// The server, or each of several, may use no more memory.
    MemoryFull: Facts {
        only: Some((MEMORY, "only Redis has a command for it")),
        effects: &[KeepsHolds],
        ..EVERYWHERE
    };
    /// There is no room on the server's disk: no file can become larger. The server refuses writes, or ends.
    DiskFull: Facts {
        only: Some((ON_DISK, "its servers write to no disk that can be filled, or end when it is full")),
        needs: Some(Needs::Disk),
        effects: &[CutsConnections],
        ..EVERYWHERE
    };
    /// A replica that had fallen behind takes over.
    Failover: Facts {
        only: Some((REDIS, "only the testbed's Redis has a replica")),
        needs: Some(Needs::Replica),
        outside_model_of: REDIS,
        effects: &[CutsConnections],
    };
    /// The server follows a replica that had fallen behind, and takes writes again when it has the replica's data. Connections stay open.
    Demotion: Facts {
        only: Some((REDIS, "only the testbed's Redis has a replica")),
        needs: Some(Needs::Replica),
        outside_model_of: REDIS,
        effects: &[CutsConnections],
    };
    /// The hash slots of the locks move from master to master, again and again.
    Reshard: Facts { effects: &[], ..OF_CLUSTER };
    /// A hash slot of the locks stays on its way from master to master for longer than a lease: none of its keys is moved before.
    SlotHalfway: Facts { effects: &[KeepsHolds], ..OF_CLUSTER };
    /// A master is killed with SIGKILL, and started again when its replica has taken over.
    MasterKill: OF_STANDBY;
    /// A master is stopped with SIGSTOP, and goes on when its replica has taken over.
    MasterStop: OF_REPLICATED;
    /// A replica that had fallen behind takes over.
    StaleReplica: Facts { effects: &[CutsConnections, ReplacesMaster, LosesData], ..OF_STANDBY };
    /// A replica takes over because an operator says so, as before an upgrade.
    // A cluster's master stops before, and its replica waits until it has all of its data. One that Sentinels replace goes on.
    PlannedFailover: Facts { outside_model_of: SENTINEL, ..OF_REPLICATED };
    /// A master and half of the processes are cut off from the Sentinels, its replicas and the other processes.
    SplitBrain: Facts {
        only: Some((SENTINEL, "only its Sentinels can be cut off from a master")),
        outside_model_of: SENTINEL,
        effects: &[CutsConnections, ReplacesMaster],
        ..EVERYWHERE
    };
    /// The leader of an ensemble is killed with SIGKILL, and started again when another one leads.
    LeaderKill: ENSEMBLE;
    /// The leader of an ensemble is stopped with SIGSTOP.
    LeaderStop: ENSEMBLE;
    /// A follower and its leader are cut off from each other; clients reach both.
    FollowerCut: ENSEMBLE;
    /// The leader of an ensemble is cut off from its followers; clients reach all.
    // Such a leader would renew holds, unless its clients prove by writes that their sessions live: here they do.
    LeaderCut: Facts { effects: &[CutsConnections, PartsLeader], ..ENSEMBLE };
    /// The servers of an ensemble are started again, one after the other.
    RollingRestart: ENSEMBLE;
    /// As many nodes of a quorum are killed as it can do without, and started again with their data.
    MinorityKill: Facts { effects: &[CutsConnections], ..QUORUM };
    /// One node more is killed. They are started again with their data.
    MajorityKill: Facts { effects: &[CutsConnections], ..QUORUM };
    /// Nothing passes between a process and one node, which is another one for each process; connections stay open.
    NodeCut: Facts { effects: &[CutsConnections], ..QUORUM };
    /// Every message between a process and one node takes longer than a lease.
    NodeDelay: Facts { effects: &[CutsConnections], ..QUORUM };
}

impl Fault {
    pub(crate) fn has(self, effect: Effect) -> bool {
        self.facts().effects.contains(&effect)
    }

    pub(crate) fn needs(self) -> Option<Needs> {
        self.facts().needs
    }

    /// Why it cannot be injected into this backend, if it cannot.
    pub(crate) fn refused_by(self, backend: Backend) -> Option<&'static str> {
        let (_, why) = self.facts().only.filter(|(only, _)| !only.contains(&backend))?;
        Some(why)
    }

    /// Whether the failure model of this backend leaves out the fault.
    pub(crate) fn is_outside_model_of(self, backend: Backend) -> bool {
        self.facts().outside_model_of.contains(&backend)
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&name_of(self))
    }
}
