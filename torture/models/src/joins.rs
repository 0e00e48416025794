//! Readers of one process that join its shared hold, and a writer elsewhere.
//!
//! A reader joins the process's newest hold if that is held, nobody of the process waits, fewer than [`MOST`] have entered it, and it
//! is younger than [`YOUNG`]. Otherwise it waits in the process's line, of which one request at a time is at the server. A grant
//! lets as many waiting readers in. The hold ends with its last guard, and its lease is that of all who joined.

use std::collections::VecDeque;

use lock_core::backend::{Mode, rules};
use stateright::{Model, Property};

use super::check::ProtocolModel;
use super::mutant::Mutant;
use super::properties::*;
use super::time::{Time, units};

/// The largest number of readers that may enter one hold.
pub const MOST: u8 = 2;
/// The largest age of a hold that readers join.
pub const YOUNG: u16 = 20;
/// The ttl of every hold.
pub const TTL: u16 = 40;

/// Bounds, and what may happen within them.
#[derive(Clone, Debug)]
pub struct JoinsModel {
    /// The number of readers that come.
    pub readers: u8,
    /// When time ends.
    pub until: u16,
    /// The number of renewals.
    pub renewals: u8,
    /// The bug of the model, if it has one.
    pub mutant: Option<Mutant>,
}

/// Everybody's state, and what the properties have to remember.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct State {
    now: Time,
    /// The process's holds, the newest last.
    holds: Vec<Hold>,
    /// The number of readers that have come, and of those that wait in the line.
    came: u8,
    waiting: u8,
    renewed: u8,
    /// The requests that wait at the server: whether each is the writer's.
    queue: VecDeque<bool>,
    writer: Writer,
    /// The number of readers of the process that have entered since the writer waits.
    passed: u8,
    done: u8,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
enum Writer {
    #[default]
    Out,
    Waits,
    Holds,
    Done,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Hold {
    /// Until when it is young; none: it is not.
    young: Option<Time>,
    /// When its lease ends.
    ends: Time,
    /// When it ends at the server, if it is still there.
    expires: Option<Time>,
    /// The guards, by when each believes that its lease ends.
    guards: Vec<Time>,
    entered: u8,
    /// Whether the hold's release is under way.
    is_released: bool,
}

/// An event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Time passes.
    Tick,
    /// A reader comes.
    Come,
    /// A guard of this hold leaves.
    Leave(usize),
    /// A hold is renewed.
    Renew(usize),
    /// The release of a hold arrives.
    Release(usize),
    /// The writer asks.
    Write,
    /// The writer releases.
    EndWrite,
}

impl Model for JoinsModel {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State::default()]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if state.writer == Writer::Done && state.done >= 2 {
            // Nothing is left to be shown.
            return;
        }
        if state.came < self.readers {
            actions.push(Action::Come);
        }
        for (at, hold) in state.holds.iter().enumerate() {
            match hold.is_released {
                true => actions.push(Action::Release(at)),
                false => {
                    actions.push(Action::Leave(at));
                    if state.renewed < self.renewals && hold.is_held(state.now) {
                        actions.push(Action::Renew(at));
                    }
                }
            }
        }
        match state.writer {
            Writer::Out => actions.push(Action::Write),
            Writer::Holds => actions.push(Action::EndWrite),
            Writer::Waits | Writer::Done => {}
        }
        if state.now.0 < self.until {
            actions.push(Action::Tick);
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        match action {
            Action::Tick => {
                state.now = state.now.next();
                let now = state.now;
                for hold in &mut state.holds {
                    hold.expires.take_if(|expires| rules::has_expired(*expires, now));
                    hold.young.take_if(|young| rules::has_expired(*young, now));
                }
                self.admit(&mut state);
            }
            Action::Come => {
                state.came += 1;
                self.come(&mut state);
            }
            Action::Leave(at) => {
                let hold = &mut state.holds[at];
                hold.guards.pop();
                state.done = (state.done + 1).min(2);
                hold.is_released = hold.guards.is_empty() && self.mutant != Some(Mutant::KeptAfterTheLast);
            }
            Action::Renew(at) => {
                state.renewed += 1;
                let now = state.now;
                let hold = &mut state.holds[at];
                if let Some(expires) = &mut hold.expires {
                    *expires = rules::prolonged(*expires, now, units(TTL));
                    hold.ends = rules::lease_ends(Some(hold.ends), now, units(TTL), false);
                    hold.guards.fill(hold.ends);
                }
            }
            Action::Release(at) => {
                let hold = &mut state.holds[at];
                hold.expires = None;
                if hold.guards.is_empty() {
                    state.holds.remove(at);
                }
                self.admit(&mut state);
            }
            Action::Write => {
                state.writer = Writer::Waits;
                state.queue.push_back(true);
                self.admit(&mut state);
            }
            Action::EndWrite => {
                state.writer = Writer::Done;
                self.admit(&mut state);
            }
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(HOLDERS_FIT, |_, state: &State| {
                let believes = |hold: &Hold| hold.guards.iter().any(|ends| !rules::has_expired(*ends, state.now));
                state.writer != Writer::Holds || !state.holds.iter().any(believes)
            }),
            // The hold's lease is lost for all who joined it.
            Property::always(LOSS_REACHES_ALL, |_, state: &State| {
                state
                    .holds
                    .iter()
                    .all(|hold| hold.guards.iter().all(|ends| *ends == hold.ends))
            }),
            Property::always(WRITER_IS_NOT_STARVED, |_, state: &State| {
                state.writer != Writer::Waits || state.passed <= MOST
            }),
            Property::always(ENDS_WITH_ITS_LAST, |_, state: &State| {
                let mut holds = state.holds.iter();
                holds.all(|hold| hold.guards.is_empty() == hold.is_released)
            }),
            Property::sometimes(HELD_TOGETHER, |_, state: &State| {
                state.holds.iter().any(|hold| hold.guards.len() > 1)
            }),
            Property::sometimes(TWO_HOLDS_DONE, |_, state: &State| {
                state.done >= 2 && state.writer == Writer::Done
            }),
        ]
    }

    fn format_action(&self, action: &Action) -> String {
        match action {
            Action::Tick => "time passes".into(),
            Action::Come => "a reader comes".into(),
            Action::Leave(at) => format!("a guard of hold {} leaves", at + 1),
            Action::Renew(at) => format!("hold {} is renewed", at + 1),
            Action::Release(at) => format!("the release of hold {} arrives", at + 1),
            Action::Write => "the writer asks".into(),
            Action::EndWrite => "the writer releases".into(),
        }
    }
}

