//! The mutants of modes, of several locks at once, and of elections.

/// Calls `made` with the mutants given, and with those of this file.
#[doc(hidden)]
#[macro_export]
macro_rules! __with_mode_mutants {
    ($made:ident $($others:tt)*) => {
        $crate::$made! {
            $($others)*
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
            /// An observer loses the leader's value, which the status shows.
            mutant_observer_loses_the_value ObserverLosesTheValue terms_grow_and_the_last_one_is_seen;
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
            /// A list shows all names in one page, however many it is asked for.
            mutant_list_has_one_page ListHasOnePage pages_under_change_miss_no_held_name;
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
