//! The faults, and their times.

use std::ops::Range;
use std::time::Duration;

use lock_quorum::rules;
use rand::RngExt;

use super::client::order;
use super::world::{Event, World};

#[derive(Clone, Copy, Debug)]
pub(super) enum Fault {
    /// A client stands still.
    Pause,
    /// A node goes down.
    Restart,
    /// It is up again.
    Up(usize),
    /// A client and a node do not hear each other.
    Cut,
    /// A client does not hear a majority of the nodes, nor they it.
    Minority,
    /// A client's process dies, and another one starts.
    Crash,
    /// This node loses its data.
    Forget(usize),
}

impl World {
    /// Plans the first faults.
    pub(super) fn plan_faults(&mut self) {
        // As often as if each client were paused by itself.
        for _ in 0..self.scenario.clients {
            self.plan(Fault::Pause);
        }
        self.plan(Fault::Restart);
        self.plan(Fault::Cut);
        self.plan(Fault::Minority);
        self.plan(Fault::Crash);
        if self.scenario.sick_client {
            let until = self.scenario.calm_from;
            for node in order(self.scenario.nodes).skip(1) {
                self.links.cut(0, node, until);
            }
        }
        self.plan(Fault::Forget(0));
    }

    /// Lets it happen. Returns the client whose process dies by it.
    pub(super) fn strike(&mut self, fault: Fault) -> Option<usize> {
        let ttl = self.scenario.ttl;
        if let Fault::Up(node) = fault {
            self.up(node);
            return None;
        }
        if self.is_calm() {
            return None;
        }
        let client = self.random.random_range(0..self.scenario.clients);
        let node = self.random.random_range(0..self.scenario.nodes);
        match fault {
            Fault::Pause => {
                let until = self.now + self.between(Duration::ZERO, 3 * ttl);
                self.seats[client].paused_until = until;
                self.note(|| format!("client {client} is paused until {until:.6?}"));
            }
            Fault::Restart if self.nodes[node].is_up => {
                self.nodes[node].is_up = false;
                let up = self.now + self.between(Duration::from_millis(10), ttl);
                self.at(up, Event::Fault(Fault::Up(node)));
                self.note(|| format!("node {node} is down until {up:.6?}"));
            }
            Fault::Restart | Fault::Up(_) => {}
            Fault::Forget(node) => {
                let (now, scenario) = (self.now, self.scenario.clone());
                self.nodes[node].forget(now, &scenario);
                self.note(|| format!("node {node} forgets"));
                self.plan(Fault::Forget((node + 1) % scenario.nodes));
                return None;
            }
            Fault::Cut => {
                let place = self.scenario.cut_off_from;
                let node = place
                    .and_then(|place| order(self.scenario.nodes).nth(place))
                    .unwrap_or(node);
                self.cut(client, node..node + 1);
            }
            Fault::Minority => {
                let nodes = self.scenario.nodes;
                self.cut(client, node..node + rules::majority(nodes));
            }
            Fault::Crash => self.note(|| format!("the process of client {client} dies")),
        }
        self.plan(fault);
        matches!(fault, Fault::Crash).then_some(client)
    }

    /// Cuts a client off from these nodes, counted on from the first one after the last.
    fn cut(&mut self, client: usize, nodes: Range<usize>) {
        let longest = self.scenario.longest_cut.unwrap_or(2 * self.scenario.ttl);
        let until = self.now + self.between(Duration::ZERO, longest);
        let until = until.min(self.scenario.calm_from);
        for node in nodes {
            let node = node % self.scenario.nodes;
            self.links.cut(client, node, until);
            self.note(|| format!("client {client} is cut off from node {node} until {until:.6?}"));
        }
    }

    fn up(&mut self, node: usize) {
        let (now, scenario) = (self.now, self.scenario.clone());
        let forgets = self.random.random_bool(scenario.faults.forgets);
        self.nodes[node].is_up = true;
        if forgets {
            self.nodes[node].forget(now, &scenario);
        }
        let data = if forgets { "without" } else { "with" };
        self.note(|| format!("node {node} is up, {data} its data"));
    }

    fn plan(&mut self, fault: Fault) {
        let faults = &self.scenario.faults;
        let every = match fault {
            Fault::Pause => faults.pause_every,
            Fault::Restart | Fault::Up(_) => faults.restart_every,
            Fault::Cut => faults.cut_every,
            Fault::Minority => faults.minority_every,
            Fault::Crash => faults.crash_every,
            Fault::Forget(_) => faults.forget_every,
        };
        if let Some(every) = every {
            let time = match fault {
                Fault::Forget(_) => every,
                _ => self.after_about(every),
            };
            let next = self.now + time;
            self.at(next, Event::Fault(fault));
        }
    }
}
