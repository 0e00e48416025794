//! The consequence of server settings that can lose locks.

/// The consequence of server settings that can lose locks. Defaults to [`Warn`](Self::Warn). The backend's `with_checks` says
/// which settings these are.
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

impl Checks {
    /// The values of the URL parameter `checks`.
    pub const VALUES: [(&str, Self); 3] = [("warn", Self::Warn), ("refuse", Self::Refuse), ("off", Self::Off)];
}
