//! The mutants: each is the [reference](crate::reference) with one deliberate bug, most of them bugs that a real library
//! has or had.

mod made;
mod modes;

/// The one list of mutants: the test's name, the mutant, and the case that catches it. `modes.rs` has the
/// second half.
#[doc(hidden)]
#[macro_export]
macro_rules! __for_each_mutant {
    ($made:ident) => {
        $crate::__with_mode_mutants! { $made
            /// The lease of a grant counts from its reply instead of its request (async-redis-lock 0.4): a late reply
            /// makes two believers.
            mutant_grant_counts_from_the_reply GrantCountsFromTheReply belief_counts_from_before_the_request;
            /// The lease of a renewal does.
            mutant_renewal_counts_from_the_reply RenewalCountsFromTheReply belief_in_a_renewal_counts_from_before_it;
            /// A backend in this process takes the moment of sending when its own work is done: it calls `sending` in time, and
            /// arms the lease from a later moment.
            mutant_grant_counts_from_its_effect GrantCountsFromItsEffect belief_counts_from_before_the_effect;
            /// Its renewals do.
            mutant_renewal_counts_from_its_effect RenewalCountsFromItsEffect
                belief_in_a_renewal_counts_from_before_its_effect;
            /// A hold gets its expiry by a second request (`SETNX`, then `EXPIRE`): a client that dies in between has it for ever.
            mutant_expiry_by_a_second_request ExpiryByASecondRequest a_client_that_dies_in_a_request_costs_no_name;
            /// Whoever asks takes the name's state away and writes it back by a second request: a client that dies in between
            /// ends the hold of somebody else.
            mutant_state_written_back StateWrittenBack a_client_that_dies_in_a_request_costs_no_name;
            /// A repeated acquire is answered as granted, but its ttl still runs from the first one.
            mutant_repeat_rearms_nothing RepeatRearmsNothing a_repeated_acquire_is_the_same_grant;
            /// Each try of a request has an id of its own, so that a retry after a lost reply waits for itself.
            mutant_holder_id_per_try HolderIdPerTry a_repeated_acquire_is_released_once;
            /// One holder id for all acquisitions of a client (distributed-lock-redis 0.2: one per lock object), so
            /// that two of its tasks hold the same lock.
            mutant_holder_id_per_client HolderIdPerClient a_client_excludes_itself;
            /// A renewal sets the end of the hold instead of moving it forward: it undoes an extend.
            mutant_renewal_shortens RenewalShortens a_shorter_renewal_changes_nothing;
            /// Whoever asks cuts the holder's ttl to its own, as a careless repair after a clock step does.
            mutant_askers_ttl_cuts_the_holders AskersTtlCutsTheHolders an_askers_ttl_does_not_cut_the_holders;
            /// A release deletes the key without comparing its holder (dist_lock 0.0.1: bare `DEL`).
            mutant_release_without_compare ReleaseWithoutCompare an_expired_holder_releases_no_successor;
            /// An abandon does.
            mutant_abandon_without_compare AbandonWithoutCompare an_abandon_touches_nobody_else;
            /// A renewal is a bare `SET` (dist_lock 0.0.1: `SET XX`), which creates what was released.
            mutant_renewal_brings_back RenewalBringsBack a_renewal_after_the_release_does_nothing;
            /// A renewal after the end of a hold prolongs it, if nobody else has taken the name by then.
            mutant_expired_hold_extended ExpiredHoldExtended an_expired_hold_stays_expired;
            /// The token counter is in memory only: a restart hands out the same tokens again.
            mutant_counter_lost_at_restart CounterLostAtRestart tokens_grow_over_a_restart;
            /// Tokens are counted without a clock, and the backend declares that they outlast the server's data.
            mutant_tokens_without_a_clock TokensWithoutAClock tokens_grow_over_a_loss_of_data;
            /// The harness does not restart its server.
            mutant_restart_does_nothing RestartDoesNothing tokens_grow_over_a_loss_of_data;
            /// The server cuts an extend to the TTL of the hold, though it is declared.
            mutant_extend_is_cut ExtendIsCut an_extend_holds_for_longer;
            /// A fixed lease is renewed, as where a session renews all holds, though it is declared.
            mutant_fixed_lease_is_renewed FixedLeaseIsRenewed a_fixed_lease_ends_by_itself;
            /// A TTL that is too short is taken, and a longer one kept.
            mutant_short_ttl_is_taken ShortTtlIsTaken a_ttl_too_short_is_refused;
            /// Holds are in memory only, and the backend says that they survive a crash.
            mutant_holds_lost_at_restart HoldsLostAtRestart a_hold_survives_a_crash_of_the_server;
            /// A hold ends with its connection, and the backend says that it survives it.
            mutant_hold_ends_with_its_connection HoldEndsWithItsConnection a_hold_survives_a_broken_connection;
            /// A lock of a session ends with the server, and its client notices. The backend says that it survives a crash.
            mutant_session_ends_with_the_server SessionEndsWithTheServer a_hold_survives_a_crash_of_the_server;
            /// A lock of a session ends with its connection, and its client notices. The backend says that it survives it.
            mutant_session_ends_with_its_connection SessionEndsWithItsConnection a_hold_survives_a_broken_connection;
            /// The status of a name that nobody holds leaves out how many wait, though it is known of other names.
            mutant_free_name_counts_nobody FreeNameCountsNobody a_free_name_has_no_holder;
            /// The server keeps a few names, as a cache does, and the backend says that it evicts none.
            mutant_oldest_name_is_evicted OldestNameIsEvicted a_hold_is_not_evicted_by_other_names;
            /// The token counter is deleted with the hold (dlock 0.2): every hold has token 1.
            mutant_counter_deleted_with_the_hold CounterDeletedWithTheHold tokens_grow_over_a_release;
            /// The token is taken when a request first asks, not when it is granted.
            mutant_token_of_the_first_asking TokenOfTheFirstAsking a_token_is_of_the_grant;
            /// A request's token floor is left out.
            mutant_floor_ignored FloorIgnored a_token_is_above_what_was_asked;
            /// A token floor counts for its own grant alone: the next ones go on from the counter.
            mutant_floor_counts_once FloorCountsOnce a_token_is_above_what_was_asked;
            /// Ttl and label are those with which a request began to wait.
            mutant_terms_of_the_first_asking TermsOfTheFirstAsking the_terms_of_the_grant_count;
            /// Ttl and label are read again when the grant is there, so that core takes them for those that were sent.
            mutant_terms_read_after_the_answer TermsReadAfterTheAnswer a_grant_to_one_who_left_lasts_for_the_next_one;
            /// Names are folded to lower case (distributed-lock-mysql 0.2, MySQL's `GET_LOCK` and collations).
            mutant_names_folded NamesFolded near_equal_names_are_distinct;
            /// Names end at their first NUL (MariaDB's `GET_LOCK`).
            mutant_names_cut_at_nul NamesCutAtNul hostile_names_are_names;
            /// Names are cut to the length that the server can keep.
            mutant_names_shortened NamesShortened the_longest_names_are_distinct;
            /// The server keeps data beside a name under a key that may be a name itself.
            mutant_names_meet_auxiliary_keys NamesMeetAuxiliaryKeys auxiliary_names_are_distinct;
            /// A request without an answer counts as busy.
            mutant_unknown_is_busy UnknownIsBusy an_outage_is_not_busy;
            /// Nothing undoes an acquire that was cut short: its grant stays until its ttl is over.
            mutant_abandon_does_nothing AbandonDoesNothing an_abandoned_grant_frees_the_name;
            /// A hold is known from the acquire's answer alone: the abandon of an unanswered acquire does nothing, and says that it is done.
            mutant_unanswered_is_not_undone UnansweredIsNotUndone an_unanswered_grant_is_undone;
            /// An abandoned request that arrives late is granted.
            mutant_abandoned_ids_come_back AbandonedIdsComeBack an_abandoned_request_stays_dead;
            /// A release of what was lost says that it was released (etcd's and others' idempotent unlock).
            mutant_release_never_says_lost ReleaseNeverSaysLost a_robbed_holders_release_says_so;
            /// A release wakes nobody: who waits looks again when the holder's ttl would have been over.
            mutant_release_wakes_nobody ReleaseWakesNobody a_waiter_that_gives_up_is_passed_over;
            /// Only a release wakes: when a holder dies, everybody sleeps on.
            mutant_nobody_looks_after_an_expiry NobodyLooksAfterAnExpiry a_silent_clients_hold_ends;
            /// Whoever asks when it is free has it, however long others have waited, though order is declared.
            mutant_newcomers_come_first NewcomersComeFirst waiters_are_served_in_order;

            /// A renewal that is not answered within a sixth of its ttl counts as failed, though its answer comes.
            mutant_renewal_given_up_early RenewalGivenUpEarly a_slow_line_loses_no_hold;
            /// A request counts as sent, and as executed, from its answer on: without an answer it is never undone.
            mutant_sent_at_its_answer SentAtItsAnswer an_acquire_is_dropped_before_every_reply;
            /// A request counts as sent before there is a connection to send it over.
            mutant_sending_without_a_connection SendingWithoutAConnection nothing_is_undone_that_was_never_sent;
            /// A dropped acquire counts as under way for ever, so that nobody can repeat it.
            mutant_dropped_acquire_is_under_way DroppedAcquireIsUnderWay an_acquire_dropped_half_way_can_be_repeated;
            /// An abandon connects in a task, and spawns another one whenever the runtime drops it (lock-postgres, before it had this case).
            mutant_connects_without_end ConnectsWithoutEnd a_call_on_an_ending_runtime_returns;
            /// While a waiter's connection is down, its caller still gets the server's last word: the name is taken.
            mutant_outage_is_not_reported OutageIsNotReported a_wait_ends_in_an_outage;
            /// A renewal that fails is repeated by the backend itself, which tells nobody why it failed.
            mutant_renewal_error_is_dropped RenewalErrorIsDropped a_loss_says_why;
            /// Cancelled acquires are undone one by one, and new ones wait for that.
            mutant_undos_come_first UndosComeFirst cancelled_acquires_do_not_prolong_an_outage;
            /// For a while after each failed connect, requests fail without asking.
            mutant_fails_without_asking FailsWithoutAsking a_try_after_an_outage_asks_the_server;
            /// A release that was never sent counts as one whose answer got lost.
            mutant_refusal_is_unknown RefusalIsUnknown a_release_that_was_never_sent_is_no_release;
            /// A release whose answer got lost counts as one that was never sent.
            mutant_unknown_is_not_executed UnknownIsNotExecuted a_release_whose_reply_is_lost_counts;
            /// A release is sent a little after its first poll, though order is declared.
            mutant_release_is_sent_late ReleaseIsSentLate an_acquire_follows_a_release;
            /// A release is answered when it is sent, and repeated behind its caller's back if it has to be.
            mutant_release_is_not_awaited ReleaseIsNotAwaited a_try_follows_a_release_that_is_sent_again;

            /// A request that adopts a token gets the next of the name.
            mutant_adopted_token_ignored AdoptedTokenIgnored a_token_is_adopted;
            /// A raised token is answered and not kept.
            mutant_raised_token_forgotten RaisedTokenForgotten a_raised_token_is_remembered;
            /// A token to adopt is taken for a floor: the grant's token is above it.
            mutant_adoption_is_a_floor AdoptionIsAFloor a_larger_token_is_adopted_as_it_is;
            /// A token to adopt is granted as it is, though the name had larger ones.
            mutant_adoption_goes_back AdoptionGoesBack a_token_that_was_reached_is_not_adopted;
            /// A token that is adopted is at least the server's clock.
            mutant_adoption_heeds_the_clock AdoptionHeedsTheClock a_token_that_was_reached_is_not_adopted;
            /// A raise sets the counter, even to a smaller token.
            mutant_raise_lowers RaiseLowers a_raised_token_is_remembered;
            /// A raise ends the hold, as one that writes its record anew without an expiry may.
            mutant_raise_ends_the_hold RaiseEndsTheHold a_raise_leaves_the_hold_as_it_is;
            /// A raise of a lost hold is an error, and has raised the token all the same.
            mutant_refused_raise_takes_effect RefusedRaiseTakesEffect a_former_holder_raises_nothing;
            /// The token of a name is raised by anybody who held it once.
            mutant_lost_hold_raises LostHoldRaises a_lost_hold_raises_nothing;

            /// A pass that nobody declared.
            mutant_pass_undeclared PassUndeclared a_pass_is_the_same_hold;
            /// A pass changes nothing, so that both holders have the same token.
            mutant_pass_keeps_the_token PassKeepsTheToken tokens_grow_over_passes;
            /// A grant reserves no tokens for its passes.
            mutant_pass_reserves_nothing PassReservesNothing reserved_tokens_are_nobody_elses;
            /// A renewal of what was passed on never says that it was lost.
            mutant_passed_hold_is_never_lost PassedHoldIsNeverLost a_hold_that_was_passed_on_is_lost_like_any_other;
            /// A renewal arms the lease of whoever has the hold now.
            mutant_renewal_arms_the_next_lease RenewalArmsTheNextLease an_earlier_holders_renewal_arms_its_own_lease;
            /// A grant lasts for as long as the hold before it would have, also where that was extended.
            mutant_grant_keeps_the_end GrantKeepsTheEnd an_extend_is_not_passed_on;
            /// A release frees the name at once, whatever it was to be kept for.
            mutant_keep_for_ignored KeepForIgnored a_released_name_is_kept;
            /// A kept name ends with its ttl at the latest: the key's expiry is left as it is.
            mutant_keep_for_cannot_prolong KeepForCannotProlong a_released_name_is_kept;
            /// A kept name ends with its ttl at the earliest: expiry moves forward only, even here.
            mutant_keep_for_cannot_shorten KeepForCannotShorten a_name_is_kept_no_longer_than_asked;
            /// A kept name is still its holder's.
            mutant_kept_id_lives_on KeptIdLivesOn a_kept_names_holder_is_retired;
            /// A release that is repeated after a lost reply keeps the name anew.
            mutant_repeated_release_keeps_anew RepeatedReleaseKeepsAnew a_repeated_release_keeps_no_longer;

            /// A bounded wait tries once and gives up (distributed-lock-redis 0.2).
            mutant_wait_gives_up_at_once WaitGivesUpAtOnce a_wait_times_out_naming_the_holder;
            /// A timeout does not say who has the lock.
            mutant_timeout_names_nobody TimeoutNamesNobody a_wait_behind_the_own_client_times_out;
            /// An acquire that its caller dropped is granted all the same, and nobody releases it (zookeeper-client's
            /// recipe with Curator's names).
            mutant_orphan_after_cancel OrphanAfterCancel an_acquire_is_dropped_after_every_poll;
            /// Nothing is renewed (rslock and others leave it to the user).
            mutant_no_renewal NoRenewal a_held_lock_is_renewed;
            /// The loss of a lock is never told (distributed-lock-redis 0.2, once its renewal task has died).
            mutant_lost_never_fires LostNeverFires a_lock_taken_away_is_lost;
            /// A release is told as a loss (distributed-lock-mysql 0.2, distributed-lock-postgres: the sender is dropped).
            mutant_lost_fires_on_release LostFiresOnRelease a_release_is_no_loss;
            /// A lost lock is held again when the server answers again.
            mutant_late_answer_revives LateAnswerRevives a_late_answer_revives_nothing;
            /// Work under a lock goes on after its loss (dlock 0.2: `with`).
            mutant_work_goes_on_after_the_loss WorkGoesOnAfterTheLoss work_stops_with_the_lock;
            /// Releasing what was lost is no error.
            mutant_loss_is_no_error LossIsNoError a_release_of_a_lost_lock_is_an_error;
            /// A dropped guard leaves its key (distributed-lock-mysql 0.2's rw lock).
            mutant_drop_leaves_the_key DropLeavesTheKey a_dropped_guard_releases;
            /// Dropping a guard spawns its release, which panics outside a runtime.
            mutant_drop_spawns DropSpawns a_guard_dropped_outside_a_runtime_releases;
            /// A try waits a little, as one that polls does.
            mutant_try_waits TryWaits a_try_on_a_held_name_is_busy_at_once;
            /// Any failure is told as a timeout.
            mutant_every_error_is_a_timeout EveryErrorIsATimeout no_server_is_unavailable;
            /// Once its server has answered, an outage is told as a timeout.
            mutant_outage_is_a_timeout OutageIsATimeout a_server_that_has_gone_is_unavailable;
            /// A waiter whose time is up right after another one's, before the server has answered it, is told of an outage.
            mutant_late_waiter_is_an_outage LateWaiterIsAnOutage waits_with_one_limit_all_time_out;
            /// An outage is told without what caused it.
            mutant_outage_without_a_cause OutageWithoutACause a_server_that_has_gone_is_unavailable;
            /// An acquire with no time to wait does not ask.
            mutant_wait_of_zero_asks_nobody WaitOfZeroAsksNobody a_wait_of_zero_is_one_try;
            /// All of a client's work is done on the runtime that first used it, whether anybody drives that or not.
            mutant_stays_on_its_first_runtime StaysOnItsFirstRuntime an_idle_runtime_keeps_nobody_waiting;
            /// A waiter ends with the first request that fails.
            mutant_waiter_ends_in_an_outage WaiterEndsInAnOutage a_waiter_outlasts_an_outage;
            /// A shutdown does not wait for the releases of dropped guards.
            mutant_shutdown_waits_for_nothing ShutdownWaitsForNothing a_shutdown_refuses_acquires;
            /// A release that is dropped half-way is forgotten.
            mutant_dropped_release_is_forgotten DroppedReleaseIsForgotten a_release_is_dropped_before_a_waiter;

            /// Each waiter has an entry of its own at the server (Curator's recipe: a node for each thread).
            mutant_place_for_each_waiter PlaceForEachWaiter local_waiters_share_one_place;
            /// The waiters' place goes with the one who took it.
            mutant_place_goes_with_its_first_waiter PlaceGoesWithItsFirstWaiter a_place_outlives_a_cancel;
            /// Those who share a place get the terms of the one who took it.
            mutant_terms_of_the_first_waiter TermsOfTheFirstWaiter the_winner_has_its_own_terms;
            /// A lock stays within a client as long as anybody wants it there.
            mutant_passes_without_end PassesWithoutEnd passes_are_bounded;

            /// There is no re-entry: the holder's key waits for itself.
            mutant_key_waits_for_itself KeyWaitsForItself a_key_shares_its_hold;
            /// The first release ends what all share.
            mutant_first_release_ends_all FirstReleaseEndsAll a_shared_hold_ends_with_its_last_guard;
            /// A nested acquire asks the server whether the hold still stands.
            mutant_nested_acquire_asks_the_server NestedAcquireAsksTheServer a_nested_acquire_asks_no_server;
            /// Only what is surely held is shared.
            mutant_suspect_is_not_shared SuspectIsNotShared a_nested_acquire_while_suspect_is_no_deadlock;
            /// The key is looked up when an acquire begins, and not again when its turn comes.
            mutant_key_is_looked_up_once KeyIsLookedUpOnce two_acquires_with_one_key_are_no_deadlock;
            /// Re-entry is by client instead of by key.
            mutant_any_key_will_do AnyKeyWillDo another_key_waits;
            /// A nested acquire gets what there is, whatever it asked for.
            mutant_contradiction_accepted ContradictionAccepted contradicting_options_are_refused;
            /// A key shares its hold even after that was lost.
            mutant_lost_hold_is_shared LostHoldIsShared a_lost_hold_is_not_shared;

            /// A minimum hold that the backend cannot keep is left out instead of refused.
            mutant_minimum_not_refused MinimumNotRefused a_minimum_hold_outlasts_its_guard;
            /// A minimum hold is the client's own matter: it puts the release off, and when it dies nobody does.
            mutant_minimum_dies_with_its_client MinimumDiesWithItsClient a_minimum_hold_outlasts_its_client;
            /// A release waits until the minimum hold is over.
            mutant_release_waits_for_its_minimum ReleaseWaitsForItsMinimum a_release_answers_before_its_minimum;
            /// A name is kept for the minimum from its release on, instead of from its acquire.
            mutant_minimum_counts_from_the_release MinimumCountsFromTheRelease a_minimum_that_is_over_keeps_nothing;

            /// A hung holder keeps the name for ever (RedLock.net #68), whatever maximum it asked for.
            mutant_maximum_ignored MaximumIgnored a_hold_that_lasts_too_long_is_lost;
            /// A maximum hold is a timer of its holder's alone: the name is renewed on.
            mutant_maximum_frees_nothing MaximumFreesNothing a_hold_that_lasts_too_long_is_lost;
            /// The timer of a maximum hold goes on after the release, and ends the next hold of its client.
            mutant_maximum_outlives_its_hold MaximumOutlivesItsHold a_release_comes_before_the_maximum;
        }
    };
}

__for_each_mutant!(__mutants);
