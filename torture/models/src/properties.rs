//! The names of the properties, which hold in every state.

/// At most one client believes that it holds.
pub const ONE_BELIEVER: &str = "one believer";
/// Every grant's token is larger than all before.
pub const TOKENS_INCREASE: &str = "tokens increase";
/// No accepted write is based on anything but the last one.
pub const NO_LOST_UPDATE: &str = "no lost update";
/// A hold ends at the latest a ttl, an offer a grace, and a queue entry its time after its owner's last request.
pub const ENTRIES_END: &str = "no hold or queue entry outlives its bound";
/// An id that was released or abandoned has neither hold nor queue entry any more.
pub const DEAD_STAY_DEAD: &str = "dead ids stay dead";
/// A free name with a waiter that runs is granted within the grace and one refresh.
pub const SOMEBODY_AWAKE: &str = "somebody is always awake";
/// While nothing else goes wrong, a hung waiter costs the others no more than the grace.
pub const HUNG_COSTS_GRACE: &str = "one hung waiter costs one grace";
/// Nobody who came later is served first, unless a hold or an offer had expired, or within the bound of passes.
pub const HEAD_NOT_STARVED: &str = "the head of the queue is not starved";

/// A name that is kept is granted to nobody before its time.
pub const KEPT_IN_TIME: &str = "a minimum hold is kept";

/// A request with a token floor gets a token above it.
pub const ABOVE_THE_FLOOR: &str = "tokens are above their floor";
/// The server's status shows the token that its holder has.
pub const STATUS_SHOWS_THE_TOKEN: &str = "the status shows the holder's token";

/// Who believes to hold fits with all that were granted the name before.
pub const HOLDERS_FIT: &str = "who holds together fits";
/// Between a hold and its upgrade nobody holds the name exclusively.
pub const NOT_WRITTEN_MEANWHILE: &str = "nobody writes before an upgrade";
/// A waiter that is among the first and fits is told at once.
pub const FIRST_IS_TOLD: &str = "the first that fit are told";

/// While one waits who may enter, somebody is awake who will find out.
pub const NOBODY_SLEEPS: &str = "nobody sleeps who may enter";

/// Everybody who asks for the name is granted it once nothing goes wrong any more.
pub const EVERYBODY_IS_SERVED: &str = "everybody is served after the faults";

/// A client that reaches a majority goes on, whatever happens to the others.
pub const HEALTHY_GO_ON: &str = "whoever reaches a majority goes on";
/// A hold that a majority of the nodes denies is not believed in any more.
pub const LOSS_IS_NOTICED: &str = "a denied hold is noticed";

/// Nobody waits for somebody that waits for it, or so on.
pub const NO_CIRCLE: &str = "nobody waits in a circle";
/// Unless all are done, somebody can go on without giving up.
pub const EVERYBODY_GETS_ON: &str = "somebody can always go on";
/// Who is done with its names has neither hold nor queue entry any more.
pub const NOTHING_LEFT: &str = "nothing is left behind";
/// Who has acquired several names holds all of them.
pub const ALL_OR_NONE: &str = "all names or none";

/// All guards of a hold believe in one lease.
pub const LOSS_REACHES_ALL: &str = "loss reaches every guard";
/// While a writer waits, a bounded number of readers enter.
pub const WRITER_IS_NOT_STARVED: &str = "a writer is not starved by joins";
/// A hold is released if, and only if, its last guard has left.
pub const ENDS_WITH_ITS_LAST: &str = "a joined hold ends with its last guard";

/// To be reached: two hold together.
pub const HELD_TOGETHER: &str = "two hold together";
/// To be reached: two holds have done their work and were released. A model that cannot shows nothing.
pub const TWO_HOLDS_DONE: &str = "two holds done";
