//! Processes that acquire and release one name, over a network and with faults that are drawn at random. Their time is
//! virtual, and so is the server's clock; the scripts run on the server.

use std::collections::{BTreeMap, HashMap};

use lock_core::FencingToken;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};

use super::check::Watch;
use super::plan::Plan;
use super::tally::Tally;
use crate::support::last_reserved;
use crate::support::link::Reply;
use crate::support::scripts::Scripts;

mod execute;
mod requests;

/// Microseconds of virtual time.
pub(crate) type Time = i64;

pub(crate) const MS: Time = 1000;

/// A rule that was broken.
pub(crate) type Broken = String;

pub(crate) struct World<'a> {
    pub(crate) scripts: &'a mut Scripts,
    pub(crate) plan: Plan,
    pub(crate) random: StdRng,
    pub(crate) now: Time,
    base: Time,
    skew: Time,
    events: BTreeMap<(Time, u64), Event>,
    scheduled: u64,
    pub(crate) processes: Vec<Process>,
    pub(crate) requests: Vec<Request>,
    pub(crate) by_id: HashMap<String, usize>,
    pub(crate) watch: Watch,
    pub(crate) tally: Tally,
}

pub(crate) struct Process {
    pub(crate) inbox: String,
    pub(crate) is_alive: bool,
    /// Of the last version without modes.
    is_old: bool,
    pub(crate) hung_until: Time,
    /// When its last request is executed, and its last answer arrives: over one connection they keep their order.
    last_executed: Time,
    last_answered: Time,
}

pub(crate) struct Request {
    pub(crate) process: usize,
    pub(crate) id: String,
    pub(crate) mode: String,
    pub(crate) ttl: i64,
    hold: i64,
    pub(crate) replaces: Option<usize>,
    pub(crate) stage: Stage,
    may_have_entry: bool,
    /// When it asks again, and which of its plans to do so counts.
    asks_at: Time,
    turn: u64,
    /// A message that came while it asked: the answer may be older.
    heard: Time,
    /// That of its grant.
    pub(crate) token: Option<u64>,
    /// How often the hold was passed on since, each time with the next token.
    passes: u64,
}

impl Request {
    /// How its hold is named that it releases: an exclusive one by the value that its grant has left.
    fn held(&self) -> String {
        match self.token {
            Some(token) if self.mode.starts_with('x') => format!("{} {token} {}", self.id, self.ttl),
            _ => self.id.clone(),
        }
    }

    /// The next of the tokens that its grant reserved, if one is left.
    fn next_reserved(&self) -> Option<u64> {
        let granted = FencingToken::new(self.token?).expect("a token");
        let next = granted.as_u64() + self.passes + 1;
        (next <= last_reserved(granted)).then_some(next)
    }

