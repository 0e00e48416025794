//! PostgreSQL's lease table: one row that decides, a queue in another table, and tombstones of ids that were given up.
//!
//! A statement of READ COMMITTED sees the tables as they were when it began. If it has to wait for the row, it looks at that row again,
//! and at nothing else. So each statement here begins, with a snapshot, and is executed later: its conditions on the row must hold in
//! both, and whatever it reads of the queue is as old as the snapshot. Requests for an id that was given up may come at any time after
//! that, since they go over another connection. A crash undoes what was committed without waiting for the disk: entries of the queue and
//! marks. Time is left out, and so is what ends with it: that is the [lease](super::lease)'s matter.
//!
//! Clients with as many acquisitions are alike. It is looked at the runs in which A acts first, B second, and so on.

use std::collections::BTreeSet;

use stateright::{Model, Property};

use super::check::ProtocolModel;
use super::id::{Id, Ids, letter};
use super::mutant::Mutant;
use super::properties::*;

mod steps;

/// Bounds, and what may happen within them.
#[derive(Clone, Debug)]
pub struct PostgresLeaseModel {
    /// The number of acquisitions of each client.
    pub runs: &'static [u8],
    /// Whether clients give up what they ask for.
    pub gives_up: bool,
    /// The number of times that the server crashes.
    pub crashes: u8,
    /// The bug of the model, if it has one.
    pub mutant: Option<Mutant>,
}

/// Everybody's state, and what the properties have to remember.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    tables: Tables,
    /// The state that a crash leaves.
    durable: Tables,
    requests: BTreeSet<Sent>,
    clients: Vec<Client>,
    /// The number of clients that have acted.
    acted: usize,
    /// The clock by which places are given.
    clock: u8,
    crashed: u8,
    ended: Ids,
    starved: bool,
    done: u8,
}

/// The row of the name, and the queue.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Tables {
    holder: Option<Id>,
    /// Whether newcomers must look at the queue first.
    is_marked: bool,
    last_place: u8,
    dead: BTreeSet<Id>,
    queue: Vec<(u8, Id)>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Client {
    run: u8,
    phase: Phase,
    /// Its place in the queue, as far as it knows.
    place: Option<u8>,
    /// Whether a request of this acquisition was never answered.
    unanswered: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Phase {
    Out,
    Asks,
    Waits,
    Holds,
}

/// The purpose of a statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Statement {
    /// Takes a free name for which nobody waits.
    Take,
    /// Enters the queue of a name that is taken.
    Queue,
    /// Takes a free name if nobody before this place waits.
    Turn(u8),
    /// Ends a hold.
    Release,
    /// Ends whatever an id has, all of whose requests were answered.
    End,
    /// Ends whatever an id has, and leaves a tombstone.
    Bury,
}

/// The place of who has none: behind all.
const NO_PLACE: u8 = u8::MAX;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Answer {
    Granted,
    /// Whether somebody has the name, and whether the asker is in the queue.
    Refused {
        is_held: bool,
        is_queued: bool,
    },
    Place(u8),
    /// There is nothing to wait for.
    Free,
}

/// A request, from its sending to its answer.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Sent {
    id: Id,
    statement: Statement,
    stage: Stage,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Stage {
    New,
    Begun(Tables),
    Done(Answer),
}

/// An event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// A client asks for the name, or asks again.
    Ask(usize),
    /// A client gives up.
    GiveUp(usize),
    /// A client releases.
    Release(usize),
    /// A statement begins.
    Begin(Sent),
    /// A statement is executed.
    Execute(Sent),
    /// The answer arrives.
    Deliver(Sent),
    /// The server crashes, and starts again.
    Crash,
}

impl Model for PostgresLeaseModel {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let client = Client {
            run: 0,
            phase: Phase::Out,
            place: None,
            unanswered: false,
        };
        vec![State {
            tables: Tables::default(),
            durable: Tables::default(),
            requests: BTreeSet::new(),
            clients: vec![client; self.runs.len()],
            acted: 0,
            clock: 0,
            crashed: 0,
            ended: Ids::default(),
            starved: false,
            done: 0,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        for (index, client) in state.clients.iter().enumerate().take(state.acted + 1) {
            match client.phase {
                Phase::Out if client.run < self.runs[index] => actions.push(Action::Ask(index)),
                Phase::Out => {}
                Phase::Asks if self.gives_up => actions.push(Action::GiveUp(index)),
                Phase::Asks => {}
                Phase::Waits => {
                    actions.push(Action::Ask(index));
                    if self.gives_up {
                        actions.push(Action::GiveUp(index));
                    }
                }
                Phase::Holds => actions.push(Action::Release(index)),
            }
        }
        for sent in &state.requests {
            actions.push(match sent.stage {
                // A statement that the row alone decides needs no older look at it.
                Stage::New if matches!(sent.statement, Statement::Release | Statement::End) => {
                    Action::Execute(sent.clone())
                }
                Stage::New => Action::Begin(sent.clone()),
                Stage::Begun(_) => Action::Execute(sent.clone()),
                Stage::Done(_) => Action::Deliver(sent.clone()),
            });
        }
        // Where nothing is undone, it only breaks connections.
        if state.crashed < self.crashes && state.tables != state.durable {
            actions.push(Action::Crash);
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        match action {
            Action::Ask(index) => state.ask(index),
            Action::GiveUp(index) => state.give_up(index),
            Action::Release(index) => {
                state.send(index, Statement::Release);
                state.done = (state.done + 1).min(2);
                state.go_out(index);
            }
            Action::Begin(mut sent) => {
                state.requests.remove(&sent);
                sent.stage = Stage::Begun(state.tables.clone());
                state.requests.insert(sent);
            }
            Action::Execute(sent) => self.execute(&mut state, sent),
            Action::Deliver(sent) => state.deliver(sent),
            Action::Crash => state.crash(),
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(ONE_BELIEVER, |_, state: &State| {
                let holds = |client: &&Client| client.phase == Phase::Holds;
                state.clients.iter().filter(holds).count() <= 1
            }),
            Property::always(DEAD_STAY_DEAD, |_, state: &State| {
                let tables = &state.tables;
                let mut ids = tables.queue.iter().map(|(_, id)| id).chain(&tables.holder);
                !ids.any(|id| state.ended.contains(*id))
            }),
            Property::always(HEAD_NOT_STARVED, |_, state: &State| !state.starved),
            Property::sometimes(TWO_HOLDS_DONE, |_, state: &State| state.done >= 2),
        ]
    }

    fn format_action(&self, action: &Action) -> String {
        let who = |index: &usize| letter(*index);
        match action {
            Action::Ask(index) => format!("{} asks", who(index)),
            Action::GiveUp(index) => format!("{} gives up", who(index)),
            Action::Release(index) => format!("{} releases", who(index)),
            Action::Begin(sent) => format!("the statement {:?} of {} begins", sent.statement, sent.id),
            Action::Execute(sent) => format!("the statement {:?} of {} is executed", sent.statement, sent.id),
            Action::Deliver(sent) => format!("the answer to {:?} of {} arrives", sent.statement, sent.id),
            Action::Crash => "the server crashes".into(),
        }
    }
}

impl ProtocolModel for PostgresLeaseModel {
    fn with(&self, mutant: Mutant) -> Self {
        let mutant = Some(mutant);
        Self { mutant, ..self.clone() }
    }
}
