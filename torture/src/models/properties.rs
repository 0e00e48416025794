//! What holds whatever happens, by name.

/// At most one client believes that it holds.
pub const ONE_BELIEVER: &str = "one believer";
/// Every grant's token is larger than all before.
pub const TOKENS_INCREASE: &str = "tokens increase";
/// No accepted write is based on anything but the last one.
pub const NO_LOST_UPDATE: &str = "no lost update";
/// A hold ends at the latest a ttl, an offer a grace, and a queue entry its time after its owner's last request.
pub const ENTRIES_END: &str = "no hold or queue entry outlives its bound";
/// What was released or abandoned has neither hold nor queue entry any more.
pub const DEAD_STAY_DEAD: &str = "dead ids stay dead";
/// A free name with a waiter that runs is granted within the grace and one refresh.
pub const SOMEBODY_AWAKE: &str = "somebody is always awake";
/// While nothing else goes wrong, a hung waiter costs the others no more than the grace.
pub const HUNG_COSTS_GRACE: &str = "one hung waiter costs one grace";
/// Nobody who came later is served first, unless a hold or an offer had expired, or within the bound of hand-overs.
pub const HEAD_NOT_STARVED: &str = "the head of the queue is not starved";

/// A name that is kept is granted to nobody before its time.
pub const KEPT_IN_TIME: &str = "a minimum hold is kept";

/// A request with a token floor gets a token above it.
pub const ABOVE_THE_FLOOR: &str = "tokens are above their floor";
/// The server's status shows the token that its holder has.
pub const STATUS_SHOWS_THE_TOKEN: &str = "the status shows the holder's token";

/// To be reached: two holds have done their work and were released. A model that cannot shows nothing.
pub const TWO_HOLDS_DONE: &str = "two holds done";
