//! The mutants of the quorum: each a bug that a library had, or that a draft of this protocol had. Each must break the
//! property that is named here.

use std::time::Duration;

use super::super::properties::*;
use super::scenario::{Reinstall, Scenario, Strategy};

macro_rules! mutants {
    ($($(#[$doc:meta])+ $mutant:ident breaks $property:ident,)+) => {
        /// A deliberate bug in the quorum's clients or nodes.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum QuorumMutant {
            $($(#[$doc])+ $mutant,)+
        }

        impl QuorumMutant {
            /// Every one.
            pub const ALL: &[Self] = &[$(Self::$mutant),+];

            /// The property that it breaks.
            pub fn breaks(self) -> &'static str {
                match self {
                    $(Self::$mutant => $property,)+
                }
            }
        }
    };
}

mutants! {
    // Of what counts.
    /// A majority of the nodes that can be reached is enough.
    MajorityOfReachable breaks ONE_BELIEVER,
    /// Votes count after their own lease has ended, and the hold lasts as long as its longest vote.
    CountsExpiredVotes breaks ONE_BELIEVER,
    /// An answer counts for its node, whichever vote it was asked for.
    AnswersCountByNode breaks ONE_BELIEVER,
    /// A vote's lease counts from the answer instead of from before sending.
    LeaseFromReply breaks ONE_BELIEVER,
    /// A vote's lease lasts for the whole TTL, although clocks do not run alike.
    NoMargin breaks ONE_BELIEVER,
    // Of renewals.
    /// A renewal that any node accepts prolongs the hold.
    RenewedByAny breaks ONE_BELIEVER,
    /// A renewal that a majority of the *acquired* votes accepts prolongs the hold. Three nodes cannot show it.
    RenewedByMajorityOfAcquired breaks ONE_BELIEVER,
    /// A vote that a node forgot is restored whoever holds the name there.
    ReinstallsByForce breaks ONE_BELIEVER,
    // Of nodes that forget.
    /// A node that forgot votes at once, and forgotten votes are restored.
    NoRestartDelay breaks ONE_BELIEVER,
    /// A node that forgot votes at once, and forgotten votes are not restored.
    NoRestartDelayNorReinstall breaks ONE_BELIEVER,
    // Of tokens.
    /// The token is the largest of a majority, and is not written back.
    LargestTokenNotRaised breaks TOKENS_INCREASE,
    /// The token is that of the first node that voted.
    TokenOfFirstNode breaks TOKENS_INCREASE,
    /// Votes that are lower than the hold's token stay so, if a majority stores it. It is lost with one node's data.
    LowVotesNotRaised breaks TOKENS_INCREASE,
    /// A token that a vote was raised to is forgotten, when an answer decides a lower one.
    RaisesForgotten breaks STATUS_SHOWS_THE_TOKEN,
    /// A node that forgot votes again when four fifths of the TTL have passed.
    RestartDelayTooShort breaks ONE_BELIEVER,
    // Of losses.
    /// Nodes that deny a hold do not end it.
    NeverDenied breaks LOSS_IS_NOTICED,
    /// One node too many has to deny a hold.
    DeniedByOneMore breaks LOSS_IS_NOTICED,
    // Of going on.
    /// A silent node is waited for as long as four TTLs.
    PatienceOfFourTtls breaks HEALTHY_GO_ON,
    /// A client that cannot reach a majority keeps the votes that it has for as long as they last.
    KeepsVotesInVain breaks HEALTHY_GO_ON,
    /// With the anchor's vote, a request waits for the others as long as three TTLs.
    YieldsForThreeTtls breaks HEALTHY_GO_ON,
    /// A waiter never looks whether the holder that its anchor names has a majority.
    BelievesTheAnchorAlone breaks HEALTHY_GO_ON,
    /// A silent node is not suspected of being down.
    NeverSuspects breaks HEALTHY_GO_ON,
    /// The first node in the order is the anchor, although it is suspected of being down.
    AlwaysTheFirstAnchor breaks HEALTHY_GO_ON,
    /// A request is refused before the anchor has answered, so that of simultaneous tries none may win.
    BusyBeforeTheAnchor breaks HEALTHY_GO_ON,
    // Of what is left behind.
    /// A node votes for ids that were ended there.
    NoTombstones breaks DEAD_STAY_DEAD,
    /// Only the nodes that are known to have voted are asked to release.
    ReleasesOnlyGranted breaks NOTHING_LEFT,
}

impl QuorumMutant {
    /// Makes what it needs to show. Without it all properties are kept there, too.
    pub(super) fn prepare(self, scenario: &mut Scenario) {
        match self {
            Self::AnswersCountByNode => {
                scenario.strategy = Strategy::AllAtOnce;
                scenario.network.late *= 5.0;
            }
            // Where the others adopt the anchor's token there is nothing to raise.
            Self::LargestTokenNotRaised | Self::RaisesForgotten => scenario.strategy = Strategy::AllAtOnce,
            Self::LeaseFromReply => *scenario = scenario.clone().worse(5),
            Self::RenewedByMajorityOfAcquired => scenario.nodes = 5,
            Self::LowVotesNotRaised => scenario.becomes(Scenario::one_forgets_at_a_time()),
            Self::NoRestartDelayNorReinstall => scenario.reinstall = Reinstall::Never,
            Self::NeverDenied | Self::DeniedByOneMore => scenario.becomes(Scenario::several_forget()),
            Self::RestartDelayTooShort => scenario.becomes(Scenario::forgotten_while_cut_off()),
            Self::PatienceOfFourTtls | Self::NeverSuspects | Self::AlwaysTheFirstAnchor => {
                scenario.becomes(Scenario {
                    down: Some(0),
                    ..Scenario::going_on()
                });
            }
            // A waiter soon finds out by its looks that the holder at its anchor has no majority.
            Self::KeepsVotesInVain => scenario.becomes(Scenario {
                sick_client: true,
                tries: 0.0,
                longest_wait: Some(Duration::from_millis(800)),
                ..Scenario::going_on()
            }),
            // Of four nodes, two clients with different anchors may have two each.
            Self::YieldsForThreeTtls => scenario.becomes(Scenario {
                nodes: 4,
                ..Scenario::anchor_misses_releases()
            }),
            Self::BelievesTheAnchorAlone => scenario.becomes(Scenario::anchor_misses_releases()),
            Self::BusyBeforeTheAnchor => scenario.becomes(Scenario {
                fewest_grants: 1,
                ..Scenario::simultaneous_tries(3, 10)
            }),
            _ => {}
        }
    }
}
