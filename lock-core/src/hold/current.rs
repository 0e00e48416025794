//! The current grant of a hold. A downgrade weakens it, and an upgrade replaces it.

use super::{ActiveHold, Grant, Successor};
use crate::backend::{AcquireRequest, Hold, Mode};
use crate::sync::Arc;
use crate::token::FencingToken;

pub(super) struct Current {
    hold: Arc<dyn Hold>,
    token: FencingToken,
    /// The mode that the guards may rely on: the weaker one, if the server may have either.
    pub(super) mode: Mode,
    /// Whether the server has certainly applied that mode.
    pub(super) is_answered: bool,
    /// The request of the grant, if the hold may be upgraded.
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

    /// The mode that the guards may rely on.
    pub(crate) fn mode(&self) -> Mode {
        self.current.lock().mode
    }

    /// The request of the grant, if the hold is upgradable and was not upgraded or downgraded.
    pub(crate) fn upgradable(&self) -> Option<AcquireRequest> {
        self.current.lock().upgradable.clone()
    }

    /// Replaces the grant after an upgrade. Returns `false`, and changes nothing, if the lease has ended.
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
