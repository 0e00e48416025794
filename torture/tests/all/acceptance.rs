//! The acceptance tests of the design, and where each of them lives.

use std::path::Path;
use std::process::Command;

/// A line is the test's number and name, when it runs, and where it lives.
///
/// It runs in `ci` (`cargo xtask test`), in a `long` run (`torture matrix`), or not at all: `open` and `impossible` say
/// why behind a dash. It lives in a cell of the matrix (`backend/fault`), in a test or case (`crate::function`), or in
/// all `mutants` of `torture run`.
const ACCEPTANCE: &str = "
 1 pause_holder ci redis/stop mysql-row/stop zookeeper/stop conformance-tests::a_paused_process_knows_its_loss
 2 pause_before_write ci redis/gap mysql-row/gap zookeeper/gap
 3 pause_waiter ci redis/waiters-20-of-40 redis/stop mysql-row/stop mysql-row/stopped-3-of-8 mysql-lease/stopped-3-of-8 \
   zookeeper/stop \
   lock-redis::a_live_waiter_behind_stopped_ones_gets_the_name_within_a_refresh_and_a_grace
 4 kill_holder ci redis/kill mysql-row/kill zookeeper/kill
 5 kill_waiter ci redis/kill mysql-row/kill zookeeper/kill
 6 blackhole long redis/hole mysql-row/hole zookeeper/hole
 7 oneway_reply_loss long redis/reply-loss redis/oneway mysql-row/reply-loss zookeeper/reply-loss \
   lock-redis::a_grant_whose_answer_was_lost_is_given_again
 8 reset_storm long redis/reset mysql-row/reset zookeeper/reset
 9 delay_150ms long redis/delay mysql-row/delay zookeeper/delay
10 half_open_mysql ci mysql-row/hole mysql-lease/hole \
   lock-mysql::silent_waiters_delay_a_row_lock_by_a_ttl_each_at_most \
   lock-mysql::silent_waiters_delay_a_lease_by_a_ttl_each_at_most \
   lock-mysql::cut_off_in_silence_the_hold_is_lost_by_the_clock_and_free_at_the_server
11 redis_kill9_aof long redis/server-kill
12 redis_kill9_volatile ci redis/server-lose lock-redis::each_run_of_a_server_is_warned_of_once
13 redis_failover_stale ci redis/failover redis-sentinel/stale-replica-acknowledged redis-cluster/stale-replica-delayed \
   lock-redis::a_promoted_replica_waits_and_has_live_holds_put_back
14 mysqld_kill9 ci mysql-row/server-kill mysql-lease/server-kill postgres-lease/server-kill \
   lock-mysql::a_killed_server_is_noticed_and_a_restarted_one_used
15 zk_leader_kill ci zookeeper-ensemble/leader-kill lock-zookeeper::a_hold_and_a_place_survive_the_end_of_the_leader
16 zk_session_expiry ci zookeeper/hole lock-zookeeper::an_expired_session_is_replaced
17 server_clock_fwd ci redis/clock mysql-lease/clock \
   lock-mysql::no_hold_ends_early_or_late_when_the_time_zone_changes_its_offset
18 server_clock_back ci mysql-lease/clock-back-for-good postgres-lease/clock-back-for-good redis/late-and-killed redis/clock-back-for-good redis/clock-back \
   lock-redis::a_clock_set_back_lengthens_no_hold_and_whoever_asks_shortens_none
19 client_clock_jump impossible - leases use the monotonic clock, which nobody can set; no wall clock is read
20 clock_rate ci redis/clock-rate mysql-lease/clock-rate postgres-lease/clock-rate
21 cancel_everywhere ci conformance-tests::an_acquire_is_dropped_after_every_poll \
   conformance-tests::an_acquire_is_dropped_before_every_reply
22 runtime_drop ci conformance-tests::a_guard_that_outlives_its_runtime_ends \
   conformance-tests::a_client_outlives_its_runtime
