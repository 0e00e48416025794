//! The events that a hold survives, by the configuration: an ensemble is known by its list of servers.

use lock_core::{Guarantee, Verdict};
use lock_kit::guarantees::unknown_guarantee;

use crate::config::{HeartbeatKind, ZooKeeperConfig};

pub(crate) fn keeps(guarantee: Guarantee, config: &ZooKeeperConfig) -> Verdict {
    by(guarantee, config.servers().len() > 1, config.heartbeat())
}

fn by(guarantee: Guarantee, is_ensemble: bool, heartbeat: HeartbeatKind) -> Verdict {
    match guarantee {
        Guarantee::ServerCrash | Guarantee::ConnectionLoss | Guarantee::NoEviction => Verdict::Yes,
        Guarantee::Failover | Guarantee::Partition if !is_ensemble => Verdict::unknown(
            "one address may be that of a single server",
            "name all servers of the ensemble in the URL",
        ),
        Guarantee::Failover => Verdict::Yes,
        Guarantee::Partition => match heartbeat {
            HeartbeatKind::Write => Verdict::Yes,
            HeartbeatKind::Sync => Verdict::no(
                "a leader that is cut off answers heartbeats until it steps down",
                "set heartbeat=write",
            ),
        },
        Guarantee::ClockStep => Verdict::unknown(
            "no test sets the clock of a ZooKeeper, whose sessions count by a monotonic one",
            "use MySQL row locks",
        ),
        _ => unknown_guarantee(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ensemble_survives_a_failover_and_with_writes_a_partition() {
        let said = |guarantee, is_ensemble, heartbeat| by(guarantee, is_ensemble, heartbeat).to_string();
        assert_eq!(said(Guarantee::Failover, true, HeartbeatKind::Sync), "yes");
        let partition = said(Guarantee::Partition, true, HeartbeatKind::Sync);
        assert!(partition.ends_with("set heartbeat=write"), "{partition}");
        assert_eq!(said(Guarantee::Partition, true, HeartbeatKind::Write), "yes");
        for guarantee in [Guarantee::Failover, Guarantee::Partition] {
            let one = said(guarantee, false, HeartbeatKind::Write);
            assert!(one.starts_with("unknown: one address"), "{one}");
        }
        assert_eq!(said(Guarantee::ServerCrash, false, HeartbeatKind::Sync), "yes");
    }
}
