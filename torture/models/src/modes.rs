//! The queue at the server with modes: readers, writers, permits, upgrades and downgrades.
//!
//! Requests are admitted by prefix: a request is offered the name if it fits together with all who hold it, with all whom it is
//! offered to, and with all requests before it. As in the [queue](super::queue), who waits confirms the offer, processes may
//! hang, and time does not pass while a process that runs has something to do.
//!
//! Requests are answered at once, or they are late: then each request and each answer arrives at any time, in any order, and
//! some arrive twice.

use std::collections::BTreeSet;

use lock_core::backend::rules;
use lock_core::memory::NameState;
use stateright::{Model, Property};

use self::message::{Reply, Request};
use self::server::{Server, is_offer};
use super::check::ProtocolModel;
use super::id::{Id, Ids, letter};
use super::mutant::Mutant;
use super::properties::*;
use super::time::{STEP, Time, units};

pub use self::message::Kind;

pub mod message;
pub mod server;
mod steps;

/// The ttl of every hold.
pub const TTL: u16 = 30;
/// The time for which an offer waits.
pub const GRACE: u16 = 10;
/// The time between two refreshes of a waiter's entry.
pub const REFRESH: u16 = 20;
/// The time for which an entry lives without a refresh.
pub const ENTRY_TTL: u16 = 40;

/// Bounds, and what may happen within them.
#[derive(Clone, Debug)]
pub struct ModesModel {
    /// The kind of each process. Processes of the same kind stand side by side.
    pub kinds: &'static [Kind],
    /// The number of acquisitions of each process, beside one upgrade.
    pub runs: u8,
    /// When time ends.
    pub until: u16,
    /// The number of times that a process hangs, for good or for a while.
    pub hangs: u8,
    /// The number of renewals.
    pub renewals: u8,
    /// Whether waiters may give up.
    pub gives_up: bool,
    /// Whether upgradable holders upgrade and exclusive ones downgrade.
    pub changes: bool,
    /// Whether requests and answers are late.
    pub late: bool,
    /// The number of late requests that arrive twice.
    pub repeats: u8,
    /// The bug of the model, if it has one.
    pub mutant: Option<Mutant>,
}

/// Everybody's state, and what the properties have to remember.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    now: Time,
    server: Server,
    /// Who is told to look, and when.
    wakes: BTreeSet<(Id, Time)>,
    mail: BTreeSet<Mail>,
    processes: Vec<Process>,
    hung: u8,
    renewed: u8,
    repeated: u8,
    /// The time for which a running waiter has been first and has fitted.
    idle: u16,
    /// The ids that wait, in the order of their coming.
    order: Vec<Id>,
    starved: bool,
    granted: Ids,
    /// The holds that were replaced by an upgrade whose grant was answered.
    ended: Ids,
    highest: u64,
    regressed: bool,
    /// The last exclusive grant's token.
    last_written: u64,
    interrupted: bool,
    done: u8,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Process {
    /// The number of its next acquisition.
    next: u8,
    phase: Phase,
    runs: bool,
    /// Whether the process ran all the time since it came.
    steady: bool,
    /// When it last asked.
    asked: Time,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Phase {
    Out,
    Waits(Id, Wait),
    Holds(Held),
}

/// The way in which a process waits for a grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Wait {
    /// For an answer. Whether it was told to look meanwhile.
    Answer { told: bool },
    /// Looks again at the latest then.
    Look(Time),
}

/// A hold in which a process believes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Held {
    id: Id,
    kind: Kind,
    token: u64,
    ends: Time,
    /// The upgrade that it asks for.
    upgrade: Option<(Id, Wait)>,
}

/// A message that is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Mail {
    /// Sent then.
    Request(Request, Time),
    /// The answer to what was sent then.
    Answer(Request, Time, Reply),
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
    /// A holder renews.
    Renew(usize),
    /// An upgradable holder asks to upgrade, or refreshes its entry.
    Upgrade(usize),
    /// It gives the upgrade up, and reads on.
    AbandonUpgrade(usize),
    /// An exclusive holder goes on as a reader.
    Downgrade(usize),
    /// A holder sees that its lease has ended.
    Notice(usize),
    /// A process stops running.
    Hang(usize),
    /// A process runs again.
    Resume(usize),
    /// The server's message arrives.
    Wake(Id, Time),
    /// A late message arrives.
    Deliver(Mail),
    /// A late request arrives, and will arrive again.
    Repeat(Mail),
}

