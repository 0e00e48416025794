//! The features of a backend beyond the minimum.

use std::time::Duration;

/// The features that a backend has beyond the required ones. Defaults to none.
///
/// Core refuses an option that the backend cannot honour before it calls the backend. The conformance suite checks what a
/// backend declares.
///
/// # Examples
/// ```
/// # use lock_core::backend::Capabilities;
/// let capabilities = Capabilities::default().extend().fixed_lease();
/// assert!(capabilities.extend && !capabilities.fifo);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Capabilities {
    /// A hold can be extended beyond its TTL: [`Hold::renew`](super::Hold::renew) takes any TTL.
    pub extend: bool,
    /// A lease can be fixed: granted for its TTL and never renewed.
    pub fixed_lease: bool,
    /// Waiters are served in the order in which they came, but for the bounded number of passes within a
    /// process.
    pub fifo: bool,
    /// A hold passes to the next waiter of the same process without a request: [`Hold::pass`](super::Hold::pass), as often as
    /// the grant [reserved](super::AcquireRequest::reserve) tokens.
    pub pass: bool,
    /// The longest time since the server last confirmed a hold that [passes](Self::pass). It is for holds that end with
    /// their connection: another client may have the name before this process notices. Core then [passes the hold
    /// on](super::rules::is_confirmed) only if a request armed its lease that was sent after the next holder's acquire
    /// began, and no longer ago than this. Otherwise core releases it. Defaults to `None`: nobody else has the name
    /// before the lease ends.
    pub pass_confirmed_within: Option<Duration>,
    /// A name can stay taken for a minimum time, even after its holder has exited:
    /// [`ReleaseOptions::keep_for`](super::ReleaseOptions::keep_for) is honoured.
    pub minimum_hold: bool,
    /// An acquire that is sent after a release of the same process takes effect after it. With a connection at hand, a
    /// release is sent by its first poll. Core polls it outside Tokio's cooperative budget.
    pub ordered: bool,
    /// Tokens keep growing after the server has lost its data.
    pub durable_tokens: bool,
    /// A grant can have any token that is asked for: above any [floor](super::AcquireRequest::token_floor), however far away, and
    /// [at least](super::AcquireRequest::token_at_least) any other; and a hold's token can be [raised](super::Hold::raise_token).
    pub any_floor: bool,
    /// A client is notified at once when a name changes hands:
    /// [`DistributedLock::follow`](super::DistributedLock::follow).
    pub follow: bool,
    /// The backend's session renews all holds, and core renews none.
    pub session_renewal: bool,
    /// Readers can hold a name together: [`Mode::Shared`](super::Mode::Shared).
    pub shared: bool,
    /// One reader may become the exclusive holder: [`Mode::Upgradable`](super::Mode::Upgradable).
    pub upgradable: bool,
    /// An exclusive hold can become a shared one: [`Hold::downgrade`](super::Hold::downgrade).
    pub downgrade: bool,
    /// Names can be listed: [`DistributedLock::list`](super::DistributedLock::list).
    pub list: bool,
    /// A hold can be revoked at the end of its lease:
    /// [`DistributedLock::revoke`](super::DistributedLock::revoke) with [`Revoke::AtLeaseEnd`](super::Revoke::AtLeaseEnd).
    pub revoke: bool,
    /// A hold can be revoked at once: the same with [`Revoke::Now`](super::Revoke::Now).
    pub revoke_now: bool,
    /// The highest limit of [`Mode::Permits`](super::Mode::Permits) that the backend can keep; 0 if it keeps no permits.
    pub permits: u32,
    /// The shortest TTL that the backend can keep. Defaults to 1 ms.
    pub shortest_ttl: Duration,
    /// The longest TTL that the backend can keep. Defaults to 365 days.
    pub longest_ttl: Duration,
}

impl Default for Capabilities {
    fn default() -> Self {
        Self {
            extend: false,
            fixed_lease: false,
            fifo: false,
            pass: false,
            pass_confirmed_within: None,
            minimum_hold: false,
            ordered: false,
            durable_tokens: false,
            any_floor: false,
            follow: false,
            session_renewal: false,
            shared: false,
            upgradable: false,
            downgrade: false,
            list: false,
            revoke: false,
            revoke_now: false,
            permits: 0,
            shortest_ttl: Duration::from_millis(1),
            longest_ttl: Duration::from_secs(365 * 24 * 60 * 60),
        }
    }
}

macro_rules! declare {
    ($($(#[$doc:meta])* $name:ident),+ $(,)?) => {
        impl Capabilities {
            $($(#[$doc])*
            #[must_use]
            pub fn $name(mut self) -> Self {
                self.$name = true;
                self
            })+
        }
    };
}

declare! {
    /// Declares [`extend`](#structfield.extend).
    extend,
    /// Declares [`fixed_lease`](#structfield.fixed_lease).
    fixed_lease,
    /// Declares [`fifo`](#structfield.fifo).
    fifo,
    /// Declares [`pass`](#structfield.pass).
    pass,
    /// Declares [`minimum_hold`](#structfield.minimum_hold).
    minimum_hold,
    /// Declares [`ordered`](#structfield.ordered).
    ordered,
    /// Declares [`durable_tokens`](#structfield.durable_tokens).
    durable_tokens,
    /// Declares [`any_floor`](#structfield.any_floor).
    any_floor,
    /// Declares [`follow`](#structfield.follow).
    follow,
    /// Declares [`session_renewal`](#structfield.session_renewal).
    session_renewal,
    /// Declares [`shared`](#structfield.shared).
    shared,
    /// Declares [`upgradable`](#structfield.upgradable).
    upgradable,
    /// Declares [`downgrade`](#structfield.downgrade).
    downgrade,
    /// Declares [`list`](#structfield.list).
    list,
    /// Declares [`revoke`](#structfield.revoke).
    revoke,
    /// Declares [`revoke_now`](#structfield.revoke_now).
    revoke_now,
}

impl Capabilities {
    /// Declares [`permits`](#structfield.permits), with the highest limit.
    #[must_use]
    pub fn permits(mut self, most: u32) -> Self {
        self.permits = most;
        self
    }

    /// Declares [`pass`](#structfield.pass), of holds that the server confirmed no longer ago than
    /// [this](#structfield.pass_confirmed_within).
    #[must_use]
    pub fn pass_if_confirmed_within(mut self, time: Duration) -> Self {
        self.pass = true;
        self.pass_confirmed_within = Some(time);
        self
    }

    /// Declares the shortest and the longest TTL that the backend can keep.
    #[must_use]
    pub fn ttl_between(mut self, shortest: Duration, longest: Duration) -> Self {
        self.shortest_ttl = shortest;
        self.longest_ttl = longest;
        self
    }
}
