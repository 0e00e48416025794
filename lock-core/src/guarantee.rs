//! Guarantees that an application may require of its lock server.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

pub use self::verdict::Verdict;

use crate::duration::parse_duration;
use crate::error::{Error, ErrorKind, Result};

mod required;
mod verdict;

pub(crate) use self::required::Required;

/// A guarantee that a lock server may keep, and that an application may [require](crate::Locker::require).
///
/// The first variants are events that a hold survives: nobody else is granted its name while it still counts as held.
/// They depend on the server and its settings. The other variants are features of the backend. If one is
/// missing, the locker reports that at start, and not at the first use.
///
/// Displays as its id, such as `server-crash` or `ttl:1s`, and is parsed from that: in URLs and configuration files.
///
/// # Examples
/// ```
/// # use std::time::Duration;
/// use lock_core::Guarantee;
///
/// # fn main() -> Result<(), lock_core::Error> {
/// assert_eq!("fifo".parse::<Guarantee>()?, Guarantee::Fifo);
/// assert_eq!(Guarantee::Ttl(Duration::from_millis(500)).to_string(), "ttl:500ms");
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Guarantee {
    /// `server-crash`: a hold survives that the server crashes and starts again.
    ServerCrash,
    /// `failover`: a hold survives that another server takes the place of one that is gone.
    Failover,
    /// `partition`: the same while the former server is only cut off, and goes on serving.
    Partition,
    /// `clock-step`: a hold survives that the server's wall clock is set forward; in a quorum, that of one server.
    ClockStep,
    /// `connection-loss`: a hold survives that its connection breaks.
    ConnectionLoss,
    /// `no-eviction`: the server drops no hold to make room for others.
    NoEviction,
    /// `fifo`: waiters are served in the order in which they came, but for the bounded number of passes within a process.
    Fifo,
    /// `durable-tokens`: fencing tokens keep growing after the server has lost its data.
    DurableTokens,
    /// `shared`: readers can hold a name together: [`Locker::rw_lock`](crate::Locker::rw_lock).
    Shared,
    /// `upgradable`: a reader can become the writer: [`RwLock::upgradable`](crate::RwLock::upgradable).
    Upgradable,
    /// `downgrade`: a writer can become a reader: [`Guard::downgrade`](crate::Guard::downgrade).
    Downgrade,
    /// `permits:N`: semaphores with a limit of so many: [`Locker::semaphore`](crate::Locker::semaphore).
    Permits(u32),
    /// `fixed-lease`: a lock that is never renewed: [`Lock::fixed_lease`](crate::Lock::fixed_lease).
    FixedLease,
    /// `extend`: a hold can be extended beyond its TTL: [`Guard::extend`](crate::Guard::extend).
    Extend,
    /// `minimum-hold`: a name can stay taken for a minimum time: [`Lock::hold_at_least`](crate::Lock::hold_at_least).
    MinimumHold,
    /// `ttl:1s`: locks with this TTL.
    Ttl(Duration),
}

impl Guarantee {
    /// All of them, with these parameters.
    pub(crate) fn all(permits: u32, ttl: Duration) -> [Self; 16] {
        [
            Self::ServerCrash,
            Self::Failover,
            Self::Partition,
            Self::ClockStep,
            Self::ConnectionLoss,
            Self::NoEviction,
            Self::Fifo,
            Self::DurableTokens,
            Self::Shared,
            Self::Upgradable,
            Self::Downgrade,
            Self::Permits(permits),
            Self::FixedLease,
            Self::Extend,
            Self::MinimumHold,
            Self::Ttl(ttl),
        ]
    }

    /// Its name without the number of permits or the TTL.
    pub fn id(&self) -> &'static str {
        match self {
            Self::ServerCrash => "server-crash",
            Self::Failover => "failover",
            Self::Partition => "partition",
            Self::ClockStep => "clock-step",
            Self::ConnectionLoss => "connection-loss",
            Self::NoEviction => "no-eviction",
            Self::Fifo => "fifo",
            Self::DurableTokens => "durable-tokens",
            Self::Shared => "shared",
            Self::Upgradable => "upgradable",
            Self::Downgrade => "downgrade",
            Self::Permits(_) => "permits",
            Self::FixedLease => "fixed-lease",
            Self::Extend => "extend",
            Self::MinimumHold => "minimum-hold",
            Self::Ttl(_) => "ttl",
        }
    }
}

/// The form in which it is parsed: `1m30s`.
pub(crate) fn written(duration: Duration) -> String {
    humantime::format_duration(duration).to_string().replace(' ', "")
}

impl fmt::Display for Guarantee {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Permits(most) => write!(f, "{}:{most}", self.id()),
            Self::Ttl(ttl) => write!(f, "{}:{}", self.id(), written(*ttl)),
            _ => f.write_str(self.id()),
        }
    }
}

/// # Errors
/// [`ErrorKind::Misconfigured`] for an unknown id, with all that there are; for `permits` without a number, and `ttl` without a
/// duration.
impl FromStr for Guarantee {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let misconfigured = |message: String| Err(Error::new(ErrorKind::Misconfigured, message));
        let all = Self::all(0, Duration::ZERO);
        let (id, value) = match text.split_once(':') {
            Some((id, value)) => (id, Some(value)),
            None => (text, None),
        };
        let Some(guarantee) = all.into_iter().find(|guarantee| guarantee.id() == id) else {
            let known: Vec<String> = all.iter().map(Self::form).collect();
            return misconfigured(format!("`{text}` is no guarantee: there are {}", known.join(", ")));
        };
        match (guarantee, value) {
            (Self::Permits(_), Some(value)) => match value.parse() {
                Ok(most) => Ok(Self::Permits(most)),
                Err(_) => misconfigured(format!("`{text}` has no number of permits: write permits:5")),
            },
            (Self::Ttl(_), Some(value)) => match parse_duration(value) {
                Some(ttl) => Ok(Self::Ttl(ttl)),
                None => misconfigured(format!("`{text}` has no TTL: write ttl:1s or ttl:500ms")),
            },
            (Self::Permits(_) | Self::Ttl(_), None) => {
                misconfigured(format!("`{text}` lacks its value: write {}", guarantee.form()))
            }
            (guarantee, None) => Ok(guarantee),
            (guarantee, Some(_)) => misconfigured(format!("`{text}` has no value: write {}", guarantee.id())),
        }
    }
}

impl Guarantee {
    /// The form in which the guarantee is written, for error messages.
    fn form(&self) -> String {
        match self {
            Self::Permits(_) => "permits:N".to_owned(),
            Self::Ttl(_) => "ttl:DURATION".to_owned(),
            _ => self.id().to_owned(),
        }
    }
}

#[cfg(test)]
mod fuzz;
#[cfg(test)]
mod tests;
