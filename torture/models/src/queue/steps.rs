//! The effect of each event.

use lock_core::backend::rules;

use super::{ENTRY_TTL, GRACE, Phase, Process, QueueModel, REFRESH, State, TTL};
use crate::id::Id;
use crate::mutant::Mutant;
use crate::request::{Reply, Request, Wake};
use crate::server::Settings;
use crate::time::{Time, units};

impl QueueModel {
    pub(super) fn settings(&self) -> Settings {
        let entry_ttl = match self.mutant {
            // It has to live as long as its owner sleeps.
            Some(Mutant::SleepsToTheEnd) => TTL,
            _ => ENTRY_TTL,
        };
        Settings {
            grace: units(GRACE),
            entry_ttl: units(entry_ttl),
            longest_entry_ttl: units(entry_ttl),
            reserved: 0,
            tombstones: false,
            mutant: self.mutant,
        }
    }

    /// Takes the name, confirms an offer, enters the queue or refreshes its entry: one request.
    pub(super) fn ask(&self, state: &mut State, index: usize) {
        let now = state.now;
        let (id, ttl) = (state.id(index), units(TTL));
        match self.answer(state, Request::Acquire { id, ttl, waits: true }) {
            Reply::Granted(_) => {
                state.order.retain(|waiting| *waiting != index);
                state.processes[index].phase = Phase::Holds(rules::lease_ends(None, now, ttl, false));
            }
            _ => {
                let (ends, ahead) = state.server.taken(id, state.server_now()).unwrap_or_default();
                // Those behind the first look a grace later each.
                let ends = state.local(ends).0 + GRACE * u16::try_from(ahead).unwrap_or(u16::MAX);
                let refresh = match self.mutant {
                    Some(Mutant::SleepsToTheEnd) => Time(ends),
                    _ => Time(ends.min(now.0 + REFRESH)),
                };
                state.processes[index].phase = Phase::Waits(refresh);
                if !state.order.contains(&index) {
                    state.order.push(index);
                }
            }
        }
    }

    pub(super) fn woken(&self, state: &mut State, wake: Wake<Time>) {
        let index = wake.id().client();
        if state.id(index) != wake.id() {
            return;
        }
        let Phase::Waits(look) = state.processes[index].phase else {
            return;
        };
        match wake {
            Wake::Offer(_) if self.mutant == Some(Mutant::BelievesTheOffer) => {
                let ends = rules::lease_ends(None, state.now, units(TTL), false);
                state.processes[index].phase = Phase::Holds(ends);
            }
            Wake::Offer(_) => self.ask(state, index),
            Wake::StandBy(_, until) => state.processes[index].phase = Phase::Waits(look.min(until)),
        }
    }

    /// One that was cut off asks anew, since it knows that it may have missed something.
    pub(super) fn resume(&self, state: &mut State, index: usize) {
        let now = state.now;
        state.server.unreachable.remove(Id::new(index, 0));
        let process = &mut state.processes[index];
        process.runs = true;
        let was_cut = std::mem::take(&mut process.is_cut);
        if let Phase::Waits(look) = &mut process.phase
            && was_cut
            && self.mutant != Some(Mutant::NotAskedAfterACut)
        {
            *look = now;
        }
    }

    /// Has the server answer, and notes what the properties are about.
    pub(super) fn answer(&self, state: &mut State, request: Request) -> Reply {
        let index = request.id().client();
        state.processes[index].asked = state.now;
        let now = state.server_now();
        let expired = state
            .server
            .hold
            .as_ref()
            .filter(|hold| rules::has_expired(hold.expires, now));
        // A name that was kept is reserved for a grace after that.
        let reserved = expired.is_some_and(|hold| hold.kept.is_some()) && state.now.0 < state.promised.0 + GRACE;
        state.lapsed |= expired.is_some() && !reserved;
        let (before, mut wakes) = (state.server.stored, Vec::new());
        let reply = state
            .server
            .answer(request, (now, now.clock()), &self.settings(), &mut wakes);
        for wake in &mut wakes {
            if let Wake::StandBy(_, at) = wake {
                *at = state.local(*at);
            }
        }
        state.wakes.extend(wakes);
        if let (Reply::Granted(token), true) = (reply, state.server.stored != before) {
            state.regressed |= token <= state.highest;
            state.highest = state.highest.max(token);
            state.broken |= state.now < state.promised;
            let earlier = state.order.iter().take_while(|waiting| **waiting != index);
            let overtaken = earlier.copied().any(|other| state.is_steady(other));
            state.starved |= overtaken && !state.lapsed;
        }
        state.lapsed &= state.server.hold.is_none();
        if let Request::Release(id) | Request::Keep { id, .. } | Request::Abandon(id) = request {
            state.ended.insert(id);
        }
        reply
    }
}

impl State {
    pub(super) fn id(&self, index: usize) -> Id {
        Id::new(index, self.processes[index].run)
    }

    pub(super) fn server_now(&self) -> Time {
        Time(self.now.0 + self.ahead)
    }

    /// When a moment of the server's clock comes, for everybody else.
    pub(super) fn local(&self, at: Time) -> Time {
        at.less(self.ahead)
    }

    pub(super) fn is_steady(&self, index: usize) -> bool {
        self.processes[index].steady
    }

    /// Whether nobody has the name for certain while a waiter runs.
    pub(super) fn is_idle(&self) -> bool {
        let held = self.server.holder(self.server_now());
        let held = held.is_some_and(|hold| match hold.kept {
            Some(_) => self.now < self.promised,
            None => hold.token.is_some(),
        });
        let waits = |process: &Process| process.runs && matches!(process.phase, Phase::Waits(_));
        !held && self.processes.iter().any(waits)
    }

    /// Done with this acquisition. What the server still says to its id is for nobody.
    pub(super) fn go_out(&mut self, index: usize) {
        let id = self.id(index);
        self.wakes.retain(|wake| wake.id() != id);
        self.order.retain(|waiting| *waiting != index);
        let process = &mut self.processes[index];
        process.run += 1;
        process.phase = Phase::Out;
        process.steady = process.runs;
    }
}

impl Process {
    pub(super) fn believes(&self, now: Time) -> bool {
        matches!(self.phase, Phase::Holds(ends) if !rules::has_expired(ends, now))
    }
}
