//! The events that a hold survives, by the server's settings and the configuration.

use lock_core::{Guarantee, Verdict};
use lock_kit::guarantees::unknown_guarantee;

use super::{Facts, evicts, forgets};
use crate::config::RedisConfig;

/// Facts about the servers from the configuration.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Setup {
    /// True for a Redis Cluster.
    pub(super) is_cluster: bool,
    /// True if `restart_delay` covers for holds that a restart or a promotion forgets.
    pub(super) is_delayed: bool,
    /// The number of replicas that have to acknowledge a grant.
    pub(super) replicas: u32,
}

impl Setup {
    pub(crate) fn new(config: &RedisConfig, is_cluster: bool) -> Self {
        Self {
            is_cluster,
            is_delayed: config.restart_delay().is_some(),
            replicas: config.replicas(),
        }
    }
}

/// From the facts that were read of the server. A setting that could not be read is `None`.
pub(super) fn keeps(guarantee: Guarantee, facts: &Facts, setup: Setup) -> Verdict {
    match guarantee {
        Guarantee::ServerCrash if setup.is_delayed => Verdict::Yes,
        Guarantee::ServerCrash => match (
            forgets(facts),
            facts.appendonly,
            &facts.appendfsync,
            facts.suspends_fsync,
        ) {
            (Some(finding), ..) => finding.verdict(),
            (None, Some(true), Some(_), Some(_)) => Verdict::Yes,
            _ => unread(
                "appendonly, appendfsync and no-appendfsync-on-rewrite",
                "permit +info and +config|get, or give restart_delay=60s",
            ),
        },
        Guarantee::Failover if setup.is_delayed => Verdict::Yes,
        Guarantee::Failover => acknowledged(facts, setup).unwrap_or_else(|| {
            Verdict::no(
                "a replica that is promoted may lack the last locks",
                "give restart_delay=60s (the longest ttl, or more) in all processes, or replicas=N for N replicas",
            )
        }),
        Guarantee::Partition if setup.is_cluster => Verdict::unknown(
            "no test cuts off a master of a cluster",
            "use a quorum, or ZooKeeper with heartbeat=write",
        ),
        Guarantee::Partition => acknowledged(facts, setup).unwrap_or_else(|| cut_off(facts, setup)),
        Guarantee::ClockStep => Verdict::no(
            "it counts a TTL by its wall clock",
            "keep its clock by slewing and leave this guarantee out, or use MySQL row locks",
        ),
        Guarantee::ConnectionLoss => Verdict::Yes,
        Guarantee::NoEviction => match (evicts(facts), &facts.policy) {
            (Some(finding), _) => finding.verdict(),
            (None, Some(_)) => Verdict::Yes,
            (None, None) => unread("maxmemory-policy", "permit +info"),
        },
        _ => unknown_guarantee(),
    }
}

/// The verdict whether each replica that can be promoted has a grant before the grant counts. `None`: no replica has to
/// have it.
fn acknowledged(facts: &Facts, setup: Setup) -> Option<Verdict> {
    let required = setup.replicas;
    Some(match facts.replicas {
        _ if required == 0 => return None,
        None => unread("the number of replicas", "permit +info"),
        Some(there) if there > required => Verdict::no(
            format!("replicas={required} leaves out some of its {there} replicas, which may be promoted"),
            format!("set replicas={there}"),
        ),
        // With fewer it grants nothing.
        Some(_) => Verdict::Yes,
    })
}

/// A master that is cut off, where a grant counts without its replicas.
fn cut_off(facts: &Facts, setup: Setup) -> Verdict {
    match setup.is_delayed && facts.needs_replicas {
        true => Verdict::unknown(
            "it depends on whether the TTLs are long enough for min-replicas-max-lag",
            "compare the times as docs/redis-setups.md says",
        ),
        false => Verdict::no(
            "a master that is cut off goes on granting locks while a replica is promoted",
            "give replicas=N for N replicas, or use a quorum",
        ),
    }
}

