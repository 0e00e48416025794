//! ZooKeeper's queue in all modes: who enters, who watches whom, and with which token.
//!
//! A client makes its node, lists the queue, and decides by that list: it has the lock, or it watches another node. A list may
//! be old, a watch tells of one change only, and nodes end at any time. Between any two of these steps the others go on.
//! Only the first list may be older than its request for it: before a later one, the client makes its server catch up.
//!
//! A token is based on a transaction id (zxid). An exclusive grant takes the last change of the children in its list. A reader,
//! or a holder of permits, takes the creation of its node if nothing has changed since and nobody before it was downgraded.
//! Otherwise it writes its node after it was admitted, and takes that write.

use lock_core::backend::{Mode, rules};
use stateright::{Model, Property};

use super::check::ProtocolModel;
use super::id::letter;
use super::modes::Kind;
use super::mutant::Mutant;
use super::properties::*;

mod decide;
mod server;

use decide::{Decision, decide};
use server::{Listing, Server};

/// Bounds, and what is wrong.
#[derive(Clone, Debug)]
pub struct ZookeeperModesModel {
    /// The kind of each client, which wants the name once.
    pub kinds: &'static [Kind],
    /// Whether the clients come in this order.
    pub in_order: bool,
    /// The number of nodes that somebody else deletes: their sessions end.
    pub deletions: u8,
    /// The number of answers to writes that get lost, so that they are written again.
    pub losses: u8,
    /// Whether exclusive holders downgrade.
    pub downgrades: bool,
    /// The bug of the model, if it has one.
    pub mutant: Option<Mutant>,
}

/// The server, its clients, and what the properties have to remember.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct State {
    server: Server,
    clients: Vec<Client>,
    /// Whether a token was too small, or given twice.
    regressed: bool,
    /// Whether a client was admitted that does not fit with the others.
    misfits: bool,
    deletions: u8,
    losses: u8,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Client {
    step: Step,
    /// The largest zxid of all grants when its request began.
    before: u64,
    /// The zxid of its own grant.
    base: Option<u64>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
enum Step {
    #[default]
    Idle,
    /// Its node was made, and this is the list that followed at once.
    Queued(Listing),
    /// It lists the queue again.
    Lists,
    /// Its list was answered.
    Listed(Listing),
    /// It was admitted, and writes its node.
    Enters,
    /// It waits for an event of the node with this czxid; of the directory for 0.
    Watches(u64),
    Holds(Mode),
    /// A downgrade that made its new node, and still has the old one.
    Changes,
    Done,
}

/// An event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// A client makes its node, and lists the queue.
    Create(usize),
    /// Its list is answered later than it was asked for.
    Delay(usize),
    /// It lists the queue again.
    List(usize),
    /// It decides by its list.
    Decide(usize),
    /// It writes its node.
    Enter(usize),
    /// The same, and the answer gets lost.
    EnterUnanswered(usize),
    /// It becomes a reader.
    Downgrade(usize),
    /// It releases.
    Release(usize),
    /// Its session ends.
    End(usize),
}

