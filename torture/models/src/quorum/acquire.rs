//! One acquire, up to its grant: the protocol decides, and this drives it over simulated nodes, as a backend and its connections do
//! over real ones.

use std::time::Duration;

use lock_core::backend::Busy;
use lock_core::{Error, ErrorKind, FencingToken};
use lock_quorum::protocol::{
    Acquire, Ask, Changed, Command, Event, News, Order, Outcome, Seen, Situation, Step, VoteId, Wanted,
};
use lock_quorum::rules;

use super::client::{self, Client};
use super::decisions::Mutated;
use super::hold::Hold;
use super::message::{self, Answer, Id, Mail, Request};
use super::mutant::QuorumMutant;
use super::scenario::Strategy;
use super::votes::{Vote, Votes};

/// The longest time until a backend without an answer reports an error.
const LONGEST_ANSWER: Duration = Duration::from_secs(3);

/// Asks for the name until it is granted, or until the clients stop.
pub(super) async fn acquire(client: &mut Client) -> Option<Hold> {
    while !client.is_over() {
        if let Some(hold) = ask(client, true).await {
            return Some(hold);
        }
        let pause = client.up_to(Duration::from_millis(100)) + Duration::from_micros(500);
        client.sleep(pause).await;
    }
    None
}

/// Asks for the name once, without waiting for anybody who holds it.
pub(super) async fn try_acquire(client: &mut Client) -> Option<Hold> {
    ask(client, false).await
}

async fn ask(client: &mut Client, waits: bool) -> Option<Hold> {
    let mut driver = Driver::new(client, waits);
    loop {
        match driver.step() {
            Step::Done(Outcome::Granted(token)) => return driver.becomes_hold(token),
            Step::Done(outcome) => {
                driver.client.note(|| format!("gives its votes back: {outcome:?}"));
                driver.client.give_back(&driver.votes);
                return None;
            }
            Step::Wait(until) => {
                let until = driver.client.shown_at(until).min(driver.next_alarm());
                if let Some(mail) = driver.client.receive(until).await {
                    driver.take(&mail);
                }
                driver.alarm();
            }
        }
    }
}

#[derive(Debug)]
struct Driver<'a> {
    client: &'a mut Client,
    protocol: Acquire<Mutated>,
    /// A request that waits is given up when the clients stop.
    waits: bool,
    votes: Votes,
    holder: u64,
    look: Option<Look>,
    reported: Option<Busy>,
}

/// A look at all nodes, under way.
#[derive(Debug)]
struct Look {
    number: u32,
    until: Duration,
    /// By node: the number of the request, if there is one, and the answer.
    seen: Vec<(Option<u64>, Seen)>,
}

impl<'a> Driver<'a> {
    fn new(client: &'a mut Client, waits: bool) -> Self {
        let scenario = client.scenario.clone();
        if scenario.strategy == Strategy::AllAtOnce {
            client.forget_that_it_is_taken();
        }
        let wanted = Wanted {
            name: client.name(),
            order: client::order(scenario.nodes).collect(),
            waits,
            is_fixed: false,
            patience: scenario.patience,
            has_session: vec![false; scenario.nodes],
        };
        Self {
            protocol: Acquire::new(wanted, Mutated(scenario.mutant)),
            waits,
            votes: Votes::new(&scenario, client.ttl()),
            holder: client.new_id().0,
            look: None,
            reported: None,
            client,
        }
    }

    fn step(&mut self) -> Step {
        let now = self.client.now();
        let left: Vec<Duration> = (0..self.votes.list.len())
            .map(|node| self.votes.left(node, now))
            .collect();
        let is_given_up = self.waits && self.client.is_over();
        let (random, ttl) = (self.client.random(), self.client.ttl());
        let step = self.protocol.step(&mut Situation {
            now: self.client.instant(now),
            known: &mut self.client.known,
            ttl,
            left: &left,
            time_left: None,
            is_given_up,
            reported: self.reported.clone(),
            random,
        });
        let mut is_heard = false;
        while let Some(command) = self.protocol.next_command() {
            match command {
                Command::Vote(vote, order) => is_heard |= self.carry_out(vote, order),
                Command::Look { look, nodes, patience } => self.look(look, &nodes, patience),
                Command::ReportBusy(busy) => self.reported = Some(busy),
                Command::NotePassedBy(node) => self.client.note(|| format!("passes node {node} by")),
            }
        }
        match is_heard {
            true => self.step(),
            false => step,
        }
    }

