//! One attempt at a name: which nodes were asked, and what they have said.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use lock_core::backend::request::RequestOptions;
use lock_core::backend::{AcquireRequest, Busy};
use lock_core::{Error, FencingToken, Result};
use tokio::time::Instant;

use self::look::Looks;

use crate::clean_up;
use crate::client::Client;
use crate::label;
use crate::node::Node;
use crate::rules::{self, Answer};
use crate::terms::HoldTerms;
use crate::votes::{Call, Vote, Votes};

mod answers;
mod look;
mod majority;

/// How a node is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ask {
    /// Without waiting.
    Once,
    /// With an entry in its queue, for so long.
    Within(Duration),
    /// With an entry in its queue, for as long as the caller waits.
    Forever,
}

pub(crate) struct Round<'a> {
    pub(crate) client: &'a Arc<Client>,
    pub(crate) votes: &'a Arc<Votes>,
    pub(crate) request: AcquireRequest,
    /// By node. A node that failed has none.
    asked: Vec<Option<Asked>>,
    failed: Vec<Option<Error>>,
    /// Whether only the anchor was asked.
    only_anchor: bool,
    /// Whether only those were asked that are suspected, since they are a majority.
    only_suspected: bool,
    /// For how long a node may be silent.
    patience: Duration,
    looks: Looks,
    /// Until when nodes are waited for that others give back, once the anchor has voted for us.
    yields_until: Option<Instant>,
    /// Until when answers are waited for that may spare us to raise tokens.
    stragglers_until: Option<Instant>,
    pub(crate) last_busy: Option<Busy>,
    is_given_up: bool,
    /// One time for a whole decision: who is silent by the clock, and when to look again, must not miss each other.
    looked_at: Instant,
}

struct Asked {
    vote: Arc<Vote>,
    call: Option<Call>,
    at: Instant,
    answer: Option<Answered>,
    terms: HoldTerms,
    /// A change of a vote that was granted, under way.
    change: Option<BoxFuture<'static, Result<Change>>>,
    /// What its node may have raised the vote to. Its answer is not there yet.
    raised_to: Option<FencingToken>,
}

enum Answered {
    Granted { took: Duration },
    Busy { busy: Busy, at: Instant },
}

enum Change {
    Raised(FencingToken),
    Renewed,
    Lost,
}

/// When a node is asked again that cannot wake its waiters.
const ASK_AGAIN: Duration = Duration::from_millis(50);

impl<'a> Round<'a> {
    /// An attempt after so many that ended because a majority was silent.
    pub(crate) fn new(client: &'a Arc<Client>, votes: &'a Arc<Votes>, request: &AcquireRequest, silences: u32) -> Self {
        let nodes = client.nodes.len();
        let ttl = request.ttl();
        Self {
            client,
            votes,
            request: request.clone(),
            asked: (0..nodes).map(|_| None).collect(),
            failed: vec![None; nodes],
            only_anchor: false,
            only_suspected: false,
            patience: rules::patience_after(client.patience(ttl), ttl, silences),
            looks: Looks::default(),
            yields_until: None,
            stragglers_until: None,
            last_busy: None,
            is_given_up: false,
            looked_at: Instant::now(),
        }
    }

    pub(crate) fn waits(&self) -> bool {
        self.request.waits()
    }

    /// Asks all nodes that are not suspected, or the anchor alone if the name was found taken. If a majority is suspected, asks
    /// that first.
    pub(crate) fn begin(&mut self) {
        let known_taken = self.client.take_known_taken(self.request.name());
        let nodes: Vec<usize> = self.client.order(self.request.name()).collect();
        let is_suspected = |node: &usize| self.client.nodes[*node].is_suspected();
        let (suspected, others): (Vec<usize>, Vec<usize>) = nodes.iter().partition(|node| is_suspected(node));
        self.only_suspected = rules::asks_suspected_first(suspected.len(), nodes.len());
        if self.only_suspected {
            suspected.iter().for_each(|node| self.ask(*node, Ask::Once));
            return;
        }
        let anchor = self.anchor();
        self.only_anchor = known_taken && self.waits();
        self.ask(anchor, self.ask_of_anchor());
        if !self.only_anchor {
            let others = others.into_iter().filter(|node| *node != anchor);
            others.for_each(|node| self.ask(node, Ask::Once));
        }
    }

    /// How the anchor is asked.
    fn ask_of_anchor(&self) -> Ask {
        match self.waits() {
            true => Ask::Forever,
            false => Ask::Once,
        }
    }

