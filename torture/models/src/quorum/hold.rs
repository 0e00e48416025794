//! A hold: its renewals, and when it is lost.

use std::time::Duration;

use lock_core::FencingToken;
use lock_core::backend::rules as core_rules;
use lock_quorum::rules;

use super::client::Client;
use super::message::{Acquire, Answer, Mail, Request};
use super::mutant::QuorumMutant;
use super::scenario::Reinstall;
use super::votes::Votes;

#[derive(Debug)]
pub(super) struct Hold {
    pub(super) votes: Votes,
    /// Whom the nodes name while they vote for it.
    holder: u64,
    token: FencingToken,
    /// When it ends, by the client's clock.
    end: Duration,
    /// The number of votes that the hold needs.
    needed: usize,
    /// Which nodes denied it in this round of renewals.
    denied: Vec<bool>,
    /// Until when a vote that its node has lost would have lived, by the client's clock.
    lost: Vec<Option<Duration>>,
}

impl Hold {
    /// Believes in it, if it lasts. `nodes` is how many nodes count. Returns the votes if it does not last.
    pub(super) fn begin(
        client: &Client,
        votes: Votes,
        holder: u64,
        token: FencingToken,
        nodes: usize,
    ) -> Result<Self, Votes> {
        let now = client.now();
        let majority = rules::majority(nodes);
        let Some(end) = votes
            .end(majority, now)
            .filter(|end| !core_rules::has_expired(*end, now))
        else {
            return Err(votes);
        };
        client.believe(end, Some(token));
        let needed = match client.scenario.mutant {
            Some(QuorumMutant::RenewedByAny) => 1,
            Some(QuorumMutant::RenewedByMajorityOfAcquired) => rules::majority(votes.count_live(now)),
            _ => majority,
        };
        Ok(Self {
            denied: vec![false; votes.list.len()],
            lost: vec![None; votes.list.len()],
            votes,
            holder,
            token,
            end,
            needed,
        })
    }

    /// Keeps it until this time of the client's clock. Returns whether it was lost before.
    pub(super) async fn keep(&mut self, client: &Client, until: Duration) -> bool {
        let every = client.ttl() / 3;
        let mut renew_at = client.now() + every;
        loop {
            let mail = client.receive(renew_at.min(until).min(self.end)).await;
            let now = client.now();
            // Before the answer: it must not revive what has ended.
            if core_rules::has_expired(self.end, now) {
                return true;
            }
            if let Some(mail) = mail {
                self.take(client, &mail, now);
                if self.is_lost(client) {
                    return true;
                }
                client.believes_though_denied_by(self.foreign());
            }
            if now >= until {
                return false;
            }
            if now >= renew_at {
                self.renew(client, now);
                renew_at = now + every;
            }
        }
    }

    fn take(&mut self, client: &Client, mail: &Mail, now: Duration) {
        let Some(vote) = self.votes.of(mail) else { return };
        match (mail.request.request, mail.answer) {
            (Request::Acquire(_), Answer::Granted(token)) => {
                self.lost[mail.node] = None;
                self.votes.grant(mail, Some(token), now);
                self.raise(client, now, |node| node == mail.node);
            }
            (Request::Raise(_, to), Answer::Done) => self.votes.raised(mail, to),
            (Request::Renew(_), Answer::Done) => self.votes.grant(mail, None, now),
            (Request::Acquire(_), Answer::Busy(..)) if vote.number == mail.request.number => {
                vote.is_taken = true;
                self.lost[mail.node] = None;
            }
            (Request::Renew(_), Answer::NotYours) => {
                self.denied[mail.node] = true;
                // Its lease runs: so nobody else can have had the node's vote since it forgot ours.
                let reinstates = self.votes.is_live(mail.node, now);
                self.lost[mail.node] = reinstates.then(|| now + self.votes.left(mail.node, now));
                self.votes.list[mail.node].is_gone();
                self.reinstall(client, mail.node, reinstates);
            }
            _ => {}
        }
        if let Some(end) = self.votes.end(self.needed, now).filter(|end| *end > self.end) {
            self.end = end;
            client.believe(end, None);
        }
    }

    /// Whether so many nodes have said that the vote is not ours that the hold is lost.
    fn is_lost(&self, client: &Client) -> bool {
        let (foreign, nodes) = (self.foreign(), self.votes.list.len());
        match client.scenario.mutant {
            Some(QuorumMutant::NeverDenied) => false,
            Some(QuorumMutant::DeniedByOneMore) => foreign > rules::majority(nodes),
            _ => rules::is_lost(foreign, nodes),
        }
    }

    /// The number of nodes that have said that the vote is not ours.
    fn foreign(&self) -> usize {
        let votes = self.votes.list.iter().zip(&self.denied);
        let foreign = votes.filter(|(vote, denied)| **denied || vote.is_taken);
        foreign.count()
    }

    /// Raises lower votes of these nodes to the hold's token.
    fn raise(&self, client: &Client, now: Duration, of: impl Fn(usize) -> bool) {
        if client.scenario.has(QuorumMutant::LowVotesNotRaised) {
            return;
        }
        for (node, id) in self.votes.below(self.token, now) {
            if of(node) {
                client.send(node, Request::Raise(id, self.token));
            }
        }
    }

    /// Renews the votes that it has, and asks for those that it lacks.
    fn renew(&mut self, client: &Client, now: Duration) {
        self.denied.fill(false);
        self.raise(client, now, |_| true);
        for node in 0..self.votes.list.len() {
            match self.votes.list[node].id {
                Some(id) if self.votes.is_live(node, now) => {
                    client.send(node, Request::Renew(id));
                }
                _ => {
                    let reinstates = self.lost[node].is_some_and(|until| !core_rules::has_expired(until, now));
                    self.reinstall(client, node, reinstates);
                }
            }
        }
    }

    /// Asks a node for a fresh vote, which adopts the hold's token.
    fn reinstall(&mut self, client: &Client, node: usize, reinstates: bool) {
        if client.scenario.reinstall == Reinstall::Never {
            return;
        }
        let vote = &mut self.votes.list[node];
        if let Some(id) = vote.id {
            client.send(node, Request::End(id));
        }
        vote.reset();
        let id = client.new_id();
        vote.id = Some(id);
        vote.number = client.send(
            node,
            Request::Acquire(Acquire {
                id,
                holder: self.holder,
                ttl: client.ttl(),
                waits: false,
                adopts: Some(self.token),
                reinstates,
                by_force: client.scenario.has(QuorumMutant::ReinstallsByForce),
            }),
        );
    }
}
