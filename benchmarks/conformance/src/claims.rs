//! What a library may claim, and which claims each case needs.

/// Something that a library says of its locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Claim {
    /// A try returns at once.
    Tries,
    /// An acquire waits until the name is free.
    Waits,
    /// A wait ends at a time limit.
    Limits,
    /// A wait can be cancelled.
    Cancels,
    /// Those who wait are served in order.
    Order,
    /// The lock of a client that died or fell silent frees itself.
    Expires,
    /// A hold is renewed as long as its client lives.
    Renews,
    /// A hold can be had that is not renewed.
    Fixed,
    /// A hold can be prolonged by hand.
    Extends,
    /// A holder can ask, or is told, without the server's answer, that its hold is over.
    Clock,
    /// The library says until when a hold lasts, by the client's own clock.
    Valid,
    /// A holder is told that its lock was taken away.
    Loss,
    /// A release says that the lock was not held any more.
    Tells,
    /// A release returns when the server has answered.
    Answers,
    /// Each grant has a fencing token.
    Tokens,
    /// The name is a key of the server's, which may be any text.
    AnyName,
    /// A client that cannot reach the server does not say that the lock is taken, and works again after the outage.
    Outage,
}

use Claim::{
    Answers, AnyName, Cancels, Clock, Expires, Extends, Fixed, Limits, Loss, Order, Outage, Renews, Tells, Tokens,
    Tries, Valid, Waits,
};

impl Claim {
    pub(crate) const ALL: [Self; 17] = [
        Tries, Waits, Limits, Cancels, Order, Expires, Renews, Fixed, Extends, Clock, Valid, Loss, Answers, Tells,
        Tokens, AnyName, Outage,
    ];

    /// What it says, for a table.
    pub(crate) fn says(self) -> &'static str {
        match self {
            Tries => "a try returns at once",
            Waits => "an acquire waits until the name is free",
            Limits => "a wait ends at a time limit",
            Cancels => "a wait can be cancelled",
            Order => "waiters are served in order",
            Expires => "the lock of a client that died or fell silent frees itself",
            Renews => "a hold is renewed as long as its client lives",
            Fixed => "a hold can be had that is not renewed",
            Extends => "a hold can be prolonged by hand",
            Clock => "a holder that is cut off can see that its hold is over",
            Valid => "the library says until when a hold lasts, by the client's clock",
            Loss => "a holder is told that its lock was taken away",
            Answers => "a release returns when the server has answered",
            Tells => "a release says that the lock was not held any more",
            Tokens => "each grant has a fencing token, larger than all before",
            AnyName => "a name is a key of the server's, which may be any text",
            Outage => "a client that cannot reach the server says so, and works again after an outage",
        }
    }
}

/// The cases that are run, with the claims that each needs.
pub(crate) const CASES: &[(&str, &[Claim])] = &[
    ("a_second_client_is_refused", &[Tries]),
    ("a_client_excludes_itself", &[Tries]),
    ("names_are_held_side_by_side", &[Tries]),
    ("exclusion_between_tasks", &[Waits]),
    ("exclusion_between_clients", &[Waits]),
    ("the_first_to_use_a_name_exclude_each_other", &[Waits]),
    ("exclusion_between_processes", &[Waits]),
    ("another_process_excludes_us", &[Waits, Tries]),
    ("a_hundred_tasks_lose_no_update", &[Waits]),
    ("a_try_on_a_free_name_succeeds", &[Tries]),
    ("a_try_on_a_held_name_is_busy_at_once", &[Tries]),
    ("a_release_wakes_a_waiter", &[Waits]),
    ("a_release_wakes_a_waiter_of_the_same_client", &[Waits]),
    ("a_wait_for_ever_outlasts_every_ttl", &[Waits]),
    ("waits_with_one_limit_all_time_out", &[Tries, Limits]),
    ("a_timed_out_wait_leaves_nothing", &[Limits]),
    ("waiters_are_served_in_order", &[Order]),
    ("a_wait_is_dropped_while_it_is_granted", &[Cancels]),
    ("an_acquire_is_dropped_before_every_reply", &[Cancels]),
    ("a_dropped_wait_does_not_stop_the_queue", &[Cancels]),
    ("a_turmoil_leaves_nothing", &[Tries, Limits, Cancels]),
    ("a_killed_process_frees_its_lock", &[Waits, Expires]),
    ("a_disconnected_clients_hold_ends", &[Expires]),
    ("an_askers_ttl_does_not_cut_the_holders", &[Waits, Tries, Expires]),
    (
        "processes_killed_in_a_request_cost_no_name",
        &[Waits, Tries, Limits, Expires],
    ),
    ("a_fixed_lease_is_released_early", &[Tries, Fixed]),
    ("a_held_lock_is_renewed", &[Waits, Renews]),
    ("a_short_silence_is_survived", &[Tries, Renews]),
    ("no_renewal_outlives_the_release", &[Waits, Renews, Answers]),
    ("a_renewal_keeps_the_hold", &[Tries, Extends]),
    ("a_renewal_after_the_release_does_nothing", &[Tries, Extends]),
    ("an_expired_hold_stays_expired", &[Expires, Extends]),
    (
        "an_expired_hold_is_not_renewed_over_its_successor",
        &[Waits, Expires, Extends],
    ),
    ("an_extend_of_a_lost_lock_fails", &[Extends]),
    ("a_silent_clients_hold_ends", &[Waits, Expires, Valid]),
    ("the_own_clock_tells_before_another_gets_it", &[Waits, Expires, Clock]),
    ("a_server_that_goes_is_a_loss_in_the_end", &[Expires, Clock]),
    ("a_paused_process_knows_its_loss", &[Waits, Expires, Clock, Tells]),
    ("a_lock_taken_away_is_lost", &[Loss]),
    ("work_stops_with_the_lock", &[Loss]),
    ("a_lost_lock_can_be_acquired_again", &[Waits, Expires, Loss]),
    ("a_release_has_freed_the_name", &[Tries, Answers]),
    ("an_expired_holder_releases_no_successor", &[Waits, Expires, Tells]),
    ("a_robbed_holder_releases_no_successor", &[Waits, Tells]),
    ("a_robbed_holders_release_says_so", &[Tells]),
    ("a_second_release_touches_nothing", &[Waits, Tries]),
    ("tokens_grow_over_a_release", &[Tokens]),
    ("tokens_grow_over_an_expiry", &[Tokens, Waits, Expires]),
    ("tokens_grow_over_a_taking_away", &[Tokens]),
    ("tokens_grow_under_contention", &[Tokens, Waits]),
    ("tokens_grow_over_a_restart", &[Tokens, Waits]),
    ("hostile_names_are_names", &[Tries, AnyName]),
    ("near_equal_names_are_distinct", &[Tries, AnyName]),
    ("an_outage_is_not_busy", &[Tries, Outage]),
    ("a_release_in_an_outage_is_told", &[Waits, Expires, Outage]),
];

#[cfg(test)]
mod tests {
    use conformance_tests::cases;

    use super::*;

    #[test]
    fn each_case_is_one_of_the_suite_and_is_there_once() {
        let names: Vec<&str> = CASES.iter().map(|(name, _)| *name).collect();
        for (at, name) in names.iter().enumerate() {
            assert!(cases::all().iter().any(|case| case.name == *name), "{name}");
            assert!(!names[..at].contains(name), "{name} is there twice");
        }
    }
}