    /// Asks the nodes that are not suspected, if only the others were asked, and so many of those have answered that there may be
    /// a majority. Returns whether any was asked.
    pub(crate) fn ask_after_suspected(&mut self) -> bool {
        let answered = self
            .asked
            .iter()
            .flatten()
            .filter(|asked| asked.answer.is_some())
            .count();
        let rest = self.rest();
        if !self.only_suspected || answered + rest.len() < self.client.needed() {
            return false;
        }
        self.only_suspected = false;
        let anchor = self.anchor();
        for node in &rest {
            let ask = match *node == anchor {
                true => self.ask_of_anchor(),
                false => Ask::Once,
            };
            self.ask(*node, ask);
        }
        !rest.is_empty()
    }

    /// Asks those that were left out because they are suspected, if the others cannot be a majority. Returns whether any was.
    ///
    /// A node that was not asked is no hope, also if its suspicion has ended meanwhile: the votes would wait for it in vain.
    pub(crate) fn ask_spare_nodes(&mut self) -> bool {
        let answers = self.answers();
        let is_hope = |node: &usize| match answers[*node] {
            Answer::Granted => true,
            Answer::None => self.asked[*node].is_some(),
            Answer::Busy | Answer::Failed => false,
        };
        let hopes = (0..answers.len()).filter(is_hope).count();
        if self.only_anchor || self.only_suspected || hopes >= self.client.needed() {
            return false;
        }
        let spare = self.rest();
        for node in &spare {
            self.ask(*node, Ask::Once);
        }
        !spare.is_empty()
    }

    /// The nodes that were not asked and have not failed.
    fn rest(&self) -> Vec<usize> {
        let rest = |node: &usize| self.asked[*node].is_none() && self.failed[*node].is_none();
        (0..self.asked.len()).filter(rest).collect()
    }

    /// The anchor has voted: from now on the answers of the others count, or that they are suspected.
    pub(crate) fn go_on_from_anchor(&mut self) {
        self.only_anchor = false;
        self.stop_looking();
    }

    /// Asks nodes that others give back soon, since the anchor has voted for us.
    pub(crate) fn ask_others(&mut self, nodes: &[usize]) {
        let now = Instant::now();
        let until = match self.yields_until {
            Some(until) => until,
            None => now + self.yield_time(),
        };
        self.yields_until = Some(until);
        (self.only_anchor, self.only_suspected) = (false, false);
        for node in nodes {
            self.ask(*node, Ask::Within(until.saturating_duration_since(now)));
        }
    }

    /// For how long the others are waited for.
    fn yield_time(&self) -> Duration {
        if !self.waits() {
            return self.patience();
        }
        let near = self.client.nodes.iter().filter(|node| !node.is_suspected());
        let round_trip = near.filter_map(Node::round_trip).max();
        let patience = self.client.patience(self.request.ttl());
        let longest = rules::yield_time(round_trip.unwrap_or(patience), patience, self.request.time_left());
        longest.mul_f64(rand::random_range(0.5..=1.0))
    }

    /// Whether a majority has voted for the same hold without the anchor, when that has voted for us. Then the others decide, for a
    /// while.
    pub(crate) fn pass_anchor_by(&self, anchor: usize) {
        let busy_with = |node: usize| match &self.asked[node].as_ref()?.answer {
            Some(Answered::Busy { busy, .. }) => Some(look::mark(Some(busy.holder.as_ref()?))),
            _ => None,
        };
        let holders: Vec<Arc<str>> = (0..self.asked.len()).filter_map(busy_with).collect();
        let votes = |of: &Arc<str>| holders.iter().filter(|holder| *holder == of).count();
        let is_held = holders.iter().any(|holder| votes(holder) >= self.client.needed());
        let is_granted = self.asked[anchor].as_ref().is_some_and(Asked::is_granted);
        if is_held && is_granted {
            self.client.pass_by(self.request.name(), anchor);
        }
    }

    /// Whether this node was not asked, or was found taken, and may vote for us soon.
    pub(crate) fn may_yield(&self, node: usize) -> bool {
        match &self.asked[node] {
            None => self.failed[node].is_none() && !self.client.nodes[node].is_suspected(),
            Some(asked) => matches!(asked.answer, Some(Answered::Busy { .. })) && !asked.vote.has_place,
        }
    }

