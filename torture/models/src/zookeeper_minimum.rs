//! ZooKeeper's minimum holds: a persistent node keeps the name when its holder's node is gone, and its end is judged by times that
//! the leader wrote.
//!
//! The holder makes the kept node, is told of its grant, and releases or dies. Others come, wait or try, and leave. Meanwhile an
//! election brings another clock, that clock is set back, and a server shows what the kept node was before its last write. Nobody may
//! be granted the name before its time, and nobody waits for a kept node for longer than its time since it came or the node was
//! written last; each change of the clock has it written once more.

use stateright::{Model, Property};

use super::check::ProtocolModel;
use super::mutant::Mutant;
use super::properties::*;

mod steps;

/// The difference of two leaders' clocks, and the amount by which one is set back: more than the minimum.
const JUMP: i8 = 4;

/// Bounds, and what is wrong.
#[derive(Clone, Debug)]
pub struct ZookeeperMinimumModel {
    /// The minimum, in steps of time.
    pub minimum: i8,
    /// When time ends.
    pub until: i8,
    /// The number of times that others come.
    pub comes: u8,
    /// The number of elections.
    pub elections: u8,
    /// The number of times that the leader's clock is set back.
    pub set_backs: u8,
    /// The number of reads that show the state before the last write.
    pub old_reads: u8,
    /// The bug of the model, if it has one.
    pub mutant: Option<Mutant>,
}

/// The server, the holder and who comes after it, and what the properties have to remember.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    now: i8,
    zxid: u8,
    epoch: u8,
    /// By how much the leader's clock is ahead.
    ahead: i8,
    elections: u8,
    set_backs: u8,
    old_reads: u8,
    comes: u8,
    /// Whether the holder's own node is there.
    own: bool,
    kept: Option<Kept>,
    /// The kept node before its last write.
    before: Option<Kept>,
    holder: Holder,
    next: Next,
    /// Until when the holder was promised the name, if it was told of its grant.
    promised: i8,
    was_early: bool,
    sleeps: bool,
    /// The number of times that a client which could not tell wrote the kept node.
    rewritten: u8,
    done: u8,
}

