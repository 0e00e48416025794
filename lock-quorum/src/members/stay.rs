//! Joins: leaves this process's marks, looks at those of others, and stays until the process leaves.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use lock_kit::runtime::RuntimeCheck;
use tokio::sync::watch;
use tokio::time::sleep;

use super::look::look;
use super::marks::leave_marks;
use super::{Members, PATIENCE, Presence};

/// Leaves a mark at each of these nodes, and looks at those of others: before, so that a stranger leaves none, and again, so that
/// of two that come at once one sees the other. See [`answers`] for the `rest`.
pub(super) async fn look_and_mark(members: &Arc<Members>, nodes: &[usize], rest: Duration) {
    look(members, nodes, rest).await;
    if members.state.lock().refused().is_none() {
        leave_marks(members, nodes, rest).await;
        look(members, nodes, rest).await;
    }
}

/// The task of a process that others see: joins, and then renews the marks until the process leaves.
pub(super) struct Stay {
    pub(super) members: Arc<Members>,
    /// How often the process had left before.
    pub(super) number: u64,
    pub(super) runtime: Arc<RuntimeCheck>,
    /// Dropped at the end of the join.
    pub(super) is_under_way: Option<watch::Sender<()>>,
}

impl Stay {
    pub(super) async fn run(mut self, nodes: Vec<usize>, rest: Duration, mut ended: watch::Receiver<u64>) {
        tokio::select! {
            biased;
            _ = ended.changed() => {}
            () = look_and_mark(&self.members, &nodes, rest) => {}
        }
        if self.has_joined() {
            self.is_under_way = None;
            loop {
                tokio::select! {
                    biased;
                    _ = ended.changed() => break,
                    () = sleep(self.members.ttl / 3) => {}
                }
                renew(&self.members).await;
            }
        }
        let marks = {
            let mut state = self.members.state.lock();
            match state.presence {
                Presence::Left => std::mem::take(&mut state.marks),
                // The process has begun anew meanwhile, and keeps them.
                _ => return,
            }
        };
        self.members.release(marks).await;
    }

    /// Ends the join. `false` if the process was refused, and so leaves, or has left meanwhile.
    fn has_joined(&self) -> bool {
        let mut state = self.members.state.lock();
        if *self.members.ended.borrow() != self.number {
            return false;
        }
        if state.refused().is_some() {
            self.members.leave(&mut state);
            return false;
        }
        state.presence = Presence::Joined(self.runtime.clone());
        true
    }
}

impl Drop for Stay {
    fn drop(&mut self) {
        self.members.leave_since(self.number);
    }
}

async fn renew(members: &Arc<Members>) {
    let marks = members.state.lock().marks.clone();
    let renewed = join_all(marks.iter().map(|mark| async move {
        let is_of_session = members.nodes[mark.node].capabilities.session_renewal;
        (mark, members.renew(mark, is_of_session).await)
    }));
    for (lost, _) in renewed.await.into_iter().filter(|(_, lives)| !lives) {
        let mut state = members.state.lock();
        state.marks.retain(|mark| !Arc::ptr_eq(mark, lost));
        // A process with a longer delay may not see this one any more.
        state.must_look |= state.is_beside_longer;
    }

    let nodes: Vec<usize> = (0..members.nodes.len()).collect();
    leave_marks(members, &nodes, PATIENCE).await;
    let (must_look, was_refused, is_limited) = {
        let state = members.state.lock();
        (state.must_look, state.refused().is_some(), state.longest_ttl.is_some())
    };
    if must_look || was_refused || is_limited {
        look(members, &nodes, PATIENCE).await;
        let refused = members.state.lock().refused().cloned();
        if let Some(error) = refused.filter(|_| !was_refused) {
            tracing::error!(target: "polylock", %error, "a process with another quorum uses the same nodes: no lock is acquired");
        }
    }
}
