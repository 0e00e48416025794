//! A grant: what a claim's task and the handles to its hold share.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use lock_core::FencingToken;
use tokio::sync::mpsc;
use tokio::time::Instant;

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
    /// The moment of the grant.
    pub(crate) at: Instant,
    releases: mpsc::UnboundedSender<Release>,
    /// True if a delete was sent, or is about to be.
    is_releasing: AtomicBool,
    reported: AtomicBool,
}

/// A token, and what it was made of.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Token {
    pub(crate) number: FencingToken,
    /// The transaction id.
    pub(crate) base: i64,
}

impl Grant {
    pub(crate) fn new(
        session: Arc<Session>,
        path: String,
        token: Token,
        releases: mpsc::UnboundedSender<Release>,
    ) -> Self {
        Self {
            session,
            path,
            token,
            keep: None,
            at: Instant::now(),
            releases,
            is_releasing: AtomicBool::new(false),
            reported: AtomicBool::new(false),
        }
    }

    /// The same, with the kept node that it has or may get.
    pub(crate) fn with_keep(self, keep: Option<Keep>) -> Self {
        Self { keep, ..self }
    }

    /// True if it has a kept node, since its request had a minimum.
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

    /// True if a delete was sent, or is about to be.
    pub(crate) fn is_releasing(&self) -> bool {
        self.is_releasing.load(Ordering::SeqCst)
    }

    /// Sends the release at once, so that it precedes whatever this process sends afterwards. With `keep_for`, the name stays
    /// taken for so long.
    pub(crate) fn begin_release(&self, keep_for: Option<Duration>) {
        if !self.is_releasing.swap(true, Ordering::SeqCst) {
            let release = Release::send(&self.session, &self.path, How::new(self.keep.as_ref(), keep_for));
            // If nobody receives it, the hold has ended already.
            let _ = self.releases.send(release);
        }
    }
}

impl fmt::Debug for Grant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Grant")
            .field("token", &self.token.number)
            .finish_non_exhaustive()
    }
}
