//! An acquire: attempts at the name, with pauses between them, until one succeeds or the caller's time is up.

use std::time::{Duration, Instant};

use super::decisions::Decisions;
use super::messages::{Command, Event, Failure, Outcome, Situation, Step, Wanted};
use super::round::{Decision, Round};

/// The longest time that requests may take to end after they were given up.
const LONGEST_END: Duration = Duration::from_millis(200);

/// One acquire of a name, from the first request to the grant.
#[derive(Debug)]
pub struct Acquire<D> {
    round: Round<D>,
    events: Vec<Event>,
    phase: Phase,
    /// The end of an acquire that does not wait, at most a TTL after it began. After that it can win nothing.
    until: Option<Instant>,
    /// The number of attempts that ended without a result.
    collisions: u32,
    /// The number of attempts that ended because a majority was silent, and what the last of them had heard.
    silences: u32,
    silent: Option<Failure>,
    is_abandoned: bool,
}

#[derive(Clone, Copy, Debug)]
enum Phase {
    New,
    Pausing(Instant),
    Asking,
    /// All requests were given up, until then at the latest. What becomes of those that are under way says whether anything was sent.
    Ending {
        is_given_up: bool,
        until: Instant,
    },
}

impl<D: Decisions> Acquire<D> {
    /// Nothing is asked before the first [step](Self::step).
    pub fn new(wanted: Wanted, decisions: D) -> Self {
        Self {
            round: Round::new(wanted, decisions),
            events: Vec::new(),
            phase: Phase::New,
            until: None,
            collisions: 0,
            silences: 0,
            silent: None,
            is_abandoned: false,
        }
    }

    /// Takes an event. The next step looks at it.
    pub fn handle(&mut self, event: Event) {
        self.events.push(event);
    }

    /// The request was given up and then abandoned: the next step waits for no answer.
    pub fn abandon(&mut self) {
        self.is_abandoned = true;
    }

    /// The next order for the driver after a step.
    pub fn next_command(&mut self) -> Option<Command> {
        self.round.commands.pop_front()
    }

    /// Looks at the events and the clock, and decides. Call it once in the beginning, and whenever what it said to wait for is
    /// there, until it is done.
    pub fn step(&mut self, situation: &mut Situation<'_>) -> Step {
        // Before the events: if a node fails in the same wake, the name was taken until the time ended.
        if matches!(self.phase, Phase::Asking) && self.is_over(situation) {
            self.give_up(situation, true);
        }
        for event in std::mem::take(&mut self.events) {
            self.round.take(event, situation);
        }
        let now = situation.now;
        loop {
            match self.phase {
                Phase::New if self.is_over(situation) => return Step::Done(self.over(situation)),
                Phase::New => {
                    if !self.round.wanted.waits {
                        self.until = self.until.or(now.checked_add(situation.ttl));
                    }
                    self.phase = Phase::Asking;
                    self.round.begin(situation, self.silences);
                }
                Phase::Pausing(until) if now >= until || self.is_over(situation) => self.phase = Phase::New,
                Phase::Pausing(until) => return self.wait(until),
                Phase::Asking => match self.round.decide(situation) {
                    Decision::AskedMore => {}
                    Decision::Wait(until) => {
                        // Nothing tells that a suspicion has ended, and with it another node may be the anchor.
                        let latest = now + situation.ttl / 3;
                        return self.wait(until.map_or(latest, |until| until.min(latest)));
                    }
                    Decision::Granted(token) => return Step::Done(Outcome::Granted(token)),
                    Decision::Busy(busy) => return Step::Done(Outcome::Busy(busy)),
                    Decision::Unavailable => self.give_up(situation, false),
                    Decision::Collided => {
                        self.silent = None;
                        self.pause(situation);
                    }
                    Decision::Silent(failure) => {
                        self.silent = Some(failure);
                        self.silences += 1;
                        self.pause(situation);
                    }
                },
                Phase::Ending { until, .. } if now < until && self.round.is_open() && !self.is_abandoned => {
                    return Step::Wait(until);
                }
                Phase::Ending { is_given_up, .. } => return Step::Done(self.ended(situation, is_given_up)),
            }
        }
    }

    fn wait(&self, until: Instant) -> Step {
        Step::Wait(self.until.map_or(until, |latest| latest.min(until)))
    }

    /// Whether the caller's time is over.
    fn is_over(&self, situation: &Situation<'_>) -> bool {
        situation.is_given_up || self.until.is_some_and(|until| situation.now >= until)
    }

    fn give_up(&mut self, situation: &Situation<'_>, is_given_up: bool) {
        self.round.give_up(situation);
        let until = situation.now + self.round.patience().min(LONGEST_END);
        self.phase = Phase::Ending { is_given_up, until };
    }

    /// Everybody gives all back and asks again, at another time.
    fn pause(&mut self, situation: &Situation<'_>) {
        self.round.end();
        self.collisions += 1;
        self.phase = Phase::Pausing(situation.now + pause(self.collisions, situation.random));
    }

    /// The time was up between two attempts.
    fn over(&mut self, situation: &Situation<'_>) -> Outcome {
        let busy = situation.reported.clone().filter(|_| self.collisions > 0);
        match (self.silent.take(), busy) {
            (Some(failure), _) => Outcome::Failed(failure),
            (None, Some(busy)) => Outcome::Busy(busy),
            (None, None) => Outcome::Failed(Failure {
                is_given_up: true,
                nodes: Vec::new(),
            }),
        }
    }

    /// The attempt was given up.
    fn ended(&mut self, situation: &Situation<'_>, is_given_up: bool) -> Outcome {
        match self.round.last_word() {
            Some(busy) if is_given_up => Outcome::Busy(busy),
            // The attempt before says more: this one may have ended at once.
            _ => match self.silent.take().filter(|_| self.is_over(situation)) {
                Some(failure) => Outcome::Failed(failure),
                None => Outcome::Failed(self.round.failure(situation, is_given_up)),
            },
        }
    }
}

/// The pause after so many collisions: `random`, from 0 to 1, of a time that doubles up to 256 ms.
fn pause(collisions: u32, random: f64) -> Duration {
    let longest = Duration::from_millis(1 << collisions.min(8));
    longest.mul_f64(random) + Duration::from_micros(500)
}

#[cfg(test)]
mod tests;
