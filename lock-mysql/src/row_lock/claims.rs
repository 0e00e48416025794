//! The holder ids of this process that may have left something at the server.
//!
//! These are not `lock_kit::claims`: a row lock is its connection, so a claim lasts as long as the hold, names one connection,
//! and can be dropped when that connection has ended.

use std::collections::HashMap;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use lock_core::backend::HolderId;
use lock_core::{Error, ErrorKind, FencingToken, Result};
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::connection::Session;

/// All holder ids of which something may be left at the server.
#[derive(Debug, Default)]
pub(super) struct Claims(Mutex<Registry>);

#[derive(Debug, Default)]
struct Registry {
    claims: HashMap<HolderId, Arc<Claim>>,
    /// At which size to look for those that nobody will ask for again.
    sweep_at: usize,
}

/// A claim for as long as an acquire runs. Dropped, the id is forgotten unless something of it may be at the server.
#[derive(Debug)]
pub(super) struct ClaimGuard<'a> {
    claims: &'a Claims,
    holder: HolderId,
    claim: Arc<Claim>,
}

impl Deref for ClaimGuard<'_> {
    type Target = Claim;

    fn deref(&self) -> &Claim {
        &self.claim
    }
}

impl Drop for ClaimGuard<'_> {
    fn drop(&mut self) {
        self.claims.forget_unused(self.holder, &self.claim);
    }
}

/// One holder id and the connection that it is on.
#[derive(Debug, Default)]
pub(super) struct Claim(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    session: Option<Arc<Session>>,
    token: Option<FencingToken>,
    /// Abandoned: nothing may be begun for it any more.
    abandoned: bool,
    /// The moment at which its connection was first seen ended.
    ended: Option<Instant>,
}

/// A connection that an earlier try has left.
#[derive(Debug)]
pub(super) struct Leftover {
    pub(super) session: Arc<Session>,
    /// The grant on it, if it came so far.
    pub(super) token: Option<FencingToken>,
}

impl Claims {
    /// The claim of this id, new or from an earlier try.
    pub(super) fn enter(&self, holder: HolderId) -> ClaimGuard<'_> {
        let mut registry = self.0.lock();
        registry.sweep();
        let claim = registry.claims.entry(holder).or_default().clone();
        ClaimGuard {
            claims: self,
            holder,
            claim,
        }
    }

    pub(super) fn get(&self, holder: HolderId) -> Option<Arc<Claim>> {
        self.0.lock().claims.get(&holder).cloned()
    }

    /// Nothing of this id is left at the server. Returns whether anything was until now.
    pub(super) fn remove(&self, holder: HolderId) -> bool {
        let forgotten = self.0.lock().claims.remove(&holder);
        // Dropped outside the lock: it may be the last that keeps a connection.
        forgotten.is_some()
    }

    fn forget_unused(&self, holder: HolderId, claim: &Arc<Claim>) {
        let mut registry = self.0.lock();
        // Used by the registry and by this call alone: another call for the same id may have begun.
        let forgotten = match Arc::strong_count(claim) <= 2 && claim.leftover().is_none() {
            true => registry.claims.remove(&holder),
            false => None,
        };
        drop(registry);
        drop(forgotten);
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.0.lock().claims.is_empty()
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
    /// The connection that an earlier try has left.
    pub(super) fn leftover(&self) -> Option<Leftover> {
        let state = self.0.lock();
        Some(Leftover {
            session: state.session.clone()?,
            token: state.token,
        })
    }

    /// From now on something of this id may be at the server, on this connection.
    pub(super) fn attach(&self, session: &Arc<Session>) -> Result<()> {
        let mut state = self.0.lock();
        state.check()?;
        state.session = Some(session.clone());
        state.token = None;
        Ok(())
    }

    /// Nothing of it is on any connection.
    pub(super) fn detach(&self) {
        let mut state = self.0.lock();
        state.session = None;
        state.token = None;
        state.ended = None;
    }

    /// It has the lock.
    pub(super) fn grant(&self, token: FencingToken) -> Result<()> {
        let mut state = self.0.lock();
        state.check()?;
        state.token = Some(token);
        Ok(())
    }

    /// Retires the id, and gives the connection that has to end.
    pub(super) fn abandon(&self) -> Option<Arc<Session>> {
        let mut state = self.0.lock();
        state.abandoned = true;
        state.session.clone()
    }

    fn is_long_over(&self, now: Instant) -> bool {
        // After that, the server has ended whatever was cut off, unless somebody asked for longer.
        const LONG: Duration = Duration::from_secs(3600);
        let mut state = self.0.lock();
        let ended = state.session.as_ref().is_some_and(|session| session.has_ended());
        ended && now - *state.ended.get_or_insert(now) > LONG
    }
}

impl State {
    fn check(&self) -> Result<()> {
        if self.abandoned {
            return Err(Error::new(ErrorKind::Unavailable, "the request was abandoned").retryable(false));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use lock_core::backend::DistributedLock;
    use lock_core::backend::request::{RequestOptions, Terms};
    use lock_core::{ErrorKind, LockName};
    use tokio::task::JoinSet;
    use tokio::time::timeout;

    use super::super::backend::RowLockBackend;
    use super::*;
    use crate::config::MySqlConfig;

    fn request(
        waits: bool,
    ) -> (
        lock_core::backend::AcquireRequest,
        lock_core::backend::request::RequestControl,
    ) {
        let terms = Terms::new(Duration::from_secs(10));
        RequestOptions::new(LockName::new("a").unwrap(), terms)
            .waits(waits)
            .start()
    }

    /// Nobody listens there.
    fn nowhere() -> RowLockBackend {
        let config = MySqlConfig::from_url("mysql://u@127.0.0.1:1/d?connect_timeout=100ms").unwrap();
        RowLockBackend::new(config).unwrap()
    }

    #[tokio::test]
    async fn requests_without_a_connection_are_forgotten() {
        let backend = nowhere();
        let mut tries = JoinSet::new();
        for number in 0..20_000 {
            let backend = backend.clone();
            tries.spawn(async move {
                let (request, _control) = request(number % 2 == 1);
                let error = backend.acquire(&request).await.unwrap_err();
                assert_eq!(error.kind(), ErrorKind::Unavailable);
                assert!(error.is_not_executed());
                backend.abandon(&request).await.unwrap();
            });
        }
        tries.join_all().await;
        assert!(backend.claims().is_empty());
    }

    #[tokio::test]
    async fn requests_that_are_dropped_before_they_have_a_connection_are_forgotten() {
        let backend = nowhere();
        let (request, _control) = request(true);
        let dropped = timeout(Duration::ZERO, backend.acquire(&request)).await;
        assert!(dropped.is_err());
        assert!(backend.claims().is_empty());
    }

    #[test]
    fn another_call_for_the_same_id_keeps_the_claim() {
        let (claims, holder) = (Claims::default(), HolderId::random());
        let first = claims.enter(holder);
        let second = claims.enter(holder);
        drop(first);
        assert!(claims.get(holder).is_some());
        drop(second);
        assert!(claims.is_empty());
    }
}
