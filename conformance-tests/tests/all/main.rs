//! The suite on every backend here, and the suite's proof of itself.

use conformance_tests::{__for_each_mutant, WriteSide, conformance};

#[cfg(unix)]
use harness::file::FileHarness;
use harness::memory::MemoryHarness;
use harness::mysql_lease::LeaseTableHarness;
use harness::mysql_row::{Hostile, MySql9, MySql9Hostile, OverTls as MySqlOverTls, OwnMariaDb, RowLockHarness};
use harness::postgres::{
    Hostile as PostgresHostile, Hosts, OverTls as PostgresOverTls, OwnPostgres, Pooled, PooledListening,
    PooledSessions, Postgres18, PostgresHarness, Sessions, Sessions18,
};
use harness::quorum::{Dead, QuorumHarness, QuorumOfMemory};
use harness::redis::{LeastPrivilege, OverTls, Own, Redis8, RedisHarness, Second, Third, Valkey9};
use harness::redis_cluster::ClusterHarness;
use harness::redis_replicas::ReplicasHarness;
use harness::redis_sentinel::SentinelHarness;
use harness::zookeeper::{LeastAcl, OverTls as ZooKeeperOverTls, Standalone, Standalone39, Three, ZooKeeperHarness};

mod guarantees;
mod harness;
mod mutants;
mod rules;

