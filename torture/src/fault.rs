//! The faults: what each strikes, needs and does.

use std::fmt;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use crate::backend::Backend;
use crate::names::name_of;

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
    pub(crate) fn cuts_connections(self) -> bool {
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
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&name_of(self))
    }
}