23 panic_holding ci conformance-tests::a_guard_dropped_in_a_panic_releases
24 pool_exhausted ci lock-mysql::renewals_do_not_wait_for_a_free_connection
25 max_connections ci lock-mysql::a_full_server_is_unavailable_and_holders_are_not_touched
26 oom_noeviction ci redis/memory-full lock-redis::out_of_memory_is_unavailable_and_can_still_release
27 eviction_policy ci lock-redis::each_run_of_a_server_is_warned_of_once lock-redis::settings_may_be_refused
28 script_flush ci redis/script-flush lock-redis::a_server_that_forgot_the_scripts_learns_them_again
29 acl_minimal ci lock-redis::the_documented_permissions_are_enough_and_all_needed
30 hostile_names ci conformance-tests::hostile_names_are_names conformance-tests::near_equal_names_are_distinct
31 readonly_replica ci lock-redis::a_replica_is_unavailable_until_it_is_a_primary \
   lock-mysql::a_read_only_server_is_unavailable
32 disk_full ci redis/disk-full mysql-row/disk-full mysql-lease/disk-full \
   lock-mysql::a_full_disk_refuses_new_names_of_row_locks_and_loses_nothing \
   lock-mysql::a_full_disk_refuses_new_names_of_leases_and_loses_nothing \
   lock-postgres::a_full_disk_refuses_new_names_of_leases_and_loses_nothing \
   lock-postgres::leases_survive_a_server_that_crashes_for_want_of_disk
33 soak long redis/all mysql-row/all mysql-lease/all zookeeper/all
34 planted_bugs ci mutants
";

#[test]
fn every_acceptance_test_lives_where_it_is_said_to() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let (cells, selection) = (cells(), include_str!("selection.rs"));
    for (number, line) in ACCEPTANCE.trim().lines().enumerate() {
        let (line, reason) = line.split_once(" - ").unwrap_or((line, ""));
        let words: Vec<&str> = line.split_whitespace().collect();
        assert_eq!(words[0], (number + 1).to_string(), "{line}");
        let (status, homes) = (words[2], &words[3..]);
        for home in homes {
            let exists = match home.split_once("::") {
                Some((krate, function)) => sources(&root.join(krate)).contains(&format!("fn {function}(")),
                None => *home == "mutants" || cells.lines().any(|cell| cell == *home),
            };
            assert!(exists, "{line}: there is no {home}");
        }
        let in_selection = |home: &str| !home.contains('/') || selection.contains(&format!("\"{home}\""));
        match status {
            "ci" => assert!(
                homes.iter().any(|home| in_selection(home)),
                "{line}: no home of it runs"
            ),
            "long" => assert!(!homes.is_empty(), "{line}"),
            "open" | "impossible" => assert!(!reason.is_empty(), "{line}: why?"),
            _ => panic!("{line}: what is {status}?"),
        }
    }
    assert_eq!(ACCEPTANCE.trim().lines().count(), 34);
}

#[test]
fn the_rows_of_the_page_are_cells() {
    let (cells, page) = (cells(), include_str!("../../../docs/torture.md"));
    let rows = page
        .lines()
        .filter_map(|line| line.strip_prefix("| ")?.split_once(" (seed "));
    let mut count = 0;
    for (row, _) in rows {
        assert!(
            cells.lines().any(|cell| cell == row),
            "docs/torture.md: there is no cell {row}"
        );
        count += 1;
    }
    assert!(count > 40, "{count} rows");
}

/// The names of all cells of the matrix.
fn cells() -> String {
    let mut torture = Command::new(env!("CARGO_BIN_EXE_torture"));
    let output = torture.args(["matrix", "--list"]).output().expect("it can be started");
    String::from_utf8(output.stdout).expect("names of cells are text")
}

/// All Rust sources of a crate, one after the other.
fn sources(dir: &Path) -> String {
    let mut all = String::new();
    for entry in dir.read_dir().expect("a folder of the workspace") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            all += &sources(&path);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            all += &std::fs::read_to_string(&path).expect("a source file");
        }
    }
    all
}
