//! Options from which requests are made.

use super::super::holder::HolderId;
use super::super::{Lease, Mode};
use super::{AcquireRequest, RequestControl, Shared, State, Terms};
use crate::name::LockName;
use crate::sync::time::Instant;
use crate::sync::{Arc, AtomicBool, Mutex, Notify};
use crate::token::FencingToken;

/// Builds an [`AcquireRequest`]. Defaults to a renewed hold in [`Mode::Exclusive`], and to waiting.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RequestOptions {
    pub(super) name: LockName,
    pub(super) terms: Terms,
    pub(super) waits: bool,
    pub(super) token_at_least: Option<FencingToken>,
    pub(super) reinstates: bool,
    pub(super) reserve: u32,
    /// The holder id and the lease of the hold that it replaces.
    pub(super) replaces: Option<(HolderId, Lease)>,
}

impl RequestOptions {
    /// A request for this name with these terms.
    pub fn new(name: LockName, terms: Terms) -> Self {
        Self {
            name,
            terms,
            waits: true,
            token_at_least: None,
            reinstates: false,
            reserve: 1,
            replaces: None,
        }
    }

    /// Sets how the name is held. Defaults to [`Mode::Exclusive`].
    #[must_use]
    pub fn mode(mut self, mode: Mode) -> Self {
        self.terms.options.mode = mode;
        self
    }

    /// Makes the request an exclusive one that replaces the hold granted to `base`, in [`Mode::Upgradable`]. It shares
    /// the lease of that hold, so that watches of the hold stay valid.
    #[must_use]
    pub fn replacing(mut self, base: &AcquireRequest) -> Self {
        self.terms.options.mode = Mode::Exclusive;
        self.replaces = Some((base.holder(), base.lease().clone()));
        self
    }

    /// Sets whether it waits for a name that is taken. Defaults to `true`, up to [`Terms::time_left`] if that is set.
    #[must_use]
    pub fn waits(mut self, waits: bool) -> Self {
        self.waits = waits;
        self
    }

    /// Makes the lease fixed: granted for its TTL and never renewed.
    #[must_use]
    pub fn fixed(mut self, fixed: bool) -> Self {
        self.terms.options.fixed_lease = fixed;
        self
    }

    /// Asks for a token larger than this one, however far away it is. Later tokens of the name are larger too.
    #[must_use]
    pub fn token_above(mut self, floor: FencingToken) -> Self {
        self.terms.options.token_floor = Some(floor);
        self
    }

    /// Asks for this token, or for the next of the name if that is larger, whatever the server's clock says. For a backend
    /// over several backends, whose holds have one token everywhere. The backend must declare
    /// [`any_floor`](super::super::Capabilities::any_floor).
    #[must_use]
    pub fn token_at_least(mut self, token: FencingToken) -> Self {
        self.token_at_least = Some(token);
        self
    }

    /// Makes it a request that [restores](AcquireRequest::reinstates) a live hold which the server has forgotten.
    #[must_use]
    pub fn reinstates(mut self) -> Self {
        self.reinstates = true;
        self
    }

    /// Reserves this many tokens with the grant, its own included. Defaults to 1.
    #[must_use]
    pub fn reserve(mut self, tokens: u32) -> Self {
        self.reserve = tokens.max(1);
        self
    }

    /// Has the status [show](AcquireRequest::shows_token) the grant's token.
    #[must_use]
    pub fn shows_token(mut self, shows: bool) -> Self {
        self.terms.options.shows_token = shows;
        self
    }

    /// Draws a holder id, makes an unarmed lease, and returns the request and its control.
    pub fn start(self) -> (AcquireRequest, RequestControl) {
        let lease = match &self.replaces {
            Some((_, lease)) => lease.clone(),
            None if self.terms.options.fixed_lease => Lease::fixed(self.name.clone()),
            None => Lease::new(self.name.clone()),
        };
        let request = AcquireRequest(Arc::new(Shared {
            holder: HolderId::random(),
            lease,
            made: Instant::now(),
            state: Mutex::new(State {
                longest_ttl: self.terms.options.ttl,
                terms: self.terms.clone(),
                changes: 0,
                ttl_read: 0,
                label_read: 0,
                minimum_read: None,
                busy: None,
                unreachable: None,
                given_up: false,
            }),
            started_as: self,
            changed: Notify::new(),
            connected: AtomicBool::new(false),
            was_sent: AtomicBool::new(false),
        }));
        (request.clone(), RequestControl(request))
    }
}
