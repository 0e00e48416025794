//! A ZooKeeper session: what an answered heartbeat proves of how long it is kept.
//!
//! The leader alone ends sessions. It learns of a client's requests from its followers' answers to its pings, which
//! come every half tick; a `sync` that passes through it prolongs nothing. So the answer to a heartbeat proves that the
//! follower was connected to its leader, and nothing else: what prolonged the session is an *earlier* heartbeat, if a
//! ping came in between. One is sure to where half a tick lies between the earlier one's *answer* and the later one's
//! sending. Half a tick between both sendings is not enough: the two may have been held up together, and arrive
//! between the same two pings.
//!
//! A standalone server prolongs the session by each request that arrives, so that an answer proves its own heartbeat.
//! It may be made a follower by a restart, which ends the connection, and with it what the client knew of the server.

use lock_core::backend::rules;
use stateright::{Model, Property};

use super::check::ProtocolModel;
use super::mutant::Mutant;
use super::properties::*;
use super::time::{STEP, Time, units};

/// The session timeout: two ticks, the shortest that a server grants by default. A quarter of it is half a tick.
const TIMEOUT: u16 = 4 * STEP;

/// Bounds, and what is wrong.
#[derive(Clone, Debug)]
pub struct SessionModel {
    /// When time ends.
    pub until: u16,
    /// Whether the server is a standalone one at first, which may join an ensemble.
    pub joins: bool,
    /// The bug of the model, if it has one.
    pub mutant: Option<Mutant>,
}

/// Everybody's state.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    now: Time,
    /// When the leader ends the session, and others may take its locks.
    expires: Time,
    /// Whether the follower has heard of the client since the leader's last ping.
    heard: bool,
    /// Whether the follower is cut off from the leader.
    cut: bool,
    /// Whether the server belongs to no ensemble.
    standalone: bool,
    /// Heartbeats on their way to the follower, by when they were sent.
    sent: Vec<Time>,
    /// Answers on their way back.
    answers: Vec<Time>,
    /// Answered heartbeats: when they were sent, and answered. The last that counted for belief is the first.
    answered: Vec<(Time, Time)>,
    /// When belief in every hold of the session ends.
    ends: Time,
}

/// An event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Half a tick passes, and at its end the leader pings the follower.
    Tick,
    /// The client sends a heartbeat.
    Beat,
    /// The first heartbeat under way arrives, and passes through the leader.
    Arrive,
    /// The first answer under way arrives.
    Answer,
    /// The follower is cut off from the leader.
    Cut,
    /// The standalone server is restarted as a follower.
    Join,
}

impl Model for SessionModel {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let (now, timeout) = (Time(0), units(TIMEOUT));
        vec![State {
            now,
            expires: rules::prolonged(now, now, timeout),
            heard: false,
            cut: false,
            standalone: self.joins,
            sent: Vec::new(),
            answers: Vec::new(),
            answered: vec![(now, now)],
            ends: rules::lease_ends(None, now, timeout, false),
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if state.now.0 < self.until {
            actions.push(Action::Tick);
        }
        if state.believes() && state.last_sent() < state.now {
            actions.push(Action::Beat);
        }
        if !state.sent.is_empty() {
            actions.push(Action::Arrive);
        }
        if !state.answers.is_empty() {
            actions.push(Action::Answer);
        }
        if state.standalone {
            actions.push(Action::Join);
        } else if !state.cut {
            actions.push(Action::Cut);
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        match action {
            Action::Tick => {
                if state.heard && !state.cut {
                    // At the earliest when the follower heard of it.
                    state.expires = rules::prolonged(state.expires, state.now, units(TIMEOUT));
                    state.heard = false;
                }
                state.now = state.now.next();
            }
            Action::Beat => state.sent.push(state.now),
            Action::Arrive => {
                let beat = state.sent.remove(0);
                if state.standalone {
                    state.expires = rules::prolonged(state.expires, state.now, units(TIMEOUT));
                } else {
                    state.heard = true;
                }
                if !state.cut {
                    state.answers.push(beat);
                }
            }
            Action::Answer => {
                let beat = state.answers.remove(0);
                self.answered(&mut state, beat);
            }
            Action::Cut => state.cut = true,
            Action::Join => {
                state.standalone = false;
                // The connection has ended; a restarted server counts sessions anew.
                state.sent.clear();
                state.answers.clear();
                state.expires = rules::prolonged(state.expires, state.now, units(TIMEOUT));
            }
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(ONE_BELIEVER, |_, state: &State| {
                !state.believes() || !rules::has_expired(state.expires, state.now)
            }),
            Property::sometimes("belief goes on past the first timeout", |_, state: &State| {
                state.believes() && state.now > Time(TIMEOUT)
            }),
        ]
    }

    fn format_action(&self, action: &Action) -> String {
        match action {
            Action::Tick if self.joins => "half a tick passes".into(),
            // A ping that does not arrive, once they are cut off.
            Action::Tick => "half a tick passes, and ends with a ping of the follower".into(),
            Action::Beat => "the client sends a heartbeat".into(),
            Action::Arrive if self.joins => "the heartbeat arrives at the server".into(),
            Action::Arrive => "the heartbeat arrives at the follower, and its sync at the leader".into(),
            Action::Answer => "the answer arrives".into(),
            Action::Cut => "the follower is cut off from the leader".into(),
            Action::Join => "the standalone server is restarted as a follower".into(),
        }
    }
}

impl SessionModel {
    /// Belief counts from the last heartbeat that this answer proves to have prolonged the session.
    fn answered(&self, state: &mut State, beat: Time) {
        state.answered.push((beat, state.now));
        let is_standalone = state.standalone;
        let proves = |(sent, answered): (Time, Time)| match self.mutant {
            Some(Mutant::BeatProvesItself | Mutant::StandaloneForEver) => true,
            Some(Mutant::BeatsSpacedBySending) => sent.next() <= beat,
            _ => is_standalone || answered.next() <= beat,
        };
        let Some(index) = state.answered.iter().rposition(|earlier| proves(*earlier)) else {
            return;
        };
        state.answered.drain(..index);
        // Lost is final.
        if state.believes() {
            let from = state.answered[0].0;
            state.ends = rules::lease_ends(Some(state.ends), from, units(TIMEOUT), false);
        }
    }
}

impl ProtocolModel for SessionModel {
    fn with(&self, mutant: Mutant) -> Self {
        let mutant = Some(mutant);
        Self { mutant, ..self.clone() }
    }
}

impl State {
    fn believes(&self) -> bool {
        !rules::has_expired(self.ends, self.now)
    }

    fn last_sent(&self) -> Time {
        let answered = self.answered.iter().map(|(sent, _)| sent);
        let all = self.sent.iter().chain(&self.answers).chain(answered);
        all.copied().max().unwrap_or_default()
    }
}
