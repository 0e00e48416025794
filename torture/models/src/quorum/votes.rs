//! The votes of one acquisition or hold, one of each node: their requests, and their leases.

use std::time::Duration;

use lock_core::FencingToken;
use lock_core::backend::rules as core_rules;
use lock_quorum::protocol::VoteId;

use super::message::{Id, Mail, Request};
use super::mutant::QuorumMutant;
use super::scenario::Scenario;

#[derive(Debug)]
pub(super) struct Votes {
    pub(super) list: Vec<Vote>,
    ttl: Duration,
    mutant: Option<QuorumMutant>,
}

#[derive(Clone, Debug)]
pub(super) struct Vote {
    /// The protocol's id of the vote.
    pub(super) vote: Option<VoteId>,
    /// A new one for each vote. `None` if the node was not asked.
    pub(super) id: Option<Id>,
    /// Whether the vote's acquire is unanswered.
    pub(super) is_open: bool,
    /// Whether the node has said that the vote waits there.
    pub(super) is_queued: bool,
    /// Until when it waits at most, by the client's clock like all times here.
    pub(super) waits_until: Option<Duration>,
    /// When a request that is unanswered fails.
    pub(super) fails_at: Option<Duration>,
    /// The token that its own adopts.
    pub(super) adopts: Option<FencingToken>,
    /// The requests of a change that is under way, and what it raises the token to.
    pub(super) changing: Vec<u64>,
    pub(super) raise: Option<FencingToken>,
    /// The number of the last acquire request. Refusals of earlier ones do not count.
    pub(super) number: u64,
    /// Whether the vote waits in the node's queue.
    pub(super) waits: bool,
    /// When the node is to be asked again.
    pub(super) ask_again: Option<Duration>,
    /// Whether the node has said that somebody else holds the name.
    pub(super) is_taken: bool,
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
        let end = lease_ends(mutant, before.map(|grant| grant.end), mail, ttl, now);
        vote.grant = Some(Grant { end, token });
        (vote.is_open, vote.is_taken) = (false, false);
        (vote.fails_at, vote.waits_until, vote.ask_again) = (None, None, None);
    }

    /// Whether the lease of this answer has not ended.
    pub(super) fn lasts(&self, mail: &Mail, now: Duration) -> bool {
        let counts_all = self.has(QuorumMutant::CountsExpiredVotes);
        counts_all || !core_rules::has_expired(lease_ends(self.mutant, None, mail, self.ttl, now), now)
    }

    /// For how long the vote of this node still counts.
    pub(super) fn left(&self, node: usize, now: Duration) -> Duration {
        let end = self.list[node]
            .grant
            .filter(|_| self.is_live(node, now))
            .map(|grant| grant.end);
        // One that counts although it has expired has some time left.
        end.map_or(Duration::ZERO, |end| {
            end.saturating_sub(now).max(Duration::from_nanos(1))
        })
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

    /// The number of live votes.
    pub(super) fn count_live(&self, now: Duration) -> usize {
        self.live(now).count()
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
    pub(super) fn to_end(&self) -> impl Iterator<Item = (usize, Id)> {
        let nodes = 0..self.list.len();
        nodes.filter_map(|node| Some((node, self.to_end_at(node)?)))
    }

    /// The vote of this node, if it is to be ended.
    pub(super) fn to_end_at(&self, node: usize) -> Option<Id> {
        let (vote, only_granted) = (&self.list[node], self.has(QuorumMutant::ReleasesOnlyGranted));
        vote.id.filter(|_| !only_granted || vote.grant.is_some())
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
        vote: None,
        id: None,
        is_open: false,
        is_queued: false,
        waits_until: None,
        fails_at: None,
        adopts: None,
        changing: Vec::new(),
        raise: None,
        number: 0,
        waits: false,
        ask_again: None,
        is_taken: false,
        grant: None,
    };

    /// One that is about to be asked for.
    pub(super) fn asked(vote: VoteId, id: Id, waits: bool, adopts: Option<FencingToken>) -> Self {
        Self {
            vote: Some(vote),
            id: Some(id),
            waits,
            adopts,
            ..Self::NOT_ASKED
        }
    }

    /// Forgets the vote. A fresh one has a new id.
    pub(super) fn reset(&mut self) {
        *self = Self::NOT_ASKED;
    }

    /// The node does not have the vote any more.
    pub(super) fn is_gone(&mut self) {
        self.grant = None;
    }
}

/// When a vote's lease ends that an answer gives or prolongs.
fn lease_ends(
    mutant: Option<QuorumMutant>,
    before: Option<Duration>,
    mail: &Mail,
    ttl: Duration,
    now: Duration,
) -> Duration {
    let sent = mail.request.at;
    match mutant {
        Some(QuorumMutant::NoMargin) => before.max(Some(sent + ttl)).unwrap_or_default(),
        Some(QuorumMutant::LeaseFromReply) => core_rules::lease_ends(before, now, ttl, false),
        _ => core_rules::lease_ends(before, sent, ttl, false),
    }
}
