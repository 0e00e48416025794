//! One acquisition, up to its grant.

use std::time::Duration;

use lock_core::FencingToken;
use lock_quorum::rules::{self, Outcome, Token};

use super::client::Client;
use super::hold::Hold;
use super::look::{Looks, Seen};
use super::message::{Acquire, Answer, Mail, Request};
use super::mutant::QuorumMutant;
use super::scenario::Strategy;
use super::votes::Votes;

/// Later than any time.
const NEVER: Duration = Duration::MAX;

/// Asks for the name until it is granted, or until the clients stop.
pub(super) async fn acquire(client: &mut Client) -> Option<Hold> {
    let (mut failures, mut silences) = (0, 0);
    while !client.is_over() {
        match attempt(client, true, failures > 0, silences).await {
            Ended::Granted(hold) => return Some(hold),
            Ended::Silent => silences += 1,
            Ended::Refused => {}
        }
        let pause = pause(client, failures);
        client.sleep(pause).await;
        failures += 1;
    }
    None
}

/// Asks for the name once, without waiting for anybody who holds it.
pub(super) async fn try_acquire(client: &mut Client) -> Option<Hold> {
    match attempt(client, false, false, 0).await {
        Ended::Granted(hold) => Some(hold),
        Ended::Silent | Ended::Refused => None,
    }
}

/// How an attempt ended.
enum Ended {
    Granted(Hold),
    /// So many nodes were silent that no majority was left.
    Silent,
    /// Others have the name, or nodes failed.
    Refused,
}

async fn attempt(client: &mut Client, waits: bool, is_retry: bool, silences: u32) -> Ended {
    let mut attempt = Attempt::begin(client, waits, is_retry, silences);
    let hold = attempt.finish().await;
    let Attempt { votes, is_silent, .. } = attempt;
    match hold {
        Some(hold) => Ended::Granted(hold),
        None => {
            client.note(|| "gives its votes back".to_owned());
            client.give_back(&votes);
            if is_silent { Ended::Silent } else { Ended::Refused }
        }
    }
}

/// How long to wait after a failure, so that those who got in each other's way do not meet again.
fn pause(client: &Client, failures: u32) -> Duration {
    let millis = Duration::from_millis;
    match client.scenario.strategy {
        Strategy::FixedPause => client.between(millis(200), millis(400)),
        _ => client.up_to(millis(2 << failures.min(7))) + Duration::from_micros(500),
    }
}

#[derive(Debug)]
struct Attempt<'a> {
    client: &'a mut Client,
    /// Whether it waits in the anchor's queue.
    waits: bool,
    votes: Votes,
    anchor: usize,
    phase: Phase,
    /// When the client stops waiting for answers, by its clock.
    until: Duration,
    raising: Option<FencingToken>,
    /// Which nodes are asked only if the others fail: those that are suspected of being down. If these are so many that the others
    /// are no majority, it is the others, which are asked once enough of the suspected ones have answered.
    spare: Vec<bool>,
    /// Whether the suspected nodes were asked first.
    suspected_first: bool,
    /// How many attempts before this one have met a silent majority.
    silences: u32,
    /// Whether this one has.
    is_silent: bool,
    looks: Looks,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// All nodes were asked.
    AsksAll,
    /// The anchor alone was asked, and decides.
    AtAnchor,
    /// The anchor voted. The others were asked to queue the request, since those that have their votes give way.
    Yields,
    /// A majority voted, and votes are raised to the token.
    Raises,
}

enum Step {
    GoOn,
    Granted(Hold),
    GiveUp,
}

impl<'a> Attempt<'a> {
    fn begin(client: &'a mut Client, waits: bool, is_retry: bool, silences: u32) -> Self {
        let strategy = client.scenario.strategy;
        let nodes = client.scenario.nodes;
        client.begin_attempt();
        let suspected: Vec<bool> = (0..nodes).map(|node| client.suspects(node)).collect();
        let count = suspected.iter().filter(|is_suspected| **is_suspected).count();
        let suspected_first = rules::asks_suspected_first(count, nodes);
        let at_anchor =
            !suspected_first && waits && strategy == Strategy::Adaptive && (is_retry || client.knows_it_taken());
        let mut attempt = Self {
            waits,
            votes: Votes::new(&client.scenario, client.ttl()),
            // Without one nobody decides.
            anchor: if strategy.has_anchor() {
                client.anchor()
            } else {
                usize::MAX
            },
            phase: if at_anchor { Phase::AtAnchor } else { Phase::AsksAll },
            until: NEVER,
            raising: None,
            spare: match suspected_first {
                true => suspected.iter().map(|is_suspected| !is_suspected).collect(),
                false => suspected,
            },
            suspected_first,
            silences,
            is_silent: false,
            looks: Looks::new(nodes),
            client,
        };
        for node in 0..nodes {
            let is_anchor = node == attempt.anchor;
            attempt.spare[node] &= !is_anchor || suspected_first;
            let is_asked = !attempt.spare[node] && (is_anchor || !at_anchor);
            if is_asked {
                attempt.ask(node, waits && is_anchor && strategy.has_anchor());
            }
        }
        attempt.be_patient();
        attempt
    }

