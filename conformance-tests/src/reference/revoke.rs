//! Forced release at the server.

use lock_core::backend::{Mode, Revoke, Revoked};
use lock_core::{FencingToken, LockName, Result};
use tokio::time::Instant;

use super::server::ReferenceServer;
use super::state::Hold;
use crate::mutant::Mutant;

impl ReferenceServer {
    /// When the hold with this token ends, for the mutant that writes it back.
    pub(super) fn end_of(&self, name: &LockName, token: FencingToken) -> Result<Option<Instant>> {
        let (mut state, name, _) = self.at(name)?;
        let mut holds = state.holds(&name);
        Ok(holds.find(|hold| hold.grant.has_token(token)).map(|hold| hold.expires))
    }

    /// Ends the hold with this token, at once or when its lease ends. `read` is its end as it was read before.
    pub(super) fn revoke(
        &self,
        name: &LockName,
        token: FencingToken,
        how: Revoke,
        read: Option<Instant>,
    ) -> Result<Revoked> {
        let (mut state, name, now) = self.at(name)?;
        let is_it = |hold: &Hold| match self.mutant() {
            Some(Mutant::RevokeWithoutToken) => true,
            Some(Mutant::RevokeTakesLowerTokens) => token <= hold.grant.token,
            Some(Mutant::RevokeKnowsNoPasses) => token == hold.grant.granted,
            _ => hold.grant.has_token(token),
        };
        let (how, is_marked) = match (self.mutant(), how) {
            (Some(Mutant::RevokedHoldIsRenewed), Revoke::AtLeaseEnd) => (how, true),
            (Some(Mutant::RevokeFreesAtOnce), _) => (Revoke::Now, false),
            (Some(Mutant::RevokeNowWaits), _) => (Revoke::AtLeaseEnd, false),
            _ => (how, false),
        };
        let found = state.holds(&name).find(|hold| is_it(hold)).map(|hold| hold.clone());
        let found = found.filter(|hold| hold.expires > now);
        let revoked =
            found.filter(|hold| is_marked || state.server.revoke(&name, hold.grant.granted, now, how).is_some());
        let Some(hold) = revoked else {
            return Ok(Revoked::NotHeld);
        };
        if is_marked {
            return Ok(Revoked::done(hold.expires - now));
        }
        if self.has(Mutant::RevokeEndsAllReaders) {
            state.keep_only(&name, now, |other| other.mode != Mode::Shared);
        }
        if let Some(rest) = state.holds(&name).find(|rest| rest.grant.has_token(hold.grant.granted)) {
            rest.expires = read.unwrap_or(rest.expires);
            if self.has(Mutant::RevokedHoldHasNoToken) {
                let none = FencingToken::new(hold.grant.last_token.as_u64() + 1).unwrap_or(token);
                (rest.grant.token, rest.grant.granted, rest.grant.last_token) = (none, none, none);
            }
        }
        match self.has(Mutant::RevokedHolderReleasesTheNext) {
            true => state.notes.revoked.extend([hold.holder]),
            false => state.server.dead.add(hold.holder, now),
        }
        self.freed.notify_waiters();
        Ok(Revoked::done(hold.expires - now))
    }
}
