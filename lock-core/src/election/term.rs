//! One term of a leader.

use std::ops::Deref;
use std::time::Duration;

use super::candidate::Candidate;
use crate::error::Result;
use crate::guard::Guard;
use crate::observe;
use crate::sync::Arc;
use crate::sync::time::{Instant, sleep};
use crate::watch::Watch;

/// The term of a candidate that was elected by [`Election::campaign`](crate::Election::campaign): it leads until it resigns, or
/// the term is lost. It is a [`Guard`], whose [`token`](Guard::token) is the number of the term.
///
/// Dropping it resigns in the background.
#[derive(Debug)]
#[must_use = "a leader resigns when its term is dropped"]
pub struct Term {
    // Dropped before the other one, which looks whether it was lost.
    guard: Guard,
    reign: Reign,
}

impl Term {
    pub(super) fn begin(
        guard: Guard,
        value: Option<Arc<str>>,
        candidate: &Arc<Candidate>,
        pause: Duration,
        is_measured: bool,
    ) -> Self {
        let watch = guard.watch();
        observe::elected(watch.name(), watch.token(), is_measured);
        candidate.begin(watch.clone(), value);
        Self {
            guard,
            reign: Reign {
                candidate: candidate.clone(),
                watch,
                pause,
                is_measured,
                process: std::process::id(),
            },
        }
    }

    #[cfg(all(feature = "blocking", not(shuttle)))]
    pub(crate) fn into_parts(self) -> (Guard, Reign) {
        (self.guard, self.reign)
    }

    /// Ends the term, so that another candidate is elected. Returns when the server has answered.
    ///
    /// # Errors
    /// Those of [`Guard::release`]: [`ErrorKind::Lost`](crate::ErrorKind::Lost) if the term had ended before this was called.
    ///
    /// # Cancel safety
    /// If it is dropped, it finishes in the background.
    ///
    /// # Examples
    /// ```
    /// # use lock_core::{Locker, MemoryBackend};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
    /// # let locks = Locker::new(MemoryBackend::new());
    /// let term = locks.election("scheduler").campaign().await?;
    /// let next = locks.election("scheduler"); // another candidate
    /// term.resign().await?;
    /// assert!(next.campaign().await.is_ok());
    /// # Ok(()) }
    /// ```
    pub async fn resign(self) -> Result<()> {
        let Self { guard, reign } = self;
        let resigned = guard.release().await;
        drop(reign);
        resigned.map(drop)
    }

    /// Waits until the lease lasts no longer than this.
    pub(super) async fn ended(&self, margin: Duration) {
        self.guard.share().hold().lease.lasts_at_most(margin).await;
    }
}

impl Term {
    /// Waits until the term is lost, but no longer than `margin`.
    pub(super) async fn outlast(&self, margin: Duration) {
        if !margin.is_zero() {
            tokio::select! {
                biased;
                _ = self.guard.lost() => {}
                () = sleep(margin) => {}
            }
        }
    }
}

impl Deref for Term {
    type Target = Guard;

    fn deref(&self) -> &Guard {
        &self.guard
    }
}

/// Makes the candidate a leader for as long as the value lives.
#[derive(Debug)]
pub(crate) struct Reign {
    candidate: Arc<Candidate>,
    watch: Watch,
    pause: Duration,
    is_measured: bool,
    process: u32,
}

impl Drop for Reign {
    fn drop(&mut self) {
        // The term is the parent's, and its locks may have been taken by a thread that did not come along.
        if self.process != std::process::id() {
            return;
        }
        let (name, term) = (self.watch.name(), self.watch.token());
        self.candidate.end(term, Instant::now().checked_add(self.pause));
        let lost = self.watch.check().err();
        observe::term_ended(name, term, lost.map(|lost| lost.cause()), self.is_measured);
    }
}