impl Model for ModesModel {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let process = Process {
            next: 0,
            phase: Phase::Out,
            runs: true,
            steady: true,
            asked: Time(0),
        };
        vec![State {
            now: Time(0),
            server: Server::default(),
            wakes: BTreeSet::new(),
            mail: BTreeSet::new(),
            processes: vec![process; self.kinds.len()],
            hung: 0,
            renewed: 0,
            repeated: 0,
            idle: 0,
            order: Vec::new(),
            starved: false,
            granted: Ids::default(),
            ended: Ids::default(),
            highest: 0,
            regressed: false,
            last_written: 0,
            interrupted: false,
            done: 0,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        let mut all_in_time = true;
        for (index, process) in state.processes.iter().enumerate() {
            let is_like_one_before = index > 0 && self.kinds[index] == self.kinds[index - 1];
            if is_like_one_before && !state.processes[index - 1].has_acted() {
                // Those that ask alike act in their order.
                continue;
            }
            if process.runs {
                all_in_time &= !self.process_actions(state, index, actions);
            } else {
                actions.push(Action::Resume(index));
            }
        }
        for (id, at) in &state.wakes {
            if state.processes[id.client()].runs {
                actions.push(Action::Wake(*id, *at));
                all_in_time = false;
            }
        }
        for mail in &state.mail {
            actions.push(Action::Deliver(*mail));
            if matches!(mail, Mail::Request(..)) && state.repeated < self.repeats {
                actions.push(Action::Repeat(*mail));
            }
        }
        if all_in_time && state.now.0 < self.until {
            actions.push(Action::Tick);
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        match action {
            Action::Tick => {
                state.idle = if state.is_idle() { state.idle + STEP } else { 0 };
                state.now = state.now.next();
            }
            Action::Hang(index) => {
                state.hung += 1;
                let process = &mut state.processes[index];
                (process.runs, process.steady) = (false, false);
            }
            Action::Resume(index) => state.processes[index].runs = true,
            Action::Wake(id, at) => {
                state.wakes.remove(&(id, at));
                self.woken(&mut state, id, at);
            }
            Action::Deliver(mail) => {
                state.mail.remove(&mail);
                self.arrives(&mut state, mail);
            }
            Action::Repeat(mail) => {
                state.repeated += 1;
                self.arrives(&mut state, mail);
            }
            Action::Ask(index) => self.ask(&mut state, index),
            Action::Abandon(index) => self.abandon(&mut state, index),
            Action::Release(index) => self.release(&mut state, index),
            Action::Renew(index) => self.renew(&mut state, index),
            Action::Upgrade(index) => self.upgrade(&mut state, index),
            Action::AbandonUpgrade(index) => self.abandon_upgrade(&mut state, index),
            Action::Downgrade(index) => self.downgrade(&mut state, index),
            Action::Notice(index) => self.notice(&mut state, index),
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(HOLDERS_FIT, |_, state: &State| state.believers_fit()),
            Property::always(TOKENS_INCREASE, |_, state: &State| !state.regressed),
            Property::always(NOT_WRITTEN_MEANWHILE, |_, state: &State| !state.interrupted),
            Property::always(HEAD_NOT_STARVED, |_, state: &State| !state.starved),
            Property::always(DEAD_STAY_DEAD, |_, state: &State| {
                let NameState { holds, queue } = &state.server.name;
                let entries = queue.iter().map(|entry| entry.wanted.holder);
                let mut ids = entries.chain(holds.iter().map(|hold| hold.holder));
                !ids.any(|id| state.server.dead.contains(id) || state.ended.contains(id))
            }),
            Property::always(ENTRIES_END, |_, state: &State| {
                let after = |time: Time, term: u16| Time(time.0 + term);
                let asked = |id: Id| state.processes[id.client()].asked;
                let NameState { holds, queue } = &state.server.name;
                let mut entries = queue.iter();
                entries.all(|entry| entry.expires <= Some(after(asked(entry.wanted.holder), ENTRY_TTL)))
                    && holds.iter().all(|hold| match is_offer(hold) {
                        true => hold.expires <= after(state.now, GRACE),
                        false => hold.expires <= after(asked(hold.holder), TTL),
                    })
            }),
            // A second one that hangs may be the one that was to look.
            Property::always(FIRST_IS_TOLD, |model: &Self, state: &State| {
                model.late || state.hung > 1 || state.idle == 0
            }),
            Property::always(SOMEBODY_AWAKE, |model: &Self, state: &State| {
                model.late || state.idle <= GRACE + REFRESH
            }),
            Property::sometimes(TWO_HOLDS_DONE, |_, state: &State| state.done >= 2),
            Property::sometimes(HELD_TOGETHER, |model: &Self, state: &State| {
                model.kinds.iter().all(|kind| *kind == Kind::Exclusive) || state.believers().len() > 1
            }),
        ]
    }

    fn format_action(&self, action: &Action) -> String {
        let who = |index: &usize| letter(*index);
        let mail_text = |mail: &Mail| match mail {
            Mail::Request(request, _) => format!("{request}"),
            Mail::Answer(request, _, reply) => format!("the answer to {request}, {reply},"),
        };
        match action {
            Action::Tick => "time passes".into(),
            Action::Ask(index) => format!("{} asks ({})", who(index), self.kinds[*index]),
            Action::Abandon(index) => format!("{} gives up", who(index)),
            Action::Release(index) => format!("{} releases", who(index)),
            Action::Renew(index) => format!("{} renews", who(index)),
            Action::Upgrade(index) => format!("{} asks to upgrade", who(index)),
            Action::AbandonUpgrade(index) => format!("{} gives the upgrade up", who(index)),
            Action::Downgrade(index) => format!("{} downgrades", who(index)),
            Action::Notice(index) => format!("{} sees that its lease has ended", who(index)),
            Action::Hang(index) => format!("{} hangs", who(index)),
            Action::Resume(index) => format!("{} goes on", who(index)),
            Action::Wake(id, at) => format!("the word to {id} to look at {at} arrives"),
            Action::Deliver(mail) => format!("{} arrives", mail_text(mail)),
            Action::Repeat(mail) => format!("{} arrives, for the first time", mail_text(mail)),
        }
    }
}

impl ProtocolModel for ModesModel {
    fn with(&self, mutant: Mutant) -> Self {
        let mutant = Some(mutant);
        Self { mutant, ..self.clone() }
    }
}

impl Process {
    fn has_acted(&self) -> bool {
        self.next > 0
    }
}

impl State {
    /// Who believes to hold, by token.
    fn believers(&self) -> Vec<(u64, Kind)> {
        let held = self.processes.iter().filter_map(|process| match process.phase {
            Phase::Holds(held) if !rules::has_expired(held.ends, self.now) => Some((held.token, held.kind)),
            _ => None,
        });
        let mut believers = held.collect::<Vec<_>>();
        believers.sort_unstable();
        believers
    }

    /// Whether each hold fits with those that were granted the name before. Each request has its own limit.
    fn believers_fit(&self) -> bool {
        let believers = self.believers();
        let modes = || believers.iter().map(|(_, kind)| kind.mode());
        (0..believers.len()).all(|at| rules::fits(modes().take(at), believers[at].1.mode()))
    }

    /// Whether a running waiter could have the name at once: it is among the first that fit.
    fn is_idle(&self) -> bool {
        let mut server = self.server.clone();
        server.clean_up(self.now);
        server.admit(self.now, None);
        let mut offered = server.name.holds.iter().filter(|hold| is_offer(hold));
        offered.any(|offer| self.processes[offer.holder.client()].runs && self.waits(offer.holder))
    }

    fn waits(&self, id: Id) -> bool {
        match self.processes[id.client()].phase {
            Phase::Waits(waiting, _) => waiting == id,
            Phase::Holds(held) => held.upgrade.is_some_and(|(waiting, _)| waiting == id),
            Phase::Out => false,
        }
    }
}

/// A lease that begins when its request is sent.
fn lease(end: Option<Time>, sent: Time) -> Time {
    rules::lease_ends(end, sent, units(TTL), false)
}
