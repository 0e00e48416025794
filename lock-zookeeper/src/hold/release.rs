//! A release: what it does to the hold's nodes, sent at once and repeated until its outcome is known.

use std::future::ready;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use tokio::time::{Instant, sleep};
use zookeeper_client::Error as DriverError;

use super::keep::{Keep, OwnNode};
use crate::claims::Outcome;
use crate::connection::{Delete, Session, SessionEnded};
use crate::error::{self, Failure, RETRY_DELAY};

/// The way in which a hold is released.
#[derive(Clone, Debug)]
pub(crate) enum How {
    /// The name is free at once.
    Free,
    /// The same, and the kept node goes before.
    WithoutKept(Keep),
    /// The name is kept for so long from then on.
    Keeping(Keep, Duration, Instant),
}

impl How {
    pub(crate) fn new(keep: Option<&Keep>, keep_for: Option<Duration>) -> Self {
        match (keep, keep_for) {
            (Some(keep), Some(time)) => Self::Keeping(keep.clone(), time, Instant::now()),
            (Some(keep), None) if keep.is_there() => Self::WithoutKept(keep.clone()),
            _ => Self::Free,
        }
    }
}

/// A release that was sent.
pub(crate) struct Release {
    session: Arc<Session>,
    /// The hold's own node.
    path: String,
    how: How,
    answer: Delete,
}

impl Release {
    /// Sends it at once if there is a connection, so that it precedes later requests.
    pub(crate) fn send(session: &Arc<Session>, path: &str, how: How) -> Self {
        let answer = send(session, path, &how);
        let (session, path) = (session.clone(), path.to_owned());
        Self {
            session,
            path,
            how,
            answer,
        }
    }

    /// Repeats it until its outcome is known. Unless that is a failure, the hold's own node is gone.
    pub(crate) async fn finish(mut self) -> Outcome {
        let mut unsure = false;
        loop {
            let error = match self.answer.await {
                Ok(()) => return self.how.done(&self.session),
                Err(DriverError::NoNode) if unsure => return self.how.done(&self.session),
                Err(DriverError::NoNode) => return Outcome::NotOurs,
                Err(error) => error,
            };
            match error::classify(&error) {
                Failure::Rejected if unsure => return Outcome::Failed(error::lock_error(error)),
                Failure::Rejected => return Outcome::Failed(error::rejected(error)),
                // The delete may have released it: only another try may report it as lost.
                Failure::SessionEnded => return Outcome::Failed(error::session_ended(self.session.outage())),
                Failure::Ambiguous => {
                    unsure = true;
                    sleep(RETRY_DELAY).await;
                }
            }
            self.answer = send(&self.session, &self.path, &self.how);
        }
    }
}

impl How {
    fn done(&self, session: &Arc<Session>) -> Outcome {
        if let Self::Keeping(keep, time, _) = self {
            keep.delete_after(session, *time);
        }
        Outcome::Released
    }
}

fn send(session: &Arc<Session>, path: &str, how: &How) -> Delete {
    match how {
        How::Free => session.delete(path),
        How::WithoutKept(keep) => {
            // Its time is over: if only this fails, the next acquire of the name deletes it.
            let (kept, own) = (session.delete(keep.path()), session.delete(path));
            Box::pin(async { tokio::join!(kept, own).1 })
        }
        How::Keeping(keep, time, begun) => {
            let (mut keep, time, begun) = (keep.clone(), *time, *begun);
            let (session, path, connection) = (session.clone(), path.to_owned(), session.connection());
            sent_at_once(Box::pin(async move {
                let connection = match connection {
                    Some(connection) => connection,
                    None => {
                        let connected = session.connected().await;
                        connected.map_err(|SessionEnded| DriverError::SessionExpired)?
                    }
                };
                let left = || time.saturating_sub(begun.elapsed());
                keep.write(&connection.client, (&path, OwnNode::Delete), left).await
            }))
        }
    }
}

/// The driver sends a request when it is made, before anybody waits for its answer. So does the first poll of this.
fn sent_at_once(mut request: Delete) -> Delete {
    match (&mut request).now_or_never() {
        Some(answer) => Box::pin(ready(answer)),
        None => request,
    }
}
