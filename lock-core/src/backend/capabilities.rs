//! What a backend promises beyond the minimum.

use std::time::Duration;

/// What a backend can do beyond what every backend must. The default: nothing.
///
/// Core refuses an option that the backend cannot honour before the call, and the conformance suite holds a backend
/// to what it declares. Built by naming what there is:
///
/// ```
/// # use lock_core::backend::Capabilities;
/// let capabilities = Capabilities::default().extend().fixed_lease();
/// assert!(capabilities.extend && !capabilities.fifo);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Capabilities {
    /// A hold can be kept for longer by hand than its ttl: [`Hold::renew`](super::Hold::renew) takes any ttl.
    pub extend: bool,
    /// A hold can be taken for a term that is never renewed.
    pub fixed_lease: bool,
    /// Waiters are served in order, with the bounded bypass that the contract describes.
    pub fifo: bool,
    /// A hold passes to the next waiter of the same process in one request:
    /// [`Hold::hand_over`](super::Hold::hand_over) is more than a release.
    pub hand_over: bool,
    /// A name can stay taken for a minimum time, even after its holder has exited:
    /// [`ReleaseOptions::keep_for`](super::ReleaseOptions::keep_for) is honoured.
    pub minimum_hold: bool,
    /// An acquire sent after a release of the same process takes effect after it. A release goes out when it is first
    /// polled, where there is a connection; core polls it free of tokio's budget for tasks.
    pub ordered: bool,
    /// Tokens keep growing after the server has lost its data.
    pub durable_tokens: bool,
    /// Holds are kept by the backend's session: core renews none of them.
    pub session_renewal: bool,
    /// The shortest ttl that can be kept. Defaults to 1 ms.
    pub shortest_ttl: Duration,
    /// The longest ttl that can be kept. Defaults to 365 days.
    pub longest_ttl: Duration,
}

impl Default for Capabilities {
    fn default() -> Self {
        Self {
            extend: false,
            fixed_lease: false,
            fifo: false,
            hand_over: false,
            minimum_hold: false,
            ordered: false,
            durable_tokens: false,
            session_renewal: false,
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
    /// Declares [`hand_over`](#structfield.hand_over).
    hand_over,
    /// Declares [`minimum_hold`](#structfield.minimum_hold).
    minimum_hold,
    /// Declares [`ordered`](#structfield.ordered).
    ordered,
    /// Declares [`durable_tokens`](#structfield.durable_tokens).
    durable_tokens,
    /// Declares [`session_renewal`](#structfield.session_renewal).
    session_renewal,
}

impl Capabilities {
    /// Declares from which ttl to which a hold can be kept.
    #[must_use]
    pub fn ttl_between(mut self, shortest: Duration, longest: Duration) -> Self {
        self.shortest_ttl = shortest;
        self.longest_ttl = longest;
        self
    }
}
