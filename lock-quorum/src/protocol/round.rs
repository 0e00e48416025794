//! One attempt at a name: which nodes were asked, and what follows from what they have said.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use lock_core::backend::Busy;
use lock_core::{Error, FencingToken};

use self::look::Looks;
use super::decisions::Decisions;
use super::messages::{Ask, Command, Failure, Order, Situation, VoteId, Wanted};
use crate::rules::{self, Answer, Outcome, Token};

mod answers;
mod ask;
mod look;
mod majority;
mod state;

#[derive(Debug)]
pub(super) struct Round<D> {
    pub(super) wanted: Wanted,
    decisions: D,
    pub(super) commands: VecDeque<Command>,
    /// The number of votes in all rounds.
    votes: u64,
    /// By node. A node that failed has none.
    asked: Vec<Option<Asked>>,
    failed: Vec<Option<Failed>>,
    /// Whether only the anchor was asked.
    only_anchor: bool,
    /// Whether only the suspected nodes were asked, since they are a majority.
    only_suspected: bool,
    /// For how long a node may be silent.
    patience: Duration,
    looks: Looks,
    /// Until when nodes are waited for that others give back, once the anchor has voted for us.
    yields_until: Option<Instant>,
    /// Until when answers are waited for that may spare us to raise tokens.
    stragglers_until: Option<Instant>,
    last_busy: Option<Busy>,
    is_given_up: bool,
}

#[derive(Debug)]
struct Asked {
    vote: VoteId,
    ask: Ask,
    at: Instant,
    answer: Option<Answered>,
    /// Who has the name, as the node said while the request waits in its queue.
    queued: Option<Busy>,
    /// As the node has stored it, perhaps raised.
    token: Option<FencingToken>,
    /// When the change of a vote that was granted was asked for, which is under way.
    changing_since: Option<Instant>,
    /// The token to which its node may have raised the vote. The answer has not arrived yet.
    raised_to: Option<FencingToken>,
}

/// Why a node cannot vote in this round.
#[derive(Clone, Debug)]
struct Failed {
    error: Error,
    /// Whether it did not answer a change of its vote in time. It may answer another request.
    is_silent: bool,
}

#[derive(Debug)]
enum Answered {
    Granted { took: Duration },
    Busy { busy: Busy, at: Instant },
}

#[derive(Debug)]
pub(super) enum Decision {
    Granted(FencingToken),
    Busy(Busy),
    /// Too many others were at the same name.
    Collided,
    /// So many nodes are silent that no majority is left, and the votes that are here are given back: others may have use for them.
    Silent(Failure),
    /// So many nodes have failed that no majority is left.
    Unavailable,
    /// A node was asked: look again.
    AskedMore,
    /// For the next answer, until then at the latest.
    Wait(Option<Instant>),
}

impl<D: Decisions> Round<D> {
    pub(super) fn new(wanted: Wanted, decisions: D) -> Self {
        let nodes = wanted.nodes();
        Self {
            wanted,
            decisions,
            commands: VecDeque::new(),
            votes: 0,
            asked: (0..nodes).map(|_| None).collect(),
            failed: vec![None; nodes],
            only_anchor: false,
            only_suspected: false,
            patience: Duration::ZERO,
            looks: Looks::default(),
            yields_until: None,
            stragglers_until: None,
            last_busy: None,
            is_given_up: false,
        }
    }

    /// Begins an attempt after so many that ended because a majority was silent: asks all nodes that are not suspected, or the
    /// anchor alone if the name was found taken. If a majority is suspected, asks that first.
    pub(super) fn begin(&mut self, situation: &mut Situation<'_>, silences: u32) {
        let patience = self.configured_patience(situation);
        self.patience = rules::patience_after(patience, situation.ttl, silences);
        let known_taken = situation.known.take_known_taken(&self.wanted.name, situation.now);
        let is_suspected = |node: &usize| situation.known.is_suspected(*node, situation.now);
        let (suspected, others): (Vec<usize>, Vec<usize>) =
            self.wanted.order.iter().partition(|node| is_suspected(node));
        self.only_suspected = rules::asks_suspected_first(suspected.len(), self.wanted.nodes());
        if self.only_suspected {
            suspected.iter().for_each(|node| self.ask(*node, Ask::Once, situation));
            return;
        }
        let anchor = self.anchor(situation);
        self.only_anchor = known_taken && self.wanted.waits;
        self.ask(anchor, self.ask_of_anchor(), situation);
        if !self.only_anchor {
            let others = others.into_iter().filter(|node| *node != anchor);
            others.for_each(|node| self.ask(node, Ask::Once, situation));
        }
    }

