//! Who has a lock, as the server sees it.

use std::sync::Arc;
use std::time::Duration;

use super::Mode;
use crate::token::FencingToken;

/// Who holds a name, as the server answered. For people and dashboards, not for decisions: it may have changed meanwhile.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LockStatus {
    /// The holders; empty if the name is free.
    pub holders: Vec<HolderStatus>,
    /// How many waiters are queued at the server, if it knows.
    pub waiting: Option<usize>,
}

/// One holder in a [`LockStatus`]. A field is `None` if the server does not know it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct HolderStatus {
    /// The holder's label.
    pub label: Option<Arc<str>>,
    /// The hold's fencing token.
    pub token: Option<FencingToken>,
    /// How long the hold lasts if nothing renews it.
    pub expires_in: Option<Duration>,
    /// How it holds the name.
    pub mode: Option<Mode>,
}

impl LockStatus {
    /// The status of a free name.
    pub fn free() -> Self {
        Self::default()
    }

    /// The status of a name with this holder.
    pub fn held(holder: HolderStatus) -> Self {
        Self::held_by([holder])
    }

    /// The status of a name with these holders.
    pub fn held_by(holders: impl IntoIterator<Item = HolderStatus>) -> Self {
        Self {
            holders: holders.into_iter().collect(),
            waiting: None,
        }
    }

    /// Adds the number of waiters.
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
    /// A holder of which nothing is known.
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

    /// Adds how long the hold lasts if nothing renews it.
    #[must_use]
    pub fn with_expires_in(mut self, rest: Duration) -> Self {
        self.expires_in = Some(rest);
        self
    }

    /// Adds how it holds the name.
    #[must_use]
    pub fn with_mode(mut self, mode: Mode) -> Self {
        self.mode = Some(mode);
        self
    }
}