conformance!(memory, MemoryHarness);
conformance!(one_permit memory_permit, MemoryHarness);
conformance!(subject memory_write, WriteSide<MemoryHarness>);
// All the work of such a backend is done in its clients' processes. Its mutants show what the cases for that are worth.
#[cfg(unix)]
conformance!(
    only [
        a_second_client_is_refused
        exclusion_between_processes
        belief_counts_from_before_the_effect
        belief_in_a_renewal_counts_from_before_its_effect
        a_client_that_dies_in_a_request_costs_no_name
        processes_killed_in_a_request_cost_no_name
        a_killed_process_frees_its_lock
        a_held_lock_is_renewed
        tokens_grow_over_an_expiry
    ] file,
    FileHarness
);
conformance!(quorum_memory, QuorumOfMemory);
conformance!(
    quorum_redis,
    QuorumHarness<RedisHarness<Own>, RedisHarness<Second>, RedisHarness<Third>>
);
// The cases that depend on how many nodes answer, and when.
conformance!(
    only [
        a_second_client_is_refused
        exclusion_between_clients
        exclusion_between_processes
        a_release_wakes_a_waiter
        a_wait_times_out_naming_the_holder
        a_timed_out_wait_leaves_nothing
        a_waiter_that_gives_up_is_passed_over
        a_request_given_up_ends_soon
        a_killed_process_frees_its_lock
        a_held_lock_is_renewed
        a_repeated_acquire_is_the_same_grant
        a_lock_taken_away_is_lost
        a_release_has_freed_the_name
        an_acquire_follows_a_release
        a_release_of_a_lost_lock_is_an_error
        a_release_whose_reply_is_lost_counts
        a_release_dropped_half_way_is_finished
        tokens_grow_over_a_release
        tokens_grow_over_an_expiry
        tokens_grow_under_contention
        tokens_grow_over_a_restart
        tokens_grow_over_a_loss_of_data
        an_acquire_is_dropped_after_every_poll
        a_try_is_dropped_after_every_poll
        a_wait_is_dropped_after_every_poll
        a_wait_is_dropped_while_it_is_granted
        an_acquire_is_dropped_before_every_reply
        a_dropped_wait_does_not_stop_the_queue
        a_request_that_arrives_late_is_undone
        an_abandoned_grant_frees_the_name
        an_abandon_touches_nobody_else
        an_abandoned_request_stays_dead
        an_unanswered_grant_is_undone
        a_dropped_guard_releases
        a_shutdown_waits_for_dropped_guards
        a_client_outlives_its_runtime
        the_last_reader_admits_the_writer
        an_outage_is_not_busy
        a_lost_connection_is_an_error_and_mended
        a_waiter_outlasts_an_outage
        a_wait_ends_in_an_outage
        a_release_in_an_outage_is_told
        a_hundred_tasks_lose_no_update
        a_turmoil_leaves_nothing
    ] quorum_one_dead,
    QuorumHarness<RedisHarness<Own>, Dead, RedisHarness<Third>>
);
// Leases and sessions in one quorum, and tokens that count something else at each node.
conformance!(
    only [
        a_second_client_is_refused
        exclusion_between_tasks
        exclusion_between_clients
        exclusion_between_processes
        another_process_excludes_us
        a_try_on_a_held_name_is_busy_at_once
        a_release_wakes_a_waiter
        a_wait_times_out_naming_the_holder
        a_timed_out_wait_leaves_nothing
        a_waiter_that_gives_up_is_passed_over
        a_request_given_up_ends_soon
        a_silent_clients_hold_ends
        an_expired_hold_is_not_renewed_over_its_successor
        a_killed_process_frees_its_lock
        a_held_lock_is_renewed
        a_renewal_keeps_the_hold
        a_repeated_acquire_is_the_same_grant
        a_slow_line_loses_no_hold
        a_lock_taken_away_is_lost
        a_server_that_goes_is_a_loss_in_the_end
        a_paused_process_knows_its_loss
        a_release_has_freed_the_name
        an_acquire_follows_a_release
        a_robbed_holder_releases_no_successor
        a_release_of_a_lost_lock_is_an_error
        a_release_whose_reply_is_lost_counts
        a_release_that_was_never_sent_is_no_release
        a_release_dropped_half_way_is_finished
        tokens_grow_over_a_release
        tokens_grow_over_an_expiry
        tokens_grow_over_a_taking_away
        tokens_grow_under_contention
        a_token_is_above_what_was_asked
        a_floor_far_ahead_is_honoured
        tokens_grow_over_a_restart
        an_acquire_is_dropped_after_every_poll
        a_wait_is_dropped_while_it_is_granted
        an_acquire_is_dropped_before_every_reply
        a_request_that_arrives_late_is_undone
        nothing_is_undone_that_was_never_sent
        an_abandoned_grant_frees_the_name
        an_unanswered_grant_is_undone
        a_dropped_guard_releases
        a_shutdown_waits_for_dropped_guards
        a_client_outlives_its_runtime
        readers_hold_together
        a_writer_is_alone
        readers_tokens_grow_and_the_writers_is_larger
        status_names_all_readers
        the_last_reader_admits_the_writer
        a_ttl_too_short_is_refused
        an_outage_is_not_busy
        a_lost_connection_is_an_error_and_mended
        a_waiter_outlasts_an_outage
        a_turmoil_leaves_nothing
    ] quorum_mixed,
    QuorumHarness<RedisHarness<Own>, ZooKeeperHarness<Standalone>, RedisHarness<Second>>
);
// The cases that depend on the kind of the nodes.
conformance!(
    only [
        exclusion_between_processes
        a_release_wakes_a_waiter
        a_killed_process_frees_its_lock
        a_held_lock_is_renewed
        a_lock_taken_away_is_lost
        a_release_whose_reply_is_lost_counts
        tokens_grow_over_an_expiry
        tokens_grow_under_contention
        a_token_is_above_what_was_asked
        an_acquire_is_dropped_after_every_poll
        a_request_that_arrives_late_is_undone
        readers_hold_together
        an_outage_is_not_busy
        a_waiter_outlasts_an_outage
        a_turmoil_leaves_nothing
    ] quorum_mysql,
    QuorumHarness<LeaseTableHarness<OwnMariaDb>, LeaseTableHarness<Hostile>, LeaseTableHarness<MySql9Hostile>>
);
conformance!(
    only [
        exclusion_between_processes
        a_release_wakes_a_waiter
        a_killed_process_frees_its_lock
        a_held_lock_is_renewed
        a_lock_taken_away_is_lost
        a_release_whose_reply_is_lost_counts
        tokens_grow_over_an_expiry
        tokens_grow_under_contention
        a_token_is_above_what_was_asked
        an_acquire_is_dropped_after_every_poll
        a_request_that_arrives_late_is_undone
        readers_hold_together
        an_outage_is_not_busy
        a_waiter_outlasts_an_outage
        a_turmoil_leaves_nothing
    ] quorum_postgres,
    QuorumHarness<PostgresHarness<PostgresHostile>, RedisHarness<Own>, LeaseTableHarness<OwnMariaDb>>
);
conformance!(redis, RedisHarness<Own>);
conformance!(one_permit redis_permit, RedisHarness<Own>);
conformance!(redis_acl, RedisHarness<LeastPrivilege>);
conformance!(redis_tls, RedisHarness<OverTls>);
conformance!(redis_cluster, ClusterHarness);
// The cases of acknowledged requests, also for a user with the least permissions, and of names with and without a hash
// tag.
conformance!(
    only [
        a_second_client_is_refused
        exclusion_between_processes
        a_release_wakes_a_waiter
        a_waiter_that_gives_up_is_passed_over
        a_killed_process_frees_its_lock
        a_held_lock_is_renewed
        a_renewal_keeps_the_hold
        a_repeated_acquire_is_the_same_grant
        an_extend_holds_for_longer
        a_lock_taken_away_is_lost
        a_release_whose_reply_is_lost_counts
        a_raised_token_is_remembered
        an_acquire_is_dropped_after_every_poll
        a_request_that_arrives_late_is_undone
        an_unanswered_grant_is_undone
        a_shutdown_waits_for_dropped_guards
        a_client_outlives_its_runtime
        a_pass_is_the_same_hold
        reserved_tokens_are_nobody_elses
        a_released_name_is_kept
        readers_hold_together
        the_last_reader_admits_the_writer
        nobody_writes_during_a_downgrade
        an_upgrade_without_readers_is_granted
        never_more_than_the_limit
        auxiliary_names_are_distinct
        an_outage_is_not_busy
        a_lost_connection_is_an_error_and_mended
    ] redis_replicas,
    ReplicasHarness
);
conformance!(redis8, RedisHarness<Redis8>);
conformance!(valkey9, RedisHarness<Valkey9>);
// The cases that depend on the connection. Everything else is the same as on one Redis.
conformance!(
    only [
        a_second_client_is_refused
        exclusion_between_processes
        a_release_wakes_a_waiter
        waiters_are_served_in_order
        a_waiter_that_gives_up_is_passed_over
        a_killed_process_frees_its_lock
        a_held_lock_is_renewed
        a_lock_taken_away_is_lost
        a_release_whose_reply_is_lost_counts
        tokens_grow_over_a_restart
        an_acquire_is_dropped_after_every_poll
        a_request_that_arrives_late_is_undone
        an_unanswered_grant_is_undone
        nothing_is_undone_that_was_never_sent
        a_shutdown_waits_for_dropped_guards
        a_client_outlives_its_runtime
        no_server_is_unavailable
        a_server_that_has_gone_is_unavailable
        an_outage_is_not_busy
        a_lost_connection_is_an_error_and_mended
        a_waiter_outlasts_an_outage
        a_wait_ends_in_an_outage
        a_try_after_an_outage_asks_the_server
        a_turmoil_leaves_nothing
    ] redis_sentinel,
    SentinelHarness
);
conformance!(mysql_row, RowLockHarness<OwnMariaDb>);
conformance!(mysql_row_tls, RowLockHarness<MySqlOverTls>);
conformance!(mysql9_row, RowLockHarness<MySql9>);
conformance!(mysql_row_hostile, RowLockHarness<Hostile>);
conformance!(mysql9_row_hostile, RowLockHarness<MySql9Hostile>);
conformance!(mysql_lease, LeaseTableHarness<OwnMariaDb>);
conformance!(mysql9_lease_hostile, LeaseTableHarness<MySql9Hostile>);
conformance!(one_permit mysql_lease_permit, LeaseTableHarness<Hostile>);
conformance!(postgres, PostgresHarness<OwnPostgres>);
conformance!(postgres_pgbouncer, PostgresHarness<Pooled>);
conformance!(postgres18, PostgresHarness<Postgres18>);
conformance!(postgres_hostile, PostgresHarness<PostgresHostile>);
conformance!(one_permit postgres_permit, PostgresHarness<PostgresHostile>);
// The cases that depend on the connection.
conformance!(
    only [
        a_second_client_is_refused
        exclusion_between_processes
        a_release_wakes_a_waiter
        a_waiter_that_gives_up_is_passed_over
        a_killed_process_frees_its_lock
        a_held_lock_is_renewed
        a_slow_line_loses_no_hold
        a_release_whose_reply_is_lost_counts
        an_acquire_is_dropped_after_every_poll
        a_request_that_arrives_late_is_undone
        a_shutdown_waits_for_dropped_guards
        a_client_outlives_its_runtime
        a_server_that_has_gone_is_unavailable
        an_outage_is_not_busy
        a_lost_connection_is_an_error_and_mended
        a_waiter_outlasts_an_outage
        a_wait_ends_in_an_outage
        a_turmoil_leaves_nothing
    ] postgres_tls,
    PostgresHarness<PostgresOverTls>
);
conformance!(postgres_session, PostgresHarness<Sessions>);
conformance!(postgres18_session, PostgresHarness<Sessions18>);
// The cases that depend on the node that is called, and on the next host.
conformance!(
    only [
        a_second_client_is_refused
        exclusion_between_processes
        a_release_wakes_a_waiter
        a_waiter_that_gives_up_is_passed_over
        a_killed_process_frees_its_lock
        a_held_lock_is_renewed
        a_slow_line_loses_no_hold
        a_release_whose_reply_is_lost_counts
        an_acquire_is_dropped_after_every_poll
        a_request_that_arrives_late_is_undone
        a_shutdown_waits_for_dropped_guards
        a_client_outlives_its_runtime
        a_server_that_has_gone_is_unavailable
        an_outage_is_not_busy
        a_lost_connection_is_an_error_and_mended
        a_waiter_outlasts_an_outage
        a_wait_ends_in_an_outage
        a_turmoil_leaves_nothing
    ] postgres_listen,
    PostgresHarness<PooledListening>
);
conformance!(
    only [
        a_second_client_is_refused
        exclusion_between_processes
        a_release_wakes_a_waiter
        a_waiter_that_gives_up_is_passed_over
        a_killed_process_frees_its_lock
        a_held_lock_is_renewed
        a_slow_line_loses_no_hold
        a_release_whose_reply_is_lost_counts
        an_acquire_is_dropped_after_every_poll
        a_request_that_arrives_late_is_undone
        a_shutdown_waits_for_dropped_guards
        a_client_outlives_its_runtime
        a_server_that_has_gone_is_unavailable
        an_outage_is_not_busy
        a_lost_connection_is_an_error_and_mended
        a_waiter_outlasts_an_outage
        a_wait_ends_in_an_outage
        a_turmoil_leaves_nothing
    ] postgres_hosts,
    PostgresHarness<Hosts>
);
// A pooler that gives each client a connection of its own: what depends on the connection and its end.
conformance!(
    only [
        a_second_client_is_refused
        exclusion_between_processes
        a_release_wakes_a_waiter
        a_waiter_that_gives_up_is_passed_over
        a_killed_process_frees_its_lock
        a_held_lock_is_renewed
        a_lock_taken_away_is_lost
        an_acquire_is_dropped_after_every_poll
        a_shutdown_waits_for_dropped_guards
        a_lost_connection_is_an_error_and_mended
        a_waiter_outlasts_an_outage
    ] postgres_session_pgbouncer,
    PostgresHarness<PooledSessions>
);
conformance!(zookeeper, ZooKeeperHarness<Standalone>);
conformance!(zookeeper39, ZooKeeperHarness<Standalone39>);
conformance!(zookeeper_ensemble, ZooKeeperHarness<Three>);
conformance!(zookeeper_acl, ZooKeeperHarness<LeastAcl>);
conformance!(zookeeper_tls, ZooKeeperHarness<ZooKeeperOverTls>);
conformance!(one_permit zookeeper_permit, ZooKeeperHarness<Standalone>);

__for_each_mutant!(__mutant_tests);
