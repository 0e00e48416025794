//! Everything that is not a client's own state: time, events, nodes, messages under way.

use std::cell::{RefCell, RefMut};
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::rc::Rc;
use std::time::{Duration, Instant};

use rand::RngExt;
use rand::rngs::StdRng;

use super::fault::Fault;
use super::figures::Observer;
use super::link::Links;
use super::message::{Answer, Id, Mail, Request, Sent};
use super::node::Node;
use super::scenario::Scenario;

/// The number of the last events that a trace shows.
const TRACED: usize = 120;

/// The world, as clients and the simulation share it.
#[derive(Clone)]
pub(super) struct Shared(Rc<RefCell<World>>);

pub(super) struct World {
    pub(super) scenario: Rc<Scenario>,
    /// True time, that nobody knows.
    pub(super) now: Duration,
    /// The origin of the protocol's times, for all clocks. Only their differences count.
    pub(super) epoch: Instant,
    pub(super) random: StdRng,
    pub(super) nodes: Vec<Node>,
    pub(super) seats: Vec<Seat>,
    pub(super) links: Links,
    pub(super) observer: Observer,
    events: BTreeMap<(Duration, u64), Event>,
    numbers: u64,
    /// Who asked under which id, so that it can be offered the name.
    pub(super) asked: BTreeMap<Id, Sent>,
    trace: Option<VecDeque<String>>,
}

/// The state of a client, as the world sees it.
#[derive(Debug)]
pub(super) struct Seat {
    pub(super) clock: Clock,
    pub(super) paused_until: Duration,
    pub(super) inbox: VecDeque<Mail>,
}

/// A clock that started somewhere and runs fast or slow.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock {
    pub(super) offset: Duration,
    pub(super) rate: f64,
}

/// An event.
#[derive(Debug)]
pub(super) enum Event {
    /// A client goes on.
    Wake(usize),
    /// A request arrives.
    Request(Sent),
    /// An answer or an offer arrives.
    Mail(Mail),
    Fault(Fault),
}

impl Clock {
    pub(super) fn at(&self, now: Duration) -> Duration {
        self.offset + now.mul_f64(self.rate)
    }

    /// The true time at which it shows this moment, or a little later.
    pub(super) fn shows(&self, moment: Duration) -> Duration {
        let since = moment.saturating_sub(self.offset);
        since.div_f64(self.rate) + Duration::from_micros(2)
    }
}

impl Shared {
    pub(super) fn new(world: World) -> Self {
        Self(Rc::new(RefCell::new(world)))
    }

    /// Nobody keeps it across an await: all run on one thread, and in turn.
    pub(super) fn get(&self) -> RefMut<'_, World> {
        self.0.borrow_mut()
    }
}

impl World {
    pub(super) fn new(scenario: Scenario, random: StdRng, nodes: Vec<Node>, seats: Vec<Seat>, traced: bool) -> Self {
        Self {
            links: Links::new(scenario.clients, scenario.nodes),
            observer: Observer::new(&scenario),
            scenario: Rc::new(scenario),
            now: Duration::ZERO,
            epoch: Instant::now(),
            random,
            nodes,
            seats,
            events: BTreeMap::new(),
            numbers: 0,
            asked: BTreeMap::new(),
            trace: traced.then(VecDeque::new),
        }
    }

    /// Whether faults have ended.
    pub(super) fn is_calm(&self) -> bool {
        self.now >= self.scenario.calm_from
    }

    /// A number that was never used before.
    pub(super) fn number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    pub(super) fn at(&mut self, moment: Duration, event: Event) {
        let number = self.number();
        self.events.insert((moment.max(self.now), number), event);
    }

    /// Goes to the next event.
    pub(super) fn next(&mut self) -> Option<Event> {
        let ((moment, _), event) = self.events.pop_first()?;
        self.now = moment;
        Some(event)
    }

    /// A request arrives at its node, which answers.
    pub(super) fn arrives(&mut self, sent: Sent) {
        let scenario = self.scenario.clone();
        if !self.nodes[sent.node].is_up || self.links.is_cut(sent.client, sent.node, self.now) {
            return;
        }
        let was_ended = self.nodes[sent.node].has_ended(sent.request.id());
        let (answer, offered) = self.nodes[sent.node].handle(self.now, &sent.request, &scenario);
        if let (true, Answer::Granted(_)) = (was_ended, answer) {
            self.observer.dead_id_was_granted(self.now, sent.node, sent.client);
        }
        self.note(|| {
            let Sent {
                client,
                node,
                request,
                at,
                ..
            } = &sent;
            format!("node {node}: client {client}, {request:?}, sent at {at:.6?}: {answer:?}, offered to {offered:?}")
        });
        if let (Request::Raise(_, to), Answer::Done) = (sent.request, answer) {
            self.observer.stored(self.now, sent.client, to);
        }
        self.answer(sent, answer);
        if let Some(asked) = offered.and_then(|id| self.asked.get(&id).copied()) {
            self.answer(asked, Answer::Offered);
        }
    }

    /// A time between these two.
    pub(super) fn between(&mut self, shortest: Duration, longest: Duration) -> Duration {
        match shortest < longest {
            true => self.random.random_range(shortest..longest),
            false => shortest,
        }
    }

    /// A time with this mean, of events that are independent of each other.
    pub(super) fn after_about(&mut self, mean: Duration) -> Duration {
        let share: f64 = self.random.random();
        mean.mul_f64(-(1.0 - share).ln()) + Duration::from_micros(1)
    }

    /// Adds to the trace, if there is one. Without violation it goes on to the end.
    pub(super) fn note(&mut self, line: impl FnOnce() -> String) {
        let Some(trace) = &mut self.trace else { return };
        if self.observer.has_violation_before(self.now) {
            return;
        }
        if trace.len() == TRACED {
            trace.pop_front();
        }
        trace.push_back(format!("{:>12.6} {}", self.now.as_secs_f64(), line()));
    }

    pub(super) fn take_trace(&mut self) -> Vec<String> {
        self.trace.take().into_iter().flatten().collect()
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Shared")
    }
}
