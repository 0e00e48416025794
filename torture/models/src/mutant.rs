//! The mutants of the models: each a bug that some lock library had, or that a draft of this one had. Each must break
//! the property that is named here.

use super::properties::*;

macro_rules! mutants {
    ($($(#[$doc:meta])+ $mutant:ident breaks $property:ident,)+) => {
        /// A deliberate bug in a model.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Mutant {
            $($(#[$doc])+ $mutant,)+
        }

        impl Mutant {
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
    // Of the client's clock.
    /// Nobody looks at the clock: a hold is believed in until it is released.
    NoDeadline breaks ONE_BELIEVER,
    /// Belief counts from the answer instead of from before sending.
    DeadlineFromReply breaks ONE_BELIEVER,
    /// Belief lasts for the whole ttl, although clocks do not run alike.
    NoMargin breaks ONE_BELIEVER,
    // Of the fence.
    /// The resource refuses nothing.
    NoFence breaks NO_LOST_UPDATE,
    /// The resource refuses stale writes, but learns of a token only by a write.
    FenceOnWritesOnly breaks NO_LOST_UPDATE,
    /// After a restart without data tokens begin anew.
    CounterLost breaks TOKENS_INCREASE,
    // Of single requests.
    /// A renewal sets the end, whatever it was.
    RenewalShortens breaks ONE_BELIEVER,
    /// A renewal adds the ttl to the end.
    RenewalAdds breaks ENTRIES_END,
    /// A renewal writes the hold, whether it is there or not.
    RenewalResurrects breaks DEAD_STAY_DEAD,
    /// A release ends whatever hold there is.
    DeletesWithoutCompare breaks ONE_BELIEVER,
    /// An abandon leaves no tombstone, and its acquire may arrive later.
    NoTombstone breaks DEAD_STAY_DEAD,
    /// The asker's ttl is taken for the longest that the holder's hold may last.
    AskerCutsHolder breaks ONE_BELIEVER,
    /// The last ttl that the holder asked for is taken for the longest, although an earlier one still runs.
    LastTermCuts breaks ONE_BELIEVER,
    /// A hold that outlasts its longest term, because the server's clock was set back, is left as it is.
    NotRepaired breaks ENTRIES_END,
    // Of the queue.
    /// A waiter believes in the offer, without a confirm.
    BelievesTheOffer breaks ONE_BELIEVER,
    /// A queue entry is gone as soon as the name is offered to it.
    LeavesAtGrant breaks HEAD_NOT_STARVED,
    /// Nobody is told to look after the grace.
    NoStandBy breaks HUNG_COSTS_GRACE,
    /// When the stand-by leaves, nobody takes its part.
    StandByNotRelieved breaks HUNG_COSTS_GRACE,
    /// A waiter that leaves, and finds the name free, tells nobody.
    LeavesAFreeName breaks HUNG_COSTS_GRACE,
    /// A waiter sleeps until the hold ends, and does not refresh its entry.
    SleepsToTheEnd breaks SOMEBODY_AWAKE,
    /// A waiter's refresh keeps everybody's entry.
    RefreshKeepsAll breaks ENTRIES_END,
    /// After a connection was cut its waiters do not ask anew.
    NotAskedAfterACut breaks HUNG_COSTS_GRACE,
    // Of passes.
    /// A pass passes the token on with the hold.
    PassKeepsToken breaks TOKENS_INCREASE,
    /// A grant reserves no tokens, though its hold is passed on.
    GrantReservesNothing breaks TOKENS_INCREASE,
    /// A hold is passed on whose release is under way.
    PassesWhatIsReleased breaks ONE_BELIEVER,
    /// Holds are passed on faster than the server's clock runs, which alone knows the last token after a loss of data.
    TokensAheadOfTheClock breaks TOKENS_INCREASE,
    /// A pass begins a whole lease, without a request.
    PassArmsAnew breaks ONE_BELIEVER,
    /// A process passes on to its own as long as it likes.
    PassesForEver breaks HEAD_NOT_STARVED,
    // Of minimum holds.
    /// A release frees the name, whatever it is to be kept for.
    KeepForgotten breaks KEPT_IN_TIME,
    /// A name that was kept is reserved for nobody.
    KeptForAnyone breaks HEAD_NOT_STARVED,
    /// A name is kept until a moment of the server's clock, even if that is set back.
    KeptNotRepaired breaks SOMEBODY_AWAKE,
    /// A kept name still carries its holder's id, and a late renewal finds it.
    KeptIsRenewed breaks DEAD_STAY_DEAD,
    // Of ZooKeeper's sessions.
    /// An answered heartbeat is taken to prolong the session by itself.
    BeatProvesItself breaks ONE_BELIEVER,
    /// An answered heartbeat is taken to prove one that was sent half a tick before, whenever that was answered.
    BeatsSpacedBySending breaks ONE_BELIEVER,
    /// A server that was a standalone one is taken for one, although the connection has ended since.
    StandaloneForEver breaks ONE_BELIEVER,
    // Of tokens that the server itself numbers or may roll back.
    /// ZooKeeper: a waiter's token is the zxid of its node's creation, although a hold that was granted since had a later one.
    ZookeeperCreatedOnly breaks TOKENS_INCREASE,
    /// ZooKeeper: a server that restarted is believed when it says how old the last change of a directory is.
    TrustsARestartedServer breaks TOKENS_INCREASE,
    /// ZooKeeper: a token is a zxid, and a pass takes the number after it.
    NoRoomForPasses breaks TOKENS_INCREASE,
    /// ZooKeeper: the status takes the last change of all for the one that the token is based on.
    StatusGuessesTheZxid breaks STATUS_SHOWS_THE_TOKEN,
    /// ZooKeeper: only a request with a token floor adds the offset.
    OffsetForFloorsOnly breaks TOKENS_INCREASE,
    /// ZooKeeper: a client adds the offset that it saw last, without a look at the server.
    KnownOffsetIsEnough breaks TOKENS_INCREASE,
    /// ZooKeeper: a client adds an offset that it first sees after the listing that makes it the holder.
    OffsetNotKnownBefore breaks TOKENS_INCREASE,
    /// ZooKeeper: a raise does not check in its transaction that the hold is still there.
    RaiseWithoutACheck breaks TOKENS_INCREASE,
    /// ZooKeeper: a client goes by the offset that it watches, and never asks whether the watch has fired.
    WatchIsNotAsked breaks TOKENS_INCREASE,
    /// ZooKeeper: a grant does not write the offset into the lock's directory.
    OffsetNotInTheDirectory breaks STATUS_SHOWS_THE_TOKEN,
    /// Row lock: a token ahead of the server's clock is rolled back with its holder's transaction.
    RolledBackToken breaks TOKENS_INCREASE,
    // Of ZooKeeper's queue.
    /// A reader's token is the zxid of its node, although a writer that it waited for has a later one.
    SharersTakeTheirCreation breaks TOKENS_INCREASE,
    /// A reader takes the last change of the children in its list, as a writer does.
    SharersTakeTheList breaks TOKENS_INCREASE,
    /// A reader takes the zxid of its node beside a downgraded hold, whose grant may be based on the same.
    CreatedBesideADowngrade breaks TOKENS_INCREASE,
    /// A reader waits for writers behind it.
    ReadersHeedThoseBehind breaks NOBODY_SLEEPS,
    /// Readers do not look again when the data of the node that they watch has changed.
    DowngradeUnnoticed breaks NOBODY_SLEEPS,
    /// Readers look for a downgrade only if the writer that they watch is the first in their list, which may be old.
    DowngradeOfTheFirstOnly breaks NOBODY_SLEEPS,
    /// A downgrade creates a node for the reader and deletes that of the writer.
    DowngradeByNewNode breaks HOLDERS_FIT,
    /// Whoever enters after it has waited for permits does not write its node.
    EntersUnnoticed breaks NOBODY_SLEEPS,
    /// A request for permits enters that fits with all who have entered, although one before it waits.
    PassesLargePermits breaks HOLDERS_FIT,
    // Of ZooKeeper's minimum holds.
    /// The times of two leaders are compared.
    ComparesTwoClocks breaks KEPT_IN_TIME,
    /// A release deletes the holder's node, and after that writes how long the name is still kept.
    ReleasesBeforeKeeping breaks KEPT_IN_TIME,
    /// A kept node that is over is deleted, although it was written since it was read.
    DeletesAnyKept breaks KEPT_IN_TIME,
    /// A kept node whose time nobody can tell is left as it is.
    KeptWithoutAClock breaks NOBODY_SLEEPS,
    // Of PostgreSQL's lease table.
    /// A statement that waited for the row does not look at it again.
    DecidesBySnapshot breaks ONE_BELIEVER,
    /// Nothing looks at the tombstones.
    TombstonesUnread breaks DEAD_STAY_DEAD,
    /// An id that was given up cannot take the name, but enters the queue.
    QueuesTheDead breaks DEAD_STAY_DEAD,
    /// Whatever ends an id looks for its entries before it has locked the row.
    BuriesBySnapshot breaks DEAD_STAY_DEAD,
    /// Each grant from the queue removes the mark that keeps newcomers out.
    EachGrantUnmarks breaks HEAD_NOT_STARVED,
    /// Places are counted in the row, whose count a crash may undo.
    PlacesAreCounted breaks HEAD_NOT_STARVED,
    // Of modes.
    /// The first reader that leaves frees the name for all.
    FirstReaderFrees breaks HOLDERS_FIT,
    /// A downgrade ends the exclusive hold and asks for a shared one.
    DowngradeLetsWriterIn breaks HOLDERS_FIT,
    /// A downgrade admits no waiting readers.
    DowngradeTellsNobody breaks FIRST_IS_TOLD,
    /// Of several waiters that fit one is told.
    OneIsTold breaks FIRST_IS_TOLD,
    /// Readers pass a writer that waits.
    ReadersPassWriters breaks HEAD_NOT_STARVED,
    /// A request for few permits passes one for many.
    SmallPassesLarge breaks HEAD_NOT_STARVED,
    /// Two holders at once may upgrade.
    TwoUpgraders breaks HOLDERS_FIT,
    /// An upgrade is granted although the hold that it replaces has ended.
    UpgradeOfNothing breaks NOT_WRITTEN_MEANWHILE,
    /// An upgrade keeps the token of the hold that it replaces.
    UpgradeKeepsToken breaks TOKENS_INCREASE,
    /// An upgrade ends the hold that it replaces, but does not retire its id.
    ReplacedIsNotRetired breaks DEAD_STAY_DEAD,
    /// An upgrade that is given up after its grant, which nobody heard of, ends the hold that it replaced too.
    AbandonedUpgradeEndsAll breaks HOLDERS_FIT,
    /// A request that is given up leaves what it was offered.
    CancelLeavesPermit breaks DEAD_STAY_DEAD,
    /// One holder's renewal renews all.
    RenewsAll breaks ENTRIES_END,
    // Of several names at once.
    /// The names are acquired in the order in which the caller names them.
    CallersOrder breaks NO_CIRCLE,
    /// After a refusal nothing is given back.
    KeepsWhatItGot breaks NO_CIRCLE,
    /// Whoever gives up leaves the request that it waits for, and nothing else.
    LeavesPartBehind breaks NOTHING_LEFT,
    // Of joined holds.
    /// Readers join as long as there is a hold.
    UnboundedJoins breaks WRITER_IS_NOT_STARVED,
    /// A reader joins a hold whose last guard has left, and whose release is under way.
    JoinsAfterTheLast breaks HOLDERS_FIT,
    /// A hold is not released when its last guard leaves.
    KeptAfterTheLast breaks ENDS_WITH_ITS_LAST,
    /// A guard believes for a whole lease from when it joined.
    LeaseFromTheJoin breaks HOLDERS_FIT,
}
