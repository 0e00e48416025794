//! The terms of a quorum's request, and of its votes.

use std::sync::Arc;
use std::time::Duration;

use lock_core::backend::request::Terms;
use lock_core::backend::{AcquireRequest, HolderId};

use crate::label;

/// The terms of a hold, as the caller wants them at a moment.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct HoldTerms {
    /// The quorum's own holder id.
    pub(crate) hold: HolderId,
    pub(crate) ttl: Duration,
    pub(crate) minimum: Option<Duration>,
    pub(crate) label: Option<Arc<str>>,
}

impl HoldTerms {
    pub(crate) fn of(request: &AcquireRequest) -> Self {
        Self {
            hold: request.holder(),
            ttl: request.ttl(),
            minimum: request.minimum(),
            label: request.label(),
        }
    }

    /// The same for a vote.
    pub(crate) fn terms(&self) -> Terms {
        let mut terms = Terms::new(self.ttl);
        if let Some(minimum) = self.minimum {
            terms = terms.minimum(minimum);
        }
        terms.label(label::marked(self.label.as_deref(), self.hold))
    }
}
