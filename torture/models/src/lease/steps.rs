//! The effect of each event.

use std::time::Duration;

use lock_core::backend::rules::{self, Moment};

use super::{Client, LeaseModel, Mail, Phase, State, Work};
use crate::id::Id;
use crate::mutant::Mutant;
use crate::request::{Reply, Request};
use crate::server::Settings;
use crate::time::{STEP, Time, units};

impl LeaseModel {
    pub(super) fn settings(&self) -> Settings {
        Settings {
            grace: units(STEP),
            entry_ttl: units(2 * STEP),
            longest_entry_ttl: units(2 * STEP),
            reserved: 0,
            tombstones: true,
            mutant: self.mutant,
        }
    }

    pub(super) fn acquire(&self, state: &State, index: usize) -> Request {
        let (id, ttl) = (state.id(index), units(self.ttls[index]));
        let waits = self.waits;
        Request::Acquire { id, ttl, waits }
    }

    /// Whether requests of all earlier clients of the same kind have arrived.
    pub(super) fn may_arrive(&self, state: &State, mail: &Mail) -> bool {
        let (Mail::Request(request, _) | Mail::Answer(request, ..)) = mail;
        let index = request.id().client();
        let mut earlier = state.clients[..index].iter().zip(self.ttls);
        earlier.all(|(client, ttl)| client.is_known || *ttl != self.ttls[index])
    }

    pub(super) fn longest_term(&self) -> u16 {
        self.ttls.iter().chain(self.renewals).copied().max().unwrap_or(0)
    }

    pub(super) fn believes(&self, state: &State, client: &Client) -> bool {
        match client.phase {
            Phase::Holds { ends, .. } => {
                self.mutant == Some(Mutant::NoDeadline) || !rules::has_expired(ends, state.client_now())
            }
            _ => false,
        }
    }

    pub(super) fn renew(&self, state: &mut State, index: usize) {
        let id = state.id(index);
        if let Phase::Holds { renewed, .. } = &mut state.clients[index].phase {
            let ttl = units(self.renewals[usize::from(*renewed)]);
            *renewed += 1;
            state.send(Request::Renew { id, ttl });
        }
    }

    pub(super) fn work(&self, state: &mut State, index: usize) {
        if let Phase::Holds { token, work, .. } = &mut state.clients[index].phase {
            *work = match *work {
                Work::Read(version) => {
                    state.resource.write(*token, version, self.mutant);
                    Work::Written
                }
                // A refused client has nothing to write.
                _ => state
                    .resource
                    .read(*token, self.mutant)
                    .map_or(Work::Written, Work::Read),
            };
        }
    }

    pub(super) fn arrives(&self, state: &mut State, mail: Mail) {
        match mail {
            Mail::Request(request, sent) => {
                state.clients[request.id().client()].is_known = true;
                let now = state.server_now();
                let when = (now, now.clock());
                let (before, mut wakes) = (state.server.stored, Vec::new());
                let reply = state.server.answer(request, when, &self.settings(), &mut wakes);
                if let (Reply::Granted(token), true) = (reply, state.server.stored != before) {
                    state.regressed |= token <= state.highest;
                    state.highest = state.highest.max(token);
                }
                let held_for = state.server.holder(now).map(|hold| hold.expires.0 - now.0);
                let is_dead = matches!(request, Request::Renew { id, .. } if state.ended.contains(id));
                state.revived |= is_dead && reply == Reply::Done;
                state.outlasted |= reply == Reply::Busy && held_for > Some(self.longest_term());
                match request {
                    // Nobody waits for these answers.
                    Request::Release(id) | Request::Keep { id, .. } | Request::Abandon(id) => state.ended.insert(id),
                    _ if state.is_current(request.id()) => {
                        state.mail.insert(Mail::Answer(request, sent, reply));
                    }
                    _ => {}
                }
            }
            Mail::Answer(request, sent, reply) => self.answered(state, request, sent, reply),
        }
    }

    pub(super) fn answered(&self, state: &mut State, request: Request, sent: Time, reply: Reply) {
        let (index, now) = (request.id().client(), state.client_now());
        let phase = state.clients[index].phase;
        let believes = self.believes(state, &state.clients[index]);
        match (request, reply, phase) {
            (Request::Acquire { ttl, .. }, Reply::Granted(token), Phase::Asks) => {
                let ends = self.lease_ends(None, sent, now, ttl);
                state.clients[index].phase = match rules::has_expired(ends, now) {
                    // Too late to believe: it asks again, under the same id.
                    true => Phase::Idle,
                    false => Phase::Holds {
                        ends,
                        token,
                        renewed: 0,
                        work: Work::Fresh,
                    },
                };
            }
            (Request::Acquire { .. }, Reply::Busy, Phase::Asks) => state.clients[index].phase = Phase::Idle,
            (Request::Acquire { .. }, Reply::Dead, Phase::Asks) => state.go_on(index),
            // Lost is final.
            (
                Request::Renew { ttl, .. },
                Reply::Done,
                Phase::Holds {
                    ends,
                    token,
                    renewed,
                    work,
                },
            ) if believes => {
                let ends = self.lease_ends(Some(ends), sent, now, ttl);
                state.clients[index].phase = Phase::Holds {
                    ends,
                    token,
                    renewed,
                    work,
                };
            }
            (Request::Renew { .. }, Reply::NotYours, Phase::Holds { .. }) => state.go_on(index),
            _ => {}
        }
    }

    pub(super) fn lease_ends(&self, end: Option<Time>, sent: Time, now: Time, ttl: Duration) -> Time {
        match self.mutant {
            Some(Mutant::DeadlineFromReply) => rules::lease_ends(end, now, ttl, false),
            Some(Mutant::NoMargin) => end.max(sent.after(ttl)).unwrap_or(sent),
            _ => rules::lease_ends(end, sent, ttl, false),
        }
    }
}

impl State {
    pub(super) fn server_now(&self) -> Time {
        self.now.less(self.back)
    }

    pub(super) fn client_now(&self) -> Time {
        self.now.less(self.lag)
    }

    pub(super) fn id(&self, index: usize) -> Id {
        Id::new(index, self.clients[index].run)
    }

    pub(super) fn is_current(&self, id: Id) -> bool {
        self.id(id.client()) == id
    }

    pub(super) fn send(&mut self, request: Request) {
        self.mail.insert(Mail::Request(request, self.client_now()));
    }

    /// On to the next acquisition, under a new id. Answers to the old one would not be believed.
    pub(super) fn go_on(&mut self, index: usize) {
        let old = self.id(index);
        self.mail
            .retain(|mail| !matches!(mail, Mail::Answer(request, ..) if request.id() == old));
        self.clients[index] = Client {
            run: self.clients[index].run + 1,
            phase: Phase::Idle,
            ..self.clients[index]
        };
    }
}
