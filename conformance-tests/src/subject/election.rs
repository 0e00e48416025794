//! Elections of a subject.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use lock_core::{FencingToken, Result};

use super::{SubjectGuard, Task};

/// A candidate in an election, made by [`Subject::candidate`](super::Subject::candidate).
#[async_trait]
pub trait Candidate: Debug + Send + Sync + 'static {
    /// The same candidate, each of whose terms is lost after this time at the latest.
    fn hold_at_most(&self, maximum: Duration) -> Arc<dyn Candidate>;

    /// Waits until it is elected. The guard's token is the term, and its release resigns.
    ///
    /// # Errors
    /// Those of an acquire.
    ///
    /// # Cancel safety
    /// May be dropped at any point, and then leaves nothing behind.
    async fn campaign(&self) -> Result<Box<dyn SubjectGuard>>;

    /// Campaigns, and does the work in each term that it wins, until the work says [`Then::Stop`]. Drops the work when its
    /// term ends.
    ///
    /// # Errors
    /// Those of [`campaign`](Self::campaign).
    ///
    /// # Cancel safety
    /// Dropping it drops the work, and resigns in the background.
    async fn lead(&self, work: Work) -> Result<()>;

    /// A view of who leads.
    fn observe(&self) -> Box<dyn Observer>;

    /// The candidate's knowledge of the election.
    ///
    /// # Cancel safety
    /// May be dropped at any point.
    async fn state(&self) -> ElectionState;
}

/// Makes the work of each term.
pub type Work = Arc<dyn Fn(FencingToken) -> Task<Then> + Send + Sync>;

/// The action of a leader whose work is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Then {
    /// Resigns, and campaigns again.
    Campaign,
    /// Resigns, and is no candidate any more.
    Stop,
}

/// Follows the leaders of an election.
#[async_trait]
pub trait Observer: Debug + Send + 'static {
    /// Waits for a leader of a later term.
    ///
    /// # Errors
    /// If waiting for the server does not help.
    ///
    /// # Cancel safety
    /// If it is dropped, the next call misses nothing.
    async fn changed(&mut self) -> Result<Elected>;
}

/// Who leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Elected {
    /// The leader's term.
    pub term: FencingToken,
    /// Its value.
    pub value: Option<String>,
}

/// A candidate's knowledge of its election.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ElectionState {
    /// It leads in this term.
    Leading(FencingToken),
    /// Somebody else leads, in this term and with this value.
    Following(FencingToken, Option<String>),
    /// Nobody leads.
    Electing,
    /// The server does not say.
    Unreachable,
}
