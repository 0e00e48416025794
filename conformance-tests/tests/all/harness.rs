//! The servers that the suite runs on.

#[cfg(unix)]
pub(crate) mod file;
pub(crate) mod memory;
pub(crate) mod mysql_lease;
pub(crate) mod mysql_row;
pub(crate) mod postgres;
pub(crate) mod quorum;
pub(crate) mod redis;
pub(crate) mod redis_cluster;
pub(crate) mod redis_replicas;
pub(crate) mod redis_sentinel;
mod servers;
pub(crate) mod zookeeper;
