//! Passes within a process, without a request: the next holder inherits the lease and takes the next of the tokens that the
//! grant reserved.
//!
//! Process A has waiters of its own and passes its hold on; B waits elsewhere. A block of reserved tokens ends with a release,
//! after which A's next waiter acquires by itself, or B does if it waits. A pass that comes too early waits for the clock: it is
//! made some steps of time later. Renewals and releases are late, holds end in the middle of a block, and the server's clock is
//! set back. Or the server loses its data: then only the clock keeps tokens growing, and connections break, so that A's hold is
//! suspect and is not passed on.
//!
//! Two things are assumed of the server, and both are far from what is so: between a release and the next grant it takes as
//! many microseconds as a grant reserves tokens, and losing its data takes one at least.

use std::collections::BTreeSet;
use std::time::Duration;

use lock_core::backend::rules::{self, Moment};
use stateright::{Model, Property};

use super::check::ProtocolModel;
use super::mutant::Mutant;
use super::properties::*;

mod steps;

/// The largest number of passes in a row before B's turn.
pub const MOST: u8 = 2;
/// The number of tokens that a grant reserves, its own included.
pub const RESERVED: u8 = MOST + 1;
/// The ttl of every hold, in microseconds.
pub const TTL: u16 = 10;
/// The time of one step.
pub const STEP: u16 = 2;
/// The time by which the server's clock is set back.
pub const SET_BACK: u16 = 30;

/// Bounds, and what may happen within them.
#[derive(Clone, Debug)]
pub struct PassModel {
    /// The number of A's holds, those that are passed on included.
    pub holds: u8,
    /// The number of B's holds.
    pub others: u8,
    /// The number of renewals that A sends.
    pub renewals: u8,
    /// When time ends.
    pub until: u16,
    /// The number of times that the server's clock is set back.
    pub set_backs: u8,
    /// The number of times that the server loses its data.
    pub crashes: u8,
    /// The bug of the model, if it has one.
    pub mutant: Option<Mutant>,
}

/// A moment, in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Micros(pub u16);

impl Moment for Micros {
    fn after(self, time: Duration) -> Option<Self> {
        self.0.checked_add(u16::try_from(time.as_micros()).ok()?).map(Self)
    }
}

/// Everybody's state, and what the properties have to remember.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct State {
    now: Micros,
    /// The time by which the server's clock was set back.
    behind: u16,
    /// Who has the name, and until when.
    hold: Option<(Holder, Micros)>,
    /// The server's last token, those that are reserved included.
    stored: u64,
    ours: Ours,
    other: Other,
    mail: BTreeSet<Mail>,
    /// The numbers of holds that A and B have had, of renewals and of faults.
    holds: u8,
    others: u8,
    renewals: u8,
    set_backs: u8,
    crashes: u8,
    /// The number of A's holds that began since B waits.
    passed_over: u8,
    highest: u64,
    regressed: bool,
    done: u8,
}

/// A holder id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Holder {
    /// One of A's grants.
    Ours(u8),
    /// One of B's.
    Other,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
enum Ours {
    #[default]
    Out,
    Holds(Own),
    /// Its release is under way.
    Releases(Own),
}

/// A's hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Own {
    id: u8,
    token: u64,
    granted: Micros,
    /// The number of passes since then.
    passed: u8,
    ends: Micros,
    suspect: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
enum Other {
    #[default]
    Out,
    Waits,
    /// Believes until then.
    Holds(Micros),
}

/// A message that is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Mail {
    /// A's release of this id.
    Release(u8),
    /// A's renewal of this id, after so many passes, sent then.
    Renew(u8, u8, Micros),
    /// Its answer, and whether there was a hold.
    Renewed(u8, u8, Micros, bool),
}

/// An event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Time passes.
    Tick,
    /// A is granted the name.
    Grant,
    /// A passes its hold on.
    Pass,
    /// A sends a release.
    Release,
    /// A sends a renewal.
    Renew,
    /// A message arrives.
    Deliver(Mail),
    /// B waits.
    Wait,
    /// B is granted the name.
    GrantOther,
    /// B releases.
    ReleaseOther,
    /// The server's clock is set back.
    SetBack,
    /// The server loses its data.
    Crash,
}

