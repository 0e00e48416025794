//! A client: it wants the name, holds it for a while, and wants it again.

use std::future::poll_fn;
use std::rc::Rc;
use std::task::Poll;
use std::time::{Duration, Instant};

use lock_core::{FencingToken, LockName};
use lock_quorum::protocol::Known;
use lock_quorum::rules;
use rand::RngExt;

use super::acquire::{acquire, try_acquire};
use super::hold::Hold;
use super::message::{Id, Mail, Request};
use super::scenario::Scenario;
use super::votes::Votes;
use super::world::{Event, Shared};

/// The name that they all want.
const NAME: &str = "simulated";

/// In which order a client asks the nodes.
pub(super) fn order(nodes: usize) -> impl Iterator<Item = usize> {
    rules::order(NAME, nodes)
}

#[derive(Debug)]
pub(super) struct Client {
    number: usize,
    world: Shared,
    pub(super) scenario: Rc<Scenario>,
    /// The client's knowledge of the nodes and of the name.
    pub(super) known: Known,
    name: LockName,
}

impl Client {
    pub(super) fn new(number: usize, world: Shared) -> Self {
        let scenario = world.get().scenario.clone();
        Self {
            number,
            world,
            known: Known::new(scenario.nodes),
            name: LockName::new(NAME).expect("it is a name"),
            scenario,
        }
    }

    pub(super) async fn live(mut self) {
        loop {
            let time = self.up_to(self.scenario.longest_break);
            self.sleep(time).await;
            if self.is_over() {
                return;
            }
            self.wants(true);
            let hold = match self.happens(self.scenario.tries) {
                true => try_acquire(&mut self).await,
                false => acquire(&mut self).await,
            };
            self.wants(false);
            if let Some(hold) = hold {
                self.hold(hold).await;
            }
        }
    }

    /// Holds for a while, and releases. Whatever it holds or may hold is given back, even if the hold was lost.
    async fn hold(&self, mut hold: Hold) {
        let time = self.between(self.scenario.shortest_hold, self.scenario.longest_hold);
        let until = self.now() + time;
        let is_lost = hold.keep(self, until).await;
        self.world.get().observer.ended(self.number, is_lost);
        self.note(|| if is_lost { "lost its hold" } else { "releases" }.to_owned());
        self.give_back(&hold.votes);
    }

    pub(super) fn name(&self) -> LockName {
        self.name.clone()
    }

    /// A moment of its clock, as the protocol takes it.
    pub(super) fn instant(&self, shown: Duration) -> Instant {
        self.world.get().epoch + shown
    }

    /// The same the other way round.
    pub(super) fn shown_at(&self, moment: Instant) -> Duration {
        moment.saturating_duration_since(self.world.get().epoch)
    }

    /// A random number from 0 to 1.
    pub(super) fn random(&self) -> f64 {
        self.world.get().random.random()
    }

    /// It asks all nodes at once the next time.
    pub(super) fn forget_that_it_is_taken(&mut self) {
        let now = self.instant(self.now());
        self.known.take_known_taken(&self.name, now);
    }

    /// The TTL of its votes.
    pub(super) fn ttl(&self) -> Duration {
        self.scenario.ttl_of(self.number)
    }

    /// Ends all votes that it has or may have.
    pub(super) fn give_back(&self, votes: &Votes) {
        for (node, id) in votes.to_end() {
            self.send(node, Request::End(id));
        }
    }

    /// Whether clients stop by now.
    pub(super) fn is_over(&self) -> bool {
        self.world.get().now >= self.scenario.until
    }

    /// The time by the client's clock.
    pub(super) fn now(&self) -> Duration {
        let world = self.world.get();
        world.seats[self.number].clock.at(world.now)
    }

    /// A random time up to this one.
    pub(super) fn up_to(&self, longest: Duration) -> Duration {
        self.between(Duration::ZERO, longest)
    }

    pub(super) fn between(&self, shortest: Duration, longest: Duration) -> Duration {
        self.world.get().between(shortest, longest)
    }

    fn happens(&self, share: f64) -> bool {
        self.world.get().random.random_bool(share)
    }

    pub(super) fn new_id(&self) -> Id {
        Id(self.world.get().number())
    }

    /// Sends a request, and returns its number.
    pub(super) fn send(&self, node: usize, request: Request) -> u64 {
        self.world.get().send(self.number, node, request)
    }

    /// The next answer, or `None` at this time of its clock.
    pub(super) async fn receive(&self, until: Duration) -> Option<Mail> {
        let mut is_planned = false;
        poll_fn(|_| {
            let world = &mut *self.world.get();
            let seat = &mut world.seats[self.number];
            if let Some(mail) = seat.inbox.pop_front() {
                return Poll::Ready(Some(mail));
            }
            if seat.clock.at(world.now) >= until {
                return Poll::Ready(None);
            }
            if !is_planned {
                is_planned = true;
                let wakes = seat.clock.shows(until);
                world.at(wakes, Event::Wake(self.number));
            }
            Poll::Pending
        })
        .await
    }

    /// Waits, whatever arrives.
    pub(super) async fn sleep(&self, time: Duration) {
        let until = self.now() + time;
        while self.receive(until).await.is_some() {}
    }

    /// Shows the observer that it wants the name from now on, or does not any more.
    fn wants(&self, wants: bool) {
        let world = &mut *self.world.get();
        let (now, client) = (world.now, self.number);
        world.observer.wants(now, client, wants);
    }

    /// Shows the observer that it goes on believing, although so many nodes have said that the vote is not theirs.
    pub(super) fn believes_though_denied_by(&self, foreign: usize) {
        let world = &mut *self.world.get();
        let (now, client) = (world.now, self.number);
        world.observer.denied(now, client, foreign);
    }

    /// Shows the observer what it believes: that it holds until this time of its clock, since now if there is a token.
    pub(super) fn believe(&self, until: Duration, granted: Option<FencingToken>) {
        let world = &mut *self.world.get();
        let (now, client) = (world.now, self.number);
        let until = world.seats[client].clock.shows(until);
        world.note(|| format!("client {client} believes until {until:.6?}, token {granted:?}"));
        match granted {
            Some(token) => world.observer.granted(now, client, token, until),
            None => world.observer.believes(now, client, until),
        }
    }

    pub(super) fn note(&self, line: impl FnOnce() -> String) {
        let number = self.number;
        self.world.get().note(|| format!("client {number} {}", line()));
    }
}
