//! Whom to ask, and whom to give back.

use std::sync::Arc;
use std::time::{Duration, Instant};

use lock_core::FencingToken;

use super::{Answered, Asked, Round};
use crate::label;
use crate::protocol::decisions::Decisions;
use crate::protocol::messages::{Ask, Command, Order, Situation, VoteId};
use crate::rules::Answer;

/// When a node is asked again that cannot wake its waiters.
const ASK_AGAIN: Duration = Duration::from_millis(50);

impl<D: Decisions> Round<D> {
    pub(super) fn ask(&mut self, node: usize, ask: Ask, situation: &Situation<'_>) {
        // One that waits may outlast the votes, and a grant then adopts no token without the node's clock: the nodes may have
        // granted larger ones and lost their data since.
        let adopted = self.live(situation).filter_map(|asked| asked.token).max();
        let adopts: Option<FencingToken> = adopted.filter(|_| ask != Ask::Forever);
        self.take_back(node);
        self.votes += 1;
        let vote = VoteId(self.votes);
        self.commands
            .push_back(Command::Vote(vote, Order::Ask { node, ask, adopts }));
        self.asked[node] = Some(Asked {
            vote,
            ask,
            at: situation.now,
            answer: None,
            queued: None,
            token: None,
            changing_since: None,
            raised_to: None,
        });
    }

    /// The way in which the anchor is asked.
    pub(super) fn ask_of_anchor(&self) -> Ask {
        match self.wanted.waits {
            true => Ask::Forever,
            false => Ask::Once,
        }
    }

    /// The nodes that were not asked and have not failed.
    pub(super) fn rest(&self) -> Vec<usize> {
        let rest = |node: &usize| self.asked[*node].is_none() && self.failed[*node].is_none();
        (0..self.asked.len()).filter(rest).collect()
    }

    /// Asks the nodes that are not suspected, if only the others were asked, and so many of those have answered that there may be
    /// a majority. Returns whether any was asked.
    pub(super) fn ask_after_suspected(&mut self, situation: &Situation<'_>) -> bool {
        let answered = self
            .asked
            .iter()
            .flatten()
            .filter(|asked| asked.answer.is_some())
            .count();
        let rest = self.rest();
        if !self.only_suspected || answered + rest.len() < self.wanted.needed() {
            return false;
        }
        self.only_suspected = false;
        let anchor = self.anchor(situation);
        for node in &rest {
            let ask = match *node == anchor {
                true => self.ask_of_anchor(),
                false => Ask::Once,
            };
            self.ask(*node, ask, situation);
        }
        !rest.is_empty()
    }

    /// Asks those that were left out because they are suspected, if the others cannot be a majority. Returns whether any was.
    ///
    /// A node that was not asked is no hope, also if its suspicion has ended meanwhile: the votes would wait for it in vain.
    pub(super) fn ask_spare_nodes(&mut self, situation: &Situation<'_>) -> bool {
        let answers = self.answers(situation);
        let is_hope = |node: &usize| match answers[*node] {
            Answer::Granted => true,
            Answer::None => self.asked[*node].is_some(),
            Answer::Busy | Answer::Failed => false,
        };
        let hopes = (0..answers.len()).filter(is_hope).count();
        if self.only_anchor || self.only_suspected || hopes >= self.wanted.needed() {
            return false;
        }
        let spare = self.rest();
        for node in &spare {
            self.ask(*node, Ask::Once, situation);
        }
        !spare.is_empty()
    }

    /// The anchor has voted: from now on the answers of the others count, or that they are suspected.
    pub(super) fn go_on_from_anchor(&mut self) {
        self.only_anchor = false;
        self.stop_looking();
    }

    /// Asks nodes that others give back soon, since the anchor has voted for us.
    pub(super) fn ask_others(&mut self, nodes: &[usize], situation: &Situation<'_>) {
        let until = match self.yields_until {
            Some(until) => until,
            None => situation.now + self.yield_time(situation),
        };
        self.yields_until = Some(until);
        (self.only_anchor, self.only_suspected) = (false, false);
        for node in nodes {
            self.ask(
                *node,
                Ask::Within(until.saturating_duration_since(situation.now)),
                situation,
            );
        }
    }