    /// Ends the attempt: all is given back.
    pub(super) fn end(&mut self) {
        for node in 0..self.asked.len() {
            self.take_back(node);
        }
        self.failed.fill(None);
        (self.only_anchor, self.only_suspected) = (false, false);
        self.looks = Looks::after(&self.looks);
        (self.yields_until, self.stragglers_until, self.last_busy) = (None, None, None);
    }

    /// Gives all requests up, and keeps what they have left.
    pub(super) fn give_up(&mut self, situation: &Situation<'_>) {
        // From here on the nodes only report that the requests were given up.
        self.last_busy = self.last_busy(situation);
        self.is_given_up = true;
        let votes = self.asked.iter().flatten().map(|asked| asked.vote);
        self.commands
            .extend(votes.map(|vote| Command::Vote(vote, Order::GiveUp)));
    }

    pub(super) fn decide(&mut self, situation: &mut Situation<'_>) -> Decision {
        self.look_at_clock(situation);
        if self.ask_after_suspected(situation) {
            return Decision::AskedMore;
        }
        let anchor = self.anchor(situation);
        let answers = self.answers(situation);
        if let Some(token) = self.token(&answers, situation) {
            return self.decide_token(token, situation);
        }
        if self.wanted.waits && answers[anchor] == Answer::Busy {
            return self.wait_at(anchor, situation);
        }
        if self.has_new_anchor(anchor) {
            self.give_back_all_but(anchor);
            self.ask_anchor_again(anchor, situation);
            return Decision::AskedMore;
        }
        if answers[anchor] == Answer::Granted {
            self.go_on_from_anchor();
            let mut busy = 0..answers.len();
            let busy: Vec<usize> = busy.by_ref().filter(|node| self.may_yield(*node, situation)).collect();
            if !busy.is_empty() {
                self.ask_others(&busy, situation);
                return Decision::AskedMore;
            }
        }
        match self.decisions.outcome(&answers, anchor, self.yields_until.is_some()) {
            Outcome::Busy if self.wanted.waits => {
                self.note_taken(situation);
                self.report_busy(anchor, situation);
                self.pass_anchor_by(anchor, situation);
                Decision::Collided
            }
            Outcome::Busy => Decision::Busy(self.busy(anchor)),
            Outcome::Unavailable if self.is_unavailable() => Decision::Unavailable,
            Outcome::Unavailable if self.has_votes_in_vain(situation) => {
                Decision::Silent(self.failure(situation, false))
            }
            _ if self.ask_spare_nodes(situation) => Decision::AskedMore,
            _ => {
                if self.is_taken() {
                    self.report_busy(anchor, situation);
                }
                Decision::Wait(self.next_look(situation))
            }
        }
    }

    /// A majority has voted.
    fn decide_token(&mut self, token: Token, situation: &Situation<'_>) -> Decision {
        match token {
            Token::Decided(token) => match self.raises_above(token) {
                Some(higher) => {
                    self.raise(higher, situation);
                    Decision::Wait(self.next_look(situation))
                }
                None if self.renew_short_votes(situation) => Decision::Wait(self.next_look(situation)),
                None => Decision::Granted(token),
            },
            Token::Raise(token) => match self.stragglers(situation) {
                // An answer that is on its way may decide it.
                Some(until) => Decision::Wait(Some(until)),
                None => {
                    self.raise(token, situation);
                    Decision::Wait(self.next_look(situation))
                }
            },
            Token::Undecided => Decision::Wait(self.next_look(situation)),
        }
    }

    /// The anchor says that the name is taken. The other nodes are given back, and the request waits in its queue.
    fn wait_at(&mut self, anchor: usize, situation: &mut Situation<'_>) -> Decision {
        self.note_taken(situation);
        self.give_back_all_but(anchor);
        self.report_busy(anchor, situation);
        self.look_around(anchor, situation);
        if let Some(asked) = self.asked[anchor].as_ref().filter(|asked| asked.is_waiting()) {
            self.commands.push_back(Command::Vote(asked.vote, Order::PassTermsOn));
            return Decision::Wait(self.next_look(situation));
        }
        match self.ask_anchor_again(anchor, situation) {
            None => Decision::AskedMore,
            Some(later) => {
                let look = self.next_look(situation);
                Decision::Wait(Some(look.map_or(later, |look| look.min(later))))
            }
        }
    }
}
