//! Drives the protocol of an acquire: sends its commands to the nodes, and hands their answers in.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::{BoxFuture, join_all};
use futures_util::stream::FuturesUnordered;
use lock_core::backend::request::RequestOptions;
use lock_core::backend::{AcquireRequest, Attempt, LockStatus};
use lock_core::{Error, ErrorKind, FencingToken, Result};
use tokio::time::{Instant, sleep_until, timeout};

use self::asked::{Asked, change};

use crate::client::Client;
use crate::error::NodeErrors;
use crate::hold::QuorumHold;
use crate::protocol::{
    Acquire, Ask, Changed, Command, Event, Failure, News, Order, Outcome, Seen, Situation, Sound, Step, VoteId, Wanted,
};
use crate::terms::HoldTerms;
use crate::votes::{Call, GIVEN_UP, Vote, Votes};
use crate::{clean_up, follow, label, late};

mod asked;

/// Asks until the name is granted, or it is known that it is not.
pub(crate) async fn drive(client: &Arc<Client>, votes: &Arc<Votes>, request: &AcquireRequest) -> Result<Attempt> {
    let mut driver = Driver::new(client, votes, request);
    loop {
        // They hear of each change from here on.
        let changed = request.changed();
        let waiting = driver.waiting();
        let mut noted: FuturesUnordered<_> = waiting.iter().map(AcquireRequest::changed).collect();
        if votes.has_ended() {
            match request.is_given_up() {
                true => driver.protocol.abandon(),
                false => return Err(votes.abandoned()),
            }
        }
        let (step, is_given_up) = driver.step();
        match (driver.carry_out_commands(), step) {
            (_, Step::Done(outcome)) => return driver.done(outcome),
            // The answer of a node that was asked may be there.
            (true, Step::Wait(_)) => {}
            (false, Step::Wait(until)) => tokio::select! {
                biased;
                () = driver.next_answer() => {}
                Some(()) = noted.next() => {}
                () = changed => {}
                () = request.given_up(), if !is_given_up => {}
                () = votes.ended() => {}
                () = sleep_until(Instant::from_std(until)) => {}
            },
        }
    }
}

struct Driver<'a> {
    client: &'a Arc<Client>,
    votes: &'a Arc<Votes>,
    request: &'a AcquireRequest,
    /// The request's terms when the protocol last decided. Nothing else is read from it: core takes what was read for what was sent.
    terms: HoldTerms,
    protocol: Acquire<Sound>,
    /// All that may have left something at their nodes. What becomes no part of a hold is undone in the background.
    asked: Vec<Asked>,
    look: Option<(u32, BoxFuture<'static, Vec<Seen>>)>,
}

impl<'a> Driver<'a> {
    fn new(client: &'a Arc<Client>, votes: &'a Arc<Votes>, request: &'a AcquireRequest) -> Self {
        let sessions = client.nodes.iter().map(|node| node.capabilities.session_renewal);
        let wanted = Wanted {
            name: request.name().clone(),
            order: client.order(request.name()),
            waits: request.waits(),
            is_fixed: request.is_fixed(),
            patience: client.configured_patience(),
            has_session: sessions.collect(),
        };
        Self {
            client,
            votes,
            request,
            terms: HoldTerms::of(request),
            protocol: Acquire::new(wanted, Sound),
            asked: Vec::new(),
            look: None,
        }
    }

    /// The requests that may wait at their nodes.
    fn waiting(&self) -> Vec<AcquireRequest> {
        let waiting = self.asked.iter().filter(|asked| asked.may_wait());
        waiting.map(|asked| asked.vote.request.clone()).collect()
    }

    /// Lets the protocol decide. Returns also whether the caller had given up.
    fn step(&mut self) -> (Step, bool) {
        let mut left = vec![Duration::ZERO; self.client.nodes.len()];
        for asked in &self.asked {
            left[asked.vote.node] = asked.vote.lease().valid_for();
            asked.hand_in_notes(&mut self.protocol);
        }
        let (is_given_up, reported) = (self.request.is_given_up(), self.request.last_busy());
        self.terms = HoldTerms::of(self.request);
        let step = self.protocol.step(&mut Situation {
            now: Instant::now().into_std(),
            known: &mut self.client.known(),
            ttl: self.terms.ttl,
            left: &left,
            time_left: self.request.time_left(),
            is_given_up,
            reported,
            random: rand::random(),
        });
        (step, is_given_up)
    }

