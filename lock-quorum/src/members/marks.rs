//! Marks at the nodes: takes them, renews them and gives them back.

use std::collections::btree_map::Entry;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use futures_util::future::join_all;
use lock_core::backend::request::{RequestControl, RequestOptions, Terms};
use lock_core::backend::{AcquireRequest, Attempt, DistributedLock, Hold, ReleaseOptions, Renewal};
use lock_core::{Error, ErrorKind, HoldState, Result};
use lock_kit::runtime::RuntimeCheck;
use tokio::time::timeout;

use super::look::{answers, name};
use super::{Members, NAMES, PATIENCE, Presence};
use crate::rules;

/// Leaves a mark at those of the nodes that have none of this process. An acquire without an answer is abandoned when what it left has
/// expired; one that is answered before is kept.
pub(super) async fn leave_marks(members: &Arc<Members>, nodes: &[usize], rest: Duration) {
    let marked = nodes.iter().copied().map(|node| async move {
        let Some(asked) = Asked::begin(members, node).await else {
            return (node, Ok(()));
        };
        let backend = members.nodes[node].backend.clone();
        let taking = tokio::spawn(async move {
            // Tried again at the next renewal.
            asked.runtime.watch(asked.members.take(node, &*backend)).await
        });
        (node, taking.await.unwrap_or_else(|_| Err(unanswered())))
    });
    answers(members, 1, rest, marked).await;
}

/// A node that is being asked for a mark, for as long as the value lives.
struct Asked {
    members: Arc<Members>,
    node: usize,
    runtime: Arc<RuntimeCheck>,
}

impl Asked {
    /// `None` if it has one. While it is being asked, waits: what that takes may be unwanted, since the process had left. If nobody
    /// drives the runtime on which it is asked, it is asked here as well.
    async fn begin(members: &Arc<Members>, node: usize) -> Option<Self> {
        let runtime = Arc::new(RuntimeCheck::new());
        loop {
            // Hears of each change from here on.
            let not_asked = members.not_asked.notified();
            let other = {
                let mut state = members.state.lock();
                if state.has_mark_at(node) {
                    return None;
                }
                match state.asked.entry(node) {
                    Entry::Occupied(other) => other.get().clone(),
                    Entry::Vacant(free) => {
                        free.insert(runtime.clone());
                        let members = members.clone();
                        return Some(Self { members, node, runtime });
                    }
                }
            };
            tokio::select! {
                biased;
                () = not_asked => {}
                () = other.undriven() => members.is_not_asked(node, &other),
            }
        }
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        self.members.is_not_asked(self.node, &self.runtime);
    }
}

/// A mark of this process.
pub(super) struct Marked {
    pub(super) node: usize,
    hold: Arc<dyn Hold>,
    pub(super) request: AcquireRequest,
    /// Whether each process with a longer restart delay whose mark is at the node sees this mark as well.
    pub(super) is_known: AtomicBool,
    /// To be dropped with it.
    _control: RequestControl,
}

impl Marked {
    pub(super) fn is_live(&self) -> bool {
        matches!(self.request.lease().state(), HoldState::Held | HoldState::Suspect)
    }
}

impl Members {
    /// The node is not being asked on this runtime any more.
    fn is_not_asked(&self, node: usize, runtime: &Arc<RuntimeCheck>) {
        let mut state = self.state.lock();
        if state.asked.get(&node).is_some_and(|known| Arc::ptr_eq(known, runtime)) {
            state.asked.remove(&node);
        }
        drop(state);
        self.not_asked.notify_waiters();
    }

    /// No release is dropped half-way, unless the mark has expired.
    pub(super) async fn release(&self, marks: Vec<Arc<Marked>>) {
        let lasts = rules::lasts_at_node(self.ttl);
        let released = marks.into_iter().map(|mark| {
            tokio::spawn(async move {
                // A mark at a silent node expires.
                let _ = timeout(lasts, mark.hold.release(ReleaseOptions::default())).await;
            })
        });
        let _ = timeout(PATIENCE, join_all(released)).await;
    }

    /// Keeps the mark, unless none is wanted any more, or the node has one that another runtime has asked for.
    fn keep(&self, mark: Marked) -> std::result::Result<(), Marked> {
        let mut state = self.state.lock();
        let is_wanted = matches!(state.presence, Presence::Joining(_) | Presence::Joined(_));
        if !is_wanted || state.has_mark_at(mark.node) {
            return Err(mark);
        }
        state.marks.push(Arc::new(mark));
        // Somebody who came meanwhile may have left one.
        state.must_look = true;
        Ok(())
    }

    /// Takes the first reserved name that is free, beginning anywhere.
    async fn take(&self, node: usize, backend: &dyn DistributedLock) -> Result<()> {
        let (first, lasts) = (rand::random_range(0..NAMES), rules::lasts_at_node(self.ttl));
        for number in (first..NAMES).chain(0..first) {
            let terms = Terms::new(self.ttl).label(self.own.to_string());
            // It is no vote: a node gives it during its restart delay, too.
            let options = RequestOptions::new(name(number)?, terms).waits(false).reinstates();
            let (request, control) = options.start();
            let attempt = timeout(lasts, backend.acquire(&request)).await;
            let mark = match attempt.unwrap_or_else(|_| Err(unanswered())) {
                Ok(Attempt::Granted(hold, _armed)) => Marked {
                    node,
                    hold,
                    request,
                    is_known: AtomicBool::new(false),
                    _control: control,
                },
                Ok(_) => continue,
                Err(error) if request.was_certainly_not_sent(&error) => return Err(error),
                // If this fails too, the mark expires.
                Err(_) => {
                    let abandoned = timeout(lasts, backend.abandon(&request)).await;
                    return abandoned.unwrap_or_else(|_| Err(unanswered()));
                }
            };
            if let Err(unwanted) = self.keep(mark) {
                let released = timeout(lasts, unwanted.hold.release(ReleaseOptions::default())).await;
                released.unwrap_or_else(|_| Err(unanswered()))?;
            }
            return Ok(());
        }
        Ok(())
    }

    /// Renews the mark, and returns whether it is still there. A node that does not answer is asked again later.
    pub(super) async fn renew(&self, mark: &Marked, is_of_session: bool) -> bool {
        if !is_of_session && let Ok(Ok(Renewal::Lost)) = timeout(PATIENCE, mark.hold.renew(self.ttl)).await {
            return false;
        }
        mark.is_live()
    }
}

fn unanswered() -> Error {
    Error::new(ErrorKind::Unavailable, "a node did not answer in time")
}
