//! The task of a supervisor, as its users see it.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use lock_core::Error;
use lock_kit::runtime::RuntimeCheck;
use parking_lot::Mutex;
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
    /// Sessions whose runtime has gone, each until the task has closed it.
    pub(super) orphans: Mutex<Vec<SessionInfo>>,
}

#[derive(Clone, Debug)]
pub(super) enum Status {
    /// There is no session yet, for this reason.
    Connecting(Option<Error>),
    Connected(Arc<Session>),
    /// The task ended at that time, with an error that retrying does not mend.
    Failed(Error, Instant),
    /// The task was stopped before it had a session, or its runtime dropped it. This session was not closed.
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

    /// Publishes nothing once it [counts as gone](Self::stop_connecting). A session that was made meanwhile carries nothing, and is
    /// closed.
    pub(super) fn publish(&self, next: Status) {
        let made = match &next {
            Status::Connected(session) => Some(session.clone()),
            _ => None,
        };
        let is_published = self.status.send_if_modified(|status| {
            let goes_on = !matches!(status, Status::Gone(_));
            if goes_on {
                *status = next;
            }
            goes_on
        });
        if let Some(session) = made.filter(|_| !is_published) {
            session.close();
            session.end();
        }
    }

    /// Has it count as gone if it has no session, and no request waits for one: a request that comes later starts another task. The
    /// caller must stop it. False if it goes on.
    pub(super) fn stop_connecting(&self) -> bool {
        let is_awaited = self.backoff.is_awaited();
        self.status.send_if_modified(|status| {
            let is_idle = !is_awaited && matches!(status, Status::Connecting(_));
            if is_idle {
                *status = Status::Gone(None);
            }
            is_idle
        })
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