    /// Does what the protocol wants done. Returns whether a node was asked for a vote.
    fn carry_out_commands(&mut self) -> bool {
        let mut has_asked = false;
        while let Some(command) = self.protocol.next_command() {
            match command {
                Command::Vote(id, order) => {
                    has_asked |= matches!(order, Order::Ask { .. } | Order::AskAgain);
                    self.carry_out(id, order);
                }
                Command::Look { look, nodes, patience } => self.look = Some((look, self.look_at(&nodes, patience))),
                Command::ReportBusy(busy) => self.request.note_busy(busy),
                Command::NotePassedBy(node) => {
                    tracing::debug!(target: "polylock", name = self.request.name().as_str(), node = node + 1,
                        "a node's vote is of a holder without a majority: going on without this node");
                }
            }
        }
        has_asked
    }

    fn carry_out(&mut self, id: VoteId, order: Order) {
        if let Order::Ask { node, ask, adopts } = order {
            return self.ask(id, node, ask, adopts);
        }
        let Some(index) = self.asked.iter().position(|asked| asked.id == id) else {
            // The request had ended before it was sent.
            return;
        };
        let asked = &mut self.asked[index];
        match order {
            Order::Ask { .. } => {}
            Order::AskAgain => asked.call = Some(Call::new(&self.client.nodes[asked.vote.node], &asked.vote)),
            Order::PassTermsOn => {
                if asked.terms != self.terms {
                    asked.vote.prolongs(self.terms.ttl);
                    asked.vote.control.set_terms(self.terms.terms());
                    asked.terms = self.terms.clone();
                }
            }
            Order::GiveUp => asked.vote.control.give_up(),
            Order::GiveBack => {
                let asked = self.asked.swap_remove(index);
                self.give_back(asked);
            }
            Order::Change { raise, renew } => {
                asked.change = change(&asked.vote, raise, renew.then_some(self.terms.ttl));
            }
        }
    }

    fn ask(&mut self, id: VoteId, node: usize, ask: Ask, adopts: Option<FencingToken>) {
        let request = self.request;
        let terms = self.terms.clone();
        let asked_terms = match ask {
            Ask::Within(time) => terms.terms().time_left(time),
            Ask::Once | Ask::Forever => terms.terms(),
        };
        let mut options = RequestOptions::new(request.name().clone(), asked_terms)
            .mode(request.mode())
            .fixed(request.is_fixed())
            .shows_token(request.shows_token())
            .waits(ask != Ask::Once);
        if let Some(floor) = request.token_floor() {
            options = options.token_above(floor);
        }
        if let Some(adopted) = adopts {
            options = options.token_at_least(adopted);
        }
        let vote = Arc::new(Vote::new(node, options.start(), ask != Ask::Once));
        if self.votes.record(&vote) {
            let call = Some(Call::new(&self.client.nodes[node], &vote));
            self.asked.push(Asked {
                id,
                vote,
                call,
                terms,
                change: None,
            });
        }
    }

