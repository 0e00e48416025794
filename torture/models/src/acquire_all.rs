//! Several names at once: who waits for whom.
//!
//! A client sorts its names. It tries them all at once, and gives back what comes after the first that was refused. Then it waits
//! for the others one after another, in their order: only for names that are larger than all it holds. If it loses a hold while it
//! waits, it releases the others and starts over.
//!
//! Each name has a queue by prefix, as the [modes](super::modes) have. There is no time: whoever waits, waits until it is granted
//! the name, and gives up, loses a hold or releases at any moment.

use lock_core::backend::{Mode, rules};
use stateright::{Model, Property};

use super::check::ProtocolModel;
use super::id::letter;
use super::mutant::Mutant;
use super::properties::*;

/// The number of names.
const NAMES: usize = 3;

/// A name, and whether it is shared.
pub type Wanted = (u8, bool);

/// Bounds, and what may happen within them.
#[derive(Clone, Debug)]
pub struct AcquireAllModel {
    /// The names that each client acquires, in the order in which its caller names them.
    pub wanted: &'static [&'static [Wanted]],
    /// The number of times that each client acquires them.
    pub runs: u8,
    /// The number of holds that are lost while their client waits.
    pub losses: u8,
    /// Whether clients give up.
    pub gives_up: bool,
    /// The bug of the model, if it has one.
    pub mutant: Option<Mutant>,
}

/// Everybody's state, and what the properties have to remember.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    names: [Name; NAMES],
    clients: Vec<Client>,
    lost: u8,
    done: u8,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Name {
    holders: Vec<(usize, bool)>,
    queue: Vec<(usize, bool)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Client {
    run: u8,
    phase: Phase,
}

/// Numbers are places in the client's list; sets of them are bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Phase {
    Out,
    /// The round of tries: these were answered, and these of them granted.
    Tries {
        tried: u8,
        got: u8,
    },
    /// Gives these back. Then it waits from there on, or is out.
    GivesBack {
        left: u8,
        then: Option<usize>,
    },
    /// Waits for this one, and holds all before it.
    Waits(usize),
    Holds,
}

/// An event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// A client begins.
    Begin(usize),
    /// One of its tries is answered: that for the name at this place of its list.
    Try(usize, usize),
    /// It gives back what it got at this place.
    GiveBack(usize, usize),
    /// It was granted the name that it waits for.
    Granted(usize),
    /// It gives up.
    GiveUp(usize),
    /// One of its holds is lost: that at this place.
    Lose(usize, usize),
    /// It releases all.
    Release(usize),
}