impl ProtocolModel for JoinsModel {
    fn with(&self, mutant: Mutant) -> Self {
        let mutant = Some(mutant);
        Self { mutant, ..self.clone() }
    }
}

impl JoinsModel {
    fn come(&self, state: &mut State) {
        let (now, nobody_waits) = (state.now, state.waiting == 0);
        let newest = state.holds.last_mut();
        if let Some(hold) = newest.filter(|hold| nobody_waits && self.may_join(hold, now)) {
            hold.enter(now, self.mutant);
            state.passed += u8::from(state.writer == Writer::Waits);
            return;
        }
        state.waiting += 1;
        self.ask(state);
        self.admit(state);
    }

    fn may_join(&self, hold: &Hold, now: Time) -> bool {
        let is_young = hold.young.is_some() && hold.entered < MOST;
        let is_there = !hold.is_released || self.mutant == Some(Mutant::JoinsAfterTheLast);
        hold.is_held(now) && is_there && (is_young || self.mutant == Some(Mutant::UnboundedJoins))
    }

    /// One request of the line is at the server.
    fn ask(&self, state: &mut State) {
        if state.waiting > 0 && !state.queue.contains(&false) {
            state.queue.push_back(false);
        }
    }

    /// The server admits whoever is first in the queue, as long as they fit.
    fn admit(&self, state: &mut State) {
        while let Some(is_writer) = state.queue.front().copied() {
            let held = state.holds.iter().filter(|hold| hold.expires.is_some());
            let held = held.map(|_| Mode::Shared);
            let writes = (state.writer == Writer::Holds).then_some(Mode::Exclusive);
            let asked = if is_writer { Mode::Exclusive } else { Mode::Shared };
            if !rules::fits(held.chain(writes), asked) {
                return;
            }
            state.queue.pop_front();
            match is_writer {
                true => {
                    state.writer = Writer::Holds;
                    state.passed = 0;
                }
                false => self.granted(state),
            }
        }
    }

    fn granted(&self, state: &mut State) {
        let now = state.now;
        let mut hold = Hold {
            young: Some(Time(now.0 + YOUNG)),
            ends: rules::lease_ends(None, now, units(TTL), false),
            expires: Some(rules::prolonged(now, now, units(TTL))),
            guards: Vec::new(),
            entered: 0,
            is_released: false,
        };
        while state.waiting > 0 && hold.entered < MOST {
            state.waiting -= 1;
            hold.enter(now, self.mutant);
        }
        state.passed += if state.writer == Writer::Waits { hold.entered } else { 0 };
        state.holds.push(hold);
        self.ask(state);
    }
}

impl Hold {
    fn is_held(&self, now: Time) -> bool {
        !rules::has_expired(self.ends, now)
    }

    fn enter(&mut self, now: Time, mutant: Option<Mutant>) {
        self.entered += 1;
        let ends = match mutant {
            Some(Mutant::LeaseFromTheJoin) => rules::lease_ends(None, now, units(TTL), false),
            _ => self.ends,
        };
        self.guards.push(ends);
    }
}