    /// True of every other one: it goes out together with others.
    fn is_gathered(&self) -> bool {
        self.id.ends_with(['0', '2', '4', '6', '8', 'a', 'c', 'e'])
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    Asks,
    Sleeps,
    Holds,
    GaveUp,
    Done,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Script {
    Acquire,
    /// The same, together with others.
    Grant,
    Renew,
    Downgrade,
    End,
    /// The same, together with others.
    EndTogether,
}

#[derive(Debug)]
enum Event {
    Start(usize),
    Send(Script, usize),
    Execute(Script, usize, Time),
    Answer(Script, usize, Time, Reply),
    Message(usize, usize, i64),
    Ask(usize, u64),
    Renew(usize),
    Release(usize),
    TooLate(usize),
}

impl<'a> World<'a> {
    pub(crate) fn new(scripts: &'a mut Scripts, plan: Plan, seed: u64) -> Self {
        scripts.link.ask(&["FLUSHALL"]);
        // The same for all, so that a seed is the same run again.
        let base = 2_000_000_000_000 * MS;
        Self {
            scripts,
            plan,
            random: StdRng::seed_from_u64(seed),
            now: 0,
            base,
            skew: 0,
            events: BTreeMap::new(),
            scheduled: 0,
            processes: Vec::new(),
            requests: Vec::new(),
            by_id: HashMap::new(),
            watch: Watch::default(),
            tally: Tally::default(),
        }
    }

    /// Runs to the end, and returns what it amounted to, or the first rule that was broken.
    pub(crate) fn run(mut self) -> Result<Tally, Broken> {
        const LIMIT: Time = 120_000 * MS;
        let until = self.plan.until * MS;
        for _ in 0..self.plan.processes {
            self.spawn(20);
        }
        while let Some(((time, _), event)) = self.events.pop_first() {
            if time > until + LIMIT {
                break;
            }
            self.now = time;
            self.happen(event)?;
            if time < until {
                self.fault();
            }
        }
        for process in 0..self.processes.len() {
            self.hear("UNSUBSCRIBE", process);
        }
        let waiting = |request: &&Request| {
            matches!(request.stage, Stage::Asks | Stage::Sleeps) && self.processes[request.process].is_alive
        };
        if let Some(request) = self.requests.iter().find(waiting) {
            return Err(format!("{} {} waits at the end", &request.id[..6], request.mode));
        }
        // Far later, by any clock.
        self.scripts.set_micros(self.base + self.now + 200_000 * MS);
        let keys = self
            .scripts
            .link
            .ask(&["KEYS", "*"])
            .list()
            .into_iter()
            .map(Reply::text);
        let left: Vec<String> = keys.filter(|key| !key.ends_with(":fence")).collect();
        if left.is_empty() {
            Ok(self.tally)
        } else {
            Err(format!("left behind: {left:?}"))
        }
    }

    /// By the server's clock, in milliseconds.
    pub(crate) fn server_now(&self) -> i64 {
        (self.base + self.now + self.skew) / MS
    }

    pub(crate) fn runs(&self, process: usize) -> bool {
        self.processes[process].is_alive && self.processes[process].hung_until <= self.now
    }

    fn at(&mut self, after: Time, event: Event) {
        self.scheduled += 1;
        self.events.insert((self.now + after.max(0), self.scheduled), event);
    }

    fn one_of(&mut self, times: &[i64]) -> Time {
        *times.choose(&mut self.random).expect("some") * MS
    }

    fn latency(&mut self) -> Time {
        let fast: &[Time] = &[100, 200, 300, 1000, 2000];
        let slow: &[Time] = &[200, 1000, 5000, 20_000, 80_000];
        *(if self.plan.slow { slow } else { fast })
            .choose(&mut self.random)
            .expect("some")
    }

    fn chance(&mut self, likelihood: f64) -> bool {
        likelihood > 0.0 && self.random.random_bool(likelihood)
    }

    fn hear(&mut self, command: &str, process: usize) {
        let inbox = self.processes[process].inbox.clone();
        self.scripts.link.hear(command, &inbox);
    }

    fn spawn(&mut self, within_ms: i64) {
        let process = self.processes.len();
        self.processes.push(Process {
            inbox: format!("inbox:{process:032x}"),
            is_alive: true,
            is_old: self.plan.mixed && process.is_multiple_of(2),
            hung_until: 0,
            last_executed: 0,
            last_answered: 0,
        });
        self.hear("SUBSCRIBE", process);
        for _ in 0..self.plan.tasks {
            let after = self.random.random_range(0..within_ms * MS);
            self.at(after, Event::Start(process));
        }
    }

    fn fault(&mut self) {
        const RECOVERY: Time = 60_000 * MS;
        let alive: Vec<usize> = (0..self.processes.len())
            .filter(|at| self.processes[*at].is_alive)
            .collect();
        let victim = |random: &mut StdRng| *alive.choose(random).expect("there is always one");
        if self.chance(self.plan.crashes) {
            let process = victim(&mut self.random);
            self.tally.crashes += 1;
            self.processes[process].is_alive = false;
            self.hear("UNSUBSCRIBE", process);
            self.watch.forget(|request| self.requests[request].process == process);
            self.watch.faulty_until = self.watch.faulty_until.max(self.now + RECOVERY);
            self.spawn(500);
        } else if self.chance(self.plan.hangs) {
            let process = victim(&mut self.random);
            self.tally.hangs += 1;
            let until = self.now + self.one_of(&[50, 150, 400, 3000, 20_000]);
            let process = &mut self.processes[process];
            process.hung_until = process.hung_until.max(until);
            self.watch.faulty_until = self.watch.faulty_until.max(until + RECOVERY);
        } else if self.chance(self.plan.steps_back) {
            self.tally.steps_back += 1;
            self.skew -= self.one_of(&[1000, 60_000, 3_600_000]);
        }
    }

    fn happen(&mut self, event: Event) -> Result<(), Broken> {
        let process = match &event {
            Event::Start(process) | Event::Message(process, ..) => *process,
            Event::Send(_, request)
            | Event::Execute(_, request, _)
            | Event::Answer(_, request, ..)
            | Event::Ask(request, _)
            | Event::Renew(request)
            | Event::Release(request)
            | Event::TooLate(request) => self.requests[*request].process,
        };
        let Process {
            is_alive, hung_until, ..
        } = self.processes[process];
        if let Event::Execute(script, request, sent) = event {
            // What a process sent just before it ended may arrive.
            let arrives = is_alive || self.random.random_bool(0.5);
            return if arrives {
                self.execute(script, request, sent)
            } else {
                Ok(())
            };
        }
        if !is_alive {
            return Ok(());
        }
        if hung_until > self.now {
            self.at(hung_until - self.now, event);
            return Ok(());
        }
        match event {
            Event::Start(process) => self.start(process),
            Event::Send(script, request) => self.send(script, request),
            Event::Answer(script, request, sent, reply) => return self.answered(script, request, sent, reply),
            Event::Message(_, request, ms) => self.message(request, ms),
            Event::Ask(request, turn) => {
                let of = &self.requests[request];
                if of.turn == turn && of.stage == Stage::Sleeps {
                    self.ask(request);
                }
            }
            Event::Renew(request) if self.still_holds(request) => self.send(Script::Renew, request),
            Event::Release(request) if self.still_holds(request) => return self.release(request),
            Event::TooLate(request) if matches!(self.requests[request].stage, Stage::Asks | Stage::Sleeps) => {
                self.give_up(request);
            }
            Event::Renew(_) | Event::Release(_) | Event::TooLate(_) | Event::Execute(..) => {}
        }
        Ok(())
    }

    fn send(&mut self, script: Script, request: usize) {
        let latency = self.latency();
        let process = &mut self.processes[self.requests[request].process];
        process.last_executed = (self.now + latency).max(process.last_executed + 1);
        let after = process.last_executed - self.now;
        self.at(after, Event::Execute(script, request, self.now));
    }
}
