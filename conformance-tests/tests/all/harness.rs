//! The servers that the suite runs on.

pub(crate) mod memory;
pub(crate) mod mysql_lease;
pub(crate) mod mysql_row;
pub(crate) mod redis;
mod servers;
pub(crate) mod zookeeper;
