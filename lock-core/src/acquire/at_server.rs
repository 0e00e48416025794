//! What is known of an acquire at the server: a state machine without I/O.

/// What the server may have of an acquire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AtServer {
    /// Nothing: it was not asked, or what it answered left nothing behind.
    Nothing,
    /// It was asked, and what it made of that is not known.
    Unanswered {
        /// Whether the server's last word was that the name is taken.
        taken: bool,
        /// Whether it may have granted on other terms than those of now.
        other_terms: bool,
    },
    /// It refused, and there may be an entry in its queue.
    Refused,
}

impl AtServer {
    /// It is asked, on terms that changed or not since it was asked last.
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

    /// The server said, while it goes on waiting, that the name is taken; or that is not known any more.
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
