//! A hand-over whose outcome is unknown: the giver's request is late, repeated or lost, both sides give up, and both
//! are undone while the name goes to somebody else.
//!
//! Process A holds as `A1`, and hands over to its own next waiter, `A2`; B wants the name too. There are no tombstones
//! here: what keeps dead ids dead is the order alone. A hand-over needs the giver's hold, so the giver is undone first:
//! once that is answered, the hand-over has either happened, and the next one's undo ends it, or never will.

use std::collections::BTreeSet;

use lock_core::backend::rules;
use stateright::{Model, Property};

use super::check::ProtocolModel;
use super::id::{Id, Ids};
use super::mutant::Mutant;
use super::properties::*;
use super::request::{Reply, Request};
use super::server::{Hold, ServerModel, Settings};
use super::time::{Time, units};

const TTL: u16 = 20;
const GIVER: Id = Id(0);
const NEXT: Id = Id(1);
const OTHER: Id = Id(Id::PER_CLIENT);

/// Bounds, and what may happen within them.
#[derive(Clone, Debug)]
pub struct HandOverModel {
    /// When time ends.
    pub until: u16,
    /// How many times B asks.
    pub asks: u8,
    /// How many requests arrive twice.
    pub repeats: u8,
    /// What is wrong.
    pub mutant: Option<Mutant>,
}

/// Everybody's state, and what the properties have to remember.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    now: Time,
    server: ServerModel<Time>,
    mail: BTreeSet<Mail>,
    repeated: u8,
    giver: Giver,
    /// When B's belief ends: it asks as long as it has none.
    other: Option<Time>,
    asked: u8,
    highest: u64,
    regressed: bool,
    /// Whose end was answered: not one of their requests may do anything after that.
    ended: Ids,
    done: u8,
}

/// How far process A has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Giver {
    /// `A1` is believed in until then.
    Holds(Time),
    Hands,
    /// `A2` is believed in until then.
    NextHolds(Time),
    /// So many of the two undos are answered.
    Undoes(u8),
    Out,
}

/// What is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Mail {
    /// Sent then.
    Request(Request, Time),
    /// The answer to what was sent then.
    Answer(Request, Time, Reply),
}

/// What happens next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Time passes.
    Tick,
    /// A1 hands over to A2.
    HandOver,
    /// Both give up, and A begins to undo.
    GiveUp,
    /// A2 releases.
    Release,
    /// B asks for the lock.
    Ask,
    /// B releases.
    OtherReleases,
    /// A message arrives.
    Deliver(Mail),
    /// A message arrives, and will arrive again.
    Repeat(Mail),
}

