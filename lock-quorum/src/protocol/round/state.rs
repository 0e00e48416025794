//! The result of the nodes' answers at a moment.

use std::time::{Duration, Instant};

use lock_core::backend::Busy;
use lock_core::{Error, ErrorKind};

use super::{Answered, Asked, Round};
use crate::label;
use crate::protocol::decisions::Decisions;
use crate::protocol::messages::{Ask, Command, Failure, Situation};
use crate::rules::{self, Answer};

impl<D: Decisions> Round<D> {
    /// The node that decides.
    pub(super) fn anchor(&self, situation: &Situation<'_>) -> usize {
        // One that failed is not asked again while it is suspected, even if all others are.
        let order = self.wanted.order.iter().copied();
        let order: Vec<usize> = order.filter(|node| self.failed[*node].is_none()).collect();
        let is_out = |node: usize| {
            let is_granted = self.asked[node].as_ref().is_some_and(Asked::is_granted);
            let is_suspected = situation.known.is_suspected(node, situation.now) && !is_granted;
            is_suspected
                || self.is_silent(node, situation)
                || situation.known.is_passed_by(&self.wanted.name, node, situation.now)
        };
        self.decisions.anchor(&order, &is_out).unwrap_or_default()
    }

    /// The answer of each node. A node that is silent, or was left out because it is suspected, counts as failed.
    pub(super) fn answers(&self, situation: &Situation<'_>) -> Vec<Answer> {
        let anchor = self.anchor(situation);
        let answer = |node: usize| match &self.asked[node] {
            None if self.failed[node].is_some() => Answer::Failed,
            None if self.only_anchor || !situation.known.is_suspected(node, situation.now) => Answer::None,
            None => Answer::Failed,
            Some(asked) => match &asked.answer {
                Some(Answered::Granted { .. }) => Answer::Granted,
                Some(Answered::Busy { .. }) => Answer::Busy,
                None if node == anchor && asked.is_waiting() => Answer::Busy,
                None if self.is_silent(node, situation) => Answer::Failed,
                None => Answer::None,
            },
        };
        (0..self.asked.len()).map(answer).collect()
    }

    /// For how long a node may be silent.
    pub(in crate::protocol) fn patience(&self) -> Duration {
        self.patience
    }

    /// The same, however often a majority was silent.
    pub(super) fn configured_patience(&self, situation: &Situation<'_>) -> Duration {
        self.decisions.patience(self.wanted.patience, situation.ttl)
    }

    /// Whether the node has not answered for too long.
    pub(super) fn is_silent(&self, node: usize, situation: &Situation<'_>) -> bool {
        let Some(asked) = &self.asked[node] else { return false };
        asked.answer.is_none() && !asked.is_waiting() && situation.now >= asked.at + self.patience
    }

    /// Until when the answer to a change of this node's vote is waited for: for the patience, or for two round trips if the node is far
    /// away. After that the node may have changed the vote or not, and the vote is given back.
    pub(super) fn change_until(&self, asked: &Asked, node: usize, situation: &Situation<'_>) -> Option<Instant> {
        let round_trip = situation.known.round_trip(node).unwrap_or_default();
        let far = round_trip.saturating_mul(2).min(situation.ttl / 2);
        Some(asked.changing_since? + self.patience.max(far))
    }

    /// Whether a vote has waited for silent nodes for longer than the patience. If all are silent, they may be far away, and their
    /// answers come together. Not so if a node has not answered a change, since its vote was given back: then those that were not
    /// asked yet are asked first.
    pub(super) fn has_votes_in_vain(&self, situation: &Situation<'_>) -> bool {
        let granted = self.asked.iter().flatten();
        let granted = granted.filter_map(|asked| asked.in_vain_from(self.patience)).min();
        let gave_back = self.failed.iter().flatten().any(|failed| failed.is_silent) && self.rest().is_empty();
        let is_silent = gave_back || (0..self.asked.len()).any(|node| self.is_silent(node, situation));
        let is_over = granted.map_or(gave_back, |from| situation.now >= from);
        self.decisions.gives_back_in_vain() && is_silent && is_over
    }

    /// When to look again although nobody answers.
    pub(super) fn next_look(&self, situation: &Situation<'_>) -> Option<Instant> {
        let asked = || self.asked.iter().flatten();
        let open = asked().filter(|asked| asked.answer.is_none() && !asked.is_waiting());
        let silent_at = open.map(|asked| asked.at + self.patience);
        let in_vain_at = asked().filter_map(|asked| asked.in_vain_from(self.patience));
        let by_node = self.asked.iter().enumerate();
        let changed_at = by_node.filter_map(|(node, asked)| self.change_until(asked.as_ref()?, node, situation));
        let looks = silent_at.chain(in_vain_at).chain(changed_at).chain(self.looks.next());
        // A look whose time is over does not come again.
        looks.filter(|at| situation.now < *at).min()
    }

