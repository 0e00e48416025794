//! Forced release at the server.

use lock_core::backend::{HolderId, Mode, Revoke, Revoked};
use lock_core::{FencingToken, Result};
use tokio::time::Instant;

use super::server::ReferenceServer;
use super::state::Hold;
use crate::mutant::Mutant;

impl ReferenceServer {
    /// When the hold with this token ends, for the mutant that writes it back.
    pub(super) fn end_of(&self, name: &str, token: FencingToken) -> Result<Option<Instant>> {
        let mut state = self.up()?;
        let entry = state.names.entry(self.key(name)).or_default();
        let hold = entry.holds.iter().find(|hold| hold.has_token(token));
        Ok(hold.map(|hold| hold.expires))
    }

    /// Ends the hold with this token, at once or when its lease ends. `read` is its end as it was read before.
    pub(super) fn revoke(
        &self,
        name: &str,
        token: FencingToken,
        how: Revoke,
        read: Option<Instant>,
    ) -> Result<Revoked> {
        let now = Instant::now();
        let mut state = self.up()?;
        let entry = state.names.entry(self.key(name)).or_default();
        entry.forget_what_ended(None, now);
        let is_it = |hold: &Hold| match self.mutant() {
            Some(Mutant::RevokeWithoutToken) => true,
            Some(Mutant::RevokeTakesLowerTokens) => token <= hold.token,
            Some(Mutant::RevokeKnowsNoPasses) => token == hold.token,
            _ => hold.has_token(token),
        };
        if self.has(Mutant::RevokedHoldIsRenewed) && how == Revoke::AtLeaseEnd {
            let hold = entry.holds.iter().find(|hold| is_it(hold));
            return Ok(hold.map_or(Revoked::NotHeld, |hold| Revoked::done(hold.expires - now)));
        }
        let Some(hold) = entry.take(is_it) else {
            return Ok(Revoked::NotHeld);
        };
        if self.has(Mutant::RevokeEndsAllReaders) {
            entry.holds.retain(|other| other.mode != Mode::Shared);
        }
        let stays = match how {
            Revoke::AtLeaseEnd => !self.has(Mutant::RevokeFreesAtOnce),
            _ => self.has(Mutant::RevokeNowWaits),
        };
        let token = match self.has(Mutant::RevokedHoldHasNoToken) {
            true => FencingToken::new(hold.token.as_u64() + u64::from(hold.reserved)).unwrap_or(hold.token),
            false => hold.token,
        };
        if stays {
            entry.holds.push(Hold {
                holder: HolderId::random(),
                expires: read.unwrap_or(hold.expires),
                token,
                ..hold.clone()
            });
        }
        if self.has(Mutant::RevokedHolderReleasesTheNext) {
            entry.revoked.insert(hold.holder);
        } else {
            state.dead.insert(hold.holder);
        }
        self.freed.notify_waiters();
        Ok(Revoked::done(hold.expires - now))
    }
}