    fn ask(&mut self, node: usize, ask: Ask) {
        let request = &self.request;
        let now = HoldTerms::of(request);
        let asked_terms = match ask {
            Ask::Within(time) => now.terms().time_left(time),
            Ask::Once | Ask::Forever => now.terms(),
        };
        let mut options = RequestOptions::new(request.name().clone(), asked_terms)
            .mode(request.mode())
            .fixed(request.is_fixed())
            .shows_token(request.shows_token())
            .waits(ask != Ask::Once);
        if let Some(floor) = request.token_floor() {
            options = options.token_above(floor);
        }
        // One that waits may outlast the votes, and a grant then adopts no token without the node's clock: the nodes may have
        // granted larger ones and lost their data since.
        let adopted = self.live().filter_map(|vote| vote.token()).max();
        if let Some(adopted) = adopted.filter(|_| ask != Ask::Forever) {
            options = options.token_at_least(adopted);
        }
        self.take_back(node);
        let vote = Arc::new(Vote::new(node, options.start(), ask != Ask::Once));
        if self.votes.record(&vote) {
            let call = Some(Call::new(&self.client.nodes[node], &vote));
            self.asked[node] = Some(Asked {
                vote,
                call,
                at: Instant::now(),
                answer: None,
                change: None,
                raised_to: None,
                terms: now,
            });
        }
    }

    /// Whether only the anchor is asked, and this node is the anchor since another one failed.
    pub(crate) fn has_new_anchor(&self, anchor: usize) -> bool {
        self.only_anchor && self.asked[anchor].is_none() && self.failed[anchor].is_none()
    }

    /// Asks a node once more that found the name taken and does not wake us: with an entry in its queue, and when it said. Returns
    /// when that is, if it is later.
    pub(crate) fn ask_anchor_again(&mut self, anchor: usize) -> Option<Instant> {
        if let Some(asked) = self.asked[anchor].as_mut().filter(|asked| asked.vote.has_place) {
            let Some(Answered::Busy { busy, at }) = &asked.answer else {
                return None;
            };
            let again = *at + busy.ask_again.unwrap_or(ASK_AGAIN);
            if Instant::now() < again {
                return Some(again);
            }
            asked.call = Some(Call::new(&self.client.nodes[anchor], &asked.vote));
            (asked.answer, asked.at) = (None, Instant::now());
            return None;
        }
        self.ask(anchor, Ask::Forever);
        None
    }

    /// Whether the node has said nothing for too long.
    fn is_silent(&self, node: usize) -> bool {
        let Some(asked) = &self.asked[node] else { return false };
        let waits = asked.vote.has_place && asked.vote.request.last_busy().is_some();
        asked.answer.is_none() && !waits && self.looked_at >= asked.at + self.patience()
    }

    fn patience(&self) -> Duration {
        self.patience
    }

    /// Whether a vote has waited for silent nodes for longer than the patience. If all are silent, they may be far away, and their
    /// answers come together.
    pub(crate) fn has_votes_in_vain(&self) -> bool {
        let granted = self
            .asked
            .iter()
            .flatten()
            .filter_map(|asked| asked.in_vain_from(self.patience()));
        let is_silent = (0..self.asked.len()).any(|node| self.is_silent(node));
        is_silent && granted.min().is_some_and(|from| self.looked_at >= from)
    }

    /// The node that decides.
    pub(crate) fn anchor(&self) -> usize {
        let order = self.client.order(self.request.name());
        // One that failed is not asked again while it is suspected, even if all others are.
        let order = order.filter(|node| self.failed[*node].is_none());
        let is_out = |node: usize| {
            let is_granted = self.asked[node].as_ref().is_some_and(Asked::is_granted);
            let is_suspected = self.client.nodes[node].is_suspected() && !is_granted;
            is_suspected || self.is_silent(node) || self.client.is_passed_by(self.request.name(), node)
        };
        rules::anchor(order, is_out).unwrap_or_default()
    }

    /// What each node has said. One that is silent, or was left out because it is suspected, counts as failed.
    pub(crate) fn answers(&self) -> Vec<Answer> {
        let anchor = self.anchor();
        let answer = |node: usize| match &self.asked[node] {
            None if self.failed[node].is_some() => Answer::Failed,
            None if self.only_anchor || !self.client.nodes[node].is_suspected() => Answer::None,
            None => Answer::Failed,
            Some(asked) => match &asked.answer {
                Some(Answered::Granted { .. }) => Answer::Granted,
                Some(Answered::Busy { .. }) => Answer::Busy,
                None if node == anchor && asked.is_waiting() => Answer::Busy,
                None if self.is_silent(node) => Answer::Failed,
                None => Answer::None,
            },
        };
        (0..self.asked.len()).map(answer).collect()
    }

    /// When to look again although nobody answers.
    pub(crate) fn next_look(&self) -> Option<Instant> {
        let patience = self.patience();
        let open = |asked: &&Asked| asked.answer.is_none() && !asked.is_waiting();
        let silent_at = self
            .asked
            .iter()
            .flatten()
            .filter(open)
            .map(|asked| asked.at + patience);
        let in_vain_at = self
            .asked
            .iter()
            .flatten()
            .filter_map(|asked| asked.in_vain_from(patience));
        let looks = silent_at.chain(in_vain_at).chain(self.next_look_around());
        // What is over does not come again.
        looks.filter(|at| self.looked_at < *at).min()
    }

