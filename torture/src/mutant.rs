//! The mutants: deliberate bugs, each a real one of some lock library. Every one must be caught by its check.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use crate::check::Check;
use crate::fault::Fault;

/// A deliberate bug, in the Redis backend or in the process that uses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Mutant {
    /// The lease counts from the reply, not from before sending.
    LeaseFromReply,
    /// A renewal counts as successful when it was sent.
    RenewalUnanswered,
    /// A renewal sets the expiry, even to an earlier one.
    RenewalThatShortens,
    /// The renewal goes on after the release, and takes the lock again when it is free.
    RenewalAfterRelease,
    /// A release deletes the key, whoever has it.
    DeleteWithoutCompare,
    /// A hold never expires by itself.
    HoldWithoutExpiry,
    /// Tokens come from a counter that is lost with the server's data.
    TokenCounterLost,
    /// The resource learns a token by the first write, not before the first read.
    FenceOnWritesOnly,
    /// A loss is told when it is noticed by the way, not when the lease ends.
    LossToldLate,
    /// Every acquire leaves a connection open.
    ConnectionLeak,
    /// A grant reserves no tokens, though its hold is passed on with the next one.
    GrantReservesNothing,
    /// A release frees the name, whatever minimum it was to be held for.
    MinimumHoldIgnored,
    /// The release of one of two guards that share a hold ends it.
    ReentryEndsTheHold,
    /// The first of several readers that leaves frees the name.
    FirstReaderFreesTheName,
    /// A process has another limit of permits in mind than the others.
    OnePermitTooMany,
    /// Readers are checked by the resource's fence, and do not register there.
    ReadersDoNotRegister,
}

impl Mutant {
    /// The check that catches the mutant.
    pub(crate) fn caught_by(self) -> Check {
        match self {
            Self::LeaseFromReply
            | Self::RenewalUnanswered
            | Self::RenewalThatShortens
            | Self::DeleteWithoutCompare
            | Self::ReentryEndsTheHold
            | Self::FirstReaderFreesTheName
            | Self::OnePermitTooMany => Check::Overlap,
            Self::ReadersDoNotRegister => Check::TornReads,
            Self::RenewalAfterRelease | Self::HoldWithoutExpiry => Check::Leftovers,
            Self::TokenCounterLost | Self::GrantReservesNothing => Check::Tokens,
            Self::MinimumHoldIgnored => Check::MinimumHold,
            Self::FenceOnWritesOnly => Check::FencedUpdates,
            Self::LossToldLate => Check::LateLoss,
            Self::ConnectionLeak => Check::Leaks,
        }
    }

    /// The faults that bring it to light.
    pub(crate) fn nemesis(self) -> Vec<Fault> {
        match self {
            Self::LeaseFromReply => vec![Fault::Delay],
            Self::RenewalUnanswered | Self::RenewalThatShortens => vec![Fault::Hole],
            Self::RenewalAfterRelease
            | Self::DeleteWithoutCompare
            | Self::LossToldLate
            | Self::ConnectionLeak
            | Self::GrantReservesNothing
            | Self::MinimumHoldIgnored
            | Self::ReentryEndsTheHold
            | Self::FirstReaderFreesTheName
            | Self::OnePermitTooMany => vec![Fault::Stop],
            Self::HoldWithoutExpiry => vec![Fault::Kill],
            Self::TokenCounterLost => vec![Fault::ServerLose],
            Self::FenceOnWritesOnly | Self::ReadersDoNotRegister => vec![Fault::Gap],
        }
    }

    /// For how long they have to come.
    pub(crate) fn secs(self) -> u64 {
        // Of the gaps that meet a reader, a few are followed by a writer in time.
        let is_rare = self.takes_many_holds() || self == Self::ReadersDoNotRegister;
        if is_rare { 22 } else { 8 }
    }

    /// The number of locks that shows the mutant best.
    pub(crate) fn locks(self) -> usize {
        if self.takes_many_holds() { 6 } else { 3 }
    }

    /// Whether a fault has to meet a hold at a certain moment.
    fn takes_many_holds(self) -> bool {
        matches!(
            self,
            Self::LeaseFromReply | Self::RenewalUnanswered | Self::RenewalThatShortens
        )
    }

    /// Whether only readers or permits show the mutant.
    pub(crate) fn needs_modes(self) -> bool {
        matches!(
            self,
            Self::FirstReaderFreesTheName | Self::OnePermitTooMany | Self::ReadersDoNotRegister
        )
    }

    /// Whether the bug is in the backend, not in the process above.
    pub(crate) fn is_backends(self) -> bool {
        !matches!(
            self,
            Self::FenceOnWritesOnly
                | Self::LossToldLate
                | Self::ReentryEndsTheHold
                | Self::OnePermitTooMany
                | Self::ReadersDoNotRegister
        )
    }
}
