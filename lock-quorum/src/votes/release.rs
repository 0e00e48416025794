//! The release of a hold: what its nodes have answered, or may have done.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use lock_core::backend::ReleaseOutcome;

use super::{Vote, Votes};

impl Votes {
    /// The node has answered the release of its vote.
    pub(crate) fn note_released(&self, vote: &Arc<Vote>, outcome: ReleaseOutcome) {
        self.state.lock().released[vote.node] = Some(outcome);
        self.forget(vote);
    }

    /// The number of nodes that have ended our vote, and of those that are known to have none of ours.
    pub(crate) fn released(&self) -> (usize, usize) {
        let state = self.state.lock();
        let has_vote = |node: usize| state.asked.iter().any(|vote| vote.node == node);
        let ended = |node: &usize| state.released[*node] == Some(ReleaseOutcome::Released);
        let nodes = 0..state.released.len();
        let foreign = nodes.clone().filter(|node| !ended(node) && !has_vote(*node)).count();
        (nodes.filter(ended).count(), foreign)
    }

    pub(crate) fn note_release_reported(&self) {
        self.release_reported.store(true, Ordering::SeqCst);
    }

    pub(crate) fn was_release_reported(&self) -> bool {
        self.release_reported.load(Ordering::SeqCst)
    }

    /// The number of nodes that have ended our vote, or may have without our knowing.
    pub(crate) fn perhaps_released(&self) -> usize {
        let state = self.state.lock();
        let is_unknown = |node: usize| {
            let mut asked = state.asked.iter().filter(|vote| vote.node == node);
            asked.any(|vote| vote.may_be_released())
        };
        let ended = |node: &usize| state.released[*node] == Some(ReleaseOutcome::Released) || is_unknown(*node);
        (0..state.released.len()).filter(ended).count()
    }
}
