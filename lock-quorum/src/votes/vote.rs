//! A vote: the request to one node.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use lock_core::backend::request::RequestControl;
use lock_core::backend::{AcquireRequest, Attempt, Hold, Lease};
use lock_core::{Error, ErrorKind, FencingToken, HoldState, LostCause, Result};
use parking_lot::Mutex;
use tokio::runtime::{Handle, Id};
use tokio::time::Instant;

use crate::node::Node;
use crate::rules;

/// A request to one node.
pub(crate) struct Vote {
    pub(crate) node: usize,
    pub(crate) request: AcquireRequest,
    pub(crate) control: RequestControl,
    /// Whether the vote may have left an entry in the node's queue.
    pub(crate) has_place: bool,
    state: Mutex<VoteState>,
}

struct VoteState {
    /// The longest time for which the node was asked to keep the vote.
    longest_ttl: Duration,
    hold: Option<Arc<dyn Hold>>,
    /// As the node has stored it, perhaps raised.
    token: Option<FencingToken>,
    /// Whether the node may have released the vote without our knowing.
    may_be_released: bool,
    /// Whether a task ends the vote at its node.
    is_cleaned_up: bool,
}

impl Vote {
    pub(crate) fn new(node: usize, (request, control): (AcquireRequest, RequestControl), has_place: bool) -> Self {
        let state = VoteState {
            longest_ttl: request.ttl(),
            hold: None,
            token: None,
            may_be_released: false,
            is_cleaned_up: false,
        };
        Self {
            node,
            request,
            control,
            has_place,
            state: Mutex::new(state),
        }
    }

    pub(crate) fn lease(&self) -> &Lease {
        self.request.lease()
    }

    /// Whether the node voted for us, and has not forgotten the vote by its own lease.
    pub(crate) fn is_live(&self) -> bool {
        matches!(self.lease().state(), HoldState::Held | HoldState::Suspect)
    }

    /// Whether the node has said that it does not know the vote any more.
    pub(crate) fn was_lost(&self) -> bool {
        matches!(self.lost_by(), Some(LostCause::NotHeld | LostCause::Revoked))
    }

    /// Whether the node has said that somebody revoked the vote: it may have voted for another holder since.
    pub(crate) fn was_revoked(&self) -> bool {
        self.lost_by() == Some(LostCause::Revoked)
    }

    fn lost_by(&self) -> Option<LostCause> {
        match self.lease().state() {
            HoldState::Lost(lost) => Some(lost.cause()),
            _ => None,
        }
    }

    pub(crate) fn granted(&self, hold: Arc<dyn Hold>) {
        let mut state = self.state.lock();
        state.token = Some(hold.token());
        state.hold = Some(hold);
    }

    pub(crate) fn hold(&self) -> Option<Arc<dyn Hold>> {
        self.state.lock().hold.clone()
    }

    pub(crate) fn token(&self) -> Option<FencingToken> {
        self.state.lock().token
    }

    pub(crate) fn raised(&self, token: FencingToken) {
        let mut state = self.state.lock();
        state.token = state.token.max(Some(token));
    }

    /// The node is about to be asked to keep the vote for this time.
    pub(crate) fn prolongs(&self, ttl: Duration) {
        let mut state = self.state.lock();
        state.longest_ttl = state.longest_ttl.max(ttl);
    }

    /// For how long the node may have anything of the vote at most, from the moment at which nothing but its end is asked for.
    pub(crate) fn lasts_at_node(&self) -> Duration {
        rules::lasts_at_node(self.state.lock().longest_ttl)
    }

    /// Its release is about to be sent. Returns whether an earlier one may have been executed.
    pub(crate) fn begin_release(&self) -> bool {
        std::mem::replace(&mut self.state.lock().may_be_released, true)
    }

    pub(crate) fn was_not_released(&self) {
        self.state.lock().may_be_released = false;
    }

    pub(crate) fn may_be_released(&self) -> bool {
        self.state.lock().may_be_released
    }

    /// Whether any request of this vote may have been sent by now.
    pub(crate) fn may_be_sent(&self) -> bool {
        let never_executed = Error::new(ErrorKind::Unavailable, "given up").not_executed();
        !self.request.was_certainly_not_sent(&never_executed)
    }

    /// A task takes over ending it. False if one has.
    pub(crate) fn begin_clean_up(&self) -> bool {
        !std::mem::replace(&mut self.state.lock().is_cleaned_up, true)
    }

    pub(crate) fn is_cleaned_up(&self) -> bool {
        self.state.lock().is_cleaned_up
    }
}

impl fmt::Debug for Vote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Vote")
            .field("node", &(self.node + 1))
            .field("request", &self.request)
            .finish_non_exhaustive()
    }
}

/// The acquire of a vote, which must not be dropped half-way.
pub(crate) struct Call {
    pub(crate) future: BoxFuture<'static, Result<Attempt>>,
    pub(crate) began: Instant,
    /// Where it began: its timers and sockets are that runtime's.
    runtime: Option<Id>,
}

impl Call {
    pub(crate) fn new(node: &Node, vote: &Vote) -> Self {
        let (backend, request) = (node.backend.clone(), vote.request.clone());
        Self {
            future: Box::pin(async move { backend.acquire(&request).await }),
            began: Instant::now(),
            runtime: current(),
        }
    }

    /// Whether the call can continue on this runtime.
    pub(crate) fn is_here(&self) -> bool {
        self.runtime == current()
    }
}

fn current() -> Option<Id> {
    Handle::try_current().ok().map(|runtime| runtime.id())
}

#[cfg(test)]
mod tests {
    use lock_core::LockName;
    use lock_core::backend::request::{RequestOptions, Terms};

    use super::*;

    /// A vote that only expired may still be at its node.
    #[tokio::test(start_paused = true)]
    async fn a_vote_is_lost_if_its_node_says_so() {
        let ttl = Duration::from_secs(30);
        for (cause, was_lost) in [
            (LostCause::NotHeld, true),
            (LostCause::Revoked, true),
            (LostCause::Disconnected, false),
            (LostCause::Expired, false),
        ] {
            let name = LockName::new("a").expect("a valid name");
            let vote = Vote::new(0, RequestOptions::new(name, Terms::new(ttl)).start(), false);
            let sent = vote.request.sending();
            assert!(vote.lease().arm(sent, ttl).is_ok());
            assert!(vote.is_live() && !vote.was_lost());
            vote.lease().lose(cause);
            assert_eq!((vote.is_live(), vote.was_lost()), (false, was_lost), "{cause:?}");
        }
    }
}