    /// Whether busy nodes were asked once more.
    pub(crate) fn asked_again(&self) -> bool {
        self.yields_until.is_some()
    }

    pub(crate) fn note_taken(&self) {
        self.client.note_taken(self.request.name());
    }

    /// Who has the name: as this node says, or any.
    pub(crate) fn busy(&mut self, anchor: usize) -> Busy {
        let said = |node: usize| {
            let asked = self.asked[node].as_ref()?;
            match &asked.answer {
                Some(Answered::Busy { busy, .. }) => Some(busy.clone()),
                _ => asked.vote.request.last_busy(),
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

    /// Who has the name, if that is the last word: of the anchor, or of so many others that no majority is left.
    pub(crate) fn last_busy(&self) -> Option<Busy> {
        let anchor = self.asked[self.anchor()].as_ref();
        let is_taken = anchor.is_some_and(Asked::is_busy) || self.is_taken();
        self.last_busy.clone().filter(|_| is_taken)
    }

    /// Whether somebody else holds the name at so many nodes that no majority is left.
    pub(crate) fn is_taken(&self) -> bool {
        let busy = self.asked.iter().flatten().filter(|asked| asked.is_busy()).count();
        self.waits() && rules::is_lost(busy, self.asked.len())
    }

    /// The vote that waits at the anchor.
    pub(crate) fn waiting_request(&self) -> Option<AcquireRequest> {
        let asked = self.asked[self.anchor()].as_ref()?;
        (asked.answer.is_none() && asked.vote.has_place).then(|| asked.vote.request.clone())
    }

    /// Tells the caller who has the name, if that is news: each report wakes whoever waits for a change of the request.
    pub(crate) fn report_busy(&mut self, anchor: usize) {
        let known = self.last_busy.take();
        let busy = self.busy(anchor);
        if known.as_ref() != Some(&busy) || self.request.last_busy().is_none() {
            self.request.note_busy(busy);
        }
    }

    pub(crate) fn is_waiting_at(&self, node: usize) -> bool {
        self.asked[node].as_ref().is_some_and(Asked::is_waiting)
    }

    /// Gives the vote that waits the terms that the caller has now.
    pub(crate) fn pass_terms_on(&mut self, node: usize) {
        let now = HoldTerms::of(&self.request);
        if let Some(asked) = self.asked[node].as_mut().filter(|asked| asked.terms != now) {
            asked.vote.control.set_terms(now.terms());
            asked.terms = now;
        }
    }

    pub(crate) fn give_back_all_but(&mut self, anchor: usize) {
        (self.only_anchor, self.only_suspected) = (true, false);
        self.yields_until = None;
        for node in (0..self.asked.len()).filter(|node| *node != anchor) {
            self.take_back(node);
        }
    }

    /// Has the vote of this node ended, if there is one.
    fn take_back(&mut self, node: usize) {
        if let Some(asked) = self.asked[node].take() {
            let is_over =
                asked.call.is_none() && matches!(asked.answer, Some(Answered::Busy { .. })) && !asked.vote.has_place;
            match is_over {
                true => self.votes.forget(&asked.vote),
                false => {
                    // If it is sent after this, the clean-up ends it, and nobody else need to.
                    if asked.vote.may_be_sent() {
                        self.votes.note_sent();
                    }
                    clean_up::give_back(self.client, self.votes, &asked.vote, asked.call);
                }
            }
        }
    }
}

impl Asked {
    fn is_granted(&self) -> bool {
        matches!(self.answer, Some(Answered::Granted { .. }))
    }

    /// From when on the vote is had in vain, unless there is a majority by then.
    fn in_vain_from(&self, patience: Duration) -> Option<Instant> {
        Some(self.at + self.took()? + patience)
    }

    fn took(&self) -> Option<Duration> {
        match self.answer {
            Some(Answered::Granted { took }) => Some(took),
            _ => None,
        }
    }

    /// Whether somebody else holds the name, as the node has said.
    fn is_busy(&self) -> bool {
        self.is_waiting() || matches!(self.answer, Some(Answered::Busy { .. }))
    }

    /// Whether it waits in the node's queue, as the node has said.
    fn is_waiting(&self) -> bool {
        self.answer.is_none() && self.vote.has_place && self.vote.request.last_busy().is_some()
    }
}

/// Whatever was asked and is no part of a hold is undone in the background.
impl Drop for Round<'_> {
    fn drop(&mut self) {
        for node in 0..self.asked.len() {
            self.take_back(node);
        }
    }
}
