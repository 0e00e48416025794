//! ZooKeeper's tokens: each is a zxid, shifted to make room for passes, plus an offset that a request with a token floor raises.
//!
//! A client lists a lock's directory, then reads the offset of the root path and the one in the directory, and decides by
//! both. In place of the first read it may go by a watch that has not fired when the list comes. Between any two of these steps the others go on: a holder passes its hold on or releases it, another lock or a holder
//! raises the offset, and somebody deletes a node. A server that restarts may have forgotten the last change of the
//! directory's children, and ends all connections. The grant counts from its listing: the token must be larger than those of
//! all grants of earlier listings.

use stateright::{Model, Property};

use super::check::ProtocolModel;
use super::id::letter;
use super::mutant::Mutant;
use super::properties::*;

mod steps;

/// The number of tokens for each zxid.
const TOKENS_PER_ZXID: u64 = 2;
/// The amount by which another lock raises the offset at once: more than all zxids give.
const RAISE: u64 = 100;

/// Bounds, and what is wrong.
#[derive(Clone, Debug)]
pub struct TokenOffsetModel {
    /// The clients' token floors: 0 for none, or far above all zxids.
    pub floors: &'static [u64],
    /// The least number of grants.
    pub holds: usize,
    /// The number of times that a hold is passed on.
    pub passes: u8,
    /// The number of nodes that somebody else deletes.
    pub deletions: u8,
    /// The number of times that another lock raises the offset.
    pub raises: u8,
    /// The number of times that the token of a hold is raised.
    pub raised_holds: u8,
    /// The number of times that the server restarts.
    pub restarts: u8,
    /// Whether the clients watch the offset.
    pub watches: bool,
    /// The bug of the model, if it has one.
    pub mutant: Option<Mutant>,
}

