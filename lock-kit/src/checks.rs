//! The consequence of server settings that can lose locks.

use lock_core::{Error, ErrorKind, Result};

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

    /// Warns of these findings about a server, such as the `PostgreSQL server` at this address, or refuses it.
    ///
    /// # Errors
    /// [`ErrorKind::Misconfigured`] with all findings, if they are [refused](Self::Refuse).
    pub fn apply(self, server: &str, address: &str, findings: &[String]) -> Result<()> {
        match self {
            Self::Refuse if !findings.is_empty() => {
                let message = format!("the {server} at {address} can lose locks: {}", findings.join("; "));
                Err(Error::new(ErrorKind::Misconfigured, message))
            }
            Self::Refuse | Self::Off => Ok(()),
            Self::Warn => {
                for finding in findings {
                    tracing::warn!(target: "polylock", server = %address, "this {server} can lose locks: {finding}");
                }
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn findings_are_refused_with_their_server() {
        let findings = ["fsync=off".to_owned(), "autocommit=off".to_owned()];
        let apply = |checks: Checks, findings| checks.apply("MySQL server", "db:1", findings);
        let error = apply(Checks::Refuse, &findings).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Misconfigured);
        assert_eq!(
            error.to_string(),
            "the MySQL server at db:1 can lose locks: fsync=off; autocommit=off"
        );
        for checks in [Checks::Warn, Checks::Off] {
            apply(checks, &findings).unwrap();
        }
        apply(Checks::Refuse, &[]).unwrap();
    }
}
