//! The guarantees of each strategy.

use lock_core::{Guarantee, Verdict};
use lock_kit::guarantees::{lease_rows_keep, settings_not_read_yet, unknown_guarantee};

/// A row lock is an open transaction of one server.
pub(crate) fn row_locks_keep(guarantee: Guarantee) -> Verdict {
    match guarantee {
        Guarantee::ServerCrash => Verdict::no(
            "a row lock ends with the server, and its holder learns of it up to a second later",
            "use ?strategy=lease",
        ),
        Guarantee::Failover | Guarantee::Partition => Verdict::no(
            "row locks are not replicated",
            "use ZooKeeper, a quorum, or Redis with replicas=N",
        ),
        Guarantee::ConnectionLoss => Verdict::no("a row lock ends with its connection", "use ?strategy=lease"),
        Guarantee::ClockStep | Guarantee::NoEviction => Verdict::Yes,
        _ => unknown_guarantee(),
    }
}

/// `survives_crash`: as the server's settings said, if they were read.
pub(crate) fn leases_keep(guarantee: Guarantee, survives_crash: Option<&Verdict>) -> Verdict {
    match guarantee {
        Guarantee::ServerCrash => survives_crash.cloned().unwrap_or_else(settings_not_read_yet),
        Guarantee::Failover => Verdict::unknown(
            "nothing shows which replica is promoted, and whether each commit waits for it",
            "have commits wait for every replica that may be promoted",
        ),
        Guarantee::ClockStep => Verdict::no(
            "the server's wall clock ends leases",
            "keep its clock by slewing and leave this guarantee out, or use row locks",
        ),
        _ => lease_rows_keep(guarantee),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_lock_survives_nothing_that_ends_its_connection() {
        for guarantee in [Guarantee::ServerCrash, Guarantee::Failover, Guarantee::ConnectionLoss] {
            assert!(row_locks_keep(guarantee).to_string().starts_with("no: "), "{guarantee}");
        }
        assert!(row_locks_keep(Guarantee::ClockStep).is_yes());
    }

    #[test]
    fn a_lease_survives_a_crash_if_the_settings_say_so() {
        assert!(leases_keep(Guarantee::ServerCrash, Some(&Verdict::Yes)).is_yes());
        let no = Verdict::no("a", "b");
        assert_eq!(leases_keep(Guarantee::ServerCrash, Some(&no)), no);
        let unread = leases_keep(Guarantee::ServerCrash, None).to_string();
        assert!(unread.starts_with("unknown: "), "{unread}");
        assert!(leases_keep(Guarantee::ConnectionLoss, None).is_yes());
        assert!(
            leases_keep(Guarantee::Failover, None)
                .to_string()
                .starts_with("unknown: ")
        );
    }
}
