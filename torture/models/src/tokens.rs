//! Tokens that a transaction may roll back.
//!
//! **Row locks** keep the token in the row that is locked, so that a broken connection rolls it back. Behind the
//! server's clock that does no harm; ahead of it the token is committed apart, on another connection.

use lock_core::backend::rules;
use stateright::{Model, Property};

use super::check::ProtocolModel;
use super::mutant::Mutant;
use super::properties::*;

/// Bounds, and what is wrong.
#[derive(Clone, Debug)]
pub struct TokenModel {
    /// The number of holds.
    pub holds: u8,
    /// The bug of the model, if it has one.
    pub mutant: Option<Mutant>,
}

/// Everybody's state, and what the properties have to remember.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct State {
    /// The clock of the database.
    clock: u64,
    /// The row's token as committed.
    written: u64,
    /// Tokens that were committed apart.
    apart: u64,
    /// The token of the hold, if there is one.
    held: Option<u64>,
    granted: u8,
    highest: u64,
    regressed: bool,
    set_back: bool,
}

/// An event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// The first in turn is granted the name.
    Grant,
    /// The holder releases.
    Release,
    /// The holder's connection ends.
    Break,
    /// The clock goes on.
    Tick,
    /// The clock is set back, once.
    SetBack,
}

impl Model for TokenModel {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State {
            clock: 5,
            ..State::default()
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        match state.held {
            Some(_) => actions.extend([Action::Release, Action::Break]),
            None if state.granted < self.holds => actions.push(Action::Grant),
            None => {}
        }
        if state.clock < 8 {
            actions.push(Action::Tick);
        }
        // Set back below a token that was rolled back, it is outside the failure model.
        let all_kept = state.held.is_none() && state.written.max(state.apart) == state.highest;
        if !state.set_back && all_kept {
            actions.push(Action::SetBack);
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        match action {
            Action::Grant => {
                let token = self.grant(&mut state)?;
                state.regressed |= token <= state.highest;
                state.highest = state.highest.max(token);
                state.granted += 1;
                state.held = Some(token);
            }
            Action::Release | Action::Break => {
                let token = state.held.take()?;
                if action == Action::Release {
                    state.written = token;
                }
                // That takes longer than a microsecond.
                state.clock += 1;
            }
            Action::Tick => state.clock += 1,
            Action::SetBack => {
                state.clock = 1;
                state.set_back = true;
            }
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(TOKENS_INCREASE, |_, state: &State| !state.regressed),
            Property::sometimes(TWO_HOLDS_DONE, |_, state: &State| {
                state.granted >= 2 && state.held.is_none()
            }),
        ]
    }

    fn format_action(&self, action: &Action) -> String {
        match action {
            Action::Grant => "the first in turn is granted the lock".into(),
            Action::Release => "the holder releases".into(),
            Action::Break => "the holder's connection breaks, and its transaction is rolled back".into(),
            Action::Tick => "time passes".into(),
            Action::SetBack => "the server's clock is set back".into(),
        }
    }
}

impl ProtocolModel for TokenModel {
    fn with(&self, mutant: Mutant) -> Self {
        let mutant = Some(mutant);
        Self { mutant, ..self.clone() }
    }
}

impl TokenModel {
    fn grant(&self, state: &mut State) -> Option<u64> {
        let token = rules::next_token(state.written.max(state.apart), state.clock, None)?.as_u64();
        if token > state.clock && self.mutant != Some(Mutant::RolledBackToken) {
            state.apart = state.apart.max(token);
        }
        Some(token)
    }
}
