//! The votes of one acquisition or hold, one of each node.

use std::time::Duration;

use lock_core::FencingToken;
use lock_core::backend::rules as core_rules;
use lock_quorum::rules::{self, Answer, Token};

use super::message::{Id, Mail, Request};
use super::mutant::QuorumMutant;
use super::scenario::Scenario;

#[derive(Debug)]
pub(super) struct Votes {
    pub(super) list: Vec<Vote>,
    ttl: Duration,
    mutant: Option<QuorumMutant>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Vote {
    /// A new one for each vote. `None` if the node was not asked.
    pub(super) id: Option<Id>,
    /// The number of the last acquire request. Refusals of earlier ones do not count.
    pub(super) number: u64,
    /// Whether it waits in the node's queue.
    pub(super) waits: bool,
    /// When the node is to be asked again, by the client's clock.
    pub(super) ask_again: Option<Duration>,
    /// What the node said, but for a grant.
    pub(super) answer: Answer,
    /// Who has the vote, if it is somebody else.
    pub(super) holder: Option<u64>,
    grant: Option<Grant>,
}

#[derive(Clone, Copy, Debug)]
struct Grant {
    /// When its lease ends, by the client's clock.
    end: Duration,
    token: FencingToken,
}

impl Votes {
    pub(super) fn new(scenario: &Scenario, ttl: Duration) -> Self {
        Self {
            list: vec![Vote::NOT_ASKED; scenario.nodes],
            ttl,
            mutant: scenario.mutant,
        }
    }

    /// The vote that an answer is for.
    ///
    /// An answer counts only for the id that it was asked for: a late one may be for a vote that was given back since.
    pub(super) fn of(&mut self, mail: &Mail) -> Option<&mut Vote> {
        let by_node = self.has(QuorumMutant::AnswersCountByNode);
        let vote = &mut self.list[mail.node];
        let request = &mail.request.request;
        let counts = vote.id == Some(request.id()) || by_node && vote.id.is_some();
        (counts && !matches!(request, Request::End(_))).then_some(vote)
    }

    /// Takes a grant or a renewal, of a request that was sent then.
    pub(super) fn grant(&mut self, mail: &Mail, token: Option<FencingToken>, now: Duration) {
        let (ttl, mutant) = (self.ttl, self.mutant);
        let Some(vote) = self.of(mail) else { return };
        let before = vote.grant;
        // A vote that has ended is not revived by a late answer.
        let is_live = before.is_some_and(|grant| !core_rules::has_expired(grant.end, now));
        let Some(token) = token.or(before.filter(|_| is_live).map(|grant| grant.token)) else {
            return;
        };
        let end = before.map(|grant| grant.end);
        let sent = mail.request.at;
        let end = match mutant {
            Some(QuorumMutant::NoMargin) => end.max(Some(sent + ttl)).unwrap_or_default(),
            Some(QuorumMutant::LeaseFromReply) => core_rules::lease_ends(end, now, ttl, false),
            _ => core_rules::lease_ends(end, sent, ttl, false),
        };
        vote.grant = Some(Grant { end, token });
        vote.answer = Answer::Granted;
        vote.holder = None;
        vote.ask_again = None;
    }

    /// The node has stored a larger token for the vote.
    pub(super) fn raised(&mut self, mail: &Mail, to: FencingToken) {
        if let Some(grant) = self.of(mail).and_then(|vote| vote.grant.as_mut()) {
            grant.token = grant.token.max(to);
        }
    }

    pub(super) fn is_live(&self, node: usize, now: Duration) -> bool {
        let counts_all = self.has(QuorumMutant::CountsExpiredVotes);
        let is_live = |grant: Grant| counts_all || !core_rules::has_expired(grant.end, now);
        self.list[node].grant.is_some_and(is_live)
    }

    /// One answer of each node.
    pub(super) fn answers(&self, now: Duration) -> Vec<Answer> {
        let nodes = 0..self.list.len();
        let answer = |node: usize| match self.list[node].grant {
            Some(_) if self.is_live(node, now) => Answer::Granted,
            Some(_) => Answer::Failed,
            None => self.list[node].answer,
        };
        nodes.map(answer).collect()
    }

    /// The token, if so many nodes count.
    pub(super) fn token(&self, nodes: usize, now: Duration) -> Token {
        let live = || self.live(now).map(|grant| grant.token);
        let known = match self.mutant {
            Some(QuorumMutant::LargestTokenNotRaised) => live().max(),
            Some(QuorumMutant::TokenOfFirstNode) => live().next(),
            _ => return rules::token(live(), nodes),
        };
        known.map_or(Token::Undecided, Token::Decided)
    }

    /// The largest token of a live vote, that further votes adopt.
    pub(super) fn largest_token(&self, now: Duration) -> Option<FencingToken> {
        self.live(now).map(|grant| grant.token).max()
    }

    /// The live votes with a smaller token.
    pub(super) fn below(&self, token: FencingToken, now: Duration) -> Vec<(usize, Id)> {
        let nodes = self.list.iter().enumerate();
        let below = nodes.filter(|(node, vote)| {
            let is_below = vote.grant.is_some_and(|grant| grant.token < token);
            is_below && self.is_live(*node, now)
        });
        below.filter_map(|(node, vote)| Some((node, vote.id?))).collect()
    }

    /// When a hold ends that needs so many votes.
    pub(super) fn end(&self, needed: usize, now: Duration) -> Option<Duration> {
        let ends = self.live(now).map(|grant| grant.end);
        if self.has(QuorumMutant::CountsExpiredVotes) {
            return ends.max();
        }
        core_rules::nth_latest_end(ends, needed, now)
    }

    /// Which votes to end: all that were ever asked for, since any may have been granted.
    pub(super) fn to_end(&self) -> Vec<(usize, Id)> {
        let only_granted = self.has(QuorumMutant::ReleasesOnlyGranted);
        let votes = self.list.iter().enumerate();
        let votes = votes.filter(|(_, vote)| !only_granted || vote.grant.is_some());
        votes.filter_map(|(node, vote)| Some((node, vote.id?))).collect()
    }

    fn live(&self, now: Duration) -> impl Iterator<Item = Grant> {
        let nodes = 0..self.list.len();
        let live = nodes.filter(move |node| self.is_live(*node, now));
        live.filter_map(|node| self.list[node].grant)
    }

    fn has(&self, mutant: QuorumMutant) -> bool {
        self.mutant == Some(mutant)
    }
}

impl Vote {
    const NOT_ASKED: Self = Self {
        id: None,
        number: 0,
        waits: false,
        ask_again: None,
        answer: Answer::None,
        holder: None,
        grant: None,
    };

    /// Forgets the vote. A fresh one has a new id.
    pub(super) fn reset(&mut self) {
        *self = Self::NOT_ASKED;
    }

    /// Whether the node was asked and has not answered.
    pub(super) fn is_open(&self) -> bool {
        self.id.is_some() && self.answer == Answer::None
    }

    /// The node does not have the vote any more, or will not give it.
    pub(super) fn failed(&mut self) {
        self.grant = None;
        self.answer = Answer::Failed;
    }
}
