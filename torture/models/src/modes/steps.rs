//! The effect of each event.

use lock_core::backend::rules;

use super::message::{Kind, Reply, Request};
use super::{Action, Held, Mail, ModesModel, Phase, REFRESH, State, Wait, lease};
use crate::id::Id;
use crate::time::Time;

impl ModesModel {
    /// Adds the actions of a running process. Returns whether it must act before time passes.
    pub(super) fn process_actions(&self, state: &State, index: usize, actions: &mut Vec<Action>) -> bool {
        let process = &state.processes[index];
        let is_due = |wait: Wait| matches!(wait, Wait::Look(at) if at <= state.now);
        if state.hung < self.hangs && process.has_acted() {
            actions.push(Action::Hang(index));
        }
        match process.phase {
            Phase::Out => {
                if process.next < self.runs {
                    actions.push(Action::Ask(index));
                }
                false
            }
            Phase::Waits(_, wait) => {
                if is_due(wait) {
                    actions.push(Action::Ask(index));
                }
                if self.gives_up {
                    actions.push(Action::Abandon(index));
                }
                is_due(wait)
            }
            Phase::Holds(held) if rules::has_expired(held.ends, state.now) => {
                actions.push(Action::Notice(index));
                // Whoever waits for an upgrade watches its lease.
                held.upgrade.is_some()
            }
            Phase::Holds(held) => {
                actions.push(Action::Release(index));
                if state.renewed < self.renewals {
                    actions.push(Action::Renew(index));
                }
                self.change_actions(state, index, held, actions);
                held.upgrade.is_some_and(|(_, wait)| is_due(wait))
            }
        }
    }

    fn change_actions(&self, state: &State, index: usize, held: Held, actions: &mut Vec<Action>) {
        if !self.changes {
            return;
        }
        match (held.kind, held.upgrade) {
            (Kind::Exclusive, _) => actions.push(Action::Downgrade(index)),
            (Kind::Upgradable, None) if state.processes[index].next <= self.runs => {
                actions.push(Action::Upgrade(index))
            }
            (Kind::Upgradable, Some((_, wait))) => {
                if matches!(wait, Wait::Look(at) if at <= state.now) {
                    actions.push(Action::Upgrade(index));
                }
                if self.gives_up {
                    actions.push(Action::AbandonUpgrade(index));
                }
            }
            _ => {}
        }
    }

    /// Comes, confirms an offer, or refreshes its entry.
    pub(super) fn ask(&self, state: &mut State, index: usize) {
        let id = match state.processes[index].phase {
            Phase::Waits(id, _) => id,
            _ => state.new_id(index),
        };
        state.processes[index].phase = Phase::Waits(id, Wait::Answer { told: false });
        self.send(state, Request::Acquire(id, self.kinds[index], None));
    }

    pub(super) fn upgrade(&self, state: &mut State, index: usize) {
        let Phase::Holds(mut held) = state.processes[index].phase else {
            return;
        };
        let id = held.upgrade.map_or_else(|| state.new_id(index), |(id, _)| id);
        held.upgrade = Some((id, Wait::Answer { told: false }));
        state.processes[index].phase = Phase::Holds(held);
        self.send(state, Request::Acquire(id, Kind::Exclusive, Some(held.id)));
    }

    pub(super) fn abandon(&self, state: &mut State, index: usize) {
        if let Phase::Waits(id, _) = state.processes[index].phase {
            state.go_out(index);
            self.send(state, Request::Abandon(id, None));
        }
    }

    pub(super) fn abandon_upgrade(&self, state: &mut State, index: usize) {
        if let Phase::Holds(held) = &mut state.processes[index].phase
            && let Some((id, _)) = held.upgrade.take()
        {
            let base = held.id;
            state.forget(id);
            self.send(state, Request::Abandon(id, Some(base)));
        }
    }

