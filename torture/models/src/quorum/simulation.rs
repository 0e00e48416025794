//! Runs a history: one event after the other, and each client up to where it waits.

use std::collections::VecDeque;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Waker};
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::client::{self, Client};
use super::figures::Figures;
use super::node::Node;
use super::scenario::Scenario;
use super::world::{Clock, Event, Seat, Shared, World};

/// For how long messages arrive after the clients have stopped. It outlasts every vote.
fn aftermath(scenario: &Scenario) -> Duration {
    Duration::from_secs(20) + scenario.ttl
}

/// The first date of all clocks, which is not zero.
const FIRST: Duration = Duration::from_secs(1_000);

pub(super) struct Simulation {
    world: Shared,
    /// The task of each client. `None` once it has stopped.
    clients: Vec<Option<Task>>,
}

type Task = Pin<Box<dyn Future<Output = ()>>>;

impl Simulation {
    pub(super) fn new(scenario: &Scenario, seed: u64, traced: bool) -> Self {
        let mut random = StdRng::seed_from_u64(seed);
        let down = scenario.down.and_then(|place| client::order(scenario.nodes).nth(place));
        let nodes = (0..scenario.nodes).map(|node| {
            let clock = a_clock(&mut random, scenario);
            let date_ahead = FIRST + scenario.date_skew.mul_f64(random.random());
            Node::new(clock, date_ahead, down != Some(node))
        });
        let nodes = nodes.collect();
        let seats = (0..scenario.clients).map(|_| Seat {
            clock: a_clock(&mut random, scenario),
            paused_until: Duration::ZERO,
            inbox: VecDeque::new(),
        });
        let seats = seats.collect();
        let world = Shared::new(World::new(scenario.clone(), random, nodes, seats, traced));
        let clients = (0..scenario.clients).map(|number| {
            let client = Client::new(number, world.clone());
            Some(Box::pin(client.live()) as Task)
        });
        Self {
            clients: clients.collect(),
            world,
        }
    }

    pub(super) fn run(mut self) -> (Figures, Vec<String>) {
        self.begin();
        loop {
            let mut world = self.world.get();
            let end = world.scenario.until + aftermath(&world.scenario);
            match world.next() {
                Some(_) if world.now > end => break,
                None => break,
                Some(Event::Request(sent)) => world.arrives(sent),
                Some(Event::Fault(fault)) => {
                    if let Some(client) = world.strike(fault) {
                        world.seats[client].inbox.clear();
                        world.observer.died(client);
                        drop(world);
                        self.start_anew(client);
                    }
                }
                Some(Event::Mail(mail)) => {
                    let client = mail.request.client;
                    world.seats[client].inbox.push_back(mail);
                    drop(world);
                    self.wake(client);
                }
                Some(Event::Wake(client)) => {
                    drop(world);
                    self.wake(client);
                }
            }
        }
        let world = &mut *self.world.get();
        let now = world.now;
        let left = world.nodes.iter_mut().filter(|node| node.is_up);
        let left = left.map(|node| u64::from(node.is_taken(now))).sum();
        let figures = world.observer.finish(&world.scenario, now, left);
        (figures, world.take_trace())
    }

    fn begin(&self) {
        let mut world = self.world.get();
        world.plan_faults();
        for client in 0..self.clients.len() {
            world.at(Duration::ZERO, Event::Wake(client));
        }
    }

    /// Another process in the place of one that died. It knows nothing of what that one held.
    fn start_anew(&mut self, client: usize) {
        self.clients[client] = Some(Box::pin(Client::new(client, self.world.clone()).live()));
        self.world.get().seats[client].paused_until = Duration::ZERO;
        self.wake(client);
    }

    /// Lets a client go on until it waits, unless it is paused.
    fn wake(&mut self, client: usize) {
        let mut world = self.world.get();
        let paused_until = world.seats[client].paused_until;
        if paused_until > world.now {
            world.at(paused_until, Event::Wake(client));
            return;
        }
        drop(world);
        let task = &mut self.clients[client];
        let mut context = Context::from_waker(Waker::noop());
        if task
            .as_mut()
            .is_some_and(|task| task.as_mut().poll(&mut context).is_ready())
        {
            *task = None;
        }
    }
}

/// A clock that runs fast or slow as the scenario allows.
fn a_clock(random: &mut StdRng, scenario: &Scenario) -> Clock {
    let drift = random.random_range(-1.0..=1.0) * scenario.clock_drift;
    Clock {
        offset: FIRST,
        rate: 1.0 + drift,
    }
}

impl fmt::Debug for Simulation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Simulation")
    }
}