/// The server, its clients, and what the properties have to remember.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct State {
    zxid: u64,
    /// The root path's offset.
    offset: u64,
    directory: Option<Directory>,
    /// Oldest first.
    nodes: Vec<Node>,
    clients: Vec<Client>,
    /// The numbers of the listings, and the tokens that were granted by them.
    grants: Vec<(u8, u64)>,
    below_floor: bool,
    passes: u8,
    deletions: u8,
    raises: u8,
    raised_holds: u8,
    restarts: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Directory {
    /// The last change of its children, as the server knows it.
    pzxid: u64,
    offset: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Node {
    owner: usize,
    czxid: u64,
    mzxid: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Client {
    /// The largest offset that its session has seen.
    known: u64,
    /// The offset that it read, while the watch has not fired.
    watched: Option<u64>,
    /// The zxid of its node's creation.
    czxid: u64,
    /// Whether the connection has lasted since then.
    same_connection: bool,
    /// The zxid by which it wrote its node when that was the first.
    written: Option<u64>,
    step: Step,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
enum Step {
    #[default]
    Idle,
    Queued,
    /// The listing showed its node as the first.
    Listed(Listing),
    /// It read the root path's offset, and that in the directory.
    Read(Listing, u64, u64),
    Holds(Held),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Listing {
    number: u8,
    /// The zxid for a grant, if the list can tell.
    base: Option<u64>,
    known: u64,
    /// The offset, if it was watched.
    watched: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Held {
    /// The number of its grant.
    number: u8,
    base: u64,
    offset: u64,
    /// The number of passes since the grant.
    passed: u64,
    /// Whether the hold's token was raised: then it is not passed on.
    is_raised: bool,
}

/// An event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// A client makes its node, and the directory if there is none.
    Create(usize),
    /// It lists the directory.
    List(usize),
    /// It reads the offsets, or that in the directory alone.
    Read(usize),
    /// It reads the root path's offset, and watches it.
    Watch(usize),
    /// It writes, or is granted the lock.
    Decide(usize),
    /// The holder passes its hold on within its process, without a request.
    Pass(usize),
    /// The holder releases.
    Release(usize),
    /// Somebody deletes the first node.
    DeleteNode,
    /// The server deletes the empty directory.
    DeleteDirectory,
    /// Another lock raises the offset.
    Raise,
    /// The holder has its token raised: checks its node and writes the offset in one transaction.
    RaiseHold(usize),
    /// The server restarts, and knows of no change of the directory's children.
    Restart,
}

impl Model for TokenOffsetModel {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State {
            zxid: 5,
            clients: vec![Client::default(); self.floors.len()],
            ..State::default()
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        for (index, client) in state.clients.iter().enumerate() {
            if self.watches && client.watched.is_none() && client.step == Step::Queued {
                actions.push(Action::Watch(index));
            }
            let is_missing = || state.nodes.iter().all(|node| node.owner != index);
            match client.step {
                Step::Idle if state.grants.len() < self.holds => actions.push(Action::Create(index)),
                Step::Queued if state.is_first(index) || is_missing() => actions.push(Action::List(index)),
                Step::Idle | Step::Queued => {}
                Step::Listed(_) => actions.push(Action::Read(index)),
                Step::Read(..) => actions.push(Action::Decide(index)),
                Step::Holds(held) => {
                    actions.push(Action::Release(index));
                    let may_raise = !is_missing() || self.has(Mutant::RaiseWithoutACheck);
                    if state.raised_holds < self.raised_holds && may_raise && !held.is_raised {
                        actions.push(Action::RaiseHold(index));
                    }
                    if state.passes < self.passes && held.passed + 1 < TOKENS_PER_ZXID && !held.is_raised {
                        actions.push(Action::Pass(index));
                    }
                }
            }
        }
        if state.deletions < self.deletions && !state.nodes.is_empty() {
            actions.push(Action::DeleteNode);
        }
        if state.nodes.is_empty() && state.directory.is_some() {
            actions.push(Action::DeleteDirectory);
        }
        if state.raises < self.raises {
            actions.push(Action::Raise);
        }
        if state.restarts < self.restarts && state.directory.is_some() {
            actions.push(Action::Restart);
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        match action {
            Action::Create(index) => {
                if state.directory.is_none() {
                    let offset = state.clients[index].known;
                    state.write();
                    state.directory = Some(Directory { pzxid: 0, offset });
                }
                let czxid = state.write();
                state.children_changed();
                let (owner, mzxid) = (index, czxid);
                state.nodes.push(Node { owner, czxid, mzxid });
                state.clients[index] = Client {
                    known: state.clients[index].known,
                    watched: state.clients[index].watched,
                    czxid,
                    same_connection: true,
                    written: None,
                    step: Step::Queued,
                };
            }
            Action::List(index) => state.clients[index].step = self.list(&state, index),
            Action::Read(index) => {
                let Step::Listed(listing) = state.clients[index].step else {
                    return None;
                };
                let directory = match (listing.known, state.directory) {
                    (0, _) | (_, None) => 0,
                    (_, Some(directory)) => directory.offset,
                };
                let offset = listing.watched.unwrap_or(state.offset);
                state.clients[index].step = Step::Read(listing, offset, directory);
            }
            Action::Watch(index) => {
                let client = &mut state.clients[index];
                client.watched = Some(state.offset);
                client.known = client.known.max(state.offset);
            }
            Action::Decide(index) => self.decide(&mut state, index)?,
            Action::Pass(index) => {
                let Step::Holds(held) = state.clients[index].step else {
                    return None;
                };
                let passed = held.passed + 1;
                self.granted(&mut state, index, Held { passed, ..held });
                state.passes += 1;
            }
            Action::Release(index) => {
                if let Some(place) = state.nodes.iter().position(|node| node.owner == index) {
                    state.end_node(place);
                }
                state.clients[index].step = Step::Idle;
            }
            Action::DeleteNode => {
                state.end_node(0);
                state.deletions += 1;
            }
            Action::DeleteDirectory => {
                state.directory = None;
                state.write();
            }
            Action::Raise => {
                let raised = state.offset + RAISE;
                self.raise(&mut state, raised);
                state.raises += 1;
            }
            Action::RaiseHold(index) => {
                let Step::Holds(held) = state.clients[index].step else {
                    return None;
                };
                let raised = self.token(held.base, held.offset, held.passed) + RAISE;
                let needed = (raised + 1).saturating_sub(self.token(held.base + 1, 0, 0));
                let offset = state.offset.max(needed).max(state.clients[index].known);
                self.raise(&mut state, offset);
                let client = &mut state.clients[index];
                client.known = offset;
                client.step = Step::Holds(Held {
                    is_raised: true,
                    ..held
                });
                // As if it had been granted with that token.
                state.grants.push((held.number, raised));
                state.raised_holds += 1;
            }
            Action::Restart => {
                state.directory.as_mut()?.pzxid = 0;
                for client in &mut state.clients {
                    // The new connection has no watch.
                    client.watched = None;
                    client.same_connection = false;
                }
                state.restarts += 1;
            }
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(TOKENS_INCREASE, |_, state: &State| {
                let mut grants = state.grants.clone();
                grants.sort_unstable();
                grants.is_sorted_by(|earlier, later| earlier.1 < later.1)
            }),
            Property::always(ABOVE_THE_FLOOR, |_, state: &State| !state.below_floor),
            Property::always(STATUS_SHOWS_THE_TOKEN, |model: &Self, state: &State| {
                model.shows_the_token(state)
            }),
            Property::sometimes(TWO_HOLDS_DONE, |_, state: &State| {
                state.grants.len() >= 2 && state.nodes.is_empty()
            }),
        ]
    }

    fn format_action(&self, action: &Action) -> String {
        match action {
            Action::Create(client) => format!("{} makes its node", letter(*client)),
            Action::List(client) => format!("{} lists the directory", letter(*client)),
            Action::Read(client) => format!("{} reads the offsets", letter(*client)),
            Action::Watch(client) => format!("{} watches the offset", letter(*client)),
            Action::Decide(client) => format!("{} decides", letter(*client)),
            Action::Pass(client) => format!("{} passes its hold on", letter(*client)),
            Action::Release(client) => format!("{} releases", letter(*client)),
            Action::DeleteNode => "somebody deletes the first node".into(),
            Action::DeleteDirectory => "the server deletes the directory".into(),
            Action::Raise => "another lock raises the offset".into(),
            Action::RaiseHold(client) => format!("{} has its token raised", letter(*client)),
            Action::Restart => {
                "the server restarts, with a snapshot that lacks the last changes of the directory".into()
            }
        }
    }
}

impl ProtocolModel for TokenOffsetModel {
    fn with(&self, mutant: Mutant) -> Self {
        let mutant = Some(mutant);
        Self { mutant, ..self.clone() }
    }
}

impl TokenOffsetModel {
    fn has(&self, mutant: Mutant) -> bool {
        self.mutant == Some(mutant)
    }
}