impl Model for AcquireAllModel {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let client = Client {
            run: 0,
            phase: Phase::Out,
        };
        vec![State {
            names: Default::default(),
            clients: vec![client; self.wanted.len()],
            lost: 0,
            done: 0,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        for (index, client) in state.clients.iter().enumerate() {
            let list = self.list(index);
            match client.phase {
                Phase::Out if client.run < self.runs => actions.push(Action::Begin(index)),
                Phase::Out => {}
                Phase::Tries { tried, .. } => {
                    let open = (0..list.len()).filter(|at| tried & 1 << at == 0);
                    actions.extend(open.map(|at| Action::Try(index, at)));
                }
                Phase::GivesBack { left, .. } => actions.push(Action::GiveBack(index, first_of(left))),
                Phase::Waits(at) => {
                    if state.name(list[at]).is_held_by(index) {
                        actions.push(Action::Granted(index));
                    }
                    if self.gives_up {
                        actions.push(Action::GiveUp(index));
                    }
                    if state.lost < self.losses {
                        actions.extend((0..at).map(|at| Action::Lose(index, at)));
                    }
                }
                Phase::Holds => actions.push(Action::Release(index)),
            }
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        match action {
            Action::Begin(index) => {
                state.clients[index].run += 1;
                state.clients[index].phase = match self.mutant {
                    Some(Mutant::CallersOrder) => self.wait_from(&mut state, index, 0),
                    _ => Phase::Tries { tried: 0, got: 0 },
                };
            }
            Action::Try(index, at) => self.try_one(&mut state, index, at),
            Action::GiveBack(index, at) => {
                let Phase::GivesBack { left, then } = state.clients[index].phase else {
                    return None;
                };
                state.name_mut(self.list(index)[at]).leave(index);
                let left = left & !(1 << at);
                state.clients[index].phase = self.gives_back(&mut state, index, left, then);
            }
            Action::Granted(index) => {
                let Phase::Waits(at) = state.clients[index].phase else {
                    return None;
                };
                state.clients[index].phase = self.wait_from(&mut state, index, at + 1);
            }
            Action::GiveUp(index) => {
                let Phase::Waits(at) = state.clients[index].phase else {
                    return None;
                };
                let held = match self.mutant {
                    Some(Mutant::LeavesPartBehind) => 1 << at,
                    _ => all_before(at + 1),
                };
                state.clients[index].phase = self.gives_back(&mut state, index, held, None);
            }
            Action::Lose(index, at) => {
                let Phase::Waits(waits) = state.clients[index].phase else {
                    return None;
                };
                state.lost += 1;
                state.name_mut(self.list(index)[at]).leave(index);
                // It starts over.
                state.clients[index].run -= 1;
                let held = all_before(waits + 1) & !(1 << at);
                state.clients[index].phase = self.gives_back(&mut state, index, held, None);
            }
            Action::Release(index) => {
                state.done = (state.done + 1).min(2);
                let all = all_before(self.wanted[index].len());
                state.clients[index].phase = self.gives_back(&mut state, index, all, None);
            }
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(NO_CIRCLE, |_, state: &State| {
                !(0..state.clients.len()).any(|index| state.waits_for_itself(index))
            }),
            Property::always(EVERYBODY_GETS_ON, |model: &Self, state: &State| {
                let mut actions = Vec::new();
                model.actions(state, &mut actions);
                let is_out = |client: &Client| client.phase == Phase::Out;
                actions
                    .iter()
                    .any(|action| !matches!(action, Action::GiveUp(_) | Action::Lose(..)))
                    || state.clients.iter().all(is_out)
            }),
            Property::always(NOTHING_LEFT, |_, state: &State| {
                let is_out = |(index, _): &(usize, bool)| state.clients[*index].phase == Phase::Out;
                let mut names = state.names.iter();
                !names.any(|name| name.holders.iter().chain(&name.queue).any(is_out))
            }),
            Property::always(ALL_OR_NONE, |model: &Self, state: &State| {
                let holds = |(index, client): (usize, &Client)| {
                    let mut names = model.wanted[index].iter();
                    client.phase != Phase::Holds || names.all(|wanted| state.name(*wanted).is_held_by(index))
                };
                state.clients.iter().enumerate().all(holds)
            }),
            Property::sometimes(TWO_HOLDS_DONE, |_, state: &State| state.done >= 2),
        ]
    }

    fn format_action(&self, action: &Action) -> String {
        let name = |index: &usize, at: &usize| self.list(*index)[*at].0 + 1;
        let who = |index: &usize| letter(*index);
        match action {
            Action::Begin(index) => {
                let wanted = self.wanted[*index].iter();
                let wanted =
                    wanted.map(|(name, shared)| format!("{}{}", name + 1, if *shared { " shared" } else { "" }));
                format!(
                    "{} begins to acquire {}",
                    who(index),
                    wanted.collect::<Vec<_>>().join(", ")
                )
            }
            Action::Try(index, at) => format!("{}'s try for {} arrives", who(index), name(index, at)),
            Action::GiveBack(index, at) => format!("{} gives back {}", who(index), name(index, at)),
            Action::Granted(index) => format!("{} goes on with the name that it waited for", who(index)),
            Action::GiveUp(index) => format!("{} gives up", who(index)),
            Action::Lose(index, at) => format!("{} loses {}", who(index), name(index, at)),
            Action::Release(index) => format!("{} releases all", who(index)),
        }
    }
}

impl ProtocolModel for AcquireAllModel {
    fn with(&self, mutant: Mutant) -> Self {
        let mutant = Some(mutant);
        Self { mutant, ..self.clone() }
    }
}

impl AcquireAllModel {
    /// A client's names in the order in which it waits for them.
    fn list(&self, index: usize) -> Vec<Wanted> {
        let mut list = self.wanted[index].to_vec();
        if self.mutant != Some(Mutant::CallersOrder) {
            list.sort_unstable();
        }
        list
    }

    fn try_one(&self, state: &mut State, index: usize, at: usize) {
        let list = self.list(index);
        let Phase::Tries { tried, got } = state.clients[index].phase else {
            return;
        };
        let granted = state.name_mut(list[at]).try_now(index, list[at].1);
        let (tried, got) = (tried | 1 << at, got | u8::from(granted) << at);
        let refused = (0..list.len()).find(|at| got & 1 << at == 0);
        state.clients[index].phase = match refused {
            _ if tried != all_before(list.len()) => Phase::Tries { tried, got },
            None => Phase::Holds,
            Some(refused) if self.mutant == Some(Mutant::KeepsWhatItGot) => self.wait_from(state, index, refused),
            Some(refused) => self.gives_back(state, index, got & !all_before(refused), Some(refused)),
        };
    }

    fn gives_back(&self, state: &mut State, index: usize, left: u8, then: Option<usize>) -> Phase {
        match (left, then) {
            (0, None) => Phase::Out,
            (0, Some(at)) => self.wait_from(state, index, at),
            _ => Phase::GivesBack { left, then },
        }
    }

    /// Asks for the name at this place, and waits, unless it has all.
    fn wait_from(&self, state: &mut State, index: usize, at: usize) -> Phase {
        let list = self.list(index);
        let Some(wanted) = list.get(at) else {
            return Phase::Holds;
        };
        state.name_mut(*wanted).enter(index, wanted.1);
        Phase::Waits(at)
    }
}

impl State {
    fn name(&self, (name, _): Wanted) -> &Name {
        &self.names[usize::from(name)]
    }

    fn name_mut(&mut self, (name, _): Wanted) -> &mut Name {
        &mut self.names[usize::from(name)]
    }

    /// Whether a client waits for itself, by way of others.
    fn waits_for_itself(&self, index: usize) -> bool {
        let mut reached = 0_u8;
        loop {
            let waits = |other: usize| other == index || reached & 1 << other != 0;
            let before = reached;
            let mut next = reached;
            for name in &self.names {
                for (at, (waiter, _)) in name.queue.iter().enumerate().filter(|(_, (waiter, _))| waits(*waiter)) {
                    let ahead = name.holders.iter().chain(&name.queue[..at]);
                    next = ahead
                        .filter(|(other, _)| other != waiter)
                        .fold(next, |set, (other, _)| set | 1 << other);
                }
            }
            reached = next;
            if reached == before {
                return reached & 1 << index != 0;
            }
        }
    }
}

impl Name {
    fn is_held_by(&self, index: usize) -> bool {
        self.holders.iter().any(|(holder, _)| *holder == index)
    }

    fn fits(&self, shared: bool) -> bool {
        let mode = |shared: bool| if shared { Mode::Shared } else { Mode::Exclusive };
        rules::fits(self.holders.iter().map(|(_, shared)| mode(*shared)), mode(shared))
    }

    /// Without waiting: nobody that waits is passed.
    fn try_now(&mut self, index: usize, shared: bool) -> bool {
        let may = self.queue.is_empty() && self.fits(shared);
        if may {
            self.holders.push((index, shared));
        }
        may
    }

    fn enter(&mut self, index: usize, shared: bool) {
        if !self.is_held_by(index) {
            self.queue.push((index, shared));
            self.admit();
        }
    }

    fn leave(&mut self, index: usize) {
        self.holders.retain(|(holder, _)| *holder != index);
        self.queue.retain(|(waiter, _)| *waiter != index);
        self.admit();
    }

    fn admit(&mut self) {
        while let Some((_, shared)) = self.queue.first()
            && self.fits(*shared)
        {
            let first = self.queue.remove(0);
            self.holders.push(first);
        }
    }
}

/// The set of all places before this one.
fn all_before(at: usize) -> u8 {
    (1 << at) - 1
}

fn first_of(set: u8) -> usize {
    set.trailing_zeros().try_into().unwrap_or(0)
}
