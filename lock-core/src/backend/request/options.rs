//! How requests are made.

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
    name: LockName,
    terms: Terms,
    mode: Mode,
    waits: bool,
    fixed: bool,
    token_floor: Option<FencingToken>,
    token_at_least: Option<FencingToken>,
    reinstates: bool,
    reserve: u32,
    shows_token: bool,
    replaces: Option<AcquireRequest>,
}

impl RequestOptions {
    /// A request for this name with these terms.
    pub fn new(name: LockName, terms: Terms) -> Self {
        Self {
            name,
            terms,
            mode: Mode::default(),
            waits: true,
            fixed: false,
            token_floor: None,
            token_at_least: None,
            reinstates: false,
            reserve: 1,
            shows_token: false,
            replaces: None,
        }
    }

    /// Sets how the name is held. Defaults to [`Mode::Exclusive`].
    #[must_use]
    pub fn mode(mut self, mode: Mode) -> Self {
        self.mode = mode;
        self
    }

    /// Makes it an exclusive request that replaces the hold which `base`, in [`Mode::Upgradable`], was granted. It shares the
    /// lease of that hold, so that whoever watches the hold watches on.
    #[must_use]
    pub fn replacing(mut self, base: &AcquireRequest) -> Self {
        self.mode = Mode::Exclusive;
        self.replaces = Some(base.clone());
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
        self.fixed = fixed;
        self
    }

    /// Asks for a token larger than this one, however far away it is. Later tokens of the name are larger too.
    #[must_use]
    pub fn token_above(mut self, floor: FencingToken) -> Self {
        self.token_floor = Some(floor);
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

    /// Asks for so many tokens at once, its own included. Defaults to 1.
    #[must_use]
    pub fn reserve(mut self, tokens: u32) -> Self {
        self.reserve = tokens.max(1);
        self
    }

    /// Has the status [show](AcquireRequest::shows_token) the grant's token.
    #[must_use]
    pub fn shows_token(mut self, shows: bool) -> Self {
        self.shows_token = shows;
        self
    }

    /// Draws a holder id, makes an unarmed lease, and returns the request and its control.
    pub fn start(self) -> (AcquireRequest, RequestControl) {
        let lease = match &self.replaces {
            Some(base) => base.lease().clone(),
            None if self.fixed => Lease::fixed(self.name.clone()),
            None => Lease::new(self.name.clone()),
        };
        let request = AcquireRequest(Arc::new(Shared {
            name: self.name,
            mode: self.mode,
            holder: HolderId::random(),
            replaces: self.replaces.as_ref().map(AcquireRequest::holder),
            fixed: self.fixed,
            waits: self.waits,
            token_floor: self.token_floor,
            token_at_least: self.token_at_least,
            reinstates: self.reinstates,
            reserve: self.reserve,
            shows_token: self.shows_token,
            lease,
            made: Instant::now(),
            state: Mutex::new(State {
                longest_ttl: self.terms.ttl,
                terms: self.terms,
                changes: 0,
                ttl_read: 0,
                label_read: 0,
                minimum_read: None,
                busy: None,
                unreachable: None,
                given_up: false,
            }),
            changed: Notify::new(),
            connected: AtomicBool::new(false),
            was_sent: AtomicBool::new(false),
        }));
        (request.clone(), RequestControl(request))
    }
}
