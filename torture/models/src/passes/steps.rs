//! The effect of each event.

use std::time::Duration;

use lock_core::backend::rules;

use super::{Holder, MOST, Mail, Micros, Other, Ours, Own, PassModel, RESERVED, State, TTL};
use crate::mutant::Mutant;

impl PassModel {
    fn has(&self, mutant: Mutant) -> bool {
        self.mutant == Some(mutant)
    }

    /// As `lock-core/src/hold/pass.rs`. A grant reserves as many tokens as core asks for, so there is one for each pass.
    pub(super) fn may_pass(&self, state: &State, own: Own) -> bool {
        let number = u32::from(own.passed + 1);
        let is_over = own.passed >= MOST && !self.has(Mutant::PassesForEver);
        // As if it were granted long ago.
        let granted = match self.has(Mutant::TokensAheadOfTheClock) {
            true => Micros(0),
            false => own.granted,
        };
        let lasts = rules::may_pass(granted, state.now, number, own.ends, micros(TTL));
        !is_over && !own.suspect && lasts
    }

    pub(super) fn pass(&self, state: &mut State, own: Own) {
        let ends = match self.has(Mutant::PassArmsAnew) {
            true => rules::lease_ends(None, state.now, micros(TTL), false),
            false => own.ends,
        };
        let next = Own {
            token: own.token + u64::from(!self.has(Mutant::PassKeepsToken)),
            passed: own.passed + 1,
            ends,
            ..own
        };
        state.done += 1;
        state.begin(next);
    }

    pub(super) fn grant(&self, state: &mut State) {
        let token = self.next_token(state);
        let id = state.holds;
        state.hold = Some((Holder::Ours(id), rules::prolonged(state.now, state.now, micros(TTL))));
        state.begin(Own {
            id,
            token,
            granted: state.now,
            passed: 0,
            ends: rules::lease_ends(None, state.now, micros(TTL), false),
            suspect: false,
        });
    }

    pub(super) fn grant_other(&self, state: &mut State) {
        let token = self.next_token(state);
        state.hold = Some((Holder::Other, rules::prolonged(state.now, state.now, micros(TTL))));
        state.other = Other::Holds(rules::lease_ends(None, state.now, micros(TTL), false));
        state.granted(token);
    }

    fn next_token(&self, state: &mut State) -> u64 {
        let clock = u64::from(state.now.0.saturating_sub(state.behind));
        let token = rules::next_token(state.stored, clock, None).map_or(u64::MAX, |token| token.as_u64());
        let more = if self.has(Mutant::GrantReservesNothing) {
            0
        } else {
            RESERVED - 1
        };
        state.stored = token + u64::from(more);
        token
    }
}

impl State {
    /// Who has the name, by the server's clock, which runs like all.
    pub(super) fn holder(&self) -> Option<Holder> {
        let (holder, expires) = self.hold?;
        (!rules::has_expired(expires, self.now)).then_some(holder)
    }

    fn begin(&mut self, own: Own) {
        self.holds += 1;
        self.passed_over += u8::from(self.other == Other::Waits);
        self.ours = Ours::Holds(own);
        self.granted(own.token);
    }

    fn granted(&mut self, token: u64) {
        self.regressed |= token <= self.highest;
        self.highest = self.highest.max(token);
    }

    /// The hold ends at the server, if it is this one's, and a request for the next one comes later.
    pub(super) fn end(&mut self, holder: Holder) {
        if self.holder() == Some(holder) {
            self.hold = None;
        }
        self.now.0 += u16::from(RESERVED);
    }

    pub(super) fn arrives(&mut self, mail: Mail) {
        match mail {
            Mail::Release(id) => {
                self.end(Holder::Ours(id));
                if matches!(self.ours, Ours::Releases(own) if own.id == id) {
                    self.ours = Ours::Out;
                    self.done += 1;
                }
            }
            Mail::Renew(id, passed, sent) => {
                let is_held = self.holder() == Some(Holder::Ours(id));
                if let (true, Some((_, expires))) = (is_held, &mut self.hold) {
                    *expires = rules::prolonged(*expires, self.now, micros(TTL));
                }
                self.mail.insert(Mail::Renewed(id, passed, sent, is_held));
            }
            Mail::Renewed(id, passed, sent, is_held) => {
                // That of an earlier holder arms its own lease, which has ended.
                let Ours::Holds(own) = &mut self.ours else { return };
                if (own.id, own.passed) != (id, passed) || rules::has_expired(own.ends, self.now) {
                    return;
                }
                match is_held {
                    true => own.ends = rules::lease_ends(Some(own.ends), sent, micros(TTL), false),
                    false => self.ours = Ours::Out,
                }
            }
        }
    }
}

const fn micros(micros: u16) -> Duration {
    Duration::from_micros(micros as u64)
}
