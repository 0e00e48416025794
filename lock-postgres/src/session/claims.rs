//! The holder ids of this process that may have locked something, and where.
//!
//! These are not `lock_kit::claims`: a claim lasts as long as the hold, and names one session, in which it is undone.

use std::collections::HashMap;
use std::sync::Arc;

use lock_core::backend::{AcquireRequest, HolderId, Mode};
use lock_core::{FencingToken, LockName};
use parking_lot::Mutex;

use super::carrier::Session;

/// All holder ids of which something may be at the server.
#[derive(Debug, Default)]
pub(super) struct Claims(Mutex<HashMap<HolderId, Arc<Claim>>>);

/// One holder id, and what it may have locked.
#[derive(Debug)]
pub(super) struct Claim {
    pub(super) name: LockName,
    pub(super) holder: HolderId,
    pub(super) session: Arc<Session>,
    /// Whether it waits in its session, which is set up for that.
    pub(super) waits: bool,
    state: Mutex<State>,
    /// Held by whoever ends it: one at a time, so that nobody unlocks what another acquire has locked since. True once it has ended.
    pub(super) gate: tokio::sync::Mutex<bool>,
}

#[derive(Clone, Copy, Debug)]
struct State {
    form: Form,
    token: Option<FencingToken>,
    /// A request was sent that may have locked the name.
    is_sent: bool,
    /// It may wait at the server.
    is_waiting: bool,
    is_releasing: bool,
    /// The holds of it that are not dropped: one, or two while it is passed on.
    handles: u32,
}

/// The lock that a claim may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    Exclusive,
    Shared,
    /// It is being downgraded: one of them, or both.
    Either,
}

impl Claims {
    pub(super) fn get(&self, holder: HolderId) -> Option<Arc<Claim>> {
        self.0.lock().get(&holder).cloned()
    }

    /// A claim of this request in a session that was reserved for it. `None`, and the session is free again, if there are `most`
    /// claims already; 0 is no limit.
    pub(super) fn enter(
        &self,
        request: &AcquireRequest,
        session: Arc<Session>,
        waits: bool,
        most: usize,
    ) -> Option<ClaimGuard<'_>> {
        let form = match request.mode() {
            Mode::Shared => Form::Shared,
            _ => Form::Exclusive,
        };
        let claim = Arc::new(Claim {
            name: request.name().clone(),
            holder: request.holder(),
            session,
            waits,
            state: Mutex::new(State {
                form,
                token: None,
                is_sent: false,
                is_waiting: waits,
                is_releasing: false,
                handles: 0,
            }),
            gate: tokio::sync::Mutex::new(false),
        });
        let mut claims = self.0.lock();
        let forgotten: Vec<_> = match most != 0 && claims.len() >= most {
            true => claims.extract_if(|_, claim| claim.session.is_forgotten()).collect(),
            false => Vec::new(),
        };
        let has_room = most == 0 || claims.len() < most;
        if has_room {
            claims.insert(request.holder(), claim.clone());
        }
        drop(claims);
        drop(forgotten);
        if !has_room {
            claim.session.forget(&claim.name, claim.holder);
            return None;
        }
        Some(ClaimGuard { claims: self, claim })
    }

    /// Nothing of it is left at the server.
    pub(super) fn forget(&self, claim: &Claim) {
        claim.session.forget(&claim.name, claim.holder);
        let mut claims = self.0.lock();
        let is_it = |known: &&mut Arc<Claim>| std::ptr::eq(Arc::as_ptr(known), claim);
        let forgotten = match claims.get_mut(&claim.holder).filter(is_it) {
            Some(_) => claims.remove(&claim.holder),
            None => None,
        };
        drop(claims);
        drop(forgotten);
    }
}

impl Claim {
    pub(super) fn form(&self) -> Form {
        self.state.lock().form
    }

    pub(super) fn set_form(&self, form: Form) {
        self.state.lock().form = form;
    }

    pub(super) fn token(&self) -> Option<FencingToken> {
        self.state.lock().token
    }

    pub(super) fn is_waiting(&self) -> bool {
        self.state.lock().is_waiting
    }

    /// From here on the server may have locked the name.
    pub(super) fn sending(&self) {
        self.state.lock().is_sent = true;
    }

    pub(super) fn is_sent(&self) -> bool {
        self.state.lock().is_sent
    }

    /// The server has answered the wait.
    pub(super) fn has_waited(&self) {
        self.state.lock().is_waiting = false;
    }

    pub(super) fn waits_again(&self) {
        self.state.lock().is_waiting = true;
    }

    /// It has the name. False if somebody ends it.
    pub(super) fn grant(&self, token: FencingToken) -> bool {
        let mut state = self.state.lock();
        state.token = Some(token);
        !state.is_releasing
    }

    pub(super) fn add_handle(&self) {
        self.state.lock().handles += 1;
    }

    /// Returns whether it was the last one.
    pub(super) fn drop_handle(&self) -> bool {
        let mut state = self.state.lock();
        state.handles = state.handles.saturating_sub(1);
        state.handles == 0
    }

    /// Returns whether a release was sent before.
    pub(super) fn begin_release(&self) -> bool {
        std::mem::replace(&mut self.state.lock().is_releasing, true)
    }

    pub(super) fn is_releasing(&self) -> bool {
        self.state.lock().is_releasing
    }
}

/// A claim for as long as an acquire runs. Dropped before anything was sent, it is forgotten.
#[derive(Debug)]
pub(super) struct ClaimGuard<'a> {
    claims: &'a Claims,
    pub(super) claim: Arc<Claim>,
}

impl Drop for ClaimGuard<'_> {
    fn drop(&mut self) {
        if !self.claim.is_sent() {
            self.claims.forget(&self.claim);
        }
    }
}