impl Model for ZookeeperModesModel {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State {
            clients: vec![Client::default(); self.kinds.len()],
            ..State::default()
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        for (index, client) in state.clients.iter().enumerate() {
            match &client.step {
                Step::Idle if self.in_order && index > 0 && state.clients[index - 1].step == Step::Idle => {}
                Step::Idle => actions.push(Action::Create(index)),
                Step::Queued(listing) => {
                    actions.push(Action::Decide(index));
                    if *listing != state.server.listing() {
                        actions.push(Action::Delay(index));
                    }
                }
                Step::Lists => actions.push(Action::List(index)),
                Step::Listed(_) => actions.push(Action::Decide(index)),
                Step::Enters => {
                    actions.push(Action::Enter(index));
                    if state.losses < self.losses {
                        actions.push(Action::EnterUnanswered(index));
                    }
                }
                Step::Holds(mode) => {
                    actions.push(Action::Release(index));
                    if *mode == Mode::Exclusive && self.downgrades {
                        actions.push(Action::Downgrade(index));
                    }
                }
                Step::Changes => actions.push(Action::Downgrade(index)),
                Step::Watches(_) | Step::Done => {}
            }
            if state.deletions < self.deletions && state.server.node_of(index).is_some() {
                actions.push(Action::End(index));
            }
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        match action {
            Action::Create(index) => {
                state.clients[index].before = state.highest();
                state.create(index, self.kinds[index].mode());
                state.clients[index].step = Step::Queued(state.server.listing());
            }
            Action::Delay(index) => state.clients[index].step = Step::Queued(state.server.listing()),
            Action::List(index) => state.clients[index].step = Step::Listed(state.server.listing()),
            Action::Decide(index) => self.decide(&mut state, index)?,
            Action::Enter(index) => match state.write(index, self.mutant != Some(Mutant::EntersUnnoticed)) {
                Some(zxid) => self.granted(&mut state, index, zxid),
                None => state.clients[index].step = Step::Done,
            },
            Action::EnterUnanswered(index) => {
                state.losses += 1;
                state.write(index, true);
            }
            Action::Downgrade(index) => self.downgrade(&mut state, index),
            Action::Release(index) => {
                state.end_node(index);
                state.clients[index].step = Step::Done;
            }
            Action::End(index) => {
                state.deletions += 1;
                state.end_node(index);
                // A client that has a list goes on with it, since it learns of the end later.
                if !matches!(
                    state.clients[index].step,
                    Step::Queued(_) | Step::Listed(_) | Step::Enters
                ) {
                    state.clients[index].step = Step::Done;
                }
            }
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(TOKENS_INCREASE, |_, state: &State| !state.regressed),
            Property::always(HOLDERS_FIT, |_, state: &State| !state.misfits),
            Property::always(NOBODY_SLEEPS, |_, state: &State| !state.sleeps()),
            Property::sometimes(TWO_HOLDS_DONE, |_, state: &State| {
                state.clients.iter().filter(|client| client.is_done()).count() >= 2
            }),
        ]
    }

    fn format_action(&self, action: &Action) -> String {
        let who = |index: &usize| format!("{} ({:?})", letter(*index), self.kinds[*index].mode());
        match action {
            Action::Create(client) => format!("{} makes its node and lists the queue", who(client)),
            Action::Delay(client) => format!("the list of {} is answered late", who(client)),
            Action::List(client) => format!("{} lists the queue again", who(client)),
            Action::Decide(client) => format!("{} decides", who(client)),
            Action::Enter(client) => format!("{} writes its node and enters", who(client)),
            Action::EnterUnanswered(client) => format!("{} writes its node, and the answer gets lost", who(client)),
            Action::Downgrade(client) => format!("{} downgrades", who(client)),
            Action::Release(client) => format!("{} releases", who(client)),
            Action::End(client) => format!("the session of {} ends", who(client)),
        }
    }
}

impl ProtocolModel for ZookeeperModesModel {
    fn with(&self, mutant: Mutant) -> Self {
        let mutant = Some(mutant);
        Self { mutant, ..self.clone() }
    }
}

impl ZookeeperModesModel {
    fn decide(&self, state: &mut State, index: usize) -> Option<()> {
        let (Step::Queued(listing) | Step::Listed(listing)) = state.clients[index].step.clone() else {
            return None;
        };
        match decide(&listing, index, |node| state.server.is_downgraded(node), self.mutant) {
            Decision::Missing => state.clients[index].step = Step::Done,
            Decision::Granted(zxid) => self.granted(state, index, zxid),
            Decision::ListAgain => state.clients[index].step = Step::Lists,
            Decision::Enters => state.clients[index].step = Step::Enters,
            Decision::WatchDirectory => {
                // The watch comes with a list of its own.
                state.clients[index].step = match state.server.listing() == listing {
                    true => Step::Watches(0),
                    false => Step::Lists,
                };
            }
            Decision::Watch(node) | Decision::WatchEntry(node) if !state.server.has(node) => {
                state.clients[index].step = Step::Lists;
            }
            // It has entered already.
            Decision::WatchEntry(node) if state.server.has_entered(node) => state.clients[index].step = Step::Lists,
            Decision::Watch(node) | Decision::WatchEntry(node) => state.clients[index].step = Step::Watches(node),
        }
        Some(())
    }