    async fn finish(&mut self) -> Option<Hold> {
        loop {
            match self.decide() {
                Step::Granted(hold) => return Some(hold),
                Step::GiveUp => return None,
                Step::GoOn => {}
            }
            let ask_again = self.votes.list.iter().filter_map(|vote| vote.ask_again).min();
            let wakes = ask_again.map_or(self.until, |time| time.min(self.until));
            // Looks whether clients stop, now and then.
            let wakes = wakes.min(self.client.now() + self.client.ttl());
            let wakes = wakes.min(self.looks.next.unwrap_or(NEVER));
            match self.client.receive(wakes).await {
                Some(mail) => self.take(&mail),
                None if self.client.is_over() => return None,
                // Not before all that has arrived was read: a client that was paused finds its answers and the time to be up.
                None if self.client.now() >= self.until => {
                    if !self.goes_on_without_the_silent() {
                        return None;
                    }
                }
                None if self.looks.next.is_some_and(|time| time <= self.client.now()) => {
                    if self.look() == Seen::PassAnchor {
                        return None;
                    }
                }
                None => self.ask_again(),
            }
        }
    }

    fn decide(&mut self) -> Step {
        let now = self.client.now();
        if self.asks_spare_nodes(now) {
            self.be_patient();
        }
        let answers = self.answers(now);
        let (outcome, nodes) = self.outcome(&answers);
        let is_refused = self.waits && answers.get(self.anchor) == Some(&rules::Answer::Busy);
        match outcome {
            Outcome::Granted => return self.decide_token(nodes, now),
            Outcome::Busy if is_refused => self.wait_at_anchor(),
            Outcome::Undecided if self.votes.list.iter().any(|vote| vote.is_open()) => {}
            Outcome::AskAgain => self.ask_the_others(),
            Outcome::Busy | Outcome::Unavailable | Outcome::Undecided => return Step::GiveUp,
        }
        Step::GoOn
    }

    /// What each node has said. A spare one counts as one that failed.
    fn answers(&self, now: Duration) -> Vec<rules::Answer> {
        let mut answers = self.votes.answers(now);
        for (answer, is_spare) in answers.iter_mut().zip(&self.spare) {
            if *is_spare {
                *answer = rules::Answer::Failed;
            }
        }
        answers
    }

    /// Asks the spare nodes, if there are any and the others cannot be a majority.
    fn asks_spare_nodes(&mut self, now: Duration) -> bool {
        let answers = self.answers(now);
        let spare: Vec<usize> = (0..self.spare.len()).filter(|node| self.spare[*node]).collect();
        if self.phase == Phase::AtAnchor || spare.is_empty() {
            return false;
        }
        let count = |wanted: &[rules::Answer]| answers.iter().filter(|answer| wanted.contains(answer)).count();
        let needed = rules::majority(answers.len());
        let is_time = match self.suspected_first {
            // They may be a majority, with those that were not asked.
            true => count(&[rules::Answer::Granted, rules::Answer::Busy]) + spare.len() >= needed,
            // The silent ones end the attempt.
            false => !self.is_silent && count(&[rules::Answer::Granted, rules::Answer::None]) < needed,
        };
        if !is_time {
            return false;
        }
        if self.suspected_first && self.client.scenario.strategy.has_anchor() {
            self.anchor = self.client.anchor();
        }
        for node in &spare {
            self.spare[*node] = false;
            let is_anchor = *node == self.anchor && self.waits;
            self.ask(*node, self.phase == Phase::Yields || is_anchor);
        }
        self.phase == Phase::AsksAll
    }

    /// What the answers amount to, and how many nodes count.
    fn outcome(&self, answers: &[rules::Answer]) -> (Outcome, usize) {
        let asked_again = self.phase != Phase::AsksAll;
        if self.client.scenario.has(QuorumMutant::BusyBeforeTheAnchor) && self.is_hopeless(answers) {
            return (Outcome::Busy, answers.len());
        }
        if !self.client.scenario.has(QuorumMutant::MajorityOfReachable) {
            return (rules::outcome(answers, self.anchor, asked_again), answers.len());
        }
        if answers.contains(&rules::Answer::None) {
            return (Outcome::Undecided, answers.len());
        }
        let reachable = answers.iter().filter(|answer| **answer != rules::Answer::Failed);
        let reachable: Vec<_> = reachable.copied().collect();
        (rules::outcome(&reachable, usize::MAX, true), reachable.len())
    }