impl Model for HandOverModel {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let now = Time(0);
        let server = ServerModel {
            hold: Some(Hold::new(GIVER, Some(1), now, units(TTL))),
            stored: 1,
            ..ServerModel::default()
        };
        vec![State {
            now,
            server,
            mail: BTreeSet::new(),
            repeated: 0,
            giver: Giver::Holds(rules::lease_ends(None, now, units(TTL), false)),
            other: None,
            asked: 0,
            highest: 1,
            regressed: false,
            ended: Ids::default(),
            done: 0,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        match state.giver {
            Giver::Holds(ends) if !rules::has_expired(ends, state.now) => actions.push(Action::HandOver),
            Giver::Hands => actions.push(Action::GiveUp),
            Giver::NextHolds(ends) if !rules::has_expired(ends, state.now) => actions.push(Action::Release),
            _ => {}
        }
        match state.other {
            None if state.asked < self.asks => actions.push(Action::Ask),
            Some(ends) if !rules::has_expired(ends, state.now) => actions.push(Action::OtherReleases),
            _ => {}
        }
        for mail in &state.mail {
            actions.push(Action::Deliver(*mail));
            if matches!(mail, Mail::Request(..)) && state.repeated < self.repeats {
                actions.push(Action::Repeat(*mail));
            }
        }
        if state.now.0 < self.until {
            actions.push(Action::Tick);
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        let ttl = units(TTL);
        match action {
            Action::Tick => state.now = state.now.next(),
            Action::HandOver => {
                state.giver = Giver::Hands;
                state.send(Request::HandOver {
                    from: GIVER,
                    to: NEXT,
                    ttl,
                });
            }
            Action::GiveUp => {
                state.giver = Giver::Undoes(0);
                state.send(self.undo(0));
            }
            Action::Release => {
                state.giver = Giver::Out;
                state.done += 1;
                state.send(Request::Release(NEXT));
            }
            Action::Ask => {
                state.asked += 1;
                state.send(Request::Acquire {
                    id: OTHER,
                    ttl,
                    waits: false,
                });
            }
            Action::OtherReleases => {
                // For good.
                state.other = Some(Time(0));
                state.done += 1;
                state.send(Request::Release(OTHER));
            }
            Action::Deliver(mail) => {
                state.mail.remove(&mail);
                self.arrives(&mut state, mail);
            }
            Action::Repeat(mail) => {
                state.repeated += 1;
                self.arrives(&mut state, mail);
            }
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(ONE_BELIEVER, |_, state: &State| {
                let giver = match state.giver {
                    Giver::Holds(ends) | Giver::NextHolds(ends) => Some(ends),
                    Giver::Hands | Giver::Undoes(_) | Giver::Out => None,
                };
                let believes = |ends: Option<Time>| ends.is_some_and(|ends| !rules::has_expired(ends, state.now));
                !(believes(giver) && believes(state.other))
            }),
            Property::always(TOKENS_INCREASE, |_, state: &State| !state.regressed),
            Property::always(DEAD_STAY_DEAD, |_, state: &State| {
                let holder = state.server.holder(state.now);
                holder.is_none_or(|hold| !state.ended.contains(hold.holder))
            }),
            Property::always(ENTRIES_END, |_, state: &State| {
                let bound = rules::prolonged(state.now, state.now, units(TTL));
                state.server.hold.as_ref().is_none_or(|hold| hold.expires <= bound)
            }),
            Property::sometimes(TWO_HOLDS_DONE, |_, state: &State| state.done >= 2),
        ]
    }

    fn format_action(&self, action: &Action) -> String {
        let mail_text = |mail: &Mail| match mail {
            Mail::Request(request, _) => format!("{request}"),
            Mail::Answer(request, _, reply) => format!("the answer to {request}, {reply},"),
        };
        match action {
            Action::Tick => "time passes".into(),
            Action::HandOver => "A1 sends a hand-over to A2".into(),
            Action::GiveUp => format!("A1 and A2 give up; A sends {}", self.undo(0)),
            Action::Release => "A2 sends a release".into(),
            Action::Ask => "B1 asks for the lock".into(),
            Action::OtherReleases => "B1 sends a release".into(),
            Action::Deliver(mail) => format!("{} arrives", mail_text(mail)),
            Action::Repeat(mail) => format!("{} arrives, for the first time", mail_text(mail)),
        }
    }
}

impl ProtocolModel for HandOverModel {
    fn with(&self, mutant: Mutant) -> Self {
        let mutant = Some(mutant);
        Self { mutant, ..self.clone() }
    }
}

impl HandOverModel {
    /// The first or the second of the two undos.
    fn undo(&self, index: u8) -> Request {
        let giver_first = self.mutant != Some(Mutant::UndoneInWrongOrder);
        match (index == 0) == giver_first {
            true => Request::Release(GIVER),
            false => Request::Abandon(NEXT),
        }
    }

    fn arrives(&self, state: &mut State, mail: Mail) {
        match mail {
            Mail::Request(request, sent) => {
                let settings = Settings {
                    mutant: self.mutant,
                    ..Settings::default()
                };
                let before = state.server.stored;
                let reply = state
                    .server
                    .answer(request, (state.now, state.now.clock()), &settings, &mut Vec::new());
                if let (Reply::Granted(token), true) = (reply, state.server.stored != before) {
                    state.regressed |= token <= state.highest;
                    state.highest = state.highest.max(token);
                }
                state.mail.insert(Mail::Answer(request, sent, reply));
            }
            Mail::Answer(request, sent, reply) => self.answered(state, request, sent, reply),
        }
    }

    fn answered(&self, state: &mut State, request: Request, sent: Time, reply: Reply) {
        let ends = rules::lease_ends(None, sent, units(TTL), false);
        let too_late = rules::has_expired(ends, state.now);
        match (request, reply) {
            (Request::HandOver { .. }, Reply::Granted(_)) if state.giver == Giver::Hands && !too_late => {
                state.giver = Giver::NextHolds(ends);
            }
            (Request::Acquire { .. }, Reply::Granted(_)) if state.other.is_none() && !too_late => {
                state.other = Some(ends);
            }
            (Request::Release(GIVER) | Request::Abandon(NEXT), _) => {
                let Giver::Undoes(answered) = state.giver else { return };
                if request != self.undo(answered) {
                    return;
                }
                state.ended.insert(request.id());
                state.giver = match answered {
                    0 => {
                        state.send(self.undo(1));
                        Giver::Undoes(1)
                    }
                    _ => Giver::Out,
                };
            }
            _ => {}
        }
    }
}

impl State {
    fn send(&mut self, request: Request) {
        self.mail.insert(Mail::Request(request, self.now));
    }
}
