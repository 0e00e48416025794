//! The answers of the nodes, as they arrive.

use lock_core::{Error, ErrorKind};

use super::{Answered, Asked, Failed, Round};
use crate::protocol::decisions::Decisions;
use crate::protocol::messages::{Changed, Event, News, Situation, VoteId};

impl<D: Decisions> Round<D> {
    /// Takes an event. An answer counts for its own vote alone: one of a vote that was given back is for nobody.
    pub(in crate::protocol) fn take(&mut self, event: Event, situation: &mut Situation<'_>) {
        match event {
            Event::Vote(vote, news) => {
                if let Some(node) = self.node_of(vote) {
                    self.heard(node, news, situation);
                }
            }
            Event::Looked(look, seen) => self.looked_around(look, &seen, situation),
        }
    }

    fn node_of(&self, vote: VoteId) -> Option<usize> {
        let is_it = |asked: &Option<Asked>| asked.as_ref().is_some_and(|asked| asked.vote == vote);
        self.asked.iter().position(is_it)
    }

    fn heard(&mut self, node: usize, news: News, situation: &mut Situation<'_>) {
        let Some(asked) = &mut self.asked[node] else { return };
        match news {
            News::Granted(token) => {
                let took = situation.now.saturating_duration_since(asked.at);
                asked.answer = Some(Answered::Granted { took });
                asked.token = Some(token);
                self.has_answered(node, situation);
            }
            News::Busy(busy) => {
                let at = situation.now;
                asked.answer = Some(Answered::Busy { busy, at });
                self.has_answered(node, situation);
            }
            News::Queued(busy) => asked.queued = Some(busy),
            News::Unreachable(error) if asked.answer.is_none() && asked.has_place() => {
                self.fails(node, error, situation)
            }
            News::Unreachable(_) => {}
            News::Failed { error, is_gone } => {
                if is_gone {
                    self.asked[node] = None;
                }
                self.fails(node, error, situation);
            }
            News::Changed(change) => {
                (asked.changing_since, asked.raised_to) = (None, None);
                match change {
                    Ok(Changed::Raised(token)) => asked.token = asked.token.max(Some(token)),
                    Ok(Changed::Renewed) => {}
                    Ok(Changed::Lost) => {
                        let error = Error::new(ErrorKind::Lost, "the vote was lost").retryable(true);
                        self.fails(node, error, situation);
                    }
                    Err(error) => self.fails(node, error, situation),
                }
            }
        }
    }

    fn has_answered(&self, node: usize, situation: &mut Situation<'_>) {
        situation.known.has_answered(node);
        // Otherwise it has waited in the node's queue.
        if let Some(asked) = self.asked[node].as_ref().filter(|asked| asked.queued.is_none()) {
            let took = situation.now.saturating_duration_since(asked.at);
            situation.known.answered_after(node, took);
        }
    }

    /// The node cannot vote in this round.
    fn fails(&mut self, node: usize, error: Error, situation: &mut Situation<'_>) {
        let is_silent = false;
        self.leave_out(node, Failed { error, is_silent }, situation);
    }

    fn leave_out(&mut self, node: usize, failed: Failed, situation: &mut Situation<'_>) {
        if !self.is_given_up {
            self.last_busy = None;
            if failed.error.is_retryable() {
                self.suspect(node, situation);
            }
        }
        self.take_back(node);
        self.failed[node] = Some(failed);
    }

    pub(super) fn suspect(&self, node: usize, situation: &mut Situation<'_>) {
        let time = self.decisions.suspicion(situation.ttl);
        situation.known.suspect(node, situation.now, time);
    }

    /// A request that waits may have failed at nodes that answer by now. Others wait there, if one of them is the anchor.
    fn forget_failures(&mut self, situation: &Situation<'_>) {
        for (node, failed) in self.failed.iter_mut().enumerate() {
            failed.take_if(|failed| failed.error.is_retryable() && !situation.known.is_suspected(node, situation.now));
        }
    }

    /// Suspects those that are silent, and counts no vote that has expired.
    pub(super) fn look_at_clock(&mut self, situation: &mut Situation<'_>) {
        if self.only_anchor {
            self.forget_failures(situation);
        }
        for node in 0..self.asked.len() {
            let Some(asked) = &self.asked[node] else { continue };
            let change_until = self.change_until(asked, node, situation);
            if asked.is_granted() && situation.left[node].is_zero() {
                let message = "the vote expired before a majority had voted";
                self.fails(node, Error::new(ErrorKind::Unavailable, message), situation);
            } else if change_until.is_some_and(|until| situation.now >= until) {
                let message = "no answer in time to a change of the vote";
                let error = Error::new(ErrorKind::Unavailable, message);
                let is_silent = true;
                self.leave_out(node, Failed { error, is_silent }, situation);
            } else if self.is_silent(node, situation) {
                self.suspect(node, situation);
            }
        }
    }
}
