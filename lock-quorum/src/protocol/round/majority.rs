//! The steps after a majority has voted: the token is decided, and votes that end too soon are renewed.

use std::time::{Duration, Instant};

use lock_core::FencingToken;
use lock_core::backend::rules as core_rules;

use super::{Asked, Round};
use crate::protocol::decisions::Decisions;
use crate::protocol::messages::{Command, Order, Situation};
use crate::rules::{Answer, Token};

/// A node whose last answer took longer than twice the majority's by this is not waited for: to raise tokens is faster.
const MUCH_FASTER: Duration = Duration::from_micros(500);
/// The shortest time for an answer that may spare us to raise tokens.
const SHORTEST_STRAGGLING: Duration = Duration::from_millis(2);

impl<D: Decisions> Round<D> {
    /// The votes that are live.
    pub(super) fn live<'a>(&'a self, situation: &'a Situation<'_>) -> impl Iterator<Item = &'a Asked> {
        let by_node = self.asked.iter().zip(situation.left);
        let live = by_node.filter(|(_, left)| !left.is_zero());
        live.filter_map(|(asked, _)| asked.as_ref().filter(|asked| asked.is_granted()))
    }

    /// The token, as far as it is known, once a majority has voted.
    pub(super) fn token(&self, answers: &[Answer], situation: &Situation<'_>) -> Option<Token> {
        let live: Vec<FencingToken> = self.live(situation).filter_map(|asked| asked.token).collect();
        let nodes = self.decisions.nodes_that_count(answers);
        match self.decisions.token(&live, nodes) {
            Token::Undecided => None,
            token => Some(token),
        }
    }

    /// Until when to wait for answers that are on their way and may decide the token: about as long again as the majority took.
    /// `None` if there are none, or only from nodes that are slower by far.
    pub(super) fn stragglers(&mut self, situation: &Situation<'_>) -> Option<Instant> {
        let took = self.longest_answer();
        let (known, now) = (&situation.known, situation.now);
        let is_open = |node: usize| {
            let is_open = |asked: &Asked| asked.answer.is_none() && !asked.is_waiting();
            self.asked[node].as_ref().is_some_and(is_open)
                && !known.is_suspected(node, now)
                && known.round_trip(node).is_none_or(|time| time <= 2 * took + MUCH_FASTER)
        };
        if !(0..self.asked.len()).any(is_open) {
            return None;
        }
        let longest = took
            .min(situation.ttl / 20)
            .clamp(SHORTEST_STRAGGLING, self.patience.max(SHORTEST_STRAGGLING));
        let until = *self.stragglers_until.get_or_insert(now + longest);
        (now < until).then_some(until)
    }

    fn longest_answer(&self) -> Duration {
        let took = self.asked.iter().flatten().filter_map(Asked::took).max();
        took.unwrap_or_default()
    }

    /// Has all lower votes raised to this token. Over slow lines, all votes are renewed meanwhile: the answer would find too
    /// little of their leases left.
    pub(super) fn raise(&mut self, token: FencingToken, situation: &Situation<'_>) {
        let is_slow = self.longest_answer() > situation.ttl / 6 && !self.wanted.is_fixed;
        for (node, asked) in self.asked.iter_mut().enumerate() {
            let Some(asked) = asked.as_mut().filter(|asked| asked.may_change()) else {
                continue;
            };
            let raise = (asked.token < Some(token)).then_some(token);
            let renew = is_slow && !self.wanted.has_session[node];
            if raise.is_some() || renew {
                (asked.raised_to, asked.changing_since) = (raise, Some(situation.now));
                let change = Order::Change { raise, renew };
                self.commands.push_back(Command::Vote(asked.vote, change));
            }
        }
    }

    /// The token to which a vote is being raised, if it is larger than `token`. Its node may store it by now, so a lower one is no
    /// longer the hold's: a status would show the larger one.
    pub(super) fn raises_above(&self, token: FencingToken) -> Option<FencingToken> {
        let raised = self.asked.iter().flatten().filter_map(|asked| asked.raised_to);
        raised
            .filter(|raised| *raised > token && self.decisions.heeds_raises())
            .max()
    }

    /// Renews votes of which too little is left, because the anchor was waited for. Returns whether one is being renewed.
    pub(super) fn renew_short_votes(&mut self, situation: &Situation<'_>) -> bool {
        let half = core_rules::lease_time(situation.ttl) / 2;
        let by_node = self.asked.iter().zip(situation.left);
        let is_long = |(asked, left): &(&Option<Asked>, &Duration)| {
            **left >= half && asked.as_ref().is_some_and(Asked::is_granted)
        };
        if self.wanted.is_fixed || by_node.filter(is_long).count() >= self.wanted.needed() {
            return false;
        }
        for (node, asked) in self.asked.iter_mut().enumerate() {
            let renews = situation.left[node] < half && !self.wanted.has_session[node];
            if let Some(asked) = asked.as_mut().filter(|asked| renews && asked.may_change()) {
                asked.changing_since = Some(situation.now);
                let (raise, renew) = (None, true);
                let change = Order::Change { raise, renew };
                self.commands.push_back(Command::Vote(asked.vote, change));
            }
        }
        self.asked.iter().flatten().any(|asked| asked.changing_since.is_some())
    }
}
