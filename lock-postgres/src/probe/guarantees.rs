//! The guarantees of each strategy.

use lock_core::{Guarantee, Verdict};
use lock_kit::guarantees::{lease_rows_keep, settings_not_checked, settings_not_read_yet, unknown_guarantee};

use super::Probe;
use crate::config::Checks;

/// `probe`: what the server said of itself, if it was asked.
pub(crate) fn leases_keep(guarantee: Guarantee, probe: Option<&Probe>, checks: Checks) -> Verdict {
    match guarantee {
        Guarantee::ServerCrash if checks == Checks::Off => settings_not_checked(),
        Guarantee::ServerCrash => match probe.map(Probe::findings) {
            None => settings_not_read_yet(),
            Some(findings) if findings.is_empty() => Verdict::Yes,
            Some(findings) => Verdict::no(findings.join("; "), "change these settings"),
        },
        Guarantee::Failover => match (probe, probe.and_then(Probe::unlogged_tables)) {
            (None, _) => settings_not_read_yet(),
            (_, Some(finding)) => Verdict::no(finding, "change these tables"),
            (Some(probe), None) if probe.waits_for_standby() => Verdict::unknown(
                "nothing shows whether the standby that is promoted is one for which commits wait",
                "promote none but synchronous standbys",
            ),
            (Some(_), None) => Verdict::no(
                "a standby may lack the last grants",
                "set synchronous_standby_names, or use a quorum",
            ),
        },
        _ => lease_rows_keep(guarantee),
    }
}

/// A lock of a session ends with its connection and with its server.
pub(crate) fn sessions_keep(guarantee: Guarantee) -> Verdict {
    match guarantee {
        Guarantee::ServerCrash => Verdict::no("a lock of a session ends with the server", "use strategy=lease"),
        Guarantee::Failover | Guarantee::Partition => Verdict::no(
            "locks of sessions are not replicated",
            "use ZooKeeper, a quorum, or Redis with replicas=N",
        ),
        Guarantee::ConnectionLoss => Verdict::no("a lock of a session ends with its connection", "use strategy=lease"),
        Guarantee::ClockStep => Verdict::no(
            "the server's wall clock ends silent sessions",
            "keep its clock by slewing and leave this guarantee out",
        ),
        Guarantee::NoEviction => Verdict::Yes,
        _ => unknown_guarantee(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_of_a_session_survives_nothing_that_ends_its_connection() {
        for guarantee in [Guarantee::ServerCrash, Guarantee::Failover, Guarantee::ConnectionLoss] {
            assert!(sessions_keep(guarantee).to_string().starts_with("no: "), "{guarantee}");
        }
        assert!(sessions_keep(Guarantee::NoEviction).is_yes());
    }

    #[test]
    fn what_depends_on_the_server_is_unknown_before_it_was_asked() {
        for guarantee in [Guarantee::ServerCrash, Guarantee::Failover] {
            let verdict = leases_keep(guarantee, None, Checks::Warn).to_string();
            assert!(verdict.starts_with("unknown: "), "{guarantee}: {verdict}");
        }
        assert!(leases_keep(Guarantee::ConnectionLoss, None, Checks::Warn).is_yes());
        assert!(!leases_keep(Guarantee::Partition, None, Checks::Warn).is_yes());
    }

    #[test]
    fn what_the_server_said_of_itself_decides() {
        let probe = |commit: &str, standbys: &str| {
            let row = [
                "polylock",
                "f",
                "150018",
                "read committed",
                commit,
                standbys,
                "on",
                "on",
            ];
            Probe::read(&vec![row.map(|value| Some(value.to_owned())).to_vec()]).unwrap()
        };
        let keeps = |guarantee, probe: &Probe| leases_keep(guarantee, Some(probe), Checks::Warn).to_string();
        assert!(leases_keep(Guarantee::ServerCrash, Some(&probe("on", "")), Checks::Warn).is_yes());
        assert!(keeps(Guarantee::ServerCrash, &probe("off", "")).contains("synchronous_commit=off"));
        let unchecked = leases_keep(Guarantee::ServerCrash, Some(&probe("on", "")), Checks::Off);
        assert!(!unchecked.is_yes(), "{unchecked}");
        assert!(keeps(Guarantee::Failover, &probe("on", "")).starts_with("no: "));
        assert!(keeps(Guarantee::Failover, &probe("on", "a")).starts_with("unknown: "));
        for guarantee in [Guarantee::Partition, Guarantee::ClockStep] {
            assert!(sessions_keep(guarantee).to_string().starts_with("no: "), "{guarantee}");
        }
    }
}
