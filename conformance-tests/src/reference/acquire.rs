//! An acquire at the server.

use std::time::Duration;

use lock_core::backend::{HolderId, Mode};
use lock_core::memory::{Acquire, Answer};
use lock_core::{ErrorKind, FencingToken, LockName, Result};
use tokio::time::Instant;

use super::admission::admits;
use super::server::ReferenceServer;
use super::state::{Hold, Reply, Request, State};
use crate::mutant::Mutant;

impl ReferenceServer {
    pub(super) fn acquire(&self, request: &Request) -> Result<Reply> {
        let (mut state, name, now) = self.at(&request.name)?;
        state.notes.asked.insert(name.clone());
        let (mut acquire, clock) = (request.acquire.clone(), self.clock(now));
        let clock = match self.mutant() {
            Some(mutant) => state.misread(mutant, &name, &mut acquire, (now, clock)),
            None => clock,
        };
        let before = state.hold_of(&name, request.holder()).map(|hold| hold.expires);
        let last_token = state.server.last_token;
        let surplus = state.notes.surplus;
        let answer = state.server.acquire(
            &name,
            &acquire,
            (now, clock),
            |name, wanted| request.is_counted || admits(self.mutant(), surplus, name, wanted),
            None,
        );
        match (answer, before) {
            (Ok(Answer::Granted(token)), Some(before)) => {
                if let Some(hold) = state.hold_of(&name, request.holder())
                    && self.has(Mutant::RepeatRearmsNothing)
                {
                    hold.expires = before;
                }
                Ok(Reply::Granted(token))
            }
            (Ok(Answer::Granted(token)), None) => {
                self.has_changed();
                let token = match self.mutant() {
                    Some(mutant) => state.misgrant(mutant, &name, request, (token, last_token, clock)),
                    None => token,
                };
                Ok(Reply::Granted(token))
            }
            (Err(error), _) if error.kind() == ErrorKind::Lost && self.has(Mutant::UpgradeWaitsForEver) => {
                Ok(Reply::Busy {
                    label: None,
                    expires_in: request.acquire.ttl,
                })
            }
            (Err(error), _) => Err(error),
            (Ok(Answer::Busy { label, expires }), _) => {
                self.wait(&mut state, &name, request, now);
                let front = || Some(state.server.names.get(&name)?.queue.front()?.expires).flatten();
                let expires = expires.or_else(front).unwrap_or(now);
                Ok(Reply::Busy {
                    label,
                    expires_in: expires.saturating_duration_since(now),
                })
            }
        }
    }

    /// The one who waits has a place in the order, as long as it asks again in time.
    fn wait(&self, state: &mut State, name: &LockName, request: &Request, now: Instant) {
        if !request.waits {
            return;
        }
        let stays = self.has(Mutant::DeadWriterStopsReaders) && request.mode() == Mode::Exclusive;
        let until = (!stays).then(|| now + request.acquire.ttl);
        let queue = |state: &State| state.server.names.get(name).map_or(0, |name| name.queue.len());
        let before = queue(state);
        state.server.wait(name, &request.acquire, (now, until), || ());
        if self.has(Mutant::UpgradeQueuesBehindWriters)
            && request.acquire.wanted.replaces.is_some()
            && queue(state) > before
            && let Some(name) = state.server.names.get_mut(name)
        {
            name.queue.rotate_left(1);
        }
    }

    /// Whether the request would be granted, for the client that counts permits itself.
    pub(super) fn would_admit(&self, request: &Request) -> Result<bool> {
        let (mut state, name, now) = self.at(&request.name)?;
        let (mutant, surplus) = (self.mutant(), state.notes.surplus);
        let admitted = state.server.change(&name, now, |name| {
            name.hold_of(request.holder()).is_none() && admits(mutant, surplus, name, &request.acquire.wanted)
        });
        Ok(admitted.unwrap_or(true))
    }
}

