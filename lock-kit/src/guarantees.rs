//! Verdicts on guarantees that several backends give alike.

use lock_core::{Guarantee, Verdict};

/// The verdict on a guarantee that is newer than the backend.
pub fn unknown_guarantee() -> Verdict {
    Verdict::unknown("this version of the backend does not know it", "update polylock")
}

/// The verdict on leases that are [rows](crate::lease_rows) of an SQL database. On a crash and on a failover the server's settings
/// decide, and so the backend does.
pub fn lease_rows_keep(guarantee: Guarantee) -> Verdict {
    match guarantee {
        Guarantee::Partition => Verdict::no(
            "a primary that is cut off may go on granting",
            "use a quorum, or ZooKeeper with heartbeat=write",
        ),
        Guarantee::ClockStep => Verdict::no(
            "the server's wall clock ends leases",
            "keep its clock by slewing and leave this guarantee out",
        ),
        Guarantee::ConnectionLoss | Guarantee::NoEviction => Verdict::Yes,
        _ => unknown_guarantee(),
    }
}

/// The verdict of a backend that reads the server's settings when it connects, and has not yet.
pub fn settings_not_read_yet() -> Verdict {
    Verdict::unknown("the settings were not read yet", "connect")
}

/// The verdict of a backend that was told to [read no settings](crate::checks::Checks::Off).
pub fn settings_not_checked() -> Verdict {
    Verdict::unknown("checks=off leaves the settings unread", "leave checks=off out")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_that_is_a_row_outlives_its_connection_and_no_partition() {
        for kept in [Guarantee::ConnectionLoss, Guarantee::NoEviction] {
            assert!(lease_rows_keep(kept).is_yes(), "{kept}");
        }
        for lost in [Guarantee::Partition, Guarantee::ClockStep] {
            assert!(lease_rows_keep(lost).to_string().starts_with("no: "), "{lost}");
        }
        for unknown in [
            lease_rows_keep(Guarantee::ServerCrash),
            settings_not_read_yet(),
            settings_not_checked(),
        ] {
            assert!(unknown.to_string().starts_with("unknown: "), "{unknown}");
        }
    }
}