fn unread(settings: &str, instead: &'static str) -> Verdict {
    Verdict::unknown(
        format!("{settings} could not be read, or checks=off leaves that out"),
        instead,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts() -> Facts {
        Facts {
            appendonly: Some(true),
            appendfsync: Some("always".into()),
            suspends_fsync: Some(false),
            policy: Some("noeviction".into()),
            replicas: Some(1),
            needs_replicas: true,
            ..Facts::default()
        }
    }

    fn said(guarantee: Guarantee, facts: &Facts, setup: Setup) -> String {
        keeps(guarantee, facts, setup).to_string()
    }

    const PLAIN: Setup = Setup {
        is_cluster: false,
        is_delayed: false,
        replicas: 0,
    };
    const DELAYED: Setup = Setup {
        is_delayed: true,
        ..PLAIN
    };
    const ACKNOWLEDGED: Setup = Setup { replicas: 1, ..PLAIN };

    #[test]
    fn a_crash_is_survived_by_what_is_on_disk_or_waited_out() {
        let crash = |facts: &Facts, setup| said(Guarantee::ServerCrash, facts, setup);
        assert_eq!(crash(&facts(), PLAIN), "yes");
        let forgets = Facts {
            appendonly: Some(false),
            ..facts()
        };
        assert!(crash(&forgets, PLAIN).starts_with("no: with appendonly no"));
        let late = Facts {
            appendfsync: Some("everysec".into()),
            ..facts()
        };
        assert!(
            crash(&late, PLAIN).contains("set appendfsync always"),
            "{}",
            crash(&late, PLAIN)
        );
        let suspended = Facts {
            suspends_fsync: Some(true),
            ..facts()
        };
        assert!(
            crash(&suspended, PLAIN).starts_with("no: with no-appendfsync-on-rewrite yes"),
            "{}",
            crash(&suspended, PLAIN)
        );
        let unread = Facts {
            appendfsync: None,
            ..facts()
        };
        let half_unread = Facts {
            suspends_fsync: None,
            ..facts()
        };
        for unread in [unread, half_unread, Facts::default()] {
            assert!(crash(&unread, PLAIN).starts_with("unknown: "), "{unread:?}");
        }
        for any in [forgets, late, suspended, Facts::default()] {
            assert_eq!(crash(&any, DELAYED), "yes");
        }
    }

    #[test]
    fn a_failover_is_survived_if_all_replicas_acknowledge_or_the_next_master_waits() {
        let failover = |facts: &Facts, setup| said(Guarantee::Failover, facts, setup);
        assert_eq!(failover(&facts(), DELAYED), "yes");
        assert_eq!(failover(&facts(), ACKNOWLEDGED), "yes");
        assert!(failover(&facts(), PLAIN).starts_with("no: a replica that is promoted"));
        let two = Facts {
            replicas: Some(2),
            ..facts()
        };
        assert!(failover(&two, ACKNOWLEDGED).ends_with("set replicas=2"));
        assert!(failover(&Facts::default(), ACKNOWLEDGED).starts_with("unknown: the number of replicas"));
    }

    #[test]
    fn a_partition_is_survived_if_all_replicas_acknowledge() {
        let partition = |facts: &Facts, setup| said(Guarantee::Partition, facts, setup);
        assert_eq!(partition(&facts(), ACKNOWLEDGED), "yes");
        assert!(partition(&facts(), PLAIN).starts_with("no: "));
        assert!(partition(&facts(), DELAYED).starts_with("unknown: it depends on whether the TTLs"));
        let alone = Facts {
            needs_replicas: false,
            ..facts()
        };
        assert!(partition(&alone, DELAYED).starts_with("no: "));
        let cluster = Setup {
            is_cluster: true,
            ..ACKNOWLEDGED
        };
        assert!(partition(&facts(), cluster).starts_with("unknown: "));
    }

    #[test]
    fn eviction_is_as_the_policy_says() {
        let eviction = |policy: Option<&str>| {
            let facts = Facts {
                policy: policy.map(str::to_owned),
                ..facts()
            };
            said(Guarantee::NoEviction, &facts, PLAIN)
        };
        assert_eq!(eviction(Some("noeviction")), "yes");
        assert!(eviction(Some("allkeys-lru")).starts_with("no: with maxmemory-policy allkeys-lru"));
        assert!(eviction(None).starts_with("unknown: maxmemory-policy could not be read"));
    }

    #[test]
    fn what_no_setting_changes() {
        assert!(said(Guarantee::ClockStep, &facts(), DELAYED).starts_with("no: "));
        assert_eq!(said(Guarantee::ConnectionLoss, &Facts::default(), PLAIN), "yes");
    }
}
