//! The queue at the server: entries, offers with a grace, the confirm, the stand-by, names that are kept for a minimum time.
//!
//! Processes may also be cut off, which the server notices, and come back; its clock may be set back. What may go wrong
//! with a request is the [lease](super::lease)'s matter, so here each is answered at once. What the
//! server says unasked may get lost, processes may hang and come back at any moment, and one that never comes back is
//! a dead one. Everybody else is in time: time does not pass while a process that runs has something to do. Hence
//! waiting can be measured, and "somebody is always awake" is a bound and no hope.
//!
//! Processes are alike. Hence it is enough to look at the runs in which A acts first, B second, and so on: every other
//! run is one of these with the letters exchanged.

use std::collections::BTreeSet;

use lock_core::backend::rules;
use stateright::{Model, Property};

use super::check::ProtocolModel;
use super::id::{Id, Ids, letter};
use super::mutant::Mutant;
use super::properties::*;
use super::request::{Reply, Request, Wake};
use super::server::ServerModel;
use super::time::{STEP, Time, units};

mod steps;

/// The ttl of every hold.
pub const TTL: u16 = 40;
/// The time for which an offer waits.
pub const GRACE: u16 = 10;
/// The time between two refreshes of a waiter's entry.
pub const REFRESH: u16 = 20;
/// The time for which an entry lives without a refresh.
pub const ENTRY_TTL: u16 = 40;
/// For how long a name is kept.
pub const KEEP: u16 = 20;

/// Bounds, and what may happen within them.
#[derive(Clone, Debug)]
pub struct QueueModel {
    /// The number of processes.
    pub processes: usize,
    /// The number of acquisitions of each process.
    pub runs: u8,
    /// When time ends.
    pub until: u16,
    /// The number of times that a process hangs.
    pub hangs: u8,
    /// The number of the server's messages that get lost.
    pub losses: u8,
    /// The number of times that a process's connection is cut, and messages to it are lost.
    pub cuts: u8,
    /// The number of times that a release keeps the name.
    pub keeps: u8,
    /// The time by which the server's clock is set back, once; 0: never.
    pub set_back: u16,
    /// Whether waiters may give up.
    pub gives_up: bool,
    /// The bug of the model, if it has one.
    pub mutant: Option<Mutant>,
}

/// Everybody's state, and what the properties have to remember.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    now: Time,
    server: ServerModel<Time>,
    wakes: BTreeSet<Wake<Time>>,
    processes: Vec<Process>,
    /// The number of processes that have acted.
    acted: usize,
    hung: u8,
    lost: u8,
    cut: u8,
    kept: u8,
    /// The time by which the server's clock is ahead of all others, until it is set back.
    ahead: u16,
    /// Until when the name was promised to stay taken, and whether that was broken.
    promised: Time,
    broken: bool,
    /// The time for which nobody had the name while a waiter ran.
    idle: u16,
    /// The processes that wait, in the order of their coming.
    order: Vec<usize>,
    /// Whether the name is free because a hold or an offer expired.
    lapsed: bool,
    starved: bool,
    highest: u64,
    regressed: bool,
    ended: Ids,
    done: u8,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Process {
    run: u8,
    phase: Phase,
    runs: bool,
    /// Whether the process, which does not run, is also cut off.
    is_cut: bool,
    /// Whether the process ran all the time since it came.
    steady: bool,
    /// When it last asked.
    asked: Time,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Phase {
    Out,
    /// Looks again at the latest then.
    Waits(Time),
    /// Believes until then.
    Holds(Time),
}

/// An event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Time passes.
    Tick,
    /// A process comes, or refreshes its entry.
    Ask(usize),
    /// A waiter gives up.
    Abandon(usize),
    /// A holder releases.
    Release(usize),
    /// A holder releases, and the name is kept.
    Keep(usize),
    /// A holder sees that its lease has ended.
    Notice(usize),
    /// A process stops running.
    Hang(usize),
    /// A process's connection breaks.
    Cut(usize),
    /// A process runs again, or has a connection again.
    Resume(usize),
    /// The server's clock is set back.
    SetBack,
    /// The server's message arrives.
    Deliver(Wake<Time>),
    /// The server's message does not arrive.
    Lose(Wake<Time>),
}

