//! Checks of the server's settings.

/// The consequence of server settings that can lose leases in a crash: `innodb_flush_log_at_trx_commit` other than 1,
/// and with a binary log `sync_binlog` other than 1. Defaults to [`Warn`](Self::Warn).
///
/// Row locks are not checked: each of them ends in a crash anyway.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Checks {
    /// Log each finding when the backend connects, by `tracing` at level `WARN` under the target `polylock`.
    #[default]
    Warn,
    /// Fail to connect, as misconfigured.
    Refuse,
    /// Check nothing.
    Off,
}
