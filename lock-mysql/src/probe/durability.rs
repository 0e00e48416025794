//! Server settings by which a crash loses what was granted.

use std::time::Duration;

use lock_core::{Error, ErrorKind, Result};

use super::variables;
use crate::config::MySqlConfig;
use crate::connection::Session;
use crate::error::{RequestError, SqlError};

/// What to do about server settings that can lose leases in a crash: `innodb_flush_log_at_trx_commit` other than 1, and with a
/// binary log `sync_binlog` other than 1. Defaults to [`Warn`](Self::Warn).
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

const VARIABLES: &str = "SHOW GLOBAL VARIABLES WHERE Variable_name IN \
    ('innodb_flush_log_at_trx_commit','log_bin','sync_binlog')";

/// Warns of settings by which a crash loses leases, or refuses them.
///
/// # Errors
/// [`ErrorKind::Misconfigured`] where they are refused.
pub(crate) async fn check_durability(
    config: &MySqlConfig,
    session: &Session,
    limit: Duration,
) -> Result<(), RequestError> {
    if config.checks() == Checks::Off {
        return Ok(());
    }
    let answer = session.run(VARIABLES.to_owned(), None, limit).await?;
    let rows = answer.results.first().ok_or(SqlError::UnexpectedAnswer("variables"))?;
    let findings = findings(&variables(&rows.rows)?);
    let server = config.address();
    if config.checks() == Checks::Refuse && !findings.is_empty() {
        let message = format!("the MySQL server at {server} can lose locks: {}", findings.join("; "));
        return Err(Error::new(ErrorKind::Misconfigured, message).into());
    }
    for finding in findings {
        tracing::warn!(target: "polylock", server = %server, "this MySQL server can lose locks: {finding}");
    }
    Ok(())
}

/// What can be lost, and what to do. A variable that the server does not have says nothing.
fn findings(variables: &[(String, String)]) -> Vec<String> {
    let value = |name: &str| {
        let mut of_name = variables
            .iter()
            .filter(|(variable, _)| variable.eq_ignore_ascii_case(name));
        of_name.next().map(|(_, value)| value.as_str())
    };
    let mut findings = Vec::new();
    if let Some(flush) = value("innodb_flush_log_at_trx_commit").filter(|value| *value != "1") {
        findings.push(format!(
            "with innodb_flush_log_at_trx_commit={flush} it may forget the last grants in a crash: set it to 1"
        ));
    }
    let has_binlog = value("log_bin").is_some_and(|value| value.eq_ignore_ascii_case("ON") || value == "1");
    if let Some(sync) = value("sync_binlog").filter(|value| has_binlog && *value != "1") {
        findings.push(format!(
            "with sync_binlog={sync} a crash of its machine may undo the last grants: set it to 1"
        ));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_on_disk_before_the_answer_is_fine() {
        let found = |flush: &str, log_bin: &str, sync: &str| {
            let variables = [
                ("innodb_flush_log_at_trx_commit", flush),
                ("log_bin", log_bin),
                ("sync_binlog", sync),
            ];
            findings(&variables.map(|(name, value)| (name.to_owned(), value.to_owned())))
        };
        assert!(found("1", "ON", "1").is_empty() && found("1", "OFF", "0").is_empty());
        assert!(found("0", "OFF", "0")[0].contains("innodb_flush_log_at_trx_commit=0"));
        assert!(found("1", "ON", "1000")[0].contains("sync_binlog=1000"));
        assert_eq!(found("2", "ON", "0").len(), 2);
        assert!(findings(&[]).is_empty());
    }
}
