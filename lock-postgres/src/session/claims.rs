//! The holder ids of this process that may have locked something, and where.
//!
//! These are not `lock_kit::claims`: a claim lasts as long as the hold, and names one session, in which it is undone.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use lock_core::backend::{AcquireRequest, HolderId, Mode};
use lock_core::{Error, ErrorKind, FencingToken, LockName, Result};
use parking_lot::Mutex;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use super::carrier::Session;
use super::within;
use crate::connection::{Parameters, Statement};
use crate::error::SqlError;
use crate::names::name_bytes;

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

/// How far a claim has come.
#[derive(Clone, Copy, Debug)]
pub(super) struct State {
    pub(super) form: Form,
    pub(super) token: Option<FencingToken>,
    /// A request was sent that may have locked the name.
    pub(super) is_sent: bool,
    /// It may wait at the server.
    pub(super) is_waiting: bool,
    pub(super) is_releasing: bool,
    /// The holds of it that are not dropped: one, or two while it is passed on.
    pub(super) handles: u32,
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

    /// A claim of this request in a session that was reserved for it.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`], and the session is free again, if there are `most` claims already: the server may have no room for
    /// more. 0 is no limit.
    pub(super) fn enter(
        &self,
        request: &AcquireRequest,
        session: Arc<Session>,
        waits: bool,
        most: usize,
    ) -> Result<ClaimGuard<'_>> {
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
            let message = format!(
                "this process holds or asks for {most} names, which is all that max_holds allows: raise it, and \
                 max_locks_per_transaction at the server"
            );
            return Err(Error::new(ErrorKind::Unavailable, message).not_executed());
        }
        Ok(ClaimGuard { claims: self, claim })
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
    /// Runs a statement on the name in the session. The session lives on if the answer is late.
    pub(super) async fn query(
        &self,
        statement: &Statement,
        more: Parameters<'_>,
        limit: Duration,
    ) -> Result<Vec<Row>, SqlError> {
        let connection = &self.session.connection;
        let name = name_bytes(&self.name);
        let named: [&(dyn ToSql + Sync); 2] = [&connection.mark, &name];
        within(limit, connection.query(statement, &[&named, more].concat(), None)).await
    }

    /// As it is at this moment.
    pub(super) fn state(&self) -> State {
        *self.state.lock()
    }

    pub(super) fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state.lock());
    }

    /// It has the name. False if somebody ends it.
    pub(super) fn grant(&self, token: FencingToken) -> bool {
        let mut state = self.state.lock();
        state.token = Some(token);
        !state.is_releasing
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
}

/// A claim for as long as an acquire runs. Dropped before anything was sent, it is forgotten.
#[derive(Debug)]
pub(super) struct ClaimGuard<'a> {
    claims: &'a Claims,
    pub(super) claim: Arc<Claim>,
}

impl Drop for ClaimGuard<'_> {
    fn drop(&mut self) {
        if !self.claim.state().is_sent {
            self.claims.forget(&self.claim);
        }
    }
}