    /// Does what the protocol wants done with a vote. Returns whether something is known of it already.
    fn carry_out(&mut self, vote: VoteId, order: Order) -> bool {
        if let Order::Ask { node, ask, adopts } = order {
            self.votes.list[node] = Vote::asked(vote, self.client.new_id(), ask != Ask::Once, adopts);
            if let Ask::Within(time) = ask {
                self.votes.list[node].waits_until = Some(self.client.now() + time);
            }
            self.request(node);
            return false;
        }
        let Some(node) = self.votes.node_of(vote) else {
            return false;
        };
        match order {
            Order::Ask { .. } | Order::PassTermsOn => {}
            Order::AskAgain => self.request(node),
            Order::GiveUp => return self.stops_waiting(node),
            Order::GiveBack => {
                if let Some(id) = self.votes.to_end_at(node) {
                    self.client.send(node, Request::End(id));
                }
                self.votes.list[node].reset();
            }
            Order::Change { raise, renew } => self.change(node, raise, renew),
        }
        false
    }

    /// Asks for a vote, for the first time or once more.
    fn request(&mut self, node: usize) {
        let (holder, ttl) = (self.holder, self.client.ttl());
        let vote = &mut self.votes.list[node];
        let Some(id) = vote.id else { return };
        let request = message::Acquire {
            id,
            holder,
            ttl,
            waits: vote.waits,
            adopts: vote.adopts,
            reinstates: false,
            by_force: false,
        };
        let patience = match vote.is_queued {
            // A connection that is silent is found out soon.
            true => rules::patience(self.client.scenario.patience, ttl),
            false => LONGEST_ANSWER.min(ttl),
        };
        (vote.is_open, vote.ask_again, vote.fails_at) = (true, None, Some(self.client.now() + patience));
        vote.number = self.client.send(node, Request::Acquire(request));
    }

    fn change(&mut self, node: usize, raise: Option<FencingToken>, renew: bool) {
        let Some(id) = self.votes.list[node].id else { return };
        let raising = raise.map(|token| self.client.send(node, Request::Raise(id, token)));
        let renewing = renew.then(|| self.client.send(node, Request::Renew(id)));
        let fails_at = self.client.now() + LONGEST_ANSWER.min(self.client.ttl());
        let vote = &mut self.votes.list[node];
        vote.changing = raising.into_iter().chain(renewing).collect();
        (vote.raise, vote.fails_at) = (raise, Some(fails_at));
    }

    fn look(&mut self, number: u32, nodes: &[usize], patience: Duration) {
        let all = 0..self.votes.list.len();
        let seen = all.map(|node| match nodes.contains(&node) {
            // The node names the hold whoever asks.
            true => (
                Some(self.client.send(node, Request::Status(Id::default()))),
                Seen::Silent,
            ),
            false => (None, Seen::Unknown),
        });
        let seen = seen.collect();
        let until = self.client.now() + patience;
        self.look = Some(Look { number, until, seen });
    }

    fn take(&mut self, mail: &Mail) {
        let now = self.client.now();
        if let (Request::Status(_), Answer::HeldBy(holder)) = (mail.request.request, mail.answer) {
            self.saw(mail, holder);
        }
        let lasts = self.votes.lasts(mail, now);
        let Some(vote) = self.votes.of(mail) else { return };
        let (is_last, is_open) = (vote.number == mail.request.number, vote.is_open);
        match (mail.request.request, mail.answer) {
            // It is the answer to a request that was sent too long ago.
            (Request::Acquire(_), Answer::Granted(_)) if is_open && !lasts => {
                self.fails(mail.node, "the answer took longer than the lease");
            }
            (Request::Acquire(_), Answer::Granted(token)) if is_open => {
                self.votes.grant(mail, Some(token), now);
                self.heard(mail.node, News::Granted(token));
            }
            (Request::Acquire(_), Answer::Offered) if is_open && vote.waits => {
                // A process that was paused looks at the time before it sends.
                match vote.waits_until.is_some_and(|until| until <= now) {
                    true => _ = self.stops_waiting(mail.node),
                    false => self.request(mail.node),
                }
            }
            (Request::Acquire(_), Answer::Busy(left, holder)) if is_open && is_last => {
                let busy = Busy::new().with_holder(holder.to_string());
                match vote.waits {
                    true => {
                        let refresh = self.client.ttl() / 3;
                        (vote.is_queued, vote.fails_at) = (true, None);
                        vote.ask_again = Some(now + refresh.min(left + Duration::from_millis(1)));
                        self.heard(mail.node, News::Queued(busy));
                    }
                    false => {
                        (vote.is_open, vote.is_taken) = (false, true);
                        self.heard(mail.node, News::Busy(busy));
                    }
                }
            }
            (Request::Acquire(_), Answer::Ended) if is_open && is_last => self.fails(mail.node, "it was ended"),
            (Request::Acquire(_), Answer::MayHaveForgotten) if is_open && is_last => {
                self.fails(mail.node, "the node may have forgotten votes");
            }
            (Request::Raise(..) | Request::Renew(_), Answer::Done | Answer::NotYours) => self.changed(mail, now),
            _ => {}
        }
    }

