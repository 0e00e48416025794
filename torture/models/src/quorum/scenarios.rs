//! The scenarios that are run.

use std::time::Duration;

use super::scenario::{Faults, Network, Reinstall, Scenario, Strategy, millis, seconds};

impl Scenario {
    /// The scenarios in which no property may be broken, by name.
    pub fn all_kept() -> Vec<(&'static str, Self)> {
        let of = |nodes, clients| Self {
            nodes,
            clients,
            ..Self::default()
        };
        // While clients have different anchors, one may miss its turn, and another whole round of them passes.
        let of_eight = Self {
            until: seconds(240),
            ..of(5, 8)
        };
        let strategy = |strategy| Self {
            strategy,
            ..Self::default()
        };
        let always_empty = |reinstall| {
            let mut scenario = Self {
                reinstall,
                ..Self::default()
            };
            scenario.faults.restart_every = Some(seconds(3));
            scenario.faults.forgets = 1.0;
            scenario
        };
        vec![
            ("three nodes", of(3, 4)),
            ("four nodes", of(4, 4)),
            ("five nodes", of(5, 4)),
            ("five nodes, eight clients", of_eight),
            ("three nodes, all at once", strategy(Strategy::AllAtOnce)),
            ("three nodes, everything five times as often", of(3, 4).worse(5)),
            ("five nodes, everything five times as often", of(5, 4).worse(5)),
            ("always empty", always_empty(Reinstall::AtOnce)),
            (
                "always empty, restored after the delay",
                always_empty(Reinstall::AfterDelay),
            ),
            ("always empty, not restored", always_empty(Reinstall::Never)),
            ("dates an hour apart, and no data lost", Self::hour_apart(0.0)),
            ("three nodes, TTLs of 1 to 4 s", mixed_ttls(of(3, 4))),
            ("five nodes, TTLs of 1 to 4 s", mixed_ttls(of(5, 4))),
        ]
    }

    /// The scenarios in which all but one client reach a majority, and have to go on while the fault lasts. The TTL is 30 s: a
    /// wait that ends with a vote is much too long.
    pub fn all_going_on() -> Vec<(&'static str, Self)> {
        let calm = Self::going_on();
        let sick = |tries, nodes| Self {
            tries,
            nodes,
            sick_client: true,
            ..calm.clone()
        };
        vec![
            ("nothing is wrong", calm.clone()),
            ("a waiter reaches a minority", sick(0.0, 3)),
            ("a trier reaches a minority", sick(1.0, 3)),
            ("one of five nodes is reached", sick(0.2, 5)),
            (
                "the first node is down",
                Self {
                    down: Some(0),
                    ..calm.clone()
                },
            ),
            ("the anchor misses releases", Self::anchor_misses_releases()),
            (
                "the second node is down",
                Self {
                    down: Some(1),
                    ..calm.clone()
                },
            ),
            (
                "one client alone, the first node is down",
                Self {
                    clients: 1,
                    down: Some(0),
                    ..calm
                },
            ),
        ]
    }

    /// Nothing is wrong, and the TTL is 30 s.
    pub(super) fn going_on() -> Self {
        Self {
            clients: 3,
            ttl: seconds(30),
            restart_delay: seconds(30),
            until: seconds(20),
            calm_from: seconds(20),
            longest_hold: millis(40),
            longest_break: millis(40),
            network: Network::CALM,
            faults: Faults::NONE,
            longest_wait: Some(seconds(2)),
            fewest_grants: 300,
            ..Self::default()
        }
    }

    /// Nodes restart without their data, one after the other, under holds of up to 40 s. Nothing else goes wrong.
    pub fn rolling_restarts(reinstall: Reinstall) -> Self {
        Self {
            clients: 3,
            ttl: seconds(3),
            restart_delay: seconds(3),
            longest_hold: seconds(40),
            until: seconds(120),
            calm_from: seconds(100),
            reinstall,
            network: Network::CALM,
            faults: Faults {
                restart_every: Some(seconds(5)),
                forgets: 1.0,
                ..Faults::NONE
            },
            ..Self::default()
        }
    }

