//! Runs models.

use std::fmt::{Debug, Write};
use std::hash::Hash;
use std::time::Instant;

use stateright::{Checker, Model, Property};

use super::mutant::Mutant;

/// A model that can be broken.
pub trait ProtocolModel:
    Model<State: Clone + Hash + PartialEq + Send + Sync, Action: Clone + Debug + PartialEq + Send + Sync>
    + Clone
    + Debug
    + Send
    + Sync
    + 'static
{
    /// The same with this mutant, and no other.
    #[must_use]
    fn with(&self, mutant: Mutant) -> Self;
}

/// The effort for a model that keeps all its properties.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Checked {
    /// The number of different states.
    pub states: usize,
    /// The time until all states were seen.
    pub seconds: f64,
}

/// Visits every state.
///
/// # Errors
/// The shortest trace to a state that breaks a property, or the name of one that must be reached and is not.
pub fn check<M: ProtocolModel>(model: &M) -> Result<Checked, String> {
    let started = Instant::now();
    let checker = model.clone().checker().threads(2).spawn_bfs().join();
    for property in model.properties() {
        let found = checker.discovery(property.name).is_some();
        match (property.expectation.discovery_is_failure(), found) {
            (true, true) => {
                let trace = shortest_trace(model, property.name).unwrap_or_default();
                return Err(format!("{} is broken:\n{}", property.name, numbered(&trace)));
            }
            (false, false) => return Err(format!("{} is never reached", property.name)),
            _ => {}
        }
    }
    let seconds = started.elapsed().as_secs_f64();
    let states = checker.unique_state_count();
    Ok(Checked { states, seconds })
}

/// The shortest way to break a property, or to reach one that is to be reached.
///
/// With one property at a time and one thread the search stops at the first state found, which is the nearest.
pub fn shortest_trace<M: ProtocolModel>(model: &M, property: &'static str) -> Option<Vec<String>> {
    let only = Only(model.clone(), property);
    let checker = only.checker().threads(1).spawn_bfs().join();
    let path = checker.discovery(property)?;
    Some(
        path.into_actions()
            .iter()
            .map(|action| model.format_action(action))
            .collect(),
    )
}

/// A trace as a list.
pub fn numbered(trace: &[String]) -> String {
    let mut list = String::new();
    for (index, step) in trace.iter().enumerate() {
        // Writing to a string cannot fail.
        let _ = writeln!(list, "{}. {step}", index + 1);
    }
    list
}

/// A model with one of its properties.
#[derive(Clone, Debug)]
struct Only<M>(M, &'static str);

impl<M: Model> Model for Only<M> {
    type State = M::State;
    type Action = M::Action;

    fn init_states(&self) -> Vec<Self::State> {
        self.0.init_states()
    }

    fn actions(&self, state: &Self::State, actions: &mut Vec<Self::Action>) {
        self.0.actions(state, actions);
    }

    fn next_state(&self, last_state: &Self::State, action: Self::Action) -> Option<Self::State> {
        self.0.next_state(last_state, action)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let Property { expectation, name, .. } = self.0.property(self.1);
        // Looked up anew, since a condition cannot carry anything.
        let condition = |only: &Self, state: &Self::State| {
            let property = only.0.property(only.1);
            (property.condition)(&only.0, state)
        };
        vec![Property {
            expectation,
            name,
            condition,
        }]
    }
}
