//! The decisions that mutants of the clients replace.

use std::time::Duration;

use lock_core::FencingToken;
use lock_quorum::protocol::{Decisions, Sound};
use lock_quorum::rules::{self, Answer, Outcome, Token};

use super::mutant::QuorumMutant;

/// The protocol's own decisions, but for those of a mutant.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mutated(pub(super) Option<QuorumMutant>);

impl Mutated {
    fn is(self, mutant: QuorumMutant) -> bool {
        self.0 == Some(mutant)
    }
}

impl Decisions for Mutated {
    fn nodes_that_count(&self, answers: &[Answer]) -> usize {
        match self.is(QuorumMutant::MajorityOfReachable) && !answers.contains(&Answer::None) {
            true => answers.iter().filter(|answer| **answer != Answer::Failed).count(),
            false => Sound.nodes_that_count(answers),
        }
    }

    fn outcome(&self, answers: &[Answer], anchor: usize, asked_again: bool) -> Outcome {
        let hopes = answers
            .iter()
            .filter(|answer| matches!(answer, Answer::Granted | Answer::None));
        let is_hopeless = hopes.count() < rules::majority(answers.len());
        let is_early = answers.get(anchor) == Some(&Answer::None) && is_hopeless;
        match self.is(QuorumMutant::BusyBeforeTheAnchor) && is_early {
            true => Outcome::Busy,
            false => Sound.outcome(answers, anchor, asked_again),
        }
    }

    fn token(&self, live: &[FencingToken], nodes: usize) -> Token {
        let known = match self.0 {
            Some(QuorumMutant::LargestTokenNotRaised) => live.iter().max(),
            Some(QuorumMutant::TokenOfFirstNode) => live.first(),
            _ => return Sound.token(live, nodes),
        };
        let known = known.filter(|_| live.len() >= rules::majority(nodes));
        known.map_or(Token::Undecided, |token| Token::Decided(*token))
    }

    fn heeds_raises(&self) -> bool {
        !self.is(QuorumMutant::RaisesForgotten)
    }

    fn anchor(&self, order: &[usize], is_out: &dyn Fn(usize) -> bool) -> Option<usize> {
        match self.is(QuorumMutant::AlwaysTheFirstAnchor) {
            true => order.first().copied(),
            false => Sound.anchor(order, is_out),
        }
    }

    fn patience(&self, configured: Duration, ttl: Duration) -> Duration {
        match self.is(QuorumMutant::PatienceOfFourTtls) {
            true => 4 * ttl,
            false => Sound.patience(configured, ttl),
        }
    }

    fn suspicion(&self, ttl: Duration) -> Duration {
        match self.is(QuorumMutant::NeverSuspects) {
            true => Duration::ZERO,
            false => Sound.suspicion(ttl),
        }
    }

    fn yield_time(&self, round_trip: Duration, patience: Duration, left: Option<Duration>, ttl: Duration) -> Duration {
        match self.is(QuorumMutant::YieldsForThreeTtls) {
            true => 3 * ttl,
            false => Sound.yield_time(round_trip, patience, left, ttl),
        }
    }

    fn gives_back_in_vain(&self) -> bool {
        !self.is(QuorumMutant::KeepsVotesInVain)
    }

    fn looks_around(&self) -> bool {
        !self.is(QuorumMutant::BelievesTheAnchorAlone)
    }
}
