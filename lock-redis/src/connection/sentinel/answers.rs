//! Finds the master from the answers of the Sentinels.

use std::collections::HashMap;

use lock_core::{Error, ErrorKind, Result};

use crate::config::hosts::Address;

/// The server that a Sentinel names as the master.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Named {
    pub(super) address: Address,
    /// Each failover has a larger one. `None`: the Sentinel does not say it.
    pub(super) epoch: Option<u64>,
}

/// The answers of the Sentinels.
pub(super) struct Answers {
    /// Counts how often all Sentinels were to be asked.
    pub(super) round: u64,
    /// The last answer of each, and in which round it came.
    pub(super) of: Vec<Option<(u64, Result<Named>)>>,
    /// The master that was chosen last, and in which round.
    pub(super) chosen: Option<(u64, Named)>,
}

/// Why no master can be chosen.
enum Tie {
    NobodyKnows,
    Disagree,
    Outdated,
}

impl Answers {
    pub(super) fn new(sentinels: usize) -> Self {
        Self {
            round: 0,
            of: vec![None; sentinels],
            chosen: None,
        }
    }

    /// True if another master than the last one has to be chosen.
    pub(super) fn have_moved(&self) -> bool {
        let (round, chosen) = match &self.chosen {
            Some((round, chosen)) => (*round, Some(chosen)),
            None => (0, None),
        };
        let Ok(named) = self.winner(round) else { return false };
        chosen.is_none_or(|chosen| {
            named.address != chosen.address
                && match (named.epoch, chosen.epoch) {
                    // With the same epoch it is the same server, if perhaps written in another way. With an earlier one it is
                    // what a Sentinel says that has not heard of the last failover.
                    (Some(named), Some(chosen)) => named > chosen,
                    (named, chosen) => named.is_none() || named != chosen,
                }
        })
    }

    /// True if any Sentinel has named a master in this round, or all have failed to.
    pub(super) fn have_begun(&self, round: u64) -> bool {
        self.are_complete(round) || self.of_round(round).any(|answer| answer.is_ok())
    }

    /// True if all Sentinels have answered in this round, or failed to.
    pub(super) fn are_complete(&self, round: u64) -> bool {
        self.of_round(round).count() == self.of.len()
    }

    /// The master, by the answers of this round: the one that those of the latest epoch name. If that is earlier than the epoch
    /// of the last choice, most Sentinels must have answered: they were set up anew. A few have not heard of the last failover,
    /// and would lead back to the former master, which may still serve.
    ///
    /// # Errors
    /// Says what to do.
    pub(super) fn decide(&self, master: &str, round: u64) -> Result<Named> {
        self.winner(round).cloned().map_err(|tie| match tie {
            Tie::NobodyKnows => self.failure(master, round),
            Tie::Disagree => Error::new(
                ErrorKind::Unavailable,
                format!(
                    "the Sentinels do not agree on the master {master}: a failover may be under way, else give each of them \
                     the same `sentinel monitor`"
                ),
            ),
            Tie::Outdated => Error::new(
                ErrorKind::Unavailable,
                format!("the Sentinels that answer have not heard of the last failover of the master {master}"),
            ),
        })
    }

    fn winner(&self, round: u64) -> Result<&Named, Tie> {
        let mut named: Vec<&Named> = self.of_round(round).filter_map(|answer| answer.as_ref().ok()).collect();
        let chosen = self.chosen.as_ref().and_then(|(_, chosen)| chosen.epoch);
        let is_outdated = |named: &&Named| named.epoch.is_some() && named.epoch < chosen;
        if !named.iter().all(is_outdated) {
            named.retain(|named| !is_outdated(named));
        } else if !named.is_empty() && 2 * named.len() <= self.of.len() {
            return Err(Tie::Outdated);
        }
        let latest = named.iter().map(|named| named.epoch).max();
        let mut votes: HashMap<&Address, (usize, &Named)> = HashMap::new();
        for named in named.into_iter().filter(|named| Some(named.epoch) == latest) {
            votes.entry(&named.address).or_insert((0, named)).0 += 1;
        }
        let most = votes.values().map(|(count, _)| *count).max();
        let mut first = votes.values().filter(|(count, _)| Some(*count) == most);
        match (first.next(), first.next()) {
            (Some((_, named)), None) => Ok(named),
            (Some(_), Some(_)) => Err(Tie::Disagree),
            (None, _) => Err(Tie::NobodyKnows),
        }
    }

    /// Why no Sentinel has named a master.
    fn failure(&self, master: &str, round: u64) -> Error {
        let errors = || self.of_round(round).filter_map(|answer| answer.as_ref().err());
        // The most that one can do something about.
        let by_kind = |kind| errors().find(|error| error.kind() == kind);
        let said = [ErrorKind::Denied, ErrorKind::Misconfigured, ErrorKind::Unexpected];
        if let Some(error) = said.into_iter().find_map(by_kind) {
            return error.clone();
        }
        let what = format!(
            "no Sentinel of the master {master} was reached: check that they run and that their addresses are right"
        );
        let error = Error::new(ErrorKind::Unavailable, what);
        match errors().next() {
            Some(cause) => error.with_source(cause.clone()),
            None => error,
        }
    }