impl Model for QueueModel {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let process = Process {
            run: 0,
            phase: Phase::Out,
            runs: true,
            is_cut: false,
            steady: true,
            asked: Time(0),
        };
        vec![State {
            now: Time(0),
            server: ServerModel::default(),
            wakes: BTreeSet::new(),
            processes: vec![process; self.processes],
            acted: 0,
            hung: 0,
            lost: 0,
            cut: 0,
            kept: 0,
            ahead: self.set_back,
            promised: Time(0),
            broken: false,
            idle: 0,
            order: Vec::new(),
            lapsed: false,
            starved: false,
            highest: 0,
            regressed: false,
            ended: Ids::default(),
            done: 0,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        let mut all_in_time = true;
        for (index, process) in state.processes.iter().enumerate().take(state.acted + 1) {
            if !process.runs {
                actions.push(Action::Resume(index));
                continue;
            }
            if state.hung < self.hangs {
                actions.push(Action::Hang(index));
            }
            if state.cut < self.cuts {
                actions.push(Action::Cut(index));
            }
            match process.phase {
                Phase::Out if process.run < self.runs => actions.push(Action::Ask(index)),
                Phase::Out => {}
                Phase::Waits(look) => {
                    if look <= state.now {
                        actions.push(Action::Ask(index));
                        all_in_time = false;
                    }
                    if self.gives_up {
                        actions.push(Action::Abandon(index));
                    }
                }
                Phase::Holds(ends) if rules::has_expired(ends, state.now) => actions.push(Action::Notice(index)),
                Phase::Holds(_) => {
                    actions.push(Action::Release(index));
                    if state.kept < self.keeps {
                        actions.push(Action::Keep(index));
                    }
                }
            }
        }
        for wake in &state.wakes {
            if state.processes[wake.id().client()].runs {
                actions.push(Action::Deliver(*wake));
                all_in_time = false;
            }
            if state.lost < self.losses {
                actions.push(Action::Lose(*wake));
            }
        }
        if state.ahead > 0 {
            actions.push(Action::SetBack);
        }
        if all_in_time && state.now.0 < self.until {
            actions.push(Action::Tick);
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        if let Action::Ask(index) | Action::Hang(index) | Action::Cut(index) = action {
            state.acted = state.acted.max(index + 1);
        }
        match action {
            Action::Tick => {
                state.idle = if state.is_idle() { state.idle + STEP } else { 0 };
                state.now = state.now.next();
            }
            Action::Ask(index) => self.ask(&mut state, index),
            Action::Abandon(index) => {
                self.answer(&mut state, Request::Abandon(last.id(index)));
                state.go_out(index);
            }
            Action::Release(index) => {
                self.answer(&mut state, Request::Release(last.id(index)));
                state.done = (state.done + 1).min(2);
                state.go_out(index);
            }
            Action::Keep(index) => {
                let (id, time) = (last.id(index), units(KEEP));
                if self.answer(&mut state, Request::Keep { id, time }) == Reply::Done {
                    state.promised = Time(state.now.0 + KEEP);
                }
                state.kept += 1;
                state.done = (state.done + 1).min(2);
                state.go_out(index);
            }
            Action::Notice(index) => state.go_out(index),
            Action::Hang(index) => {
                state.hung += 1;
                state.processes[index].runs = false;
                state.processes[index].steady = false;
            }
            Action::Cut(index) => {
                state.cut += 1;
                let process = &mut state.processes[index];
                (process.runs, process.is_cut, process.steady) = (false, true, false);
                state.server.unreachable.insert(Id::new(index, 0));
                state.wakes.retain(|wake| wake.id().client() != index);
            }
            Action::Resume(index) => self.resume(&mut state, index),
            Action::SetBack => state.ahead = 0,
            Action::Deliver(wake) => {
                state.wakes.remove(&wake);
                self.woken(&mut state, wake);
            }
            Action::Lose(wake) => {
                state.wakes.remove(&wake);
                state.lost += 1;
            }
        }
        if !state.is_idle() {
            state.idle = 0;
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(ONE_BELIEVER, |_, state: &State| {
                let believers = state.processes.iter().filter(|process| process.believes(state.now));
                believers.count() <= 1
            }),
            Property::always(TOKENS_INCREASE, |_, state: &State| !state.regressed),
            Property::always(DEAD_STAY_DEAD, |_, state: &State| {
                let entries = state.server.queue.iter().map(|entry| entry.holder);
                let holder = state.server.holder(state.server_now());
                let holder = holder.filter(|hold| hold.kept.is_none()).map(|hold| hold.holder);
                !entries.chain(holder).any(|id| state.ended.contains(id))
            }),
            Property::always(ENTRIES_END, |model: &Self, state: &State| {
                let asked = |id: Id| state.processes[id.client()].asked;
                // By the server's clock as it was before it was set back.
                let after = |time: Time, term: u16| Time(time.0 + model.set_back + term);
                let mut entries = state.server.queue.iter();
                entries.all(|entry| entry.expires <= after(asked(entry.holder), ENTRY_TTL))
                    && state
                        .server
                        .hold
                        .as_ref()
                        .is_none_or(|hold| match (hold.token, hold.kept) {
                            (_, Some(_)) => hold.expires <= after(state.now, KEEP + 2 * GRACE),
                            (Some(_), None) => hold.expires <= after(asked(hold.holder), TTL),
                            (None, None) => hold.expires <= after(state.now, GRACE),
                        })
            }),
            Property::always(KEPT_IN_TIME, |_, state: &State| !state.broken),
            Property::always(HEAD_NOT_STARVED, |_, state: &State| !state.starved),
            Property::always(SOMEBODY_AWAKE, |model: &Self, state: &State| {
                // Who asks first after a step back repairs what was promised before.
                let repaired = if model.set_back > 0 { KEEP + GRACE } else { 0 };
                state.idle <= GRACE + REFRESH + repaired
            }),
            Property::always(HUNG_COSTS_GRACE, |model: &Self, state: &State| {
                state.hung > 1 || state.lost > 0 || model.set_back > 0 || state.idle <= GRACE
            }),
            Property::sometimes(TWO_HOLDS_DONE, |_, state: &State| state.done >= 2),
        ]
    }

    fn format_action(&self, action: &Action) -> String {
        let who = |index: &usize| letter(*index);
        match action {
            Action::Tick => "time passes".into(),
            Action::Ask(index) => format!("{} asks", who(index)),
            Action::Abandon(index) => format!("{} gives up", who(index)),
            Action::Release(index) => format!("{} releases", who(index)),
            Action::Keep(index) => format!("{} releases, and the name is kept for {KEEP}", who(index)),
            Action::Notice(index) => format!("{} sees that its lease has ended", who(index)),
            Action::Hang(index) => format!("{} hangs", who(index)),
            Action::Cut(index) => format!("{} is cut off", who(index)),
            Action::Resume(index) => format!("{} goes on", who(index)),
            Action::SetBack => format!("the server's clock is set back by {}", self.set_back),
            Action::Deliver(wake) => format!("{} arrives", wake_text(wake)),
            Action::Lose(wake) => format!("{} gets lost", wake_text(wake)),
        }
    }
}

fn wake_text(wake: &Wake<Time>) -> String {
    match wake {
        Wake::Offer(id) => format!("the offer to {id}"),
        Wake::StandBy(id, until) => format!("the word to {id} to look at {until}"),
    }
}

impl ProtocolModel for QueueModel {
    fn with(&self, mutant: Mutant) -> Self {
        let mutant = Some(mutant);
        Self { mutant, ..self.clone() }
    }
}
