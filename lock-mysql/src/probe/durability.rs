//! Server settings by which a crash loses what was granted.

use std::fmt;

use lock_core::Verdict;
use sqlx::mysql::MySqlRow;

use super::variables;
use crate::error::SqlError;

const FLUSH: &str = "innodb_flush_log_at_trx_commit";

/// Selects the settings that decide.
pub(super) const VARIABLES: &str = "SHOW GLOBAL VARIABLES WHERE Variable_name IN \
    ('innodb_flush_log_at_trx_commit','log_bin','sync_binlog')";

/// Whether leases survive a crash, and the settings by which they do not, by the answer to [`VARIABLES`].
pub(super) fn judge(rows: &[MySqlRow]) -> Result<(Verdict, Vec<String>), SqlError> {
    let variables = variables(rows)?;
    let findings = findings(&variables);
    let said = findings.iter().map(Finding::to_string).collect();
    Ok((survives_crash(&variables, &findings), said))
}

/// A setting by which a crash loses leases.
#[derive(Debug)]
struct Finding {
    because: String,
    instead: &'static str,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.because, self.instead)
    }
}

fn survives_crash(variables: &[(String, String)], findings: &[Finding]) -> Verdict {
    match findings {
        [finding, ..] => Verdict::no(finding.because.clone(), finding.instead),
        [] if value(variables, FLUSH).is_some() => Verdict::Yes,
        [] => Verdict::unknown(
            "the server does not say how it writes to disk",
            "compare its settings with the page of lock-mysql",
        ),
    }
}

/// The settings that can lose leases. A variable that the server does not have says nothing.
fn findings(variables: &[(String, String)]) -> Vec<Finding> {
    let value = |name| value(variables, name);
    let mut findings = Vec::new();
    if let Some(flush) = value(FLUSH).filter(|value| *value != "1") {
        findings.push(Finding {
            because: format!("with {FLUSH}={flush} it may forget the last grants in a crash"),
            instead: "set it to 1",
        });
    }
    let has_binlog = value("log_bin").is_some_and(|value| value.eq_ignore_ascii_case("ON") || value == "1");
    if let Some(sync) = value("sync_binlog").filter(|value| has_binlog && *value != "1") {
        findings.push(Finding {
            because: format!("with sync_binlog={sync} a crash of its machine may undo the last grants"),
            instead: "set it to 1",
        });
    }
    findings
}

fn value<'a>(variables: &'a [(String, String)], name: &str) -> Option<&'a str> {
    let mut of_name = variables
        .iter()
        .filter(|(variable, _)| variable.eq_ignore_ascii_case(name));
    of_name.next().map(|(_, value)| value.as_str())
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
            let variables = variables.map(|(name, value)| (name.to_owned(), value.to_owned()));
            let findings = findings(&variables);
            let verdict = survives_crash(&variables, &findings).to_string();
            (findings.iter().map(Finding::to_string).collect::<Vec<_>>(), verdict)
        };
        for fine in [found("1", "ON", "1"), found("1", "OFF", "0")] {
            assert_eq!(fine, (vec![], "yes".to_owned()));
        }
        let (findings_of_flush, verdict) = found("0", "OFF", "0");
        assert!(findings_of_flush[0].contains("innodb_flush_log_at_trx_commit=0"));
        assert!(
            verdict.starts_with("no: with innodb_flush_log_at_trx_commit=0"),
            "{verdict}"
        );
        assert!(found("1", "ON", "1000").0[0].contains("sync_binlog=1000"));
        assert_eq!(found("2", "ON", "0").0.len(), 2);
        assert!(findings(&[]).is_empty());
        assert!(survives_crash(&[], &[]).to_string().starts_with("unknown: "));
    }
}
