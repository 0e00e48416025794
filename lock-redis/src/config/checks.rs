//! The checks of a server's settings, and the consequence of a finding.

/// The consequence of server settings that can lose locks ([`Finding`](crate::Finding)). Defaults to
/// [`Warn`](Self::Warn).
///
/// `Warn` and `Refuse` also reject a server that cannot work at all: one before version 7, a node of a Redis Cluster, a
/// Sentinel, a replica.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Checks {
    /// Log each finding once per run of the server, by `tracing` at level `WARN` under the target `polylock`.
    /// [`findings`](crate::RedisBackend::findings) returns them.
    #[default]
    Warn,
    /// Fail to connect, as misconfigured; and as denied if the user may not ask (`INFO`).
    Refuse,
    /// Check nothing.
    Off,
}