impl Model for PassModel {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State {
            now: Micros(40),
            ..State::default()
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        let more = state.holds < self.holds;
        let is_free = state.holder().is_none();
        match state.ours {
            Ours::Out if more && is_free && state.other != Other::Waits => actions.push(Action::Grant),
            Ours::Out => {}
            Ours::Holds(own) if rules::has_expired(own.ends, state.now) => {}
            Ours::Holds(own) => {
                actions.push(Action::Release);
                if more && self.may_pass(state, own) {
                    actions.push(Action::Pass);
                }
                if state.renewals < self.renewals {
                    actions.push(Action::Renew);
                }
            }
            Ours::Releases(own) => {
                let passes = self.mutant == Some(Mutant::PassesWhatIsReleased);
                if passes && more && self.may_pass(state, own) {
                    actions.push(Action::Pass);
                }
            }
        }
        match state.other {
            Other::Out if state.others < self.others => actions.push(Action::Wait),
            Other::Waits if is_free => actions.push(Action::GrantOther),
            Other::Holds(_) => actions.push(Action::ReleaseOther),
            Other::Out | Other::Waits => {}
        }
        actions.extend(state.mail.iter().copied().map(Action::Deliver));
        if state.now.0 < self.until {
            actions.push(Action::Tick);
        }
        if state.set_backs < self.set_backs {
            actions.push(Action::SetBack);
        }
        if state.crashes < self.crashes {
            actions.push(Action::Crash);
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        match action {
            Action::Tick => state.now.0 += STEP,
            Action::Grant => self.grant(&mut state),
            Action::Pass => {
                let (Ours::Holds(own) | Ours::Releases(own)) = state.ours else {
                    return None;
                };
                self.pass(&mut state, own);
            }
            Action::Release => {
                let Ours::Holds(own) = state.ours else { return None };
                state.ours = Ours::Releases(own);
                state.mail.insert(Mail::Release(own.id));
            }
            Action::Renew => {
                let Ours::Holds(own) = state.ours else { return None };
                state.renewals += 1;
                state.mail.insert(Mail::Renew(own.id, own.passed, state.now));
            }
            Action::Deliver(mail) => {
                state.mail.remove(&mail);
                state.arrives(mail);
            }
            Action::Wait => {
                state.others += 1;
                state.passed_over = 0;
                state.other = Other::Waits;
            }
            Action::GrantOther => self.grant_other(&mut state),
            Action::ReleaseOther => {
                state.end(Holder::Other);
                state.other = Other::Out;
                state.done += 1;
            }
            Action::SetBack => {
                state.set_backs += 1;
                state.behind += SET_BACK;
            }
            Action::Crash => {
                state.crashes += 1;
                state.now.0 += 1;
                state.hold = None;
                state.stored = 0;
                state.mail.clear();
                if let Ours::Holds(own) | Ours::Releases(own) = &mut state.ours {
                    own.suspect = true;
                }
            }
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(ONE_BELIEVER, |_, state: &State| {
                let believes = |ends: Micros| !rules::has_expired(ends, state.now);
                let ours = matches!(state.ours, Ours::Holds(own) if believes(own.ends));
                let other = matches!(state.other, Other::Holds(ends) if believes(ends));
                // Without its data the server grants what is held: the fence alone protects.
                state.crashes > 0 || !(ours && other)
            }),
            Property::always(TOKENS_INCREASE, |_, state: &State| !state.regressed),
            Property::always(HEAD_NOT_STARVED, |_, state: &State| state.passed_over <= MOST),
            Property::sometimes(TWO_HOLDS_DONE, |_, state: &State| state.done >= 2),
        ]
    }

    fn format_action(&self, action: &Action) -> String {
        match action {
            Action::Tick => "time passes".into(),
            Action::Grant => "A is granted the lock".into(),
            Action::Pass => "A passes its hold on".into(),
            Action::Release => "A sends a release".into(),
            Action::Renew => "A sends a renewal".into(),
            Action::Deliver(Mail::Release(id)) => format!("release(A{id}) arrives"),
            Action::Deliver(Mail::Renew(id, passed, sent)) => {
                format!("renew(A{id}), sent at {} after {passed} passes, arrives", sent.0)
            }
            Action::Deliver(Mail::Renewed(id, passed, _, done)) => {
                let what = if *done { "done" } else { "not yours" };
                format!("the answer to renew(A{id}) after {passed} passes, {what}, arrives")
            }
            Action::Wait => "B waits".into(),
            Action::GrantOther => "B is granted the lock".into(),
            Action::ReleaseOther => "B releases".into(),
            Action::SetBack => "the server's clock is set back".into(),
            Action::Crash => "the server loses its data".into(),
        }
    }
}

impl ProtocolModel for PassModel {
    fn with(&self, mutant: Mutant) -> Self {
        let mutant = Some(mutant);
        Self { mutant, ..self.clone() }
    }
}
