//! The acceptance tests that were asked for at the beginning, and where each of them lives now.

use std::fmt;

use self::Home::{Cell, Mutants, Nowhere, Test};
use self::Status::{Ci, Impossible, Long, Open};

/// One acceptance test.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Acceptance {
    pub(crate) number: u8,
    pub(crate) name: &'static str,
    pub(crate) homes: &'static [Home],
    pub(crate) status: Status,
}

/// Where a test lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Home {
    /// A cell of `torture matrix`.
    Cell(&'static str),
    /// A file of the repository, and a function in it.
    Test(&'static str, &'static str),
    /// `torture run --mutant`, each of them.
    Mutants,
    Nowhere,
}

/// Whether it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Status {
    /// In `cargo xtask test`.
    Ci,
    /// In `torture matrix` alone.
    Long,
    /// Not yet; the issue that it waits for.
    Open(&'static str),
    /// Never; why.
    Impossible(&'static str),
}

const fn entry(number: u8, name: &'static str, status: Status, homes: &'static [Home]) -> Acceptance {
    Acceptance {
        number,
        name,
        homes,
        status,
    }
}

const SUITE_LOSS: &str = "conformance-tests/src/cases/loss.rs";
const SUITE_NAMES: &str = "conformance-tests/src/cases/names.rs";
const SUITE_CANCEL: &str = "conformance-tests/src/cases/cancel.rs";
const SUITE_DROPPING: &str = "conformance-tests/src/cases/dropping.rs";
const SUITE_RUNTIMES: &str = "conformance-tests/src/cases/runtimes.rs";
const REDIS_ERRORS: &str = "lock-redis/tests/all/errors.rs";
const REDIS_FAULTS: &str = "lock-redis/tests/all/faults.rs";
const REDIS_LATE: &str = "lock-redis/tests/all/late.rs";
const MYSQL_ERRORS: &str = "lock-mysql/tests/row_lock/errors.rs";
const MYSQL_FAULTS: &str = "lock-mysql/tests/row_lock/faults.rs";
const MYSQL_WAITING: &str = "lock-mysql/tests/row_lock/waiting.rs";
const ZOOKEEPER_FAULTS: &str = "lock-zookeeper/tests/all/faults.rs";

const REDIS_CHECKS: &str = "lock-redis/tests/all/probe.rs";
const REDIS_CLOCK: &str = "lock-redis/tests/all/clock.rs";
const REDIS_HUNG: &str = "lock-redis/tests/all/hung.rs";
const REDIS_PERMISSIONS: &str = "lock-redis/tests/all/permissions.rs";
const ENSEMBLE: &str = "ZooKeeper's own issue: an ensemble in the testbed";

/// All of them, in their order.
pub(crate) const ALL: [Acceptance; 34] = [
    entry(
        1,
        "pause_holder",
        Ci,
        &[
            Cell("redis/stop"),
            Cell("mysql-row/stop"),
            Cell("zookeeper/stop"),
            Test(SUITE_LOSS, "a_paused_process_knows_its_loss"),
        ],
    ),
    entry(
        2,
        "pause_before_write",
        Ci,
        &[Cell("redis/gap"), Cell("mysql-row/gap"), Cell("zookeeper/gap")],
    ),
    entry(
        3,
        "pause_waiter",
        Ci,
        &[
            Cell("redis/waiters-20-of-40"),
            Test(
                REDIS_HUNG,
                "a_live_waiter_behind_stopped_ones_gets_the_name_within_a_refresh_and_a_grace",
            ),
            Cell("redis/stop"),
            Cell("mysql-row/stop"),
            Cell("zookeeper/stop"),
        ],
    ),
    entry(
        4,
        "kill_holder",
        Ci,
        &[Cell("redis/kill"), Cell("mysql-row/kill"), Cell("zookeeper/kill")],
    ),
    entry(
        5,
        "kill_waiter",
        Ci,
        &[Cell("redis/kill"), Cell("mysql-row/kill"), Cell("zookeeper/kill")],
    ),
    entry(
        6,
        "blackhole",
        Long,
        &[Cell("redis/hole"), Cell("mysql-row/hole"), Cell("zookeeper/hole")],
    ),
    entry(
        7,
        "oneway_reply_loss",
        Long,
        &[
            Cell("redis/reply-loss"),
            Cell("redis/oneway"),
            Cell("mysql-row/reply-loss"),
            Cell("zookeeper/reply-loss"),
            Test(REDIS_LATE, "a_grant_whose_answer_was_lost_is_given_again"),
        ],
    ),
    entry(
        8,
        "reset_storm",
        Long,
        &[Cell("redis/reset"), Cell("mysql-row/reset"), Cell("zookeeper/reset")],
    ),
    entry(
        9,
        "delay_150ms",
        Long,
        &[Cell("redis/delay"), Cell("mysql-row/delay"), Cell("zookeeper/delay")],
    ),
    entry(
        10,
        "half_open_mysql",
        Ci,
        &[
            Test(
                MYSQL_FAULTS,
                "cut_off_in_silence_the_hold_is_lost_by_the_clock_and_free_at_the_server",
            ),
            Cell("mysql-row/hole"),
        ],
    ),
    entry(11, "redis_kill9_aof", Long, &[Cell("redis/server-kill")]),
    entry(
        12,
        "redis_kill9_volatile",
        Ci,
        &[
            Cell("redis/server-lose"),
            Test(REDIS_CHECKS, "each_run_of_a_server_is_warned_of_once"),
        ],
    ),
    entry(13, "redis_failover_stale", Long, &[Cell("redis/failover")]),
    entry(
        14,
        "mysqld_kill9",
        Ci,
        &[
            Test(MYSQL_FAULTS, "a_killed_server_is_noticed_and_a_restarted_one_used"),
            Cell("mysql-row/server-kill"),
        ],
    ),
    entry(15, "zk_leader_kill", Open(ENSEMBLE), &[Cell("zookeeper/server-kill")]),
    entry(
        16,
        "zk_session_expiry",
        Ci,
        &[
            Test(ZOOKEEPER_FAULTS, "an_expired_session_is_replaced"),
            Cell("zookeeper/hole"),
        ],
    ),
    entry(17, "server_clock_fwd", Ci, &[Cell("redis/clock")]),
    entry(
        18,
        "server_clock_back",
        Ci,
        &[
            Cell("redis/late-and-killed"),
            Cell("redis/clock-back-for-good"),
            Cell("redis/clock-back"),
            Test(
                REDIS_CLOCK,
                "a_clock_set_back_lengthens_no_hold_and_whoever_asks_shortens_none",
            ),
        ],
    ),
    entry(
        19,
        "client_clock_jump",
        Impossible("leases use the monotonic clock, which nobody can set; no wall clock is read"),
        &[Nowhere],
    ),
    entry(20, "clock_rate", Ci, &[Cell("redis/clock-rate")]),
    entry(
        21,
        "cancel_everywhere",
        Ci,
        &[
            Test(SUITE_CANCEL, "an_acquire_is_dropped_after_every_poll"),
            Test(SUITE_CANCEL, "an_acquire_is_dropped_before_every_reply"),
        ],
    ),
    entry(
        22,
        "runtime_drop",
        Ci,
        &[
            Test(SUITE_RUNTIMES, "a_guard_that_outlives_its_runtime_ends"),
            Test(SUITE_RUNTIMES, "a_client_outlives_its_runtime"),
        ],
    ),
    entry(
        23,
        "panic_holding",
        Ci,
        &[Test(SUITE_DROPPING, "a_guard_dropped_in_a_panic_releases")],
    ),
    entry(
        24,
        "pool_exhausted",
        Ci,
        &[Test(MYSQL_WAITING, "renewals_do_not_wait_for_a_free_connection")],
    ),
    entry(
        25,
        "max_connections",
        Ci,
        &[Test(
            MYSQL_ERRORS,
            "a_full_server_is_unavailable_and_holders_are_not_touched",
        )],
    ),
    entry(
        26,
        "oom_noeviction",
        Ci,
        &[
            Test(REDIS_ERRORS, "out_of_memory_is_unavailable_and_can_still_release"),
            Cell("redis/memory-full"),
        ],
    ),
    entry(
        27,
        "eviction_policy",
        Ci,
        &[
            Test(REDIS_CHECKS, "each_run_of_a_server_is_warned_of_once"),
            Test(REDIS_CHECKS, "settings_may_be_refused"),
        ],
    ),
    entry(
        28,
        "script_flush",
        Ci,
        &[
            Cell("redis/script-flush"),
            Test(REDIS_FAULTS, "a_server_that_forgot_the_scripts_learns_them_again"),
        ],
    ),
    entry(
        29,
        "acl_minimal",
        Ci,
        &[Test(
            REDIS_PERMISSIONS,
            "the_documented_permissions_are_enough_and_all_needed",
        )],
    ),
    entry(
        30,
        "hostile_names",
        Ci,
        &[
            Test(SUITE_NAMES, "hostile_names_are_names"),
            Test(SUITE_NAMES, "near_equal_names_are_distinct"),
        ],
    ),
    entry(
        31,
        "readonly_replica",
        Ci,
        &[
            Test(REDIS_ERRORS, "a_replica_is_unavailable_until_it_is_a_primary"),
            Test(MYSQL_ERRORS, "a_read_only_server_is_unavailable"),
        ],
    ),
    entry(32, "disk_full", Ci, &[Cell("redis/disk-full")]),
    entry(
        33,
        "soak",
        Long,
        &[Cell("redis/all"), Cell("mysql-row/all"), Cell("zookeeper/all")],
    ),
    entry(34, "planted_bugs", Ci, &[Mutants]),
];

impl fmt::Display for Acceptance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:2} {} [{}]", self.number, self.name, self.status)?;
        for home in self.homes {
            write!(f, " {home}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Home {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Cell(name) => write!(f, "cell:{name}"),
            Test(file, name) => write!(f, "test:{file}::{name}"),
            Mutants => write!(f, "mutants"),
            Nowhere => write!(f, "-"),
        }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Ci => write!(f, "ci"),
            Long => write!(f, "long"),
            Open(issue) => write!(f, "open ({issue})"),
            Impossible(reason) => write!(f, "impossible ({reason})"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::matrix::cells;

    /// As they were written down, apart from the list above.
    const ASKED_FOR: &str = "pause_holder pause_before_write pause_waiter kill_holder kill_waiter blackhole \
        oneway_reply_loss reset_storm delay_150ms half_open_mysql redis_kill9_aof redis_kill9_volatile \
        redis_failover_stale mysqld_kill9 zk_leader_kill zk_session_expiry server_clock_fwd server_clock_back \
        client_clock_jump clock_rate cancel_everywhere runtime_drop panic_holding pool_exhausted max_connections \
        oom_noeviction eviction_policy script_flush acl_minimal hostile_names readonly_replica disk_full soak \
        planted_bugs";

    #[test]
    fn all_of_them_are_listed() {
        let listed: Vec<_> = ALL
            .iter()
            .map(|entry| (usize::from(entry.number), entry.name))
            .collect();
        let asked_for: Vec<_> = ASKED_FOR
            .split_whitespace()
            .enumerate()
            .map(|(at, name)| (at + 1, name))
            .collect();
        assert_eq!(listed, asked_for);
    }

    #[test]
    fn every_home_exists() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let cells = cells(false);
        for entry in ALL {
            for home in entry.homes {
                let exists = match home {
                    Cell(name) => cells.iter().any(|cell| cell.name == *name),
                    Test(file, name) => {
                        let source = std::fs::read_to_string(root.join(file)).unwrap_or_default();
                        source.contains(&format!("fn {name}("))
                    }
                    Mutants => true,
                    Nowhere => !matches!(entry.status, Ci | Long),
                };
                assert!(exists, "{entry}: {home} does not exist");
            }
            assert!(!entry.homes.is_empty(), "{entry}");
        }
    }

    #[test]
    fn what_ci_runs_is_a_test_or_in_the_selection() {
        let selection = include_str!("../tests/selection.rs");
        for entry in ALL.iter().filter(|entry| entry.status == Ci) {
            let runs = entry.homes.iter().any(|home| match home {
                Cell(name) => selection.contains(&format!("\"{name}\"")),
                Test(..) | Mutants => true,
                Nowhere => false,
            });
            assert!(runs, "{entry}: no home of it runs in the selection");
        }
    }
}