    /// Whether no majority is left, be the anchor's answer as it may.
    fn is_hopeless(&self, answers: &[rules::Answer]) -> bool {
        use rules::Answer::{Granted, None};
        let hopes = answers.iter().filter(|answer| matches!(answer, Granted | None)).count();
        answers.get(self.anchor) == Some(&None) && hopes < rules::majority(answers.len())
    }

    fn decide_token(&mut self, nodes: usize, now: Duration) -> Step {
        match self.votes.token(nodes, now) {
            Token::Undecided => Step::GoOn,
            Token::Raise(token) => {
                self.raise(token, now);
                Step::GoOn
            }
            Token::Decided(token) => {
                let votes = std::mem::replace(&mut self.votes, Votes::new(&self.client.scenario, self.client.ttl()));
                match Hold::begin(self.client, votes, token, nodes) {
                    Ok(hold) => Step::Granted(hold),
                    Err(votes) => {
                        self.votes = votes;
                        Step::GiveUp
                    }
                }
            }
        }
    }

    fn raise(&mut self, token: FencingToken, now: Duration) {
        if self.raising == Some(token) {
            return;
        }
        self.raising = Some(token);
        self.phase = Phase::Raises;
        for (node, id) in self.votes.below(token, now) {
            self.client.send(node, Request::Raise(id, token));
        }
        self.be_patient();
    }

    fn take(&mut self, mail: &Mail) {
        let now = self.client.now();
        self.client.answered(mail);
        if let (Request::Status(_), Answer::HeldBy(holder)) = (mail.request.request, mail.answer) {
            return self.looks.take(mail, holder);
        }
        let Some(vote) = self.votes.of(mail) else { return };
        let is_last = vote.number == mail.request.number;
        match (mail.request.request, mail.answer) {
            (Request::Acquire(_), Answer::Granted(token)) => {
                self.votes.grant(mail, Some(token), now);
                self.client.trust(mail.node);
                if mail.node == self.anchor && self.phase == Phase::AtAnchor {
                    self.ask_the_others();
                }
            }
            (Request::Acquire(_), Answer::Offered) if vote.waits && vote.answer != rules::Answer::Granted => {
                self.ask(mail.node, true);
                if self.phase == Phase::AtAnchor {
                    self.be_patient();
                }
            }
            (Request::Acquire(_), Answer::Busy(left, holder)) if is_last => {
                vote.holder = Some(holder);
                if vote.waits {
                    let refresh = self.client.ttl() / 3;
                    vote.ask_again = Some(now + refresh.min(left + Duration::from_millis(1)));
                }
                let is_anchor = mail.node == self.anchor;
                if is_anchor || !vote.waits {
                    vote.answer = rules::Answer::Busy;
                }
                if is_anchor && self.phase == Phase::AtAnchor {
                    self.until = NEVER;
                    self.look_later();
                }
                self.client.trust(mail.node);
                self.client.found_taken();
            }
            (Request::Acquire(_), Answer::Ended) if is_last => vote.failed(),
            (Request::Acquire(_), Answer::MayHaveForgotten) if is_last => {
                vote.failed();
                self.client.suspect(mail.node);
            }
            (Request::Raise(_, to), Answer::Done) => self.votes.raised(mail, to),
            (Request::Raise(..), Answer::NotYours) => vote.failed(),
            _ => {}
        }
    }

    /// Asks those whose turn it is, as a request does that waits in their queue.
    fn ask_again(&mut self) {
        let now = self.client.now();
        for node in 0..self.votes.list.len() {
            if self.votes.list[node].ask_again.is_some_and(|time| time <= now) {
                self.ask(node, true);
                if self.phase == Phase::AtAnchor {
                    self.be_patient();
                }
            }
        }
    }

    /// The time is up. Whether there is anything left to wait for.
    fn goes_on_without_the_silent(&mut self) -> bool {
        let silent = |vote: &super::votes::Vote| vote.is_open();
        match self.phase {
            Phase::AsksAll => {
                if self.client.scenario.has(QuorumMutant::KeepsVotesInVain) {
                    self.until = self.client.now() + self.client.ttl();
                    return true;
                }
                self.until = NEVER;
                for node in 0..self.votes.list.len() {
                    if silent(&self.votes.list[node]) {
                        self.votes.list[node].failed();
                        self.client.suspect(node);
                        self.is_silent = true;
                    }
                }
                !(self.suspected_first && self.is_silent)
            }
            Phase::AtAnchor => {
                if silent(&self.votes.list[self.anchor]) {
                    self.client.suspect(self.anchor);
                }
                false
            }
            Phase::Yields => {
                if self.somebody_holds_it() {
                    self.client.pass_by(self.anchor);
                }
                false
            }
            Phase::Raises => false,
        }
    }

