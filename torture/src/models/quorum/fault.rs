//! What breaks, and when.

use std::time::Duration;

use rand::RngExt;

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
        self.plan(Fault::Forget(0));
    }

    pub(super) fn strike(&mut self, fault: Fault) {
        let ttl = self.scenario.ttl;
        if let Fault::Up(node) = fault {
            return self.up(node);
        }
        if self.is_calm() {
            return;
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
                return self.plan(Fault::Forget((node + 1) % scenario.nodes));
            }
            Fault::Cut => {
                let until = self.now + self.between(Duration::ZERO, 2 * ttl);
                let until = until.min(self.scenario.calm_from);
                self.links.cut(client, node, until);
                self.note(|| format!("client {client} is cut off from node {node} until {until:.6?}"));
            }
        }
        self.plan(fault);
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
