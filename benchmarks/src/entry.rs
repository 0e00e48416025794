//! Which server is asked, and by whom.

use std::sync::Arc;

use clap::ValueEnum;
use lock_core::backend::DistributedLock;

use crate::participant::Participant;

/// Which lock server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Backend {
    Memory,
    Redis,
    Mysql,
    Postgres,
    Zookeeper,
    /// Three Redis
    Quorum,
}

impl Backend {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Redis => "redis",
            Self::Mysql => "mysql",
            Self::Postgres => "postgres",
            Self::Zookeeper => "zookeeper",
            Self::Quorum => "quorum",
        }
    }
}

/// Makes polylock's backend anew, with connections of its own.
pub(crate) type MakeBackend = Arc<dyn Fn() -> lock_core::Result<Arc<dyn DistributedLock>> + Send + Sync>;

/// A subject in a workload, or why it is not.
pub(crate) struct Entry {
    pub(crate) subject: String,
    pub(crate) participant: Result<Box<dyn Participant>, String>,
    /// Whether nothing of ours is broken when it does not take part.
    pub(crate) is_optional: bool,
}