    pub(super) fn release(&self, state: &mut State, index: usize) {
        self.abandon_upgrade(state, index);
        if let Phase::Holds(held) = state.processes[index].phase {
            state.done = (state.done + 1).min(2);
            state.go_out(index);
            self.send(state, Request::Release(held.id));
        }
    }

    /// Its hold was lost. It undoes what may be left.
    pub(super) fn notice(&self, state: &mut State, index: usize) {
        self.abandon_upgrade(state, index);
        if let Phase::Holds(held) = state.processes[index].phase {
            state.go_out(index);
            self.send(state, Request::Release(held.id));
        }
    }

    pub(super) fn renew(&self, state: &mut State, index: usize) {
        state.renewed += 1;
        if let Phase::Holds(held) = state.processes[index].phase {
            self.send(state, Request::Renew(held.id));
        }
    }

    /// It is a reader before the server knows.
    pub(super) fn downgrade(&self, state: &mut State, index: usize) {
        if let Phase::Holds(held) = &mut state.processes[index].phase {
            held.kind = Kind::Shared;
            let id = held.id;
            self.send(state, Request::Downgrade(id));
        }
    }

    /// A word that comes while it asks counts afterwards: the answer may be older.
    pub(super) fn woken(&self, state: &mut State, id: Id, at: Time) {
        let (index, now) = (id.client(), state.now);
        let Some(wait) = state.wait_of(id) else { return };
        match wait {
            Wait::Answer { told } => *told |= at <= now,
            Wait::Look(look) => {
                *look = (*look).min(at);
                if *look > now {
                    return;
                }
                match state.processes[index].phase {
                    Phase::Holds(_) => self.upgrade(state, index),
                    _ => self.ask(state, index),
                }
            }
        }
    }

    fn send(&self, state: &mut State, request: Request) {
        let mail = Mail::Request(request, state.now);
        if self.late {
            state.mail.insert(mail);
        } else {
            self.arrives(state, mail);
        }
    }

    pub(super) fn arrives(&self, state: &mut State, mail: Mail) {
        match mail {
            Mail::Request(request, sent) => {
                let reply = self.at_server(state, request);
                let answer = Mail::Answer(request, sent, reply);
                if self.late {
                    state.mail.insert(answer);
                } else {
                    self.arrives(state, answer);
                }
            }
            Mail::Answer(request, sent, reply) => self.answered(state, request, sent, reply),
        }
    }

    /// Has the server answer, and notes what the properties are about.
    fn at_server(&self, state: &mut State, request: Request) -> Reply {
        let id = request.id();
        state.processes[id.client()].asked = state.now;
        let mut wakes = Vec::new();
        let reply = state.server.answer(request, state.now, self.mutant, &mut wakes);
        wakes.retain(|(told, _)| *told != id && state.waits(*told));
        state.wakes.extend(wakes);
        match (request, reply) {
            (Request::Acquire(_, kind, replaces), Reply::Granted(token)) if !state.granted.contains(id) => {
                state.granted.insert(id);
                state.note_grant(id, kind, token, replaces);
            }
            (Request::Acquire(..), Reply::Busy(_)) if !state.order.contains(&id) => state.order.push(id),
            _ => {}
        }
        // Who let an offer lapse keeps its place, but no claim to be next; who let an entry expire comes anew.
        let queue = &state.server.name.queue;
        for entry in queue.iter().filter(|entry| entry.with.lapsed) {
            state.processes[entry.wanted.holder.client()].steady = false;
        }
        state
            .order
            .retain(|id| queue.iter().any(|entry| entry.wanted.holder == *id));
        reply
    }