    /// Asks these nodes who holds the name.
    fn look_at(&self, nodes: &[usize], patience: Duration) -> BoxFuture<'static, Vec<Seen>> {
        let asked = self.client.nodes.iter().enumerate().map(|(number, node)| {
            let (backend, name) = (node.backend.clone(), self.request.name().clone());
            let is_asked = nodes.contains(&number);
            async move {
                if !is_asked {
                    return Seen::Unknown;
                }
                match timeout(patience, backend.status(&name)).await {
                    Ok(Ok(status)) => Seen::Holders(holders(&status)),
                    Ok(Err(_)) => Seen::Unknown,
                    Err(_) => Seen::Silent,
                }
            }
        });
        Box::pin(join_all(asked))
    }

    /// The next answer of any node.
    async fn next_answer(&mut self) {
        poll_fn(|context| self.poll_answers(context)).await;
    }

    fn poll_answers(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let mut is_ready = Poll::Pending;
        if let Some((number, look)) = &mut self.look
            && let Poll::Ready(seen) = look.as_mut().poll(context)
        {
            self.protocol.handle(Event::Looked(*number, seen));
            self.look = None;
            is_ready = Poll::Ready(());
        }
        // From the last one, since what is over is removed.
        for index in (0..self.asked.len()).rev() {
            let asked = &mut self.asked[index];
            if let Some(call) = &mut asked.call
                && let Poll::Ready(attempt) = call.future.as_mut().poll(context)
            {
                asked.hand_in_notes(&mut self.protocol);
                asked.call = None;
                self.answered(index, attempt);
                is_ready = Poll::Ready(());
            } else if let Some(change) = &mut asked.change
                && let Poll::Ready(changed) = change.as_mut().poll(context)
            {
                asked.change = None;
                if let Ok(Changed::Raised(token)) = changed {
                    asked.vote.raised(token);
                }
                self.protocol.handle(Event::Vote(asked.id, News::Changed(changed)));
                is_ready = Poll::Ready(());
            }
        }
        is_ready
    }

    fn answered(&mut self, index: usize, attempt: Result<Attempt>) {
        let asked = &self.asked[index];
        if attempt.is_ok() {
            self.votes.note_sent();
            self.request.note_connected();
        }
        let mut is_over = false;
        let news = match attempt {
            Ok(Attempt::Granted(hold, _armed)) => {
                let token = hold.token();
                asked.vote.granted(hold);
                News::Granted(token)
            }
            Ok(Attempt::Busy(busy)) => {
                is_over = !asked.vote.has_place;
                News::Busy(busy)
            }
            Ok(_) => News::Failed {
                error: Error::new(ErrorKind::Unexpected, "an answer of an unknown kind"),
                is_gone: false,
            },
            Err(error) => {
                is_over = asked.vote.request.was_certainly_not_sent(&error);
                if !is_over {
                    self.votes.note_sent();
                }
                News::Failed {
                    error,
                    is_gone: is_over,
                }
            }
        };
        self.protocol.handle(Event::Vote(asked.id, news));
        if is_over {
            self.votes.forget(&asked.vote);
            self.asked.swap_remove(index);
        }
    }

    fn done(self, outcome: Outcome) -> Result<Attempt> {
        match outcome {
            Outcome::Granted(token) => {
                // While the request waited, its TTL may have changed, or a process with another quorum was seen.
                self.client.members.check(self.terms.ttl)?;
                self.becomes_hold(token)
            }
            Outcome::Busy(busy) => Ok(Attempt::Busy(busy)),
            Outcome::Failed(failure) => Err(self.error(failure)),
        }
    }

    fn error(&self, failure: Failure) -> Error {
        let (failed, nodes) = (failure.nodes.len(), self.client.nodes.len());
        let mut errors = NodeErrors::default();
        for (node, error) in failure.nodes {
            errors.add(node, self.client.nodes[node].kind(), error);
        }
        let error = errors.into_error(match failure.is_given_up {
            true => GIVEN_UP.to_owned(),
            false => format!("{failed} of {nodes} nodes cannot be asked, and a majority is needed"),
        });
        // A call that is still open may send its request later. The background undoes it then.
        let may_be_sent = self.votes.was_sent() || self.asked.iter().any(|asked| asked.vote.may_be_sent());
        match may_be_sent {
            true => error,
            false => error.not_executed(),
        }
    }

    /// Makes the live votes those of a hold, and arms its lease. Answers that are on their way still count.
    ///
    /// # Errors
    /// If the request has ended, or too many votes have.
    fn becomes_hold(mut self, token: FencingToken) -> Result<Attempt> {
        let live = self
            .asked
            .iter()
            .filter(|asked| asked.vote.is_live() && asked.call.is_none());
        let live: Vec<_> = live.map(|asked| asked.vote.clone()).collect();
        let armed = self.votes.grant(token, &live, self.client.needed())?;
        for mut asked in std::mem::take(&mut self.asked) {
            if let Some(change) = asked.change.take() {
                let votes = self.votes.clone();
                clean_up::spawn(self.client, async move {
                    tokio::select! {
                        biased;
                        () = votes.over() => {}
                        _ = change => {}
                    }
                });
            }
            match asked.call.take() {
                Some(call) => late::follow(self.client, self.votes, asked.vote, call),
                None if live.iter().any(|vote| Arc::ptr_eq(vote, &asked.vote)) => {}
                None => self.give_back(asked),
            }
        }
        let hold = QuorumHold::new(self.client, self.votes, token);
        follow::follow(self.client, self.votes);
        Ok(Attempt::Granted(Arc::new(hold), armed))
    }

    fn give_back(&self, asked: Asked) {
        // If it is sent after this, the clean-up ends it, and nobody else need to.
        if asked.vote.may_be_sent() {
            self.votes.note_sent();
        }
        clean_up::give_back(self.client, self.votes, &asked.vote, asked.call);
    }
}

/// Whatever was asked and is no part of a hold is undone in the background.
impl Drop for Driver<'_> {
    fn drop(&mut self) {
        for asked in std::mem::take(&mut self.asked) {
            self.give_back(asked);
        }
    }
}

/// Who has the node's vote: by the mark of a quorum's hold, or else by the label.
fn holders(status: &LockStatus) -> Vec<Arc<str>> {
    let holders = status.holders.iter();
    holders.map(|holder| label::mark(holder.label.as_ref())).collect()
}
