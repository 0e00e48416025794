//! ZooKeeper's token offset: a token is a zxid plus an offset that a request with a token floor raises.
//!
//! A client lists a lock's directory, then reads the offset of the root path and the one in the directory, and decides by
//! both. Between any two of these steps the others go on, another lock raises the offset, and somebody deletes a node. The
//! grant counts from its listing: the token must be larger than those of all grants of earlier listings.

use stateright::{Model, Property};

use super::check::ProtocolModel;
use super::id::letter;
use super::mutant::Mutant;
use super::properties::*;

/// Bounds, and what is wrong.
#[derive(Clone, Debug)]
pub struct TokenOffsetModel {
    /// The clients' token floors: 0 for none, or far above all zxids.
    pub floors: &'static [u64],
    /// How many grants there are, at least.
    pub holds: usize,
    /// How many nodes are deleted by somebody else.
    pub deletions: u8,
    /// How often another lock raises the offset.
    pub raises: u8,
    /// What is wrong.
    pub mutant: Option<Mutant>,
}

/// The server, its clients, and what the properties have to remember.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct State {
    zxid: u64,
    /// The root path's offset.
    offset: u64,
    directory: Option<Directory>,
    /// Who has a node, and its czxid, oldest first.
    nodes: Vec<(usize, u64)>,
    clients: Vec<Client>,
    /// The numbers of the listings, and the tokens that were granted by them.
    grants: Vec<(u8, u64)>,
    below_floor: bool,
    deletions: u8,
    raises: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Directory {
    mzxid: u64,
    offset: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Client {
    /// The largest offset that its session has seen.
    known: u64,
    /// The zxid on which its token is based.
    base: u64,
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
    Holds(u64),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Listing {
    number: u8,
    mzxid: u64,
    known: u64,
}

/// What happens next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// A client makes its node, and the directory if there is none.
    Create(usize),
    /// It lists the directory.
    List(usize),
    /// It reads the offsets.
    Read(usize),
    /// It writes, or is granted the lock.
    Decide(usize),
    /// The holder releases.
    Release(usize),
    /// Somebody deletes the first node.
    DeleteNode,
    /// The server deletes the empty directory.
    DeleteDirectory,
    /// Another lock raises the offset.
    Raise,
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
            let is_missing = || state.nodes.iter().all(|(owner, _)| *owner != index);
            match client.step {
                Step::Idle if state.grants.len() < self.holds => actions.push(Action::Create(index)),
                Step::Queued if state.is_first(index) || is_missing() => actions.push(Action::List(index)),
                Step::Idle | Step::Queued => {}
                Step::Listed(_) => actions.push(Action::Read(index)),
                Step::Read(..) => actions.push(Action::Decide(index)),
                Step::Holds(_) => actions.push(Action::Release(index)),
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
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        match action {
            Action::Create(index) => {
                if state.directory.is_none() {
                    let offset = state.clients[index].known;
                    let mzxid = state.write();
                    state.directory = Some(Directory { mzxid, offset });
                }
                let czxid = state.write();
                state.nodes.push((index, czxid));
                state.clients[index].base = czxid;
                state.clients[index].step = Step::Queued;
            }
            Action::List(index) => {
                let number = state.next_number();
                state.clients[index].step = match state.directory {
                    Some(directory) if state.is_first(index) => Step::Listed(Listing {
                        number,
                        mzxid: directory.mzxid,
                        known: state.clients[index].known,
                    }),
                    _ => Step::Idle,
                };
            }
            Action::Read(index) => {
                let Step::Listed(listing) = state.clients[index].step else {
                    return None;
                };
                let directory = match (listing.known, state.directory) {
                    (0, _) | (_, None) => 0,
                    (_, Some(directory)) => directory.offset,
                };
                state.clients[index].step = Step::Read(listing, state.offset, directory);
            }
            Action::Decide(index) => self.decide(&mut state, index)?,
            Action::Release(index) => {
                state.nodes.retain(|(owner, _)| *owner != index);
                state.write();
                state.clients[index].step = Step::Idle;
            }
            Action::DeleteNode => {
                state.nodes.remove(0);
                state.write();
                state.deletions += 1;
            }
            Action::DeleteDirectory => {
                state.directory = None;
                state.write();
            }
            Action::Raise => {
                state.offset += 50;
                state.write();
                state.raises += 1;
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
            Property::always(STATUS_SHOWS_THE_TOKEN, |_, state: &State| state.shows_the_token()),
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
            Action::Decide(client) => format!("{} decides", letter(*client)),
            Action::Release(client) => format!("{} releases", letter(*client)),
            Action::DeleteNode => "somebody deletes the first node".into(),
            Action::DeleteDirectory => "the server deletes the directory".into(),
            Action::Raise => "another lock raises the offset".into(),
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
    /// As `lock-zookeeper/src/acquire/token.rs`.
    fn decide(&self, state: &mut State, index: usize) -> Option<()> {
        let has = |mutant| self.mutant == Some(mutant);
        let Client { known, base, step } = state.clients[index];
        let Step::Read(listing, read, directory) = step else {
            return None;
        };
        let offset = match () {
            () if has(Mutant::OffsetForFloorsOnly) && self.floors[index] == 0 => 0,
            () if has(Mutant::KnownOffsetIsEnough) && listing.known > 0 => listing.known,
            () => read,
        };
        let wanted = (self.floors[index] + 1).saturating_sub(base.max(listing.mzxid));
        let wanted = match self.floors[index] {
            0 => listing.known,
            _ => wanted.max(listing.known),
        };
        let ignores_directory = has(Mutant::OffsetNotInTheDirectory) || has(Mutant::OffsetNotKnownBefore);
        let mut client = Client {
            known,
            base,
            step: Step::Queued,
        };
        if wanted > offset && !has(Mutant::OffsetForFloorsOnly) {
            // By compare-and-set.
            if state.offset == read {
                state.offset = wanted;
                state.write();
                client.known = known.max(wanted);
            }
        } else if offset > listing.known && !has(Mutant::OffsetNotKnownBefore) {
            client.known = known.max(offset);
        } else if base < listing.mzxid || directory != offset && !ignores_directory {
            if state.directory.is_some() {
                let mzxid = state.write();
                state.directory = Some(Directory { mzxid, offset });
                client.base = mzxid;
            }
        } else {
            let token = base + offset;
            state.grants.push((listing.number, token));
            state.below_floor |= token <= self.floors[index];
            client.step = Step::Holds(token);
        }
        state.clients[index] = client;
        Some(())
    }
}

impl State {
    fn write(&mut self) -> u64 {
        self.zxid += 1;
        self.zxid
    }

    /// Larger than those of all listings that were or may be granted by.
    fn next_number(&self) -> u8 {
        let open = self.clients.iter().filter_map(|client| match client.step {
            Step::Listed(listing) | Step::Read(listing, ..) => Some(listing.number),
            _ => None,
        });
        let granted = self.grants.iter().map(|(number, _)| *number);
        open.chain(granted).max().unwrap_or_default() + 1
    }

    fn is_first(&self, client: usize) -> bool {
        self.nodes.first().is_some_and(|(owner, _)| *owner == client)
    }

    /// A client that lost its node before its grant may still write the directory.
    fn shows_the_token(&self) -> bool {
        let (Some((owner, czxid)), Some(directory)) = (self.nodes.first(), self.directory) else {
            return true;
        };
        match self.clients[*owner].step {
            Step::Holds(token) if self.deletions == 0 => token == directory.mzxid.max(*czxid) + directory.offset,
            _ => true,
        }
    }
}