    /// The token must be larger than those of all grants before the request began, and of all that do not go with it.
    fn granted(&self, state: &mut State, index: usize, zxid: u64) {
        let mode = self.kinds[index].mode();
        let own = state.server.node_of(index).map(|node| (node.czxid, mode));
        let mut held: Vec<_> = own.into_iter().collect();
        for (other, client) in state.clients.iter().enumerate().filter(|(other, _)| *other != index) {
            let Some(base) = client.base else {
                continue;
            };
            let theirs = self.kinds[other].mode();
            let excludes = !rules::fits([theirs], mode) && !rules::fits([mode], theirs);
            // Whoever lost its node before its grant was granted nothing that anybody had to heed.
            let is_ordered = excludes && state.server.node_of(index).is_some();
            state.regressed |= base == zxid || (is_ordered && base > zxid);
            if let (Step::Holds(mode), Some(node)) = (&client.step, state.server.node_of(other)) {
                held.push((node.czxid, *mode));
            }
        }
        let client = &mut state.clients[index];
        state.regressed |= zxid <= client.before;
        client.base = Some(zxid);
        client.step = Step::Holds(mode);
        if own.is_none() {
            client.step = Step::Done;
            return;
        }
        // Each was admitted beside those before it, whoever learned of it first.
        held.sort_unstable_by_key(|(czxid, _)| *czxid);
        let fits = |place: usize| rules::fits(held[..place].iter().map(|(_, mode)| *mode), held[place].1);
        state.misfits |= !(0..held.len()).all(fits);
    }

    fn downgrade(&self, state: &mut State, index: usize) {
        let is_changing = state.clients[index].step == Step::Changes;
        state.clients[index].step = match self.mutant {
            Some(Mutant::DowngradeByNewNode) if !is_changing => {
                state.create(index, Mode::Shared);
                Step::Changes
            }
            // The node that was made first.
            Some(Mutant::DowngradeByNewNode) => {
                state.end_node(index);
                Step::Holds(Mode::Shared)
            }
            _ => {
                state.write_mark(index, self.mutant != Some(Mutant::DowngradeUnnoticed));
                Step::Holds(Mode::Shared)
            }
        };
    }
}

impl State {
    fn create(&mut self, index: usize, mode: Mode) {
        self.server.create(index, mode);
        self.wake(|node| node == 0);
    }

    fn end_node(&mut self, index: usize) {
        if let Some(czxid) = self.server.end(index) {
            self.wake(|node| node == 0 || node == czxid);
        }
    }

    /// A holder's mark that it was downgraded.
    fn write_mark(&mut self, index: usize, is_noticed: bool) {
        if let Some(czxid) = self.server.downgrade(index).filter(|_| is_noticed) {
            self.wake(|node| node == czxid);
        }
    }

    fn write(&mut self, index: usize, is_noticed: bool) -> Option<u64> {
        let (czxid, zxid) = self.server.enter(index)?;
        if is_noticed {
            self.wake(|node| node == czxid);
        }
        Some(zxid)
    }

    fn wake(&mut self, event: impl Fn(u64) -> bool) {
        for client in &mut self.clients {
            if let Step::Watches(node) = client.step
                && event(node)
            {
                client.step = Step::Lists;
            }
        }
    }

    fn highest(&self) -> u64 {
        let granted = self.clients.iter().filter_map(|client| client.base);
        granted.max().unwrap_or_default()
    }

    /// Whether a waiter could enter, and nobody is awake who might wake it: holders may hold for ever.
    fn sleeps(&self) -> bool {
        let is_awake = |client: &Client| {
            let sleeps = matches!(client.step, Step::Watches(_) | Step::Holds(_) | Step::Idle | Step::Done);
            !sleeps
        };
        let waits = |index: usize| matches!(self.clients[index].step, Step::Watches(_));
        !self.clients.iter().any(is_awake)
            && (0..self.clients.len()).any(|index| waits(index) && self.server.admits(index))
    }
}

impl Client {
    fn is_done(&self) -> bool {
        self.base.is_some() && self.step == Step::Done
    }
}
