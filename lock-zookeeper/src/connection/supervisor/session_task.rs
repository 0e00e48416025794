//! The task of a supervisor, as its users see it.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use lock_core::Error;
use lock_kit::runtime::RuntimeCheck;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;
use zookeeper_client::SessionInfo;

use crate::connection::backoff::Backoff;
use crate::connection::session::Session;

/// The task that keeps a session, as its users see it.
#[derive(Debug)]
pub(super) struct SessionTask {
    pub(super) status: watch::Sender<Status>,
    pub(super) backoff: Backoff,
    pub(super) runtime_check: Arc<RuntimeCheck>,
    pub(super) stop: Notify,
    pub(super) had_session: AtomicBool,
}

#[derive(Clone, Debug)]
pub(super) enum Status {
    /// There is no session yet, for this reason.
    Connecting(Option<Error>),
    Connected(Arc<Session>),
    /// The task ended at that time, with an error that retrying does not mend.
    Failed(Error, Instant),
    /// The runtime dropped the task. This session was not closed.
    Gone(Option<SessionInfo>),
}

/// The result of a request for a session.
pub(super) enum Lookup {
    Session(Arc<Session>),
    Failed(Error),
    Gone,
    /// The task's runtime is not driven.
    Undriven,
}

impl SessionTask {
    pub(super) async fn session(&self) -> Lookup {
        let _pending = self.backoff.add_request();
        // Checked first: a session on a runtime that is not driven looks as good as any.
        if !self.runtime_check.is_driven().await {
            return Lookup::Undriven;
        }
        tokio::select! {
            biased;
            found = self.wait_for_session() => found,
            () = self.runtime_check.undriven() => Lookup::Undriven,
        }
    }

    async fn wait_for_session(&self) -> Lookup {
        let mut status = self.status.subscribe();
        loop {
            let latest = status.borrow_and_update().clone();
            match latest {
                Status::Connected(session) if session.connected().await.is_ok() => return Lookup::Session(session),
                Status::Connected(_) | Status::Connecting(_) => {}
                Status::Failed(error, _) => return Lookup::Failed(error),
                Status::Gone(_) => return Lookup::Gone,
            }
            // The sender lives as long as `self`.
            let _ = status.changed().await;
        }
    }

    pub(super) fn publish(&self, status: Status) {
        self.status.send_replace(status);
    }
}

/// Publishes the task's end, also when its runtime drops it.
pub(super) struct ReportEnd(pub(super) Arc<SessionTask>);

impl Drop for ReportEnd {
    fn drop(&mut self) {
        self.0.status.send_modify(|status| {
            let session = match status {
                Status::Failed(..) => return,
                Status::Connected(session) => Some(session.info.clone()),
                Status::Connecting(_) | Status::Gone(_) => None,
            };
            *status = Status::Gone(session);
        });
    }
}
