//! The lease: clients that ask, believe, renew, write and release; messages that are late, lost, repeated and
//! overtake each other; time that passes at any moment; a server that forgets.
//!
//! A message that is never delivered is a lost one, and a client that never moves is paused or dead: nothing here
//! forces anybody to do anything. Between the read and the write that depends on it nobody looks at the clock, since
//! nobody could look in the moment of the act itself. What holds all the same is what the contract promises.
//!
//! Clients with the same ttl are alike. Hence it is enough to look at the runs in which their first requests arrive in
//! the order of their letters: every other run is one of these with the letters exchanged.

use std::collections::BTreeSet;

use stateright::{Model, Property};

use super::check::ProtocolModel;
use super::id::{Ids, letter};
use super::mutant::Mutant;
use super::properties::*;
use super::request::{Reply, Request};
use super::resource::Resource;
use super::server::ServerModel;
use super::time::{Time, units};

mod steps;

/// Bounds, and what may happen within them.
#[derive(Clone, Debug)]
pub struct LeaseModel {
    /// The ttl of each client's acquires.
    pub ttls: &'static [u16],
    /// The number of times that each client acquires.
    pub runs: u8,
    /// The ttls of a hold's renewals, in this order.
    pub renewals: &'static [u16],
    /// Whether holders read and write before they release.
    pub writes: bool,
    /// When time ends.
    pub until: u16,
    /// The time by which the clients' clocks may fall behind the server's.
    pub lag: u16,
    /// The number of requests that arrive twice.
    pub repeats: u8,
    /// For how long a release keeps the name taken; 0: not at all.
    pub keeps: u16,
    /// Whether clients give up an acquire that is not answered, and abandon it.
    pub gives_up: bool,
    /// Whether acquires enter the queue and are offered the name. Then asking again refreshes the entry, or confirms
    /// the offer.
    pub waits: bool,
    /// The time by which the server's clock is set back, once; 0: never. The effect on queue entries is left out.
    pub set_back: u16,
    /// The number of times that the server restarts without its data, which takes a step.
    pub restarts: u8,
    /// The bug of the model, if it has one.
    pub mutant: Option<Mutant>,
}

