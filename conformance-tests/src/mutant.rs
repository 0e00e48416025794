//! The mutants: each is the [reference](crate::reference) with one deliberate bug, most of them bugs that a real library
//! has or had.

/// The one list of mutants: the test's name, the mutant, and the case that catches it.
#[doc(hidden)]
#[macro_export]
macro_rules! __for_each_mutant {
    ($made:ident) => {
        $crate::$made! {
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
            /// Names are folded to lower case (distributed-lock-mysql 0.2, MySQL's `GET_LOCK` and collations).
            mutant_names_folded NamesFolded near_equal_names_are_distinct;
            /// Names end at their first NUL (MariaDB's `GET_LOCK`).
            mutant_names_cut_at_nul NamesCutAtNul hostile_names_are_names;
            /// Names are cut to the length that the server can keep.
            mutant_names_shortened NamesShortened the_longest_names_are_distinct;
            /// What is kept beside a name is kept under what may be a name itself.
            mutant_names_meet_auxiliary_keys NamesMeetAuxiliaryKeys auxiliary_names_are_distinct;
            /// A request without an answer counts as busy.
            mutant_unknown_is_busy UnknownIsBusy an_outage_is_not_busy;
            /// Nothing undoes an acquire that was cut short: its grant stays until its ttl is over.
            mutant_abandon_does_nothing AbandonDoesNothing an_abandoned_grant_frees_the_name;
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

            /// The mode is ignored: a reader is alone, as a writer is.
            mutant_mode_ignored ModeIgnored readers_hold_together;
            /// A writer gets in beside readers (distributed-lock-redis 0.2: the readers are counted, and then the key is set).
            mutant_writer_beside_readers WriterBesideReaders a_writer_is_alone;
            /// A reader gets in beside a writer (distributed-lock-mysql 0.2: it looks on another connection).
            mutant_reader_beside_a_writer ReaderBesideAWriter a_reader_is_refused_beside_a_writer;
            /// The first reader to leave frees the name (Redisson #891).
            mutant_first_reader_frees_the_name FirstReaderFreesTheName the_first_reader_to_leave_frees_nothing;
            /// A reader's renewal prolongs the name, and not the reader's own hold (Redisson #1604).
            mutant_renewal_prolongs_the_name_alone RenewalProlongsTheNameAlone a_renewed_reader_stays;
            /// A live reader's renewal prolongs a dead one's hold (Redisson PR #7098).
            mutant_renewal_prolongs_all_readers RenewalProlongsAllReaders renewing_one_reader_prolongs_no_other;
            /// The name has one expiry for all its readers: a dead one's hold lasts as long as the last one's.
            mutant_readers_expire_together ReadersExpireTogether each_reader_ends_by_its_own_ttl;
            /// A reader's renewal after its release makes it a holder again.
            mutant_late_renewal_brings_a_reader_back LateRenewalBringsAReaderBack a_late_shared_renewal_revives_nothing;
            /// A reader that asks again holds the name twice.
            mutant_repeated_reader_is_another RepeatedReaderIsAnother a_repeated_shared_acquire_is_one_hold;
            /// The abandon of one reader ends all.
            mutant_abandon_ends_all_readers AbandonEndsAllReaders a_shared_abandon_leaves_the_others;
            /// A reader that comes to others gets the token of one of them.
            mutant_readers_share_a_token ReadersShareAToken readers_tokens_grow_and_the_writers_is_larger;
            /// The status shows the first holder alone.
            mutant_status_shows_one_reader StatusShowsOneReader status_names_all_readers;
            /// Readers that waited for a writer enter one after another (Redisson #1542).
            mutant_readers_take_turns ReadersTakeTurns waiting_readers_enter_together;
            /// A release wakes none of the waiting readers (Redisson #3891).
            mutant_waiting_readers_are_not_woken WaitingReadersAreNotWoken waiting_readers_enter_together;
            /// Readers enter as long as readers hold the name, whoever waits: a writer starves.
            mutant_readers_pass_writers ReadersPassWriters a_writer_gets_in_under_steady_readers;
            /// A reader waits for the writers behind it, which wait for it (kazoo #649).
            mutant_readers_heed_writers_behind ReadersHeedWritersBehind a_writer_does_not_pass_waiting_readers;
            /// A waiter that leaves the queue wakes nobody behind it.
            mutant_leaving_waiter_wakes_nobody LeavingWaiterWakesNobody a_waiting_writer_that_leaves_lets_readers_in;
            /// The queue entry of a writer stays when its client has died.
            mutant_dead_writer_stops_readers DeadWriterStopsReaders a_dead_waiting_writer_does_not_stop_readers;

            /// A downgrade is a release and then an acquire, between which a writer gets in (CURATOR-276, CURATOR-621).
            mutant_downgrade_lets_a_writer_in DowngradeLetsAWriterIn nobody_writes_during_a_downgrade;
            /// A downgrade wakes none of the waiting readers.
            mutant_downgrade_wakes_nobody DowngradeWakesNobody a_downgrade_admits_waiting_readers;
            /// A downgrade of what was lost is an acquire.
            mutant_downgrade_of_a_lost_hold DowngradeOfALostHold a_lost_hold_is_not_downgraded;
            /// Two readers may both upgrade: each waits for the other one.
            mutant_two_upgraders TwoUpgraders upgradable_is_alone_of_its_kind;
            /// An upgrade does not wait for the readers.
            mutant_upgrade_beside_readers UpgradeBesideReaders a_failed_upgrade_keeps_the_read;
            /// An upgrade queues behind the writers, which wait for the hold that is to be upgraded.
            mutant_upgrade_queues_behind_writers UpgradeQueuesBehindWriters
                an_upgrade_waits_for_readers_and_passes_writers;
            /// An upgrade leaves the hold that it replaces.
            mutant_upgrade_leaves_the_read UpgradeLeavesTheRead an_upgrade_waits_for_readers_and_passes_writers;
            /// The abandon of an upgrade ends the hold that it was to replace.
            mutant_abandoned_upgrade_ends_the_read AbandonedUpgradeEndsTheRead a_failed_upgrade_keeps_the_read;
            /// The abandon of an upgrade that was granted ends it, and the hold that it replaced is gone.
            mutant_undone_upgrade_ends_the_read UndoneUpgradeEndsTheRead an_upgrade_that_was_granted_is_given_back;
            /// An upgrade waits on when the hold that it replaces has ended.
            mutant_upgrade_waits_for_ever UpgradeWaitsForEver an_upgrade_whose_hold_ended_ends;

            /// A guard is downgraded by a release and an acquire of its client.
            mutant_guard_downgrades_by_a_release GuardDowngradesByARelease a_downgraded_guard_lets_no_writer_in;
            /// A guard calls itself the writer without asking the server.
            mutant_upgrade_asks_nobody UpgradeAsksNobody an_upgraded_guard_is_alone;
            /// An upgrade that fails releases what was held.
            mutant_failed_upgrade_releases FailedUpgradeReleases a_failed_upgrade_leaves_the_guard_reading;
            /// Several locks are acquired in the caller's order (Redisson #1160).
            mutant_several_in_the_callers_order SeveralInTheCallersOrder opposite_orders_end;
            /// An acquire of several that times out keeps those that it had (Redisson #4456).
            mutant_timed_out_keeps_a_part TimedOutKeepsAPart all_or_none;
            /// A refused try for several keeps those that it had.
            mutant_refused_try_keeps_a_part RefusedTryKeepsAPart a_refused_try_leaves_nothing;

            /// A leader that resigns passes the lock on to its own next request.
            mutant_resigner_leads_on ResignerLeadsOn whoever_resigns_lets_another_lead;
            /// The work of a term goes on when the term is lost (client-go: the next leader starts while the callback of the
            /// former one runs).
            mutant_terms_overlap TermsOverlap the_work_of_two_terms_does_not_overlap;
            /// A leader that cannot reach the server takes itself for the leader still (CURATOR-460).
            mutant_cut_off_leader_leads_on CutOffLeaderLeadsOn a_leader_that_is_cut_off_campaigns_again;
            /// An observer tells of a leader again that it told of before the latest one.
            mutant_observer_goes_back ObserverGoesBack terms_grow_and_the_last_one_is_seen;
            /// An observer tells of a leader when the next one has come.
            mutant_observer_misses_the_last ObserverMissesTheLast terms_grow_and_the_last_one_is_seen;
            /// The status shows no token while others wait for the name.
            mutant_waiters_hide_the_token WaitersHideTheToken a_candidate_that_waited_is_seen;
            /// A change that was declared is never reported.
            mutant_change_is_not_reported ChangeIsNotReported a_follower_hears_of_each_new_holder;
            /// Of several who follow a name, the last one hears of a change.
            mutant_last_follower_alone LastFollowerAlone a_follower_hears_of_each_new_holder;
            /// Terms have no maximum, whatever was asked for: a leader that hangs leads for ever.
            mutant_term_maximum_ignored TermMaximumIgnored a_term_that_lasts_too_long_is_lost;
            /// A leader whose term has lasted for its maximum passes it on to its own next request.
            mutant_term_maximum_elects_again TermMaximumElectsAgain leaders_that_hang_take_turns;
            /// An election has a name of its own at the server.
            mutant_election_beside_its_lock ElectionBesideItsLock a_lock_and_an_election_exclude_each_other;
            /// A server that does not answer is taken for one that says that nobody leads.
            mutant_outage_is_an_election OutageIsAnElection the_state_of_an_election_is_known;

            /// The client counts the permits and then takes one (kazoo #213): two of them take the last one.
            mutant_permits_counted_by_the_client PermitsCountedByTheClient never_more_than_the_limit;
            /// Holders are counted instead of permits.
            mutant_permits_count_holders PermitsCountHolders several_permits_or_none;
            /// Permits are counted apart from readers and writers.
            mutant_permits_beside_other_modes PermitsBesideOtherModes permits_exclude_other_modes;
            /// The status shows the waiters in another order than that of the queue.
            mutant_waiters_in_no_order WaitersInNoOrder the_waiters_are_shown_in_order;
            /// The status shows the same id for all holds of a name.
            mutant_status_shows_one_id StatusShowsOneId each_hold_has_an_id;
            /// A list goes on after so many names: when an earlier one is freed, it leaves one out.
            mutant_list_counts_names ListCountsNames pages_under_change_miss_no_held_name;
            /// A list shows every name that was ever held.
            mutant_list_shows_free_names ListShowsFreeNames names_that_are_held_are_listed;
            /// A list takes a prefix for any part of a name, as a pattern with `%` or `*` before it does.
            mutant_list_takes_a_prefix_for_a_part ListTakesAPrefixForAPart names_with_a_prefix_are_listed;
            /// A list drops the last name of each full page.
            mutant_list_drops_the_last_of_a_page ListDropsTheLastOfAPage names_that_are_held_are_listed;
            /// A list shows names as they stand at the server, escaped.
            mutant_list_shows_escaped_names ListShowsEscapedNames hostile_names_are_listed;
            /// A revoke ends whatever hold there is (`DEL`, Redisson's `forceUnlock`), whatever its token.
            mutant_revoke_without_token RevokeWithoutToken an_old_token_revokes_nothing;
            /// A revoke takes any token up to that of the hold.
            mutant_revoke_takes_lower_tokens RevokeTakesLowerTokens an_old_token_revokes_nothing;
            /// A revoke at the lease's end frees the name at once.
            mutant_revoke_frees_at_once RevokeFreesAtOnce
                a_revoked_hold_keeps_the_name_until_its_lease_ends;
            /// A revoke at the lease's end only marks the hold, whose renewals go on.
            mutant_revoked_hold_is_renewed RevokedHoldIsRenewed a_revoked_holder_is_told_with_its_next_renewal;
            /// A revoke knows the token of a grant, and not those that were reserved with it.
            mutant_revoke_knows_no_passes RevokeKnowsNoPasses
                a_hold_that_was_passed_on_is_revoked_by_any_of_its_tokens;
            /// A revoke reads the end of the hold and writes it back by a second request: it cuts off a renewal in between.
            mutant_revoke_writes_what_it_read RevokeWritesWhatItRead a_revoke_beside_a_renewal_cuts_nothing_off;
            /// A revoke of one reader ends all of them.
            mutant_revoke_ends_all_readers RevokeEndsAllReaders a_reader_is_revoked_alone;
            /// The name stays taken after a revoke at once, until the lease would have ended.
            mutant_revoke_now_waits RevokeNowWaits a_hold_that_is_revoked_at_once_frees_the_name;
            /// A revoked hold has no token any more, so that nobody can free the name for good.
            mutant_revoked_hold_has_no_token RevokedHoldHasNoToken a_revoke_can_be_repeated;
            /// The former holder's late release ends the next one's hold.
            mutant_revoked_holder_releases_the_next RevokedHolderReleasesTheNext
                a_release_after_a_revoke_leaves_the_next_alone;
            /// The largest limit that anybody has stated counts for all.
            mutant_holders_limit_counts HoldersLimitCounts a_limit_binds_who_states_it;
            /// A request that is repeated takes its permits once more.
            mutant_repeat_takes_a_second_permit RepeatTakesASecondPermit a_repeat_takes_no_second_permit;
            /// A cancelled acquire leaves its permit (CURATOR-462, CURATOR-315).
            mutant_abandon_leaves_the_permit AbandonLeavesThePermit a_cancelled_acquire_leaves_no_permit;
            /// Whoever asks when there are permits enough gets them: a request for many starves.
            mutant_small_requests_pass_large_ones SmallRequestsPassLargeOnes a_large_request_is_not_starved;
            /// Several permits come back, and one waiter is woken (Redisson #6664).
            mutant_one_waiter_for_all_permits OneWaiterForAllPermits several_waiters_enter_at_once;
            /// The semaphore has one expiry for all its permits.
            mutant_permits_expire_together PermitsExpireTogether each_permit_expires_by_itself;
            /// An expired permit comes back, and once more with its holder's late release (Redisson #4086).
            mutant_expired_permit_returns_twice ExpiredPermitReturnsTwice an_expired_permit_returns_once;
            /// Permits are a plain counter: those of a dead holder never come back.
            mutant_permits_never_expire PermitsNeverExpire a_dead_holders_permits_return;
        }
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __mutants {
    ($($(#[$doc:meta])* $test:ident $mutant:ident $case:ident;)+) => {
        /// A deliberate bug: the one place in which a backend or subject differs from the reference.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum Mutant {
            $($(#[$doc])* $mutant,)+
        }

        impl Mutant {
            /// Every mutant.
            pub const ALL: &[Self] = &[$(Self::$mutant),+];

            /// The name of its test.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$mutant => stringify!($test),)+
                }
            }

            /// The case that must fail by an assertion of its own.
            pub fn caught_by(self) -> &'static str {
                match self {
                    $(Self::$mutant => stringify!($case),)+
                }
            }
        }
    };
}

/// Makes every mutant a `#[test]` of its own name, which passes when the suite catches it.
#[doc(hidden)]
#[macro_export]
macro_rules! __mutant_tests {
    ($($(#[$doc:meta])* $test:ident $mutant:ident $case:ident;)+) => {
        $(
            #[test]
            fn $test() {
                $crate::mutants::assert_caught($crate::mutants::Mutant::$mutant);
            }
        )+
    };
}

__for_each_mutant!(__mutants);
