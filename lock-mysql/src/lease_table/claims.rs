//! Acquires that were never answered, and the connections on which the server may still execute them.
//!
//! Other requests find nothing once their holder id has ended. An acquire that comes late would take the name again. So the
//! connections of these acquires are ended at the server before their holder id is retired.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use lock_core::backend::HolderId;
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::connection::Session;

#[derive(Debug, Default)]
pub(super) struct Claims(Mutex<Recent>);

/// The claims of the last one to two days. A whole day's are forgotten at once, so that one more costs the same however
/// many there are. By then core has long stopped to abandon their requests.
#[derive(Debug, Default)]
struct Recent {
    today: HashMap<HolderId, Vec<Arc<Session>>>,
    yesterday: HashMap<HolderId, Vec<Arc<Session>>>,
    /// When today began. `None`: nothing was ever recorded.
    since: Option<Instant>,
}

/// An acquire in flight. It leaves a claim unless [`answered`](Self::answered) is called.
#[derive(Debug)]
#[must_use]
pub(super) struct InFlight<'a> {
    claims: &'a Claims,
    holder: HolderId,
    session: &'a Arc<Session>,
    is_answered: bool,
}

impl Claims {
    /// To be called before an acquire is sent.
    pub(super) fn sending<'a>(&'a self, holder: HolderId, session: &'a Arc<Session>) -> InFlight<'a> {
        InFlight {
            claims: self,
            holder,
            session,
            is_answered: false,
        }
    }

    /// The connections on which the server may still execute an acquire of this id.
    pub(super) fn unanswered(&self, holder: HolderId) -> Vec<Arc<Session>> {
        let recent = self.0.lock();
        let claim = recent.today.get(&holder).or_else(|| recent.yesterday.get(&holder));
        claim.cloned().unwrap_or_default()
    }

    /// Nothing of this id is under way any more.
    pub(super) fn remove(&self, holder: HolderId) {
        let mut recent = self.0.lock();
        let forgotten = recent
            .today
            .remove(&holder)
            .or_else(|| recent.yesterday.remove(&holder));
        drop(recent);
        // Outside the lock: it may be the last that keeps a connection.
        drop(forgotten);
    }

    fn record(&self, holder: HolderId, session: &Arc<Session>) {
        self.0.lock().record(holder, session, Instant::now());
    }
}

impl Recent {
    fn record(&mut self, holder: HolderId, session: &Arc<Session>, now: Instant) {
        self.rotate(now);
        let known = self.yesterday.remove(&holder).unwrap_or_default();
        let sessions = self.today.entry(holder).or_insert(known);
        if !sessions.iter().any(|known| Arc::ptr_eq(known, session)) {
            sessions.push(session.clone());
        }
    }

    fn rotate(&mut self, now: Instant) {
        const DAY: Duration = Duration::from_secs(24 * 3600);
        let age = now - *self.since.get_or_insert(now);
        if age >= DAY {
            self.yesterday = std::mem::take(&mut self.today);
            self.since = Some(now);
        }
        if age >= 2 * DAY {
            self.yesterday.clear();
        }
    }
}

impl InFlight<'_> {
    /// The server has answered it, so it is in flight no longer.
    pub(super) fn answered(mut self) {
        self.is_answered = true;
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        if !self.is_answered {
            self.claims.record(self.holder, self.session);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{MySqlConfig, Strategy};
    use crate::lease_table::LeaseTableBackend;
    use lock_core::backend::DistributedLock;
    use lock_core::backend::request::{RequestOptions, Terms};
    use lock_core::{ErrorKind, LockName};

    /// Nobody listens there.
    #[tokio::test]
    async fn requests_without_a_connection_leave_no_claim_and_are_undone() {
        let config = MySqlConfig::from_url("mysql://u@127.0.0.1:1/d?connect_timeout=100ms&strategy=lease").unwrap();
        assert_eq!(config.strategy(), Strategy::Lease);
        let backend = LeaseTableBackend::new(config).unwrap();
        let terms = Terms::new(Duration::from_secs(10));
        let (request, _control) = RequestOptions::new(LockName::new("a").unwrap(), terms).start();
        let error = backend.acquire(&request).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        assert!(error.is_not_executed());
        assert!(backend.claims().unanswered(request.holder()).is_empty());
        backend.abandon(&request).await.unwrap();
    }
}
