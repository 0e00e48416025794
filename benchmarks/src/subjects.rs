//! Who competes.

pub(crate) mod blocking;
pub(crate) mod core;
pub(crate) mod costs;
pub(crate) mod counted;
pub(crate) mod held;
pub(crate) mod instructions;
pub(crate) mod memory;
pub(crate) mod mysql;
pub(crate) mod parts;
pub(crate) mod polylock;
pub(crate) mod postgres;
pub(crate) mod quorum;
pub(crate) mod redis;
pub(crate) mod takeover;
pub(crate) mod tls;
pub(crate) mod waiters;
pub(crate) mod weigh;
pub(crate) mod zookeeper;

use std::time::Duration;

/// How often `poll-10ms` asks again.
pub(crate) const POLL: Duration = Duration::from_millis(10);

/// The ttl of everybody: polylock's default.
pub(crate) const TTL: Duration = Duration::from_secs(30);