    /// A node has answered a change of its vote.
    fn changed(&mut self, mail: &Mail, now: Duration) {
        match (mail.request.request, mail.answer) {
            (Request::Raise(_, to), Answer::Done) => self.votes.raised(mail, to),
            (Request::Renew(_), Answer::Done) => self.votes.grant(mail, None, now),
            _ => {}
        }
        let vote = &mut self.votes.list[mail.node];
        if !vote.changing.contains(&mail.request.number) {
            return;
        }
        let is_lost = matches!(mail.answer, Answer::NotYours);
        vote.changing
            .retain(|number| *number != mail.request.number && !is_lost);
        if vote.changing.is_empty() {
            vote.fails_at = None;
            let changed = match vote.raise.take() {
                _ if is_lost => Changed::Lost,
                Some(token) => Changed::Raised(token),
                None => Changed::Renewed,
            };
            self.heard(mail.node, News::Changed(Ok(changed)));
        }
    }

    fn saw(&mut self, mail: &Mail, holder: Option<u64>) {
        let Some(look) = &mut self.look else { return };
        let (number, seen) = &mut look.seen[mail.node];
        if *number == Some(mail.request.number) {
            *seen = Seen::Holders(holder.map(|holder| holder.to_string().into()).into_iter().collect());
        }
        if !look.seen.iter().any(|(_, seen)| matches!(seen, Seen::Silent)) {
            self.ends_look();
        }
    }

    fn ends_look(&mut self) {
        if let Some(look) = self.look.take() {
            let seen = look.seen.into_iter().map(|(_, seen)| seen).collect();
            self.protocol.handle(Event::Looked(look.number, seen));
        }
    }

    /// When something is to be done although nobody answers.
    fn next_alarm(&self) -> Duration {
        let votes = self.votes.list.iter();
        let alarms = votes.flat_map(|vote| [vote.ask_again, vote.fails_at, vote.waits_until]);
        let look = self.look.as_ref().map(|look| look.until);
        alarms.chain([look]).flatten().min().unwrap_or(Duration::MAX)
    }

    /// Does what a backend does by itself when the time has come.
    fn alarm(&mut self) {
        let now = self.client.now();
        if self.look.as_ref().is_some_and(|look| look.until <= now) {
            self.ends_look();
        }
        for node in 0..self.votes.list.len() {
            let is_due = |time: Option<Duration>| time.is_some_and(|time| time <= now);
            let vote = &self.votes.list[node];
            let (is_queued, is_changing) = (vote.is_queued && vote.is_open, !vote.changing.is_empty());
            if is_due(vote.waits_until) {
                self.stops_waiting(node);
            } else if is_due(vote.fails_at) && is_changing {
                let vote = &mut self.votes.list[node];
                (vote.raise, vote.fails_at) = (None, None);
                vote.changing.clear();
                self.heard(node, News::Changed(Err(unavailable("no answer"))));
            } else if is_due(vote.fails_at) && is_queued {
                self.votes.list[node].fails_at = None;
                self.heard(node, News::Unreachable(unavailable("no answer")));
            } else if is_due(vote.fails_at) {
                self.fails(node, "no answer");
            } else if is_due(vote.ask_again) {
                self.request(node);
            }
        }
    }

    /// A request that waits in the node's queue is given up, and its backend answers at once. Returns whether it was one.
    fn stops_waiting(&mut self, node: usize) -> bool {
        let vote = &mut self.votes.list[node];
        let waits = vote.waits && vote.is_open;
        (vote.waits_until, vote.ask_again) = (None, None);
        if waits {
            (vote.is_open, vote.fails_at) = (false, None);
            let busy = self.reported.clone().unwrap_or_default();
            self.heard(node, News::Busy(busy));
        }
        waits
    }

    fn fails(&mut self, node: usize, why: &'static str) {
        let vote = &mut self.votes.list[node];
        (vote.is_open, vote.fails_at, vote.ask_again) = (false, None, None);
        let (error, is_gone) = (unavailable(why), false);
        self.heard(node, News::Failed { error, is_gone });
    }

    fn heard(&mut self, node: usize, news: News) {
        if let Some(vote) = self.votes.list[node].vote {
            self.protocol.handle(Event::Vote(vote, news));
        }
    }

    /// Believes in the hold, if enough of its votes last.
    fn becomes_hold(self, token: FencingToken) -> Option<Hold> {
        let now = self.client.now();
        let nodes = match self.client.scenario.has(QuorumMutant::MajorityOfReachable) {
            true => self.votes.count_live(now),
            false => self.votes.list.len(),
        };
        let hold = Hold::begin(self.client, self.votes, self.holder, token, nodes);
        match hold {
            Ok(hold) => Some(hold),
            Err(votes) => {
                self.client.give_back(&votes);
                None
            }
        }
    }
}

fn unavailable(why: &'static str) -> Error {
    Error::new(ErrorKind::Unavailable, why)
}

impl Votes {
    fn node_of(&self, vote: VoteId) -> Option<usize> {
        self.list.iter().position(|known| known.vote == Some(vote))
    }
}
