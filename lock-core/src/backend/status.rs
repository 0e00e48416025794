//! Who has a lock, as the server sees it.

use std::sync::Arc;
use std::time::Duration;

use crate::token::FencingToken;

/// What the server said of a name. It may have changed by the time that anybody reads it: for people and dashboards,
/// never to decide whether to act.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LockStatus {
    /// Who holds it; empty when it is free.
    pub holders: Vec<HolderStatus>,
    /// How many waiters are queued for it at the server, where the server knows.
    pub waiting: Option<usize>,
}

/// One holder in a [`LockStatus`]; everything in it is `None` where the server does not know it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct HolderStatus {
    /// What the holder calls itself.
    pub label: Option<Arc<str>>,
    /// The hold's fencing token.
    pub token: Option<FencingToken>,
    /// How long the hold lasts if it is not renewed.
    pub expires_in: Option<Duration>,
}

impl LockStatus {
    /// Nobody holds it.
    pub fn free() -> Self {
        Self::default()
    }

    /// This one holds it.
    pub fn held(holder: HolderStatus) -> Self {
        Self {
            holders: vec![holder],
            waiting: None,
        }
    }

    /// Adds how many wait for it.
    #[must_use]
    pub fn with_waiting(mut self, waiting: usize) -> Self {
        self.waiting = Some(waiting);
        self
    }

    /// Whether anybody holds it.
    pub fn is_held(&self) -> bool {
        !self.holders.is_empty()
    }
}

impl HolderStatus {
    /// A holder of whom nothing is known yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds its label.
    #[must_use]
    pub fn with_label(mut self, label: impl Into<Arc<str>>) -> Self {
        self.label = Some(label.into());
        self
    }

    /// Adds its token.
    #[must_use]
    pub fn with_token(mut self, token: FencingToken) -> Self {
        self.token = Some(token);
        self
    }

    /// Adds how long it lasts unless renewed.
    #[must_use]
    pub fn with_expires_in(mut self, rest: Duration) -> Self {
        self.expires_in = Some(rest);
        self
    }
}
