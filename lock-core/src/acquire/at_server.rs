//! The state of an acquire at the server: a state machine without I/O.

/// The state of an acquire at the server, as far as this process knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AtServer {
    /// The server was not asked, or its answer left nothing behind.
    Nothing,
    /// The server was asked, and has not answered.
    Unanswered {
        /// The server last said that the name is taken.
        taken: bool,
        /// The server may have granted the name on earlier terms.
        other_terms: bool,
    },
    /// The server refused. It may have an entry in its queue.
    Refused,
}

impl AtServer {
    /// The state once the server is asked. `terms_changed`: the terms differ from those of the last request.
    pub(super) fn asked(self, terms_changed: bool) -> Self {
        match self {
            Self::Nothing => Self::Unanswered {
                taken: false,
                other_terms: false,
            },
            Self::Refused => Self::Unanswered {
                taken: true,
                other_terms: false,
            },
            Self::Unanswered { taken, other_terms } => Self::Unanswered {
                taken,
                other_terms: other_terms || terms_changed,
            },
        }
    }

    /// The state after a report while the acquire waits: the name is taken, or this is not known any more.
    pub(super) fn noted(self, taken: bool) -> Self {
        match self {
            Self::Unanswered { other_terms, .. } => Self::Unanswered { taken, other_terms },
            Self::Nothing | Self::Refused => self,
        }
    }

    pub(super) fn is_taken(self) -> bool {
        matches!(self, Self::Unanswered { taken: true, .. } | Self::Refused)
    }
}
