//! What the server granted, as of now: a downgrade weakens it, and an upgrade replaces it.

use super::{ActiveHold, Grant, Successor};
use crate::backend::{AcquireRequest, Hold, Mode};
use crate::sync::Arc;
use crate::token::FencingToken;

pub(super) struct Current {
    hold: Arc<dyn Hold>,
    token: FencingToken,
    /// As its guards believe: the weaker one, if the server may have either.
    pub(super) mode: Mode,
    /// Whether the server certainly has that mode.
    pub(super) is_answered: bool,
    /// What it was granted to, if that may be upgraded.
    upgradable: Option<AcquireRequest>,
}

impl Current {
    pub(super) fn new(grant: Grant, mode: Mode) -> Self {
        Self {
            hold: grant.hold,
            token: grant.token,
            mode,
            is_answered: true,
            upgradable: grant.upgradable,
        }
    }
}

impl<W: Successor> ActiveHold<W> {
    pub(crate) fn hold(&self) -> Arc<dyn Hold> {
        self.current.lock().hold.clone()
    }

    pub(crate) fn token(&self) -> FencingToken {
        self.current.lock().token
    }

    /// As its guards believe.
    pub(crate) fn mode(&self) -> Mode {
        self.current.lock().mode
    }

    /// What was granted as an upgradable hold, and is one still.
    pub(crate) fn upgradable(&self) -> Option<AcquireRequest> {
        self.current.lock().upgradable.clone()
    }

    /// An upgrade was granted: this is the hold from here on. False if the lease has ended; then nothing has changed.
    pub(crate) fn replace(&self, upgrade: u64, grant: Grant) -> bool {
        if !self.lease.is_live() {
            return false;
        }
        let (hold, token) = (grant.hold.clone(), grant.token);
        let former = std::mem::replace(&mut *self.current.lock(), Current::new(grant, Mode::Exclusive));
        self.renewals.replace(upgrade, &hold, token);
        // Outside the lock: it may be the last that keeps a backend.
        drop(former);
        true
    }
}