/// Everybody's state, and what the properties have to remember.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    now: Time,
    lag: u16,
    /// The time by which the server's clock is behind.
    back: u16,
    /// Whether a request left a hold as it was although the hold outlasted every term.
    outlasted: bool,
    /// Whether a request of an id that had ended was taken for a holder's.
    revived: bool,
    server: ServerModel<Time>,
    mail: BTreeSet<Mail>,
    clients: Vec<Client>,
    resource: Resource,
    repeated: u8,
    restarted: u8,
    highest: u64,
    regressed: bool,
    ended: Ids,
    done: u8,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Client {
    run: u8,
    phase: Phase,
    /// Whether any request of the id has arrived.
    is_known: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Phase {
    Idle,
    Asks,
    Holds {
        ends: Time,
        token: u64,
        renewed: u8,
        work: Work,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Work {
    Fresh,
    Read(u8),
    Written,
}

/// A message that is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Mail {
    /// From a client, at this time of its clock.
    Request(Request, Time),
    /// The answer to what was sent then.
    Answer(Request, Time, Reply),
}

/// An event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Time passes.
    Tick,
    /// The clients' clocks fall behind by a unit.
    Lag,
    /// The server's clock is set back.
    SetBack,
    /// The server forgets everything.
    Restart,
    /// A client asks for the lock.
    Ask(usize),
    /// A client gives up asking.
    GiveUp(usize),
    /// A client asks for more time.
    Renew(usize),
    /// A client shows its token to the resource and reads.
    Read(usize),
    /// A client writes what it made of that.
    Write(usize),
    /// A client releases.
    Release(usize),
    /// A client sees that its lease has ended.
    Notice(usize),
    /// A message arrives.
    Deliver(Mail),
    /// A message arrives, and will arrive again.
    Repeat(Mail),
}

impl Model for LeaseModel {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State {
            now: Time(0),
            lag: 0,
            back: 0,
            outlasted: false,
            revived: false,
            server: ServerModel::default(),
            mail: BTreeSet::new(),
            clients: vec![
                Client {
                    run: 0,
                    phase: Phase::Idle,
                    is_known: false,
                };
                self.ttls.len()
            ],
            resource: Resource::default(),
            repeated: 0,
            restarted: 0,
            highest: 0,
            regressed: false,
            ended: Ids::default(),
            done: 0,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        for (index, client) in state.clients.iter().enumerate() {
            match client.phase {
                Phase::Idle if client.run < self.runs => actions.push(Action::Ask(index)),
                Phase::Idle => {}
                Phase::Asks if self.gives_up => actions.push(Action::GiveUp(index)),
                Phase::Asks => {}
                Phase::Holds { renewed, work, .. } => {
                    let believes = self.believes(state, client);
                    if believes && usize::from(renewed) < self.renewals.len() {
                        actions.push(Action::Renew(index));
                    }
                    match work {
                        Work::Fresh if believes && self.writes => actions.push(Action::Read(index)),
                        Work::Read(_) => actions.push(Action::Write(index)),
                        _ if believes => actions.push(Action::Release(index)),
                        _ => {}
                    }
                    if !believes {
                        actions.push(Action::Notice(index));
                    }
                }
            }
        }
        for mail in state.mail.iter().filter(|mail| self.may_arrive(state, mail)) {
            actions.push(Action::Deliver(*mail));
            if matches!(mail, Mail::Request(..)) && state.repeated < self.repeats {
                actions.push(Action::Repeat(*mail));
            }
        }
        if state.now.0 < self.until {
            actions.push(Action::Tick);
            if state.restarted < self.restarts {
                actions.push(Action::Restart);
            }
        }
        if state.back < self.set_back && state.now.0 >= self.set_back {
            actions.push(Action::SetBack);
        }
        if state.lag < self.lag {
            actions.push(Action::Lag);
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        match action {
            Action::Tick => state.now = state.now.next(),
            Action::Lag => state.lag += 1,
            Action::SetBack => state.back = self.set_back,
            Action::Restart => {
                state.server = ServerModel::default();
                state.restarted += 1;
                state.now = state.now.next();
            }
            Action::Ask(index) => {
                let request = self.acquire(&state, index);
                state.send(request);
                state.clients[index].phase = Phase::Asks;
            }
            Action::GiveUp(index) => {
                state.send(Request::Abandon(state.id(index)));
                state.go_on(index);
            }
            Action::Renew(index) => self.renew(&mut state, index),
            Action::Read(index) | Action::Write(index) => self.work(&mut state, index),
            Action::Release(index) => {
                let id = state.id(index);
                state.send(match self.keeps {
                    0 => Request::Release(id),
                    time => Request::Keep { id, time: units(time) },
                });
                state.done = (state.done + 1).min(2);
                state.go_on(index);
            }
            Action::Notice(index) => state.go_on(index),
            Action::Deliver(mail) => {
                state.mail.remove(&mail);
                self.arrives(&mut state, mail);
            }
            Action::Repeat(mail) => {
                state.repeated += 1;
                self.arrives(&mut state, mail);
            }
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let mut properties = vec![
            Property::always(TOKENS_INCREASE, |_, state: &State| !state.regressed),
            Property::always(NO_LOST_UPDATE, |_, state: &State| !state.resource.lost),
            Property::always(ENTRIES_END, |model: &Self, state: &State| {
                // Set back, the clock makes every hold last longer until somebody asks.
                let bound = Time(state.server_now().0 + model.longest_term() + state.back);
                let mut entries = state.server.queue.iter();
                entries.all(|entry| entry.expires <= bound)
                    && state.server.hold.as_ref().is_none_or(|hold| hold.expires <= bound)
                    && !state.outlasted
            }),
            Property::sometimes(TWO_HOLDS_DONE, |_, state: &State| state.done >= 2),
        ];
        // A server that forgets is outside the failure model: then only the fence protects.
        if self.restarts == 0 {
            properties.push(Property::always(ONE_BELIEVER, |model: &Self, state: &State| {
                let believers = state.clients.iter().filter(|client| model.believes(state, client));
                believers.count() <= 1
            }));
            properties.push(Property::always(DEAD_STAY_DEAD, |_, state: &State| {
                let entries = state.server.queue.iter().map(|entry| entry.holder);
                let holder = state.server.holder(state.server_now());
                let holder = holder.filter(|hold| hold.kept.is_none()).map(|hold| hold.holder);
                !state.revived && !entries.chain(holder).any(|id| state.ended.contains(id))
            }));
        }
        properties
    }

    fn format_action(&self, action: &Action) -> String {
        let who = |index: &usize| letter(*index);
        match action {
            Action::Tick => "time passes".into(),
            Action::Lag => "the clients' clocks lag".into(),
            Action::SetBack => format!("the server's clock is set back by {}", self.set_back),
            Action::Restart => "the server restarts without its data".into(),
            Action::Ask(index) => format!("{} asks for the lock", who(index)),
            Action::GiveUp(index) => format!("{} gives up and sends an abandon", who(index)),
            Action::Renew(index) => format!("{} sends a renewal", who(index)),
            Action::Read(index) => format!("{} reads", who(index)),
            Action::Write(index) => format!("{} writes", who(index)),
            Action::Release(index) => format!("{} sends a release", who(index)),
            Action::Notice(index) => format!("{} sees that its lease has ended", who(index)),
            Action::Deliver(mail) => format!("{} arrives", mail_text(mail)),
            Action::Repeat(mail) => format!("{} arrives, for the first time", mail_text(mail)),
        }
    }
}

fn mail_text(mail: &Mail) -> String {
    match mail {
        Mail::Request(request, sent) => format!("{request}, sent at {sent},"),
        Mail::Answer(request, _, reply) => format!("the answer to {request}, {reply},"),
    }
}

impl ProtocolModel for LeaseModel {
    fn with(&self, mutant: Mutant) -> Self {
        let mutant = Some(mutant);
        Self { mutant, ..self.clone() }
    }
}