    /// Whether one holder has a majority without the anchor, whose vote we have.
    fn somebody_holds_it(&self) -> bool {
        let others = self
            .votes
            .list
            .iter()
            .enumerate()
            .filter(|(node, _)| *node != self.anchor);
        let holders: Vec<u64> = others.filter_map(|(_, vote)| vote.holder).collect();
        let needed = rules::majority(self.votes.list.len());
        holders
            .iter()
            .any(|one| holders.iter().filter(|other| *other == one).count() >= needed)
    }

    /// Plans the next look at all nodes.
    fn look_later(&mut self) {
        if self.looks.next.is_none() && !self.client.scenario.has(QuorumMutant::BelievesTheAnchorAlone) {
            let patience = self.patience();
            self.looks.next = Some(self.client.now() + rules::look_after(patience, self.looks.number));
        }
    }

    /// Looks at all nodes, or at what they have said.
    fn look(&mut self) -> Seen {
        let patience = self.patience();
        if !self.looks.asked {
            let nodes = 0..self.votes.list.len();
            let nodes: Vec<usize> = nodes
                .filter(|node| *node == self.anchor || !self.client.suspects(*node))
                .collect();
            for node in nodes {
                // The node names the hold whoever asks.
                let Some(id) = self.votes.list[self.anchor].id else {
                    continue;
                };
                self.looks.ask(node, self.client.send(node, Request::Status(id)));
            }
            self.looks.asked = true;
            self.looks.next = Some(self.client.now() + patience);
            return Seen::NothingWrong;
        }
        let seen = self.looks.see(self.anchor);
        self.looks.next = match seen {
            Seen::PassAnchor => None,
            Seen::AnchorIsSilent => {
                self.client.suspect(self.anchor);
                return Seen::PassAnchor;
            }
            Seen::Suspicious => Some(self.client.now() + patience),
            Seen::NothingWrong => Some(self.client.now() + rules::look_after(patience, self.looks.number)),
        };
        if seen == Seen::PassAnchor {
            self.client.pass_by(self.anchor);
        }
        seen
    }

    /// The anchor refused: whoever has its vote is to get the others as well.
    fn wait_at_anchor(&mut self) {
        if self.phase == Phase::AtAnchor {
            return;
        }
        self.phase = Phase::AtAnchor;
        self.until = NEVER;
        for node in 0..self.votes.list.len() {
            let vote = &mut self.votes.list[node];
            if node != self.anchor
                && let Some(id) = vote.id
            {
                vote.reset();
                self.client.send(node, Request::End(id));
            }
        }
        // It was asked as one of the suspected nodes.
        if !self.votes.list[self.anchor].waits {
            self.ask(self.anchor, true);
            self.be_patient();
        }
    }

    /// The anchor voted: those who have the other nodes' votes give way, so it waits in their queues for a while.
    fn ask_the_others(&mut self) {
        self.phase = Phase::Yields;
        match self.waits {
            true => {
                let longest = self.client.yield_time();
                self.until = self.client.now() + self.client.between(longest / 2, longest);
            }
            false => self.be_patient(),
        }
        for node in 0..self.votes.list.len() {
            let vote = &self.votes.list[node];
            if !self.spare[node] && (vote.id.is_none() || vote.answer == rules::Answer::Busy) {
                self.ask(node, true);
            }
        }
    }

    fn ask(&mut self, node: usize, waits: bool) {
        let adopts = self.votes.largest_token(self.client.now());
        let ttl = self.client.ttl();
        let holder = self.client.holder();
        let vote = &mut self.votes.list[node];
        let id = *vote.id.get_or_insert_with(|| self.client.new_id());
        vote.waits = waits;
        vote.ask_again = None;
        vote.holder = None;
        vote.answer = rules::Answer::None;
        vote.number = self.client.send(
            node,
            Request::Acquire(Acquire {
                id,
                holder,
                ttl,
                waits,
                adopts,
                reinstates: false,
                by_force: false,
            }),
        );
    }

    fn be_patient(&mut self) {
        self.until = self.client.now() + self.patience();
    }

    fn patience(&self) -> Duration {
        let patience = self.client.patience();
        rules::patience_after(patience, self.client.ttl(), self.silences)
    }
}