impl State {
    /// Changes the request, or the name first, as the mutant misreads them. Returns the clock by which the mutant mints
    /// tokens.
    fn misread(&mut self, mutant: Mutant, name: &LockName, acquire: &mut Acquire, (now, clock): (Instant, u64)) -> u64 {
        let holder = acquire.wanted.holder;
        let is_repeated = self.hold_of(name, holder).is_some();
        let last_token = self.server.last_token;
        match (mutant, acquire.token_at_least) {
            (Mutant::OldestNameIsEvicted, _) => self.evict_oldest(),
            (Mutant::TokenOfTheFirstAsking, _) => {
                let asked = *self.notes.asked_tokens.entry(holder).or_insert(last_token + 1);
                self.server.last_token = last_token.max(asked);
            }
            (Mutant::CounterLostAtRestart | Mutant::TokensWithoutAClock, _) => return 0,
            (Mutant::CounterDeletedWithTheHold, _) => {
                self.server.last_token = 0;
                return 0;
            }
            (Mutant::FloorIgnored, _) => acquire.token_floor = None,
            (Mutant::AdoptedTokenIgnored, _) => acquire.token_at_least = None,
            (Mutant::AdoptionIsAFloor, Some(_)) => {
                acquire.token_floor = acquire.token_floor.max(acquire.token_at_least.take());
                return 0;
            }
            (Mutant::AdoptionGoesBack, Some(adopted)) => {
                acquire.token_floor = None;
                self.server.last_token = adopted.as_u64() - 1;
            }
            (Mutant::AdoptionHeedsTheClock, Some(adopted)) => {
                acquire.token_at_least = FencingToken::new(clock).max(Some(adopted));
            }
            (Mutant::AskersTtlCutsTheHolders, _) if !is_repeated => {
                let cut = now + acquire.ttl;
                self.holds(name).for_each(|hold| hold.expires = hold.expires.min(cut));
            }
            (Mutant::RepeatedReaderIsAnother, _) if acquire.wanted.mode == Mode::Shared => {
                self.disown(name, holder);
            }
            (Mutant::RepeatTakesASecondPermit, _) if matches!(acquire.wanted.mode, Mode::Permits(_)) => {
                self.disown(name, holder);
            }
            _ => {}
        }
        clock
    }

    /// Changes the grant as the mutant does. Returns the token that it states.
    fn misgrant(
        &mut self,
        mutant: Mutant,
        name: &LockName,
        request: &Request,
        (token, last_token, clock): (FencingToken, u64, u64),
    ) -> FencingToken {
        let last_end = self.notes.last_end.get(name).copied();
        let is_other_reader = |hold: &&mut Hold| hold.mode == Mode::Shared && hold.holder != request.holder();
        let reader = self.holds(name).find(is_other_reader).map(|hold| hold.grant.token);
        let first = self.notes.asked_tokens.get(&request.holder()).copied();
        let mut stated = token;
        match mutant {
            Mutant::ReadersShareAToken => stated = reader.unwrap_or(token),
            Mutant::TokenOfTheFirstAsking => stated = first.and_then(FencingToken::new).unwrap_or(token),
            Mutant::FloorCountsOnce => self.server.last_token = (last_token + 1).max(clock),
            Mutant::PassReservesNothing => self.server.last_token = token.as_u64(),
            _ => {}
        }
        if stated != token {
            self.server.last_token = stated.as_u64() + u64::from(request.acquire.reserve) - 1;
        }
        let Some(hold) = self.hold_of(name, request.holder()) else {
            return token;
        };
        (hold.grant.token, hold.grant.granted) = (stated, stated);
        match mutant {
            Mutant::GrantKeepsTheEnd => hold.expires = last_end.map_or(hold.expires, |end| end.max(hold.expires)),
            Mutant::PermitsNeverExpire if matches!(hold.mode, Mode::Permits(_)) => {
                hold.expires += Duration::from_secs(60 * 60);
            }
            Mutant::UpgradeLeavesTheRead => {
                let read = hold.replaced.take();
                let name = self.server.names.entry(name.clone()).or_default();
                name.holds.extend(read.map(|read| *read));
            }
            _ => {}
        }
        stated
    }

    /// The hold of this id is somebody else's.
    fn disown(&mut self, name: &LockName, holder: HolderId) {
        if let Some(hold) = self.hold_of(name, holder) {
            hold.holder = HolderId::random();
        }
    }
}
