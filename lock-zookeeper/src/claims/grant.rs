//! A grant: what a claim's task and the handles to its hold share.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::time::Duration;

use lock_core::FencingToken;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::{Claim, Claims, Outcome, Stage, TaskNumber};
use crate::connection::Session;
use crate::hold::keep::Keep;
use crate::hold::release::{How, Release};

/// A node that is the first in its directory, and its token.
pub(crate) struct Grant {
    pub(crate) session: Arc<Session>,
    pub(crate) path: String,
    pub(crate) token: Token,
    /// Its kept node. `None` if it is not exclusive.
    keep: Option<Keep>,
    /// When it was granted or handed over.
    pub(crate) at: Instant,
    requests: mpsc::UnboundedSender<HoldRequest>,
    state: AtomicU8,
    reported: AtomicBool,
}

/// A token, and what it was made of.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Token {
    pub(crate) number: FencingToken,
    /// The transaction id.
    pub(crate) base: i64,
    /// The token offset.
    pub(crate) offset: i64,
}

/// What a handle asks of the hold's task.
pub(crate) enum HoldRequest {
    /// This release was sent.
    Release(Release),
    HandOver(SuccessorRequest),
}

/// A request for a hand-over. It ends the next holder's claim when it is dropped.
pub(crate) struct SuccessorRequest {
    /// The claim that is to have the hold.
    pub(crate) next: Arc<Claim>,
    /// The task that works on that claim: the giver's, until the next holder has a task of its own.
    pub(crate) number: TaskNumber,
    pub(crate) claims: Arc<Claims>,
    outcome: Option<Outcome>,
}

impl SuccessorRequest {
    /// A request for this claim, unless a task works on it.
    fn begin(claims: &Arc<Claims>, next: &Arc<Claim>, session: &Arc<Session>) -> Option<Self> {
        Some(Self {
            number: next.begin(session, None)?,
            next: next.clone(),
            claims: claims.clone(),
            outcome: Some(Outcome::NotOurs),
        })
    }

    /// The next holder has nothing, and this is why.
    pub(crate) fn end(mut self, outcome: Outcome) {
        self.next.set_leftover(self.number, false);
        self.outcome = Some(outcome);
    }

    /// The next holder has a task of its own.
    pub(crate) fn succeed(mut self) {
        self.outcome = None;
    }
}

impl Drop for SuccessorRequest {
    fn drop(&mut self) {
        if let Some(outcome) = self.outcome.take() {
            let is_last = self.next.advance(self.number, Stage::Ended(outcome));
            if is_last && !self.next.has_leftover() {
                self.claims.close(self.next.holder());
            }
        }
    }
}

const HELD: u8 = 0;
/// A delete was sent, or is about to be.
const RELEASING: u8 = 1;
/// The node is another claim's.
const HANDED_OVER: u8 = 2;

impl Grant {
    pub(crate) fn new(
        session: Arc<Session>,
        path: String,
        token: Token,
        requests: mpsc::UnboundedSender<HoldRequest>,
    ) -> Self {
        Self {
            session,
            path,
            token,
            keep: None,
            at: Instant::now(),
            requests,
            state: AtomicU8::new(HELD),
            reported: AtomicBool::new(false),
        }
    }

    /// The same, with the kept node that it has or may get.
    pub(crate) fn with_keep(self, keep: Option<Keep>) -> Self {
        Self { keep, ..self }
    }

    /// Whether it has a kept node, since its request had a minimum.
    pub(crate) fn is_kept(&self) -> bool {
        self.keep.as_ref().is_some_and(Keep::is_there)
    }

    /// The hold has ended without a release: its kept node goes when the minimum is over.
    pub(crate) fn keep_minimum(&self) {
        if let Some(keep) = &self.keep {
            keep.delete_after_minimum(&self.session, self.at);
        }
    }

    /// True for the first caller that learns how the release ended.
    pub(crate) fn report_release(&self) -> bool {
        !self.reported.swap(true, Ordering::SeqCst)
    }

    /// Whether a delete was sent, or is about to be.
    pub(crate) fn is_releasing(&self) -> bool {
        self.state.load(Ordering::SeqCst) == RELEASING
    }

    pub(crate) fn is_handed_over(&self) -> bool {
        self.state.load(Ordering::SeqCst) == HANDED_OVER
    }

    /// Sends the release at once, so that it precedes whatever this process sends afterwards. Not if the node is another
    /// claim's. With `keep_for`, the name stays taken for so long.
    pub(crate) fn begin_release(&self, keep_for: Option<Duration>) {
        if self.leave(RELEASING) {
            let release = Release::send(&self.session, &self.path, How::new(self.keep.as_ref(), keep_for));
            // If nobody receives it, the hold has ended already.
            let _ = self.requests.send(HoldRequest::Release(release));
        }
    }

    /// The node is another claim's from here on. False if the hold is being released.
    pub(crate) fn hand_over(&self) -> bool {
        self.leave(HANDED_OVER)
    }

    /// Asks the hold's task for a hand-over to this claim, unless a task works on that. If the hold has ended, so does that claim.
    pub(crate) fn request_hand_over(&self, claims: &Arc<Claims>, next: &Arc<Claim>) {
        if let Some(request) = SuccessorRequest::begin(claims, next, &self.session) {
            let _ = self.requests.send(HoldRequest::HandOver(request));
        }
    }

    /// Whether the hold is neither being released nor handed over.
    pub(crate) fn is_held(&self) -> bool {
        self.state.load(Ordering::SeqCst) == HELD
    }

    fn leave(&self, next: u8) -> bool {
        let left = self
            .state
            .compare_exchange(HELD, next, Ordering::SeqCst, Ordering::SeqCst);
        left.is_ok()
    }
}

impl fmt::Debug for Grant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Grant")
            .field("token", &self.token.number)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for HoldRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Release(_) => "Release",
            Self::HandOver(_) => "HandOver",
        })
    }
}