    /// Whether any request is unanswered.
    pub(in crate::protocol) fn is_open(&self) -> bool {
        self.asked.iter().flatten().any(|asked| asked.answer.is_none())
    }

    /// Who has the name: as this node says, or any.
    pub(super) fn busy(&mut self, anchor: usize) -> Busy {
        let said = |node: usize| {
            let asked = self.asked[node].as_ref()?;
            match &asked.answer {
                Some(Answered::Busy { busy, .. }) => Some(busy.clone()),
                _ => asked.queued.clone(),
            }
        };
        let mut busy = said(anchor)
            .or_else(|| (0..self.asked.len()).find_map(said))
            .unwrap_or_default();
        busy.ask_again = None;
        busy.holder = busy.holder.and_then(|holder| label::split(&holder).0);
        self.last_busy = Some(busy.clone());
        busy
    }

    /// Tells the caller who has the name, if that is news: each report wakes whoever waits for a change of the request.
    pub(super) fn report_busy(&mut self, anchor: usize, situation: &mut Situation<'_>) {
        let known = self.last_busy.take();
        let busy = self.busy(anchor);
        if known.as_ref() != Some(&busy) || situation.reported.is_none() {
            situation.reported = Some(busy.clone());
            self.commands.push_back(Command::ReportBusy(busy));
        }
    }

    /// Who has the name, if that is the last word: of the anchor, or of so many others that no majority is left.
    pub(super) fn last_busy(&self, situation: &Situation<'_>) -> Option<Busy> {
        let anchor = self.asked[self.anchor(situation)].as_ref();
        let is_taken = anchor.is_some_and(Asked::is_busy) || self.is_taken();
        self.last_busy.clone().filter(|_| is_taken)
    }

    /// The last report on the name to a request that waited and was given up.
    pub(in crate::protocol) fn last_word(&self) -> Option<Busy> {
        self.last_busy.clone().filter(|_| self.wanted.waits)
    }

    /// Whether somebody else holds the name at so many nodes that no majority is left.
    pub(super) fn is_taken(&self) -> bool {
        let busy = self.asked.iter().flatten().filter(|asked| asked.is_busy()).count();
        self.wanted.waits && rules::is_lost(busy, self.asked.len())
    }

    pub(super) fn note_taken(&self, situation: &mut Situation<'_>) {
        situation.known.note_taken(&self.wanted.name, situation.now);
    }

    /// Whether so many nodes have failed that no majority is left. One that is silent has not failed: it may answer if asked again.
    pub(super) fn is_unavailable(&self) -> bool {
        let failed = self.failed.iter().flatten().filter(|failed| !failed.is_silent);
        let failed = failed.count();
        self.asked.len() - failed < self.wanted.needed()
    }

    /// Why each node that failed did.
    pub(in crate::protocol) fn failure(&self, situation: &Situation<'_>, is_given_up: bool) -> Failure {
        let error = |node: usize| match &self.failed[node] {
            Some(failed) => Some((node, failed.error.clone())),
            None if self.is_silent(node, situation) => {
                let message = format!("no answer within {:?}", self.patience);
                Some((node, Error::new(ErrorKind::Unavailable, message)))
            }
            None => None,
        };
        let nodes = (0..self.failed.len()).filter_map(error).collect();
        Failure { is_given_up, nodes }
    }
}

impl Asked {
    /// Whether the vote may have left an entry in the node's queue.
    pub(super) fn has_place(&self) -> bool {
        self.ask != Ask::Once
    }

    pub(super) fn is_granted(&self) -> bool {
        matches!(self.answer, Some(Answered::Granted { .. }))
    }

    /// Whether the vote was granted, and no change of it is under way.
    pub(super) fn may_change(&self) -> bool {
        self.is_granted() && self.changing_since.is_none()
    }

    /// From when on the vote is had in vain, unless there is a majority by then.
    fn in_vain_from(&self, patience: Duration) -> Option<Instant> {
        Some(self.at + self.took()? + patience)
    }

    pub(super) fn took(&self) -> Option<Duration> {
        match self.answer {
            Some(Answered::Granted { took }) => Some(took),
            _ => None,
        }
    }

    /// Whether the node has said that somebody else holds the name.
    fn is_busy(&self) -> bool {
        self.is_waiting() || matches!(self.answer, Some(Answered::Busy { .. }))
    }

    /// Whether the node has said that the request waits in its queue.
    pub(super) fn is_waiting(&self) -> bool {
        self.answer.is_none() && self.has_place() && self.queued.is_some()
    }
}