/// A time of a leader.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Stamp {
    zxid: u8,
    epoch: u8,
    at: i8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Kept {
    written: Stamp,
    time: i8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Holder {
    /// Its node is the first.
    Admitted,
    /// It has made the kept node.
    Keeps,
    /// It was told of its grant then.
    Told(i8),
    /// Of a release in two steps, the first was done.
    HalfReleased(i8),
    /// It has released; the kept node is over for certain then.
    Released(i8),
    Gone,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Next {
    Away,
    Waits(Waiter),
    /// Its delete or write of the kept node with this zxid is under way.
    Asks(Waiter, u8, bool),
    Holds,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Waiter {
    /// The creation of its node, and when it knew of that.
    created: Stamp,
    came: i8,
    /// The kept node as it knows it, and since when.
    seen: Option<(u8, i8)>,
    /// When it looks again. `None` if it never does.
    wakes: Option<i8>,
}

/// An event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Time passes.
    Tick,
    /// Another server leads, whose clock is ahead of the last one's, or behind.
    Elect(bool),
    /// The leader's clock is set back.
    SetBack,
    /// The holder makes its kept node.
    Keep,
    /// The holder is told of its grant.
    Tell,
    /// The holder releases.
    Release,
    /// The second step of a release that has two.
    ReleaseOn,
    /// The holder's process deletes the kept node that is over.
    CleanUp,
    /// The holder dies, and its session ends.
    Die,
    /// Somebody comes, and makes a node.
    Come,
    /// It looks at the kept node, or at what that was before.
    Look(bool),
    /// Its write or delete arrives.
    Arrive,
    /// It leaves.
    Leave,
}

impl Model for ZookeeperMinimumModel {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State {
            now: 0,
            zxid: 0,
            epoch: 0,
            ahead: 0,
            elections: 0,
            set_backs: 0,
            old_reads: 0,
            comes: 0,
            own: true,
            kept: None,
            before: None,
            holder: Holder::Admitted,
            next: Next::Away,
            promised: 0,
            was_early: false,
            sleeps: false,
            rewritten: 0,
            done: 0,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if state.now < self.until {
            actions.push(Action::Tick);
        }
        if state.elections < self.elections {
            actions.extend([Action::Elect(true), Action::Elect(false)]);
        }
        if state.set_backs < self.set_backs {
            actions.push(Action::SetBack);
        }
        match state.holder {
            Holder::Admitted if state.own => actions.push(Action::Keep),
            // Its session lives: else its lease has ended.
            Holder::Keeps if state.own => actions.push(Action::Tell),
            Holder::Told(_) if state.own => actions.push(Action::Release),
            Holder::HalfReleased(_) => actions.push(Action::ReleaseOn),
            Holder::Released(over) if over <= state.now && state.kept.is_some() => actions.push(Action::CleanUp),
            _ => {}
        }
        if !matches!(state.holder, Holder::Gone) {
            actions.push(Action::Die);
        }
        match state.next {
            Next::Away if state.comes < self.comes => actions.push(Action::Come),
            Next::Away => {}
            // It watches the holder's node first.
            Next::Waits(waiter) => {
                if !state.own && waiter.wakes.is_some_and(|wakes| wakes <= state.now) {
                    actions.push(Action::Look(false));
                    if state.old_reads < self.old_reads && state.before.is_some() && state.kept.is_some() {
                        actions.push(Action::Look(true));
                    }
                }
                actions.push(Action::Leave);
            }
            Next::Asks(..) => actions.push(Action::Arrive),
            Next::Holds => actions.push(Action::Leave),
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        match action {
            Action::Tick => state.now += 1,
            Action::Elect(is_ahead) => {
                state.epoch += 1;
                state.ahead += if is_ahead { JUMP } else { -JUMP };
                state.elections += 1;
            }
            Action::SetBack => {
                state.ahead -= JUMP;
                state.set_backs += 1;
            }
            Action::Keep => {
                state.write_kept(self.minimum);
                state.holder = Holder::Keeps;
                state.promised = state.now + self.minimum;
            }
            Action::Tell => state.holder = Holder::Told(state.now),
            Action::Release => self.release(&mut state)?,
            Action::ReleaseOn => {
                let Holder::HalfReleased(end) = state.holder else {
                    return None;
                };
                if state.kept.is_some() {
                    state.write_kept(end - state.now);
                }
                state.holder = Holder::Released(end);
            }
            Action::CleanUp => state.kept = None,
            Action::Die => {
                state.own = false;
                state.holder = Holder::Gone;
            }
            Action::Come => {
                let (created, came) = (state.stamp(), state.now);
                state.comes += 1;
                state.next = Next::Waits(Waiter {
                    created,
                    came,
                    seen: None,
                    wakes: Some(came),
                });
            }
            Action::Look(is_old) => self.look(&mut state, is_old)?,
            Action::Arrive => {
                let Next::Asks(mut waiter, zxid, deletes) = state.next else {
                    return None;
                };
                let is_same = state.kept.is_some_and(|kept| kept.written.zxid == zxid);
                if let Some(kept) = state.kept.filter(|_| is_same || self.has(Mutant::DeletesAnyKept)) {
                    if deletes {
                        state.kept = None;
                    } else {
                        state.write_kept(kept.time);
                        state.rewritten += 1;
                    }
                }
                waiter.wakes = Some(state.now);
                state.next = Next::Waits(waiter);
            }
            Action::Leave => {
                state.done += u8::from(state.next == Next::Holds);
                state.next = Next::Away;
            }
        }
        if state.old_reads == self.old_reads {
            // Nobody sees it any more.
            state.before = None;
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(KEPT_IN_TIME, |_, state: &State| !state.was_early),
            Property::always(NOBODY_SLEEPS, |_, state: &State| {
                let wakes = !matches!(state.next, Next::Waits(Waiter { wakes: None, .. }));
                wakes && !state.sleeps && state.rewritten <= state.elections + state.set_backs
            }),
            Property::sometimes(TWO_HOLDS_DONE, |_, state: &State| {
                state.done > 0 && matches!(state.holder, Holder::Released(_))
            }),
        ]
    }

    fn format_action(&self, action: &Action) -> String {
        match action {
            Action::Tick => "time passes".into(),
            Action::Elect(true) => "another server leads, whose clock is ahead".into(),
            Action::Elect(false) => "another server leads, whose clock is behind".into(),
            Action::SetBack => "the leader's clock is set back".into(),
            Action::Keep => "A makes its kept node".into(),
            Action::Tell => "A is told of its grant".into(),
            Action::Release => "A releases".into(),
            Action::ReleaseOn => "the second step of A's release".into(),
            Action::CleanUp => "A deletes the kept node".into(),
            Action::Die => "A dies".into(),
            Action::Come => "B makes its node".into(),
            Action::Look(false) => "B looks".into(),
            Action::Look(true) => "B looks, and sees the kept node before its last write".into(),
            Action::Arrive => "B's request for the kept node arrives".into(),
            Action::Leave => "B leaves".into(),
        }
    }
}

impl ProtocolModel for ZookeeperMinimumModel {
    fn with(&self, mutant: Mutant) -> Self {
        let mutant = Some(mutant);
        Self { mutant, ..self.clone() }
    }
}

impl ZookeeperMinimumModel {
    fn has(&self, mutant: Mutant) -> bool {
        self.mutant == Some(mutant)
    }
}
