//! All cases, by topic.

use crate::case::{Body, Case};
use crate::harness::ServerUse;

mod abandon;
mod adopted_tokens;
mod any_floor;
mod belief;
mod cancel;
mod changing;
mod contention;
mod dead_clients;
mod downgrade;
mod dropping;
mod elections;
mod elections_beside;
mod elections_loss;
mod ending_runtimes;
mod errors;
mod exclusion;
mod expiry;
mod extend;
mod following;
mod guarantees;
mod keeping;
mod list;
mod loss;
mod maximum;
mod minimum;
mod multi;
mod names;
mod outages;
mod passes;
mod passing_on;
mod permits;
mod permits_expiry;
mod permits_waiting;
mod places;
mod readers;
mod readers_expiry;
mod readers_waiting;
mod reentry;
mod release;
mod renewal;
mod revoke;
mod revoke_beside;
mod runtimes;
mod status;
mod status_details;
pub(crate) mod support;
mod tokens;
mod undeclared;
mod upgrade;
mod waiting;

/// The one list of cases: the registry and the tests are both made from it. Each line is its layer, what it does to
/// the server, and the function. `Modes` is the raw layer, of a case that says in which modes it asks. `proves` names the guarantee
/// that a backend keeps only if it passes the case.
#[doc(hidden)]
#[macro_export]
macro_rules! __for_each_case {
    ($made:ident [$($argument:tt)*]) => {
        $crate::$made! { [$($argument)*]
            Raw Shared exclusion::a_second_client_is_refused;
            Raw Shared exclusion::a_client_excludes_itself;
            Raw Shared exclusion::names_are_held_side_by_side;
            Subject Shared exclusion::exclusion_between_tasks;
            Subject Shared exclusion::exclusion_between_clients;
            Subject Shared exclusion::the_first_to_use_a_name_exclude_each_other;
            Subject Shared exclusion::exclusion_between_processes;
            Subject Shared exclusion::another_process_excludes_us;
            Subject Shared exclusion::namespaces_are_separate;
            Subject Shared waiting::a_try_on_a_free_name_succeeds;
            Subject Shared waiting::a_try_on_a_held_name_is_busy_at_once;
            Raw Shared waiting::a_busy_try_leaves_no_place;
            Subject Shared waiting::a_try_after_a_drop_succeeds;
            Subject Shared waiting::a_release_wakes_a_waiter;
            Subject Shared waiting::a_release_wakes_a_waiter_of_the_same_client;
            Subject Shared waiting::a_wait_times_out_naming_the_holder;
            Subject Shared waiting::a_wait_behind_the_own_client_times_out;
            Subject Shared waiting::waits_with_one_limit_all_time_out;
            Subject Shared waiting::a_wait_of_zero_is_one_try;
            Subject Shared waiting::a_timed_out_wait_leaves_nothing;
            Subject Shared waiting::a_wait_for_ever_outlasts_every_ttl;
            Raw Shared waiting::a_waiter_that_gives_up_is_passed_over;
            Raw Shared waiting::a_request_given_up_ends_soon;
            Raw Shared waiting::the_terms_of_the_grant_count;
            Subject Shared waiting::waiters_are_served_in_order proves "fifo";
            Raw Shared expiry::a_silent_clients_hold_ends;
            Raw Shared expiry::belief_counts_from_before_the_request;
            Raw Shared belief::belief_counts_from_before_the_effect;
            Raw Shared belief::belief_in_a_renewal_counts_from_before_its_effect;
            Raw Shared expiry::a_disconnected_clients_hold_ends;
            Raw Shared expiry::a_silent_waiters_place_ends;
            Raw Shared expiry::an_expired_hold_stays_expired;
            Raw Shared expiry::an_expired_hold_is_not_renewed_over_its_successor;
            Raw Shared expiry::an_askers_ttl_does_not_cut_the_holders;
            Subject Shared expiry::a_killed_process_frees_its_lock;
            Raw Shared dead_clients::a_client_that_dies_in_a_request_costs_no_name;
            Subject Shared dead_clients::processes_killed_in_a_request_cost_no_name;
            Subject Shared expiry::a_fixed_lease_ends_by_itself proves "fixed-lease";
            Subject Shared expiry::a_fixed_lease_is_released_early;
            Subject Shared renewal::a_held_lock_is_renewed;
            Raw Shared renewal::a_renewal_keeps_the_hold;
            Raw Shared renewal::belief_in_a_renewal_counts_from_before_it;
            Raw Shared renewal::a_repeated_acquire_is_the_same_grant;
            Raw Shared renewal::a_repeated_acquire_is_released_once;
            Subject Shared renewal::a_short_silence_is_survived;
            Subject Shared renewal::a_slow_line_loses_no_hold;
            Subject Shared renewal::no_renewal_outlives_the_release;
            Raw Shared renewal::a_renewal_after_the_release_does_nothing;
            Subject Shared extend::an_extend_holds_for_longer proves "extend";
            Subject Shared extend::renewals_do_not_undo_an_extend;
            Subject Shared extend::an_extend_is_not_passed_on;
            Raw Shared extend::a_shorter_renewal_changes_nothing;
            Raw Shared extend::an_extend_whose_reply_is_lost_is_not_shortened;
            Subject Shared extend::an_extend_of_a_lost_lock_fails;
            Subject Shared extend::a_fixed_lease_is_not_extended;
            Subject Shared loss::a_lock_taken_away_is_lost;
            Subject Shared loss::the_own_clock_tells_before_another_gets_it;
            Subject Shared loss::a_server_that_goes_is_a_loss_in_the_end;
            Subject Shared loss::a_broken_connection_is_survived_or_told;
            Subject Shared loss::a_late_answer_revives_nothing;
            Subject Shared loss::a_release_is_no_loss;
            Subject Shared loss::a_watch_keeps_nothing_alive;
            Subject Shared loss::work_stops_with_the_lock;
            Subject Shared loss::a_lost_lock_can_be_acquired_again;
            Subject Shared loss::a_paused_process_knows_its_loss;
            Raw Shared loss::a_loss_says_why;
            Raw Shared release::a_release_has_freed_the_name;
            Raw Shared release::an_acquire_follows_a_release;
            Raw Shared release::an_expired_holder_releases_no_successor;
            Raw Shared release::a_robbed_holder_releases_no_successor;
            Raw Shared release::a_second_release_touches_nothing;
            Raw Shared release::a_robbed_holders_release_says_so;
            Subject Shared release::a_release_of_a_lost_lock_is_an_error;
            Subject Shared release::a_release_whose_reply_is_lost_counts;
            Subject Shared release::a_release_that_was_never_sent_is_no_release;
            Subject Shared release::a_try_follows_a_release_that_is_sent_again;
            Subject Shared release::a_release_dropped_half_way_is_finished;
            Raw Shared tokens::tokens_grow_over_a_release;
            Raw Shared tokens::tokens_grow_over_an_expiry;
            Raw Shared tokens::tokens_grow_over_a_taking_away;
            Raw Shared tokens::a_token_is_of_the_grant;
            Subject Shared tokens::tokens_grow_under_contention;
            Raw Shared tokens::a_token_is_above_what_was_asked;
            Raw Shared adopted_tokens::a_token_is_adopted;
            Raw Shared adopted_tokens::a_raised_token_is_remembered;
            Raw Shared adopted_tokens::a_lost_hold_raises_nothing;
            Raw Shared any_floor::a_floor_far_ahead_is_honoured;
            Raw Shared any_floor::a_larger_token_is_adopted_as_it_is;
            Raw Shared any_floor::a_token_that_was_reached_is_not_adopted;
            Raw Shared any_floor::a_raise_leaves_the_hold_as_it_is;
            Raw Shared any_floor::a_former_holder_raises_nothing;
            Modes Shared any_floor::a_raised_readers_token_is_remembered;
            Raw Shared any_floor::without_it_a_raise_is_unsupported;
            Subject Own tokens::tokens_grow_over_a_restart;
            Subject Own tokens::tokens_grow_over_a_loss_of_data proves "durable-tokens";
            Subject Shared cancel::an_acquire_is_dropped_after_every_poll;
            Subject Shared cancel::a_try_is_dropped_after_every_poll;
            Subject Shared cancel::a_wait_is_dropped_after_every_poll;
            Subject Shared cancel::a_wait_is_dropped_while_it_is_granted;
            Subject Shared cancel::an_acquire_is_dropped_before_every_reply;
            Subject Shared cancel::a_dropped_wait_does_not_stop_the_queue;
            Raw Shared cancel::a_request_that_arrives_late_is_undone;
            Raw Shared cancel::nothing_is_undone_that_was_never_sent;
            Raw Shared abandon::an_abandoned_grant_frees_the_name;
            Raw Shared abandon::an_abandon_can_be_repeated;
            Raw Shared abandon::an_abandon_touches_nobody_else;
            Raw Shared abandon::an_abandoned_request_stays_dead;
            Raw Shared abandon::an_unanswered_grant_is_undone;
            Subject Shared dropping::a_dropped_guard_releases;
            Subject Shared dropping::a_dropped_guard_wakes_a_waiter;
            Subject Shared dropping::a_guard_dropped_in_a_panic_releases;
            Subject Shared dropping::a_guard_dropped_outside_a_runtime_releases;
            Subject Shared dropping::a_guard_dropped_during_shutdown_releases;
            Subject Shared dropping::a_shutdown_waits_for_dropped_guards;
            Subject Shared dropping::a_shutdown_refuses_acquires;
            Subject Shared dropping::a_shutdown_ends_waiters;
            Subject Shared runtimes::a_guard_that_outlives_its_runtime_ends;
            Subject Shared runtimes::a_client_outlives_its_runtime;
            Subject Shared runtimes::an_idle_runtime_keeps_nobody_waiting;
            Raw Shared runtimes::an_acquire_dropped_half_way_can_be_repeated;
            Raw Shared runtimes::a_wait_dropped_half_way_can_be_repeated;
            Raw Shared runtimes::a_release_dropped_half_way_can_be_repeated;
            Raw Shared ending_runtimes::a_call_on_an_ending_runtime_returns;
            Raw Shared passes::a_pass_is_the_same_hold;
            Raw Shared passes::tokens_grow_over_passes;
            Raw Shared passes::reserved_tokens_are_nobody_elses;
            Raw Shared passes::a_hold_that_was_passed_on_is_lost_like_any_other;
            Raw Shared passes::an_earlier_holders_renewal_arms_its_own_lease;
            Raw Shared keeping::a_released_name_is_kept;
            Raw Shared keeping::a_name_is_kept_no_longer_than_asked;
            Raw Shared keeping::a_kept_names_holder_is_retired;
            Raw Shared keeping::a_repeated_release_keeps_no_longer;
            Raw Shared keeping::a_kept_name_is_the_first_waiters;
            Subject Shared places::local_waiters_share_one_place;
            Subject Shared places::no_place_outlives_its_waiters;
            Subject Shared places::a_place_outlives_a_timeout;
            Subject Shared places::a_place_outlives_a_cancel;
            Subject Shared places::the_winner_has_its_own_terms;
            Subject Shared places::a_grant_to_one_who_left_is_the_next_ones;
            Subject Shared places::a_grant_to_one_who_left_lasts_for_the_next_one;
            Subject Shared passing_on::passes_are_bounded;
            Subject Shared passing_on::a_loss_after_passes_is_the_last_holders;
            Subject Shared passing_on::a_waiter_is_dropped_during_a_release;
            Subject Shared passing_on::a_release_is_dropped_before_a_waiter;
            Subject Shared passing_on::a_release_whose_reply_is_lost_frees_the_next;
            Subject Shared passing_on::a_waiter_is_dropped_before_a_release_is_answered;
            Subject Shared reentry::a_key_shares_its_hold;
            Subject Shared reentry::a_shared_hold_ends_with_its_last_guard;
            Subject Shared reentry::a_nested_acquire_asks_no_server;
            Subject Shared reentry::a_nested_acquire_while_suspect_is_no_deadlock;
            Subject Shared reentry::two_acquires_with_one_key_are_no_deadlock;
            Subject Shared reentry::another_key_waits;
            Subject Shared reentry::contradicting_options_are_refused;
            Subject Shared reentry::a_lost_hold_is_not_shared;
            Subject Shared minimum::a_minimum_hold_outlasts_its_guard proves "minimum-hold";
            Subject Shared minimum::waiters_wait_out_a_minimum_hold;
            Subject Shared minimum::a_release_answers_before_its_minimum;
            Subject Shared minimum::a_minimum_that_is_over_keeps_nothing;
            Subject Shared minimum::a_minimum_hold_outlasts_its_client;
            Subject Shared minimum::a_minimum_hold_outlasts_its_process;
            Subject Shared maximum::a_hold_that_lasts_too_long_is_lost;
            Subject Shared maximum::a_release_comes_before_the_maximum;
            Subject Shared maximum::a_term_that_lasts_too_long_is_lost;
            Subject Shared maximum::leaders_that_hang_take_turns;
            Modes Shared readers::readers_hold_together proves "shared";
            Modes Shared readers::a_writer_is_alone;
            Modes Shared readers::a_reader_is_refused_beside_a_writer;
            Modes Shared readers::an_exclusive_lock_is_the_write_side;
            Modes Shared readers::the_first_reader_to_leave_frees_nothing;
            Modes Shared readers::a_repeated_shared_acquire_is_one_hold;
            Modes Shared readers::a_shared_abandon_leaves_the_others;
            Modes Shared readers::an_unanswered_reader_is_undone;
            Modes Shared readers::readers_tokens_grow_and_the_writers_is_larger;
            Modes Shared readers::status_names_all_readers;
            Modes Shared readers::a_late_shared_renewal_revives_nothing;
            Modes Shared readers_waiting::the_last_reader_admits_the_writer;
            Modes Shared readers_waiting::waiting_readers_enter_together;
            Modes Shared readers_waiting::a_reader_does_not_pass_a_waiting_writer;
            Modes Shared readers_waiting::a_writer_does_not_pass_waiting_readers;
            Modes Shared readers_waiting::a_writer_gets_in_under_steady_readers;
            Modes Shared readers_waiting::a_waiting_writer_that_leaves_lets_readers_in;
            Modes Shared readers_waiting::a_dead_waiting_writer_does_not_stop_readers;
            Modes Shared readers_expiry::each_reader_ends_by_its_own_ttl;
            Modes Shared readers_expiry::renewing_one_reader_prolongs_no_other;
            Modes Shared readers_expiry::a_renewed_reader_stays;
            Modes Shared readers_expiry::an_expired_reader_stays_expired;
            Modes Shared downgrade::nobody_writes_during_a_downgrade proves "downgrade";
            Modes Shared downgrade::a_downgrade_admits_waiting_readers;
            Modes Shared downgrade::a_lost_hold_is_not_downgraded;
            Modes Shared upgrade::upgradable_is_alone_of_its_kind;
            Modes Shared upgrade::an_upgrade_waits_for_readers_and_passes_writers proves "upgradable";
            Modes Shared upgrade::an_upgrade_without_readers_is_granted;
            Modes Shared upgrade::a_failed_upgrade_keeps_the_read;
            Modes Shared upgrade::an_upgrade_that_was_granted_is_given_back;
            Modes Shared upgrade::an_upgrade_whose_hold_ended_ends;
            Modes Shared upgrade::a_waiting_upgradable_enters_beside_readers;
            Subject Shared changing::a_downgraded_guard_lets_no_writer_in;
            Subject Shared changing::an_upgraded_guard_is_alone;
            Subject Shared changing::a_failed_upgrade_leaves_the_guard_reading;
            Subject Shared multi::all_or_none;
            Subject Shared multi::a_refused_try_leaves_nothing;
            Subject Shared multi::opposite_orders_end;
            Modes Shared permits::never_more_than_the_limit proves "permits";
            Modes Shared permits::several_permits_or_none;
            Modes Shared permits::permits_exclude_other_modes;
            Modes Shared permits::a_limit_binds_who_states_it;
            Modes Shared permits::a_repeat_takes_no_second_permit;
            Modes Shared permits::a_cancelled_acquire_leaves_no_permit;
            Modes Shared permits::tokens_grow_over_permits;
            Modes Shared permits_waiting::a_large_request_is_not_starved;
            Modes Shared permits_waiting::a_small_request_does_not_pass_a_large_one;
            Modes Shared permits_waiting::several_waiters_enter_at_once;
            Modes Shared permits_waiting::a_smaller_limit_is_not_starved;
            Modes Shared permits_waiting::a_waiter_that_leaves_lets_smaller_ones_in;
            Modes Shared permits_expiry::each_permit_expires_by_itself;
            Modes Shared permits_expiry::an_expired_permit_returns_once;
            Modes Shared permits_expiry::a_dead_holders_permits_return;
            Modes Shared permits_expiry::a_renewed_permit_stays;
            Modes Shared undeclared::undeclared_modes_are_refused;
            Modes Shared undeclared::more_than_the_limit_is_misconfigured;
            Subject Shared names::hostile_names_are_names;
            Subject Shared names::near_equal_names_are_distinct;
            Subject Shared names::the_longest_names_are_distinct;
            Subject Shared names::auxiliary_names_are_distinct;
            Subject Shared names::an_empty_name_is_refused;
            Subject Shared names::a_name_of_513_bytes_is_refused;
            Subject Shared errors::a_ttl_of_zero_is_refused;
            Subject Shared errors::a_ttl_too_short_is_refused proves "ttl";
            Subject Shared errors::a_ttl_too_long_is_refused;
            Subject Shared errors::no_server_is_unavailable;
            Raw Shared errors::connecting_says_whether_there_is_a_server;
            Subject Shared errors::a_silent_server_is_unavailable;
            Subject Shared outages::an_outage_is_not_busy;
            Raw Shared outages::a_lost_connection_is_an_error_and_mended;
            Subject Shared outages::a_waiter_outlasts_an_outage;
            Subject Shared outages::a_wait_ends_in_an_outage;
            Subject Shared outages::a_wait_ends_in_a_silence;
            Subject Shared outages::a_server_that_has_gone_is_unavailable;
            Subject Shared outages::a_server_that_has_fallen_silent_is_unavailable;
            Subject Shared outages::a_try_after_an_outage_asks_the_server;
            Subject Shared outages::a_release_in_an_outage_is_told;
            Subject Shared outages::cancelled_acquires_do_not_prolong_an_outage;
            Subject Shared status::a_free_name_has_no_holder;
            Subject Shared status::the_holder_is_shown;
            Raw Shared status::a_status_changes_nothing;
            Raw Shared status::a_busy_answer_names_the_holder;
            Subject Shared status::the_status_of_no_name_is_an_error;
            Raw Shared status_details::each_hold_has_an_id;
            Raw Shared status_details::since_when_it_is_held_is_shown;
            Modes Shared status_details::the_waiters_are_shown_in_order;
            Raw Shared list::names_that_are_held_are_listed;
            Raw Shared list::names_with_a_prefix_are_listed;
            Raw Shared list::hostile_names_are_listed;
            Raw Shared list::pages_under_change_miss_no_held_name;
            Raw Shared list::without_it_a_list_is_unsupported;
            Raw Shared revoke::a_revoked_hold_keeps_the_name_until_its_lease_ends;
            Raw Shared revoke::a_revoked_holder_is_told_with_its_next_renewal;
            Raw Shared revoke::a_hold_that_is_revoked_at_once_frees_the_name;
            Raw Shared revoke::an_old_token_revokes_nothing;
            Raw Shared revoke::a_revoke_can_be_repeated;
            Raw Shared revoke::without_it_a_revoke_is_unsupported;
            Raw Shared revoke_beside::a_revoke_beside_a_renewal_cuts_nothing_off;
            Raw Shared revoke_beside::a_release_after_a_revoke_leaves_the_next_alone;
            Raw Shared revoke_beside::a_revoke_beside_a_release_leaves_the_next_alone;
            Raw Shared revoke_beside::a_hold_that_was_passed_on_is_revoked_by_any_of_its_tokens;
            Modes Shared revoke_beside::a_reader_is_revoked_alone;
            Raw Own guarantees::a_hold_survives_a_crash_of_the_server proves "server-crash";
            Raw Shared guarantees::a_hold_survives_a_broken_connection proves "connection-loss";
            Raw Shared guarantees::a_hold_is_not_evicted_by_other_names proves "no-eviction";
            Subject Shared elections::a_killed_leader_is_followed;
            Subject Shared elections::a_dropped_leader_is_followed;
            Subject Shared elections::whoever_resigns_lets_another_lead;
            Subject Shared elections::terms_grow_and_the_last_one_is_seen;
            Subject Shared elections_loss::a_leader_that_is_cut_off_campaigns_again;
            Subject Shared elections_loss::the_work_of_two_terms_does_not_overlap;
            Subject Shared elections::the_state_of_an_election_is_known;
            Subject Shared elections::a_candidate_that_waited_is_seen;
            Subject Shared elections_beside::a_lock_and_an_election_exclude_each_other;
            Raw Shared following::a_follower_hears_of_each_new_holder;
            Subject Shared contention::a_hundred_tasks_lose_no_update;
            Subject Shared contention::a_turmoil_leaves_nothing;
        }
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __registry {
    ([] $($layer:ident $server:ident $topic:ident :: $case:ident $(proves $guarantee:literal)?;)+) => {
        static CASES: &[Case] = &[$(
            Case {
                name: stringify!($case),
                topic: stringify!($topic),
                server: ServerUse::$server,
                guarantee: proved(&[$($guarantee)?]),
                body: Body::$layer(|cx| Box::pin($topic::$case(cx))),
            }
        ),+];
    };
}

__for_each_case!(__registry []);

/// The id that a line may name.
const fn proved(guarantee: &'static [&'static str]) -> Option<&'static str> {
    match guarantee {
        [] => None,
        [guarantee, ..] => Some(*guarantee),
    }
}

/// Every case of the suite.
pub fn all() -> &'static [Case] {
    CASES
}

/// The case of this name.
pub(crate) fn named(name: &str) -> &'static Case {
    CASES
        .iter()
        .find(|case| case.name == name)
        .unwrap_or_else(|| panic!("there is no case {name:?}: `conformance_tests::cases::all()` has them all"))
}