    /// Clients are cut off from the first node now and then, which misses releases by it and keeps its vote for a TTL.
    pub(super) fn anchor_misses_releases() -> Self {
        Self {
            faults: Faults {
                cut_every: Some(seconds(1)),
                ..Faults::NONE
            },
            longest_cut: Some(millis(300)),
            cut_off_from: Some(0),
            until: seconds(40),
            calm_from: seconds(40),
            longest_wait: Some(seconds(15)),
            ..Self::going_on()
        }
    }

    /// Nodes restart without their data so often that several forget a hold between two renewals.
    pub(super) fn several_forget() -> Self {
        let mut scenario = Self {
            longest_hold: seconds(6),
            calm_from: seconds(60),
            ..Self::rolling_restarts(Reinstall::Never)
        };
        scenario.faults.restart_every = Some(millis(300));
        scenario
    }

    /// Nodes lose their data one after the other. The holder is cut off from a majority, and believes in its hold until its lease
    /// ends.
    pub(super) fn forgotten_while_cut_off() -> Self {
        Self {
            reinstall: Reinstall::Never,
            shortest_hold: seconds(2),
            longest_hold: seconds(6),
            longest_break: millis(20),
            tries: 0.5,
            until: seconds(120),
            network: Network::CALM,
            faults: Faults {
                forget_every: Some(millis(1_700)),
                minority_every: Some(seconds(1)),
                ..Faults::NONE
            },
            ..Self::default()
        }
    }

    /// Nothing goes wrong, and this many clients hold for up to 2 ms.
    pub fn contention(clients: usize, strategy: Strategy, down: Option<usize>) -> Self {
        Self {
            clients,
            tries: 0.0,
            strategy,
            down,
            ttl: seconds(10),
            restart_delay: seconds(10),
            until: seconds(20),
            calm_from: Duration::ZERO,
            longest_hold: millis(2),
            longest_break: millis(2),
            network: Network::CALM,
            faults: Faults::NONE,
            clock_drift: 0.0001,
            date_skew: millis(10),
            ..Self::default()
        }
    }

    /// Nothing goes wrong, and all clients try at once, each a single time.
    pub fn simultaneous_tries(nodes: usize, clients: usize) -> Self {
        Self {
            nodes,
            tries: 1.0,
            longest_break: Duration::ZERO,
            // Longer than anybody asks.
            shortest_hold: seconds(2),
            longest_hold: seconds(2),
            until: Duration::from_micros(1),
            ..Self::contention(clients, Strategy::Adaptive, None)
        }
    }

    /// Clocks run up to 40 % apart, which no lease survives. No data is lost.
    pub fn wild_clocks() -> Self {
        let mut scenario = Self {
            clock_drift: 0.2,
            ..Self::default()
        };
        scenario.faults.forgets = 0.0;
        scenario
    }

    /// The nodes' dates are up to an hour apart, so that a node that forgot may count tokens from far below.
    pub fn hour_apart(forgets: f64) -> Self {
        let mut scenario = Self {
            date_skew: seconds(3600),
            ..Self::default()
        };
        scenario.faults.forgets = forgets;
        scenario
    }

    /// The nodes' dates are up to an hour apart. One node after the other forgets its data. Before the next one does, all nodes
    /// have voted again, some of them late: a single client contends with nobody, and holds until every vote was renewed.
    pub fn one_forgets_at_a_time() -> Self {
        Self {
            clients: 1,
            shortest_hold: seconds(2),
            longest_break: seconds(4),
            // A restored vote adopts the token of the hold.
            reinstall: Reinstall::Never,
            strategy: Strategy::AllAtOnce,
            network: Network {
                late: 0.5,
                latest: millis(200),
                ..Network::CALM
            },
            faults: Faults {
                forget_every: Some(seconds(15)),
                ..Faults::NONE
            },
            ..Self::hour_apart(0.0)
        }
    }
}

/// Half of the TTL, the TTL, twice the TTL. A node that forgot waits for the longest.
fn mixed_ttls(scenario: Scenario) -> Scenario {
    Scenario {
        ttl_shares: &[1.0, 0.5, 2.0],
        restart_delay: seconds(4),
        until: seconds(150),
        ..scenario
    }
}
