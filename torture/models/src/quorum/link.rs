//! The network between clients and nodes.

use std::time::Duration;

use rand::RngExt;

use super::message::{Answer, Mail, Request, Sent};
use super::world::{Event, World};

/// One connection for each client at each node.
#[derive(Debug)]
pub(super) struct Links {
    nodes: usize,
    links: Vec<Link>,
}

#[derive(Clone, Debug, Default)]
struct Link {
    cut_until: Duration,
    /// When the last request arrives, and the last answer. None overtakes another.
    last_request: Duration,
    last_answer: Duration,
}

impl Links {
    pub(super) fn new(clients: usize, nodes: usize) -> Self {
        let links = vec![Link::default(); clients * nodes];
        Self { nodes, links }
    }

    pub(super) fn cut(&mut self, client: usize, node: usize, until: Duration) {
        self.of(client, node).cut_until = until;
    }

    pub(super) fn is_cut(&mut self, client: usize, node: usize, now: Duration) -> bool {
        self.of(client, node).cut_until > now
    }

    fn of(&mut self, client: usize, node: usize) -> &mut Link {
        &mut self.links[client * self.nodes + node]
    }
}

impl World {
    /// A client sends a request now.
    pub(super) fn send(&mut self, client: usize, node: usize, request: Request) -> u64 {
        let number = self.number();
        let at = self.seats[client].clock.at(self.now);
        let sent = Sent {
            client,
            node,
            request,
            at,
            number,
        };
        self.observer.messages += 1;
        if matches!(request, Request::Acquire(_)) {
            self.asked.insert(request.id(), sent);
        }
        if self.links.is_cut(client, node, self.now) || self.happens(self.scenario.network.lost) {
            return number;
        }
        let arrives = if self.happens(self.scenario.network.stuck) {
            self.now + self.between(Duration::ZERO, 2 * self.scenario.ttl)
        } else {
            let arrives = self.now + self.delay();
            in_order(&mut self.links.of(client, node).last_request, arrives)
        };
        self.at(arrives, Event::Request(sent));
        number
    }

    /// A node sends an answer, or an offer, now.
    pub(super) fn answer(&mut self, request: Sent, answer: Answer) {
        if self.happens(self.scenario.network.lost) {
            return;
        }
        let arrives = self.now + self.delay();
        let last = &mut self.links.of(request.client, request.node).last_answer;
        let arrives = in_order(last, arrives);
        let node = request.node;
        self.at(arrives, Event::Mail(Mail { node, answer, request }));
    }

    fn delay(&mut self) -> Duration {
        let network = self.scenario.clone();
        let network = &network.network;
        let delay = self.between(network.shortest, network.longest);
        match self.happens(network.late) {
            true => delay + self.between(Duration::ZERO, network.latest),
            false => delay,
        }
    }

    /// Decides by chance whether an event happens whose share of all cases is `share`.
    fn happens(&mut self, share: f64) -> bool {
        share > 0.0 && !self.is_calm() && self.random.random_bool(share)
    }
}

/// When a message arrives that overtakes none.
fn in_order(last: &mut Duration, arrives: Duration) -> Duration {
    *last = arrives.max(*last + Duration::from_micros(1));
    *last
}
