//! Undoing an acquire that nobody waits for any more.

use std::fmt;

use futures_util::future::BoxFuture;
use tracing::Instrument;

use super::call::{BackendCall, shielded};
use super::job::Job;
use super::undos::Undos;
use crate::backend::{AcquireRequest, Attempt, DistributedLock};
use crate::error::Error;
use crate::observe::{self, BackendRequest};
use crate::queue::{Turn, Waiter};
use crate::retry::until_answered;
use crate::sync::time::Instant;
use crate::sync::{Arc, Mutex};
use crate::time::until;

pub(crate) struct UndoJob<W: Waiter> {
    backend: Arc<dyn DistributedLock>,
    request: AcquireRequest,
    /// The acquire, where it is still under way.
    attempt: Option<BackendCall<Attempt>>,
    /// Shared with those that do the same from the start: the runtime on which this one began may stand still.
    turn: Arc<Mutex<Option<Turn<W>>>>,
}

impl<W: Waiter> UndoJob<W> {
    pub(crate) fn new(
        backend: &Arc<dyn DistributedLock>,
        request: AcquireRequest,
        attempt: Option<BackendCall<Attempt>>,
        turn: Option<Turn<W>>,
    ) -> Self {
        Self {
            backend: backend.clone(),
            request,
            attempt,
            turn: Arc::new(Mutex::new(turn)),
        }
    }

    /// Drives the acquire to its end, then abandons it, trying for as long as a hold of it might live. The name is the
    /// next local waiter's after that time at the latest.
    async fn undo(self, undos: Arc<Undos>) {
        let last_try = Instant::now().checked_add(self.request.longest_ttl());
        let pass_turn_on = || {
            let turn = self.turn.lock().take();
            drop(turn);
        };
        let undoing = async {
            if let Some(attempt) = self.attempt.and_then(BackendCall::into_future_here) {
                match shielded(attempt).await {
                    Ok(Attempt::Busy(_)) if !self.request.waits() => return,
                    Err(error) if self.request.was_certainly_not_sent(&error) => return,
                    _ => {}
                }
            }
            let kept = undos.keep();
            // Without the undo of an upgrade, a hold that lives would be lost. There is one for each at most.
            if kept.is_none() && self.request.replaces().is_none() {
                observe::undo_dropped(self.request.name(), undos.is_first_drop());
                return;
            }
            let abandon = || {
                undos.take_turns(async {
                    observe::requested(BackendRequest::Abandon);
                    // The call itself may panic, before there is a future.
                    shielded(async { self.backend.abandon(&self.request).await }).await
                })
            };
            let may_repeat = |_: &Error| {
                pass_turn_on();
                last_try.is_none_or(|last_try| Instant::now() < last_try)
            };
            if let Err(error) = until_answered(abandon, may_repeat).await {
                observe::not_undone(self.request.name(), &error);
            }
        };
        let passing_on = async {
            until(last_try).await;
            pass_turn_on();
            std::future::pending().await
        };
        tokio::select! {
            biased;
            () = undoing => {}
            () = passing_on => {}
        }
        pass_turn_on();
    }
}

impl<W: Waiter> Job for UndoJob<W> {
    fn run(self: Box<Self>, undos: &Arc<Undos>) -> BoxFuture<'static, ()> {
        let span = observe::abandon_span(self.request.name());
        Box::pin(self.undo(undos.clone()).instrument(span))
    }

    fn restart(&self) -> Box<dyn Job> {
        Box::new(Self {
            backend: self.backend.clone(),
            request: self.request.clone(),
            attempt: None,
            turn: self.turn.clone(),
        })
    }
}

impl<W: Waiter> fmt::Debug for UndoJob<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("UndoJob").field(&self.request).finish()
    }
}
