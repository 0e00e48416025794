//! The mode of a hold, as histories have it.

use lock_core::backend::{Mode, Permits};
use serde::{Deserialize, Serialize};

/// The mode of a hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Held {
    #[default]
    Exclusive,
    Shared,
    Upgradable,
    Permits {
        take: u32,
        of: u32,
    },
}

impl Held {
    /// As core has it.
    pub(crate) fn mode(self) -> Mode {
        match self {
            Self::Exclusive => Mode::Exclusive,
            Self::Shared => Mode::Shared,
            Self::Upgradable => Mode::Upgradable,
            Self::Permits { take, of } => {
                let permits = Permits::new(take, of);
                Mode::Permits(permits.expect("only permits that were granted are recorded"))
            }
        }
    }

    /// Whether several guards of one process may share a grant, and so its token.
    pub(crate) fn is_shared(self) -> bool {
        matches!(self, Self::Shared | Self::Upgradable)
    }
}
