//! Tokens that a server numbers itself.
//!
//! **ZooKeeper** numbers every write of all its nodes: a node's czxid is that of its creation, a directory's mzxid that
//! of its last change. A waiter's node is older than a hand-over that it waited for, so its czxid alone would regress.
//! Hence a hand-over writes the lock's directory and takes that zxid, and so does a grant to a node that is older than
//! the directory's last change.
//!
//! **Row locks** keep the token in the row that is locked, so that a broken connection rolls it back. Behind the
//! server's clock that does no harm; ahead of it the token is committed apart, on another connection.

use lock_core::backend::rules;
use stateright::{Model, Property};

use super::check::ProtocolModel;
use super::id::letter;
use super::mutant::Mutant;
use super::properties::*;

/// Whose tokens, and what is wrong.
#[derive(Clone, Debug)]
pub struct TokenModel {
    /// What grants.
    pub by: By,
    /// How many holds there are, hand-overs included.
    pub holds: u8,
    /// What is wrong.
    pub mutant: Option<Mutant>,
}

/// What grants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// Nodes in a directory.
    Zookeeper,
    /// Rows in a transaction, with a clock that may be set back.
    RowLock,
}

/// Everybody's state, and what the properties have to remember.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct State {
    /// ZooKeeper's last zxid; the clock of the database.
    clock: u64,
    /// ZooKeeper: who has a node, and its czxid, oldest first. The first holds once it was granted.
    nodes: Vec<(usize, u64)>,
    /// ZooKeeper: the directory's mzxid. Row lock: the row's token as committed.
    written: u64,
    /// Row lock: tokens that were committed apart.
    apart: u64,
    /// The token of the hold, if there is one.
    held: Option<u64>,
    granted: u8,
    highest: u64,
    regressed: bool,
    set_back: bool,
}

/// What happens next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// ZooKeeper: a client makes its node.
    Create(usize),
    /// The first in turn is granted the name.
    Grant,
    /// ZooKeeper: the holder passes it on within its process.
    HandOver,
    /// The holder releases.
    Release,
    /// The holder's session or connection ends.
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
        let more = state.granted < self.holds;
        match (self.by, state.held) {
            (_, Some(_)) => {
                actions.extend([Action::Release, Action::Break]);
                if more && self.by == By::Zookeeper {
                    actions.push(Action::HandOver);
                }
            }
            (By::Zookeeper, None) if more && !state.nodes.is_empty() => actions.push(Action::Grant),
            (By::RowLock, None) if more => actions.push(Action::Grant),
            _ => {}
        }
        match self.by {
            By::Zookeeper if more => {
                let waits = |client: &usize| state.nodes.iter().any(|(owner, _)| owner == client);
                actions.extend((0..3).filter(|client| !waits(client)).map(Action::Create));
            }
            By::Zookeeper => {}
            By::RowLock if state.clock < 8 => actions.push(Action::Tick),
            By::RowLock => {}
        }
        // Set back below a token that was rolled back, it is outside the failure model.
        let all_kept = state.held.is_none() && state.written.max(state.apart) == state.highest;
        if self.by == By::RowLock && !state.set_back && all_kept {
            actions.push(Action::SetBack);
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        match action {
            Action::Create(client) => {
                let czxid = state.write();
                state.nodes.push((client, czxid));
            }
            Action::Grant | Action::HandOver => {
                let token = match self.by {
                    By::Zookeeper => self.zookeeper(&mut state, action == Action::HandOver),
                    By::RowLock => self.row_lock(&mut state)?,
                };
                state.regressed |= token <= state.highest;
                state.highest = state.highest.max(token);
                state.granted += 1;
                state.held = Some(token);
            }
            // The nodes of a session that ends are deleted; a transaction is rolled back.
            Action::Release | Action::Break => {
                let token = state.held.take()?;
                match self.by {
                    By::Zookeeper => {
                        state.nodes.remove(0);
                        state.write();
                    }
                    By::RowLock => {
                        if action == Action::Release {
                            state.written = token;
                        }
                        // That takes longer than a microsecond.
                        state.clock += 1;
                    }
                }
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
        match (action, self.by) {
            (Action::Create(client), _) => format!("{} makes its node", letter(*client)),
            (Action::Grant, _) => "the first in turn is granted the lock".into(),
            (Action::HandOver, _) => "the holder hands over".into(),
            (Action::Release, _) => "the holder releases".into(),
            (Action::Break, By::Zookeeper) => "the holder's session ends".into(),
            (Action::Break, By::RowLock) => "the holder's connection breaks, and its transaction is rolled back".into(),
            (Action::Tick, _) => "time passes".into(),
            (Action::SetBack, _) => "the server's clock is set back".into(),
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
    fn zookeeper(&self, state: &mut State, is_hand_over: bool) -> u64 {
        let czxid = state.nodes[0].1;
        match self.mutant {
            Some(Mutant::ZookeeperCreatedOnly) if !is_hand_over => czxid,
            Some(Mutant::ZookeeperReadsOnly) if !is_hand_over => czxid.max(state.written),
            _ if is_hand_over || state.written > czxid => {
                state.written = state.write();
                state.written
            }
            _ => czxid,
        }
    }

    fn row_lock(&self, state: &mut State) -> Option<u64> {
        let token = rules::next_token(state.written.max(state.apart), state.clock, None)?.as_u64();
        if token > state.clock && self.mutant != Some(Mutant::RolledBackToken) {
            state.apart = state.apart.max(token);
        }
        Some(token)
    }
}

impl State {
    fn write(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }
}
