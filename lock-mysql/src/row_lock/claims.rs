//! What this process knows of the holder ids that it has sent.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lock_core::backend::HolderId;
use lock_core::{Error, ErrorKind, FencingToken, Result};
use tokio::time::Instant;

use crate::session::Session;

/// All holder ids of which something may be left at the server.
#[derive(Debug, Default)]
pub(super) struct Claims(Mutex<Registry>);

#[derive(Debug, Default)]
struct Registry {
    claims: HashMap<HolderId, Arc<Claim>>,
    /// At which size to look for those that nobody will ask for again.
    sweep_at: usize,
}

/// One holder id and the connection that it is on.
#[derive(Debug, Default)]
pub(super) struct Claim(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    session: Option<Arc<Session>>,
    token: Option<FencingToken>,
    /// Abandoned: nothing may be begun for it any more.
    dead: bool,
    /// When its connection was first seen ended.
    ended: Option<Instant>,
}

/// A connection that an earlier try has left.
#[derive(Debug)]
pub(super) struct Left {
    pub(super) session: Arc<Session>,
    /// The grant on it, if it came so far.
    pub(super) token: Option<FencingToken>,
}

impl Claims {
    /// The claim of this id, new or from an earlier try.
    pub(super) fn enter(&self, holder: HolderId) -> Arc<Claim> {
        let mut registry = lock(&self.0);
        registry.sweep();
        registry.claims.entry(holder).or_default().clone()
    }

    pub(super) fn get(&self, holder: HolderId) -> Option<Arc<Claim>> {
        lock(&self.0).claims.get(&holder).cloned()
    }

    /// Nothing of this id is left at the server.
    pub(super) fn leave(&self, holder: HolderId) {
        lock(&self.0).claims.remove(&holder);
    }
}

impl Registry {
    /// Forgets ids that ended without anybody saying so: a guard that was lost, an abandon that was given up.
    fn sweep(&mut self) {
        const FEW: usize = 64;
        if self.claims.len() < self.sweep_at.max(FEW) {
            return;
        }
        let now = Instant::now();
        self.claims.retain(|_, claim| !claim.is_long_over(now));
        self.sweep_at = self.claims.len() * 2;
    }
}

impl Claim {
    /// What an earlier try has left.
    pub(super) fn left(&self) -> Option<Left> {
        let state = lock(&self.0);
        Some(Left {
            session: state.session.clone()?,
            token: state.token,
        })
    }

    /// From now on something of this id may be at the server, on this connection.
    pub(super) fn attach(&self, session: &Arc<Session>) -> Result<()> {
        let mut state = lock(&self.0);
        state.check()?;
        state.session = Some(session.clone());
        state.token = None;
        Ok(())
    }

    /// Nothing of it is on any connection.
    pub(super) fn detach(&self) {
        let mut state = lock(&self.0);
        state.session = None;
        state.token = None;
        state.ended = None;
    }

    /// It has the lock.
    pub(super) fn grant(&self, token: FencingToken) -> Result<()> {
        let mut state = lock(&self.0);
        state.check()?;
        state.token = Some(token);
        Ok(())
    }

    /// Retires the id, and gives the connection that has to end.
    pub(super) fn abandon(&self) -> Option<Arc<Session>> {
        let mut state = lock(&self.0);
        state.dead = true;
        state.session.clone()
    }

    fn is_long_over(&self, now: Instant) -> bool {
        // After that, the server has ended whatever was cut off, unless somebody asked for longer.
        const LONG: Duration = Duration::from_secs(3600);
        let mut state = lock(&self.0);
        let ended = state.session.as_ref().is_some_and(|session| session.has_ended());
        ended && now - *state.ended.get_or_insert(now) > LONG
    }
}

impl State {
    fn check(&self) -> Result<()> {
        if self.dead {
            return Err(Error::new(ErrorKind::Unavailable, "the request was abandoned").retryable(false));
        }
        Ok(())
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