    /// For how long the others are waited for.
    fn yield_time(&self, situation: &Situation<'_>) -> Duration {
        if !self.wanted.waits {
            return self.patience;
        }
        let (known, now) = (&situation.known, situation.now);
        let near = (0..self.asked.len()).filter(|node| !known.is_suspected(*node, now));
        let round_trip = near.filter_map(|node| known.round_trip(node)).max();
        let patience = self.configured_patience(situation);
        let round_trip = round_trip.unwrap_or(patience);
        let longest = self
            .decisions
            .yield_time(round_trip, patience, situation.time_left, situation.ttl);
        longest.mul_f64(0.5 + situation.random / 2.0)
    }

    /// Whether this node was not asked, or was found taken, and may vote for us soon.
    pub(super) fn may_yield(&self, node: usize, situation: &Situation<'_>) -> bool {
        match &self.asked[node] {
            None => self.failed[node].is_none() && !situation.known.is_suspected(node, situation.now),
            Some(asked) => matches!(asked.answer, Some(Answered::Busy { .. })) && !asked.has_place(),
        }
    }

    /// If a majority has voted for the same hold without the anchor, when that has voted for us, the others decide for a while.
    pub(super) fn pass_anchor_by(&self, anchor: usize, situation: &mut Situation<'_>) {
        let busy_with = |node: usize| match &self.asked[node].as_ref()?.answer {
            Some(Answered::Busy { busy, .. }) => Some(label::mark(Some(busy.holder.as_ref()?))),
            _ => None,
        };
        let holders: Vec<Arc<str>> = (0..self.asked.len()).filter_map(busy_with).collect();
        let votes = |of: &Arc<str>| holders.iter().filter(|holder| *holder == of).count();
        let is_held = holders.iter().any(|holder| votes(holder) >= self.wanted.needed());
        let is_granted = self.asked[anchor].as_ref().is_some_and(Asked::is_granted);
        if is_held && is_granted {
            situation.known.pass_by(&self.wanted.name, anchor, situation.now);
        }
    }

    /// Whether only the anchor is asked, and this node is the anchor since another one failed.
    pub(super) fn has_new_anchor(&self, anchor: usize) -> bool {
        self.only_anchor && self.asked[anchor].is_none() && self.failed[anchor].is_none()
    }

    /// Asks a node once more that found the name taken and does not wake us: with an entry in its queue, and when it said. Returns
    /// when that is, if it is later.
    pub(super) fn ask_anchor_again(&mut self, anchor: usize, situation: &Situation<'_>) -> Option<Instant> {
        // One that waited for a while only can win nothing more.
        let is_kept = |asked: &&mut Asked| asked.ask == Ask::Forever;
        if let Some(asked) = self.asked[anchor].as_mut().filter(is_kept) {
            let Some(Answered::Busy { busy, at }) = &asked.answer else {
                return None;
            };
            let again = *at + busy.ask_again.unwrap_or(ASK_AGAIN);
            if situation.now < again {
                return Some(again);
            }
            self.commands.push_back(Command::Vote(asked.vote, Order::AskAgain));
            (asked.answer, asked.at) = (None, situation.now);
            return None;
        }
        self.ask(anchor, Ask::Forever, situation);
        None
    }

    pub(super) fn give_back_all_but(&mut self, anchor: usize) {
        (self.only_anchor, self.only_suspected) = (true, false);
        self.yields_until = None;
        for node in (0..self.asked.len()).filter(|node| *node != anchor) {
            self.take_back(node);
        }
    }

    /// Has the vote of this node ended, if it may have left anything.
    pub(super) fn take_back(&mut self, node: usize) {
        if let Some(asked) = self.asked[node].take() {
            let is_over = matches!(asked.answer, Some(Answered::Busy { .. })) && !asked.has_place();
            if !is_over {
                self.commands.push_back(Command::Vote(asked.vote, Order::GiveBack));
            }
        }
    }
}
