//! The leases that a session's heartbeats renew.

use std::collections::HashMap;
use std::time::Duration;

use lock_core::backend::{Armed, HolderId, Lease, SentAt};
use lock_core::{Error, HoldState, Result};
use tokio::time::Instant;

use super::Session;
use crate::connection::heartbeat::{Heartbeat, HeartbeatRecord};
use crate::error;
use crate::probe::ServerMode;

pub(super) struct Liveness {
    pub(super) heartbeats: HeartbeatRecord,
    pub(super) leases: HashMap<HolderId, Lease>,
    pub(super) ended: bool,
}

impl Liveness {
    /// The state of a session that was requested at `connect`.
    pub(super) fn new(connect: Heartbeat, timeout: Duration) -> Self {
        Self {
            heartbeats: HeartbeatRecord::new(connect, Instant::now(), timeout),
            leases: HashMap::new(),
            ended: false,
        }
    }
}

impl Session {
    /// Adds a lease to those that the heartbeats renew, and arms it: for the session timeout from what the heartbeats
    /// have proven, or for its own term if it is fixed.
    pub(crate) fn bind_lease(
        &self,
        holder: HolderId,
        lease: &Lease,
        fixed: Option<(SentAt, Duration)>,
    ) -> Result<Armed> {
        let mut liveness = self.liveness.lock();
        let armed = self.arm(&liveness, lease, fixed)?;
        liveness.leases.insert(holder, lease.clone());
        Ok(armed)
    }

    /// Arms a lease by what the heartbeats have proven.
    pub(crate) fn arm_lease(&self, lease: &Lease) -> Result<Armed> {
        self.arm(&self.liveness.lock(), lease, None)
    }

    /// From here on the heartbeats renew `next` in place of the lease of this holder id. False if they renew none.
    pub(crate) fn replace_lease(&self, holder: HolderId, next: &Lease) -> bool {
        let mut liveness = self.liveness.lock();
        let Some(lease) = liveness.leases.get_mut(&holder) else {
            return false;
        };
        *lease = next.clone();
        if self.connection.borrow().is_none() {
            next.suspect();
        }
        true
    }

    fn arm(&self, liveness: &Liveness, lease: &Lease, fixed: Option<(SentAt, Duration)>) -> Result<Armed> {
        if liveness.ended {
            return Err(error::session_ended(None));
        }
        let session = (liveness.heartbeats.base().sent, self.timeout);
        lease.bind_to_session(session.0, session.1);
        let (sent, ttl) = fixed.unwrap_or(session);
        let armed = lease.arm(sent, ttl)?;
        if self.connection.borrow().is_none() {
            lease.suspect();
        }
        Ok(armed)
    }

    /// Stops renewing a lease; it ends by itself.
    pub(crate) fn unbind_lease(&self, holder: HolderId) {
        self.liveness.lock().leases.remove(&holder);
    }

    pub(in crate::connection) fn acknowledge(&self, beat: Heartbeat, by: ServerMode) {
        let mut liveness = self.liveness.lock();
        if liveness.ended || !liveness.heartbeats.acknowledge(beat, Instant::now(), by) {
            return;
        }
        let base = liveness.heartbeats.base();
        // One that was passed on and that nothing has armed yet is left to its holder.
        let is_live = |lease: &&Lease| matches!(lease.state(), HoldState::Held | HoldState::Suspect);
        for lease in liveness.leases.values().filter(is_live) {
            lease.bind_to_session(base.sent, self.timeout);
            // A lease that has ended stays ended: its task deletes the node.
            let _ = lease.arm(base.sent, self.timeout);
        }
        drop(liveness);
        self.renewals.send_replace(());
    }

    /// Makes all leases suspect, because of the [outage](Self::outage) if there is one.
    pub(in crate::connection) fn suspect(&self) {
        let why = self.outage();
        for lease in self.liveness.lock().leases.values() {
            match &why {
                Some(why) => lease.suspect_because(why.clone()),
                None => lease.suspect(),
            }
        }
    }

    /// Makes all leases suspect: the session is about to end because of this.
    pub(in crate::connection) fn suspect_because(&self, why: &Error) {
        for lease in self.liveness.lock().leases.values() {
            lease.suspect_because(why.clone());
        }
    }
}