    fn answered(&self, state: &mut State, request: Request, sent: Time, reply: Reply) {
        let (id, now) = (request.id(), state.now);
        let index = id.client();
        match (request, reply) {
            (Request::Renew(_), Reply::Done) | (Request::Downgrade(_), Reply::Done) => {
                if let Phase::Holds(held) = &mut state.processes[index].phase
                    && held.id == id
                    && !rules::has_expired(held.ends, now)
                {
                    held.ends = lease(Some(held.ends), sent);
                }
            }
            (Request::Renew(_) | Request::Downgrade(_), Reply::Lost) => {
                if matches!(state.processes[index].phase, Phase::Holds(held) if held.id == id) {
                    self.notice(state, index);
                }
            }
            (Request::Acquire(_, kind, replaces), Reply::Granted(token)) if state.waits(id) => {
                let end = match state.processes[index].phase {
                    // The upgrade shares the lease of what it replaces, which may have ended.
                    Phase::Holds(held) if rules::has_expired(held.ends, now) => return,
                    Phase::Holds(held) => Some(held.ends),
                    _ => None,
                };
                if let Some(base) = replaces {
                    state.ended.insert(base);
                }
                let held = Held {
                    id,
                    kind,
                    token,
                    ends: lease(end, sent),
                    upgrade: None,
                };
                state.forget(id);
                state.processes[index].phase = Phase::Holds(held);
            }
            (Request::Acquire(..), Reply::Busy(look)) => {
                if let Some(wait) = state.wait_of(id) {
                    let told = matches!(wait, Wait::Answer { told: true });
                    let look = if told {
                        now
                    } else {
                        look.min(Time(now.0 + REFRESH)).max(now)
                    };
                    *wait = Wait::Look(look);
                }
            }
            (Request::Acquire(_, _, Some(_)), Reply::Lost) if state.waits(id) => self.notice(state, index),
            (Request::Acquire(..), Reply::Lost) if state.waits(id) => state.go_out(index),
            _ => {}
        }
    }
}

impl State {
    fn new_id(&mut self, index: usize) -> Id {
        let process = &mut self.processes[index];
        let id = Id::new(index, process.next);
        process.next += 1;
        id
    }

    fn wait_of(&mut self, id: Id) -> Option<&mut Wait> {
        match &mut self.processes[id.client()].phase {
            Phase::Waits(waiting, wait) if *waiting == id => Some(wait),
            Phase::Holds(held) => held
                .upgrade
                .as_mut()
                .filter(|(waiting, _)| *waiting == id)
                .map(|(_, wait)| wait),
            _ => None,
        }
    }

    fn note_grant(&mut self, id: Id, kind: Kind, token: u64, replaces: Option<Id>) {
        self.regressed |= token <= self.highest;
        self.highest = self.highest.max(token);
        let index = id.client();
        if let (Some(base), Phase::Holds(held)) = (replaces, self.processes[index].phase) {
            self.interrupted |= held.id == base && self.last_written > held.token;
        }
        if kind == Kind::Exclusive {
            self.last_written = token;
        }
        // Nobody that came earlier is kept out by this hold, unless it is offered the name already.
        let earlier = self.order.iter().take_while(|waiting| **waiting != id);
        let kept_out = |waiting: &Id| {
            let name = &self.server.name;
            let is_offered = name.holds.iter().any(|hold| hold.holder == *waiting);
            let mut entries = name.queue.iter().map(|entry| entry.wanted);
            let fits = entries
                .find(|wanted| wanted.holder == *waiting)
                .is_none_or(|wanted| name.fits(&wanted));
            self.processes[waiting.client()].steady && !is_offered && !fits
        };
        self.starved |= replaces.is_none() && earlier.into_iter().any(kept_out);
    }

    /// Done with this acquisition. What the server still says to its id is for nobody.
    fn go_out(&mut self, index: usize) {
        let process = &mut self.processes[index];
        let phase = std::mem::replace(&mut process.phase, Phase::Out);
        process.steady = process.runs;
        match phase {
            Phase::Waits(id, _) => self.forget(id),
            Phase::Holds(held) => {
                if let Some((id, _)) = held.upgrade {
                    self.forget(id);
                }
            }
            Phase::Out => {}
        }
    }

    fn forget(&mut self, id: Id) {
        self.wakes.retain(|(told, _)| *told != id);
        self.order.retain(|waiting| *waiting != id);
    }
}