    fn of_round(&self, round: u64) -> impl Iterator<Item = &Result<Named>> {
        let answers = self.of.iter().flatten();
        answers
            .filter(move |(answered, _)| *answered >= round)
            .map(|(_, answer)| answer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(host: &str, epoch: impl Into<Option<u64>>) -> Named {
        Named {
            address: (host.into(), 6379),
            epoch: epoch.into(),
        }
    }

    fn failed(kind: ErrorKind) -> Result<Named> {
        Err(Error::new(kind, "it failed"))
    }

    fn answers(of: impl IntoIterator<Item = Result<Named>>) -> Answers {
        let of: Vec<_> = of.into_iter().map(|answer| Some((1, answer))).collect();
        Answers {
            round: 1,
            of,
            chosen: None,
        }
    }

    #[test]
    fn the_latest_epoch_wins_and_then_most() {
        let decide = |all: &[(&str, Option<u64>)]| {
            let all = all.iter().map(|(host, epoch)| Ok(named(host, *epoch)));
            answers(all).decide("m", 1)
        };
        for (all, master) in [
            (vec![("a", Some(1)), ("a", Some(1)), ("a", Some(1))], "a"),
            // The first that has heard of the failover.
            (vec![("a", Some(1)), ("a", Some(1)), ("b", Some(2))], "b"),
            (vec![("a", Some(2)), ("b", Some(2)), ("b", Some(2))], "b"),
            (vec![("a", None), ("b", None), ("a", None)], "a"),
            (vec![("a", None), ("b", Some(1))], "b"),
        ] {
            assert_eq!(decide(&all).expect("a master").address.0, master, "{all:?}");
        }
        for all in [vec![("a", Some(1)), ("b", Some(1))], vec![("a", None), ("b", None)]] {
            let error = decide(&all).expect_err("none");
            assert!(
                error.is_retryable() && error.to_string().contains("do not agree"),
                "{error}"
            );
        }
    }

    #[test]
    fn one_answer_is_enough_and_old_ones_do_not_count() {
        let mut all = answers([
            failed(ErrorKind::Unavailable),
            Ok(named("a", 1)),
            failed(ErrorKind::Denied),
        ]);
        assert_eq!(all.decide("m", 1).expect("a master"), named("a", 1));
        assert!(all.are_complete(1) && !all.have_begun(2));
        let error = all.decide("m", 2).expect_err("none has answered");
        assert!(
            error.to_string().contains("no Sentinel of the master m was reached"),
            "{error}"
        );
        all.of[1] = Some((2, Ok(named("b", 1))));
        assert!(all.have_begun(2) && !all.are_complete(2));
        assert_eq!(all.decide("m", 2).expect("a master"), named("b", 1));
    }

    #[test]
    fn the_error_is_one_that_something_can_be_done_about() {
        use ErrorKind::{Denied, Misconfigured, Unavailable};
        for (kinds, shown) in [
            (vec![Unavailable, Misconfigured, Denied], Denied),
            (vec![Unavailable, Misconfigured], Misconfigured),
            (vec![Unavailable], Unavailable),
        ] {
            let error = answers(kinds.iter().map(|kind| failed(*kind))).decide("m", 1);
            let error = error.expect_err("there is none");
            assert_eq!(error.kind(), shown, "{kinds:?}");
            assert_eq!(error.is_retryable(), shown == Unavailable);
        }
    }

    #[test]
    fn the_master_has_moved_if_a_later_failover_is_known() {
        let mut all = answers([Ok(named("a", 3)), failed(ErrorKind::Unavailable)]);
        assert!(all.have_moved(), "there is one at last");
        for (chosen, has_moved) in [
            (named("a", 3), false),
            (named("a", 2), false),
            (named("b", 2), true),
            // A name and an address of the same server.
            (named("b", 3), false),
        ] {
            all.chosen = Some((1, chosen.clone()));
            assert_eq!(all.have_moved(), has_moved, "{chosen:?}");
        }
        all.chosen = Some((2, named("b", 2)));
        assert!(!all.have_moved(), "an answer from before the choice");
    }

    #[test]
    fn a_sentinel_that_has_not_heard_of_the_last_failover_does_not_count() {
        let unavailable = || failed(ErrorKind::Unavailable);
        let mut all = answers([Ok(named("a", 2)), unavailable(), unavailable()]);
        all.chosen = Some((1, named("b", 3)));
        assert!(!all.have_moved());
        let error = all.decide("m", 1).expect_err("it would lead back to the former master");
        assert!(error.is_retryable(), "{error}");
        assert!(
            error.to_string().contains("have not heard of the last failover"),
            "{error}"
        );
        // With one that has.
        all.of[1] = Some((1, Ok(named("b", 3))));
        assert_eq!(all.decide("m", 1).expect("a master"), named("b", 3));
        all.of[1] = Some((1, Ok(named("c", 4))));
        assert!(all.have_moved());
        assert_eq!(all.decide("m", 1).expect("a master"), named("c", 4));
        // Most of them are right, whatever they say: they were set up anew.
        all.of[1] = Some((1, Ok(named("a", 1))));
        assert!(!all.have_moved());
        assert_eq!(all.decide("m", 1).expect("a master"), named("a", 2));
        // And one that does not say an epoch.
        let mut all = answers([Ok(named("a", None)), unavailable(), unavailable()]);
        all.chosen = Some((1, named("b", 3)));
        assert_eq!(all.decide("m", 1).expect("a master"), named("a", None));
    }

    #[test]
    fn what_was_chosen_has_not_moved() {
        let of = |epochs: [Option<u64>; 3]| {
            let hosts = ["a", "b", "b"].into_iter().zip(epochs);
            answers(hosts.map(|(host, epoch)| Ok(named(host, epoch))))
        };
        for epochs in [
            [None; 3],
            [Some(2), Some(1), Some(1)],
            [None, Some(1), None],
            [Some(0); 3],
        ] {
            let mut all = of(epochs);
            let chosen = all.decide("m", 1).expect("a master");
            all.chosen = Some((1, chosen));
            assert!(!all.have_moved(), "{epochs:?}");
        }
        // Without epochs, most decide.
        let mut all = of([None; 3]);
        all.chosen = Some((1, named("a", None)));
        assert!(all.have_moved());
    }
}
