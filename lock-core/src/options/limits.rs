//! The limits of a backend. Core checks options against them before it sends a request.

use std::fmt;
use std::time::Duration;

use crate::backend::{Capabilities, Mode};
use crate::error::{Error, ErrorKind, Result};
use crate::guarantee::{Guarantee, Verdict};

/// The longest label, in bytes.
pub(crate) const MAX_LABEL_BYTES: usize = 255;

/// A duration that people can read: long ones in days.
struct Readable(Duration);

impl fmt::Display for Readable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const DAY: u64 = 24 * 60 * 60;
        match self.0.as_secs() / DAY {
            0..2 => write!(f, "{:?}", self.0),
            days => write!(f, "{days} days"),
        }
    }
}

/// The limits of a locker and its backend.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) capabilities: Capabilities,
    /// An operation waits this long for a server that does not answer. Defaults to 5 s.
    pub(crate) operation_timeout: Duration,
    /// At most this many passes follow each other. Defaults to 16.
    pub(crate) passes: u32,
}

impl Limits {
    pub(crate) fn new(capabilities: Capabilities) -> Self {
        Self {
            capabilities,
            operation_timeout: Duration::from_secs(5),
            passes: 16,
        }
    }

    /// Refuses an option that needs this guarantee, if the backend's capabilities lack it.
    fn check(&self, guarantee: Guarantee) -> Result<()> {
        match self.capabilities.verdict(guarantee) {
            Some(Verdict::No { because, instead }) => Err(Error::new(
                ErrorKind::Unsupported,
                format!("{because} on this backend: {instead}"),
            )),
            _ => Ok(()),
        }
    }

    pub(crate) fn check_mode(&self, mode: Mode) -> Result<()> {
        match mode {
            Mode::Exclusive => Ok(()),
            Mode::Shared => self.check(Guarantee::Shared),
            Mode::Upgradable => self.check(Guarantee::Upgradable),
            Mode::Permits(permits) => self.check(Guarantee::Permits(permits.of())),
        }
    }

    /// The same as [`check_ttl`](Self::check_ttl), of a lock or locker: the error says how to choose another one.
    pub(crate) fn check_own_ttl(&self, ttl: Duration) -> Result<()> {
        self.check_time(ttl, " with `ttl` or `with_ttl`")
    }

    pub(crate) fn check_ttl(&self, ttl: Duration) -> Result<()> {
        self.check_time(ttl, "")
    }

    fn check_time(&self, ttl: Duration, how: &str) -> Result<()> {
        let (shortest, longest) = (self.capabilities.shortest_ttl, self.capabilities.longest_ttl);
        if ttl.is_zero() {
            return Err(Error::new(
                ErrorKind::Misconfigured,
                "a ttl of 0 holds nothing: choose a longer one",
            ));
        }
        if ttl < shortest {
            let message =
                format!("a ttl of {ttl:?} is shorter than this backend can keep: choose at least {shortest:?}{how}");
            return Err(Error::new(ErrorKind::Misconfigured, message));
        }
        if ttl > longest {
            let (ttl, longest) = (Readable(ttl), Readable(longest));
            let message = format!("a ttl of {ttl} is longer than this backend can keep: choose at most {longest}{how}");
            return Err(Error::new(ErrorKind::Misconfigured, message));
        }
        Ok(())
    }

    pub(crate) fn check_operation_timeout(&self) -> Result<()> {
        if !self.operation_timeout.is_zero() {
            return Ok(());
        }
        let message = "an operation timeout of 0 leaves the server no time to answer: choose a longer one";
        Err(Error::new(ErrorKind::Misconfigured, message))
    }

    pub(crate) fn check_label(label: &str) -> Result<()> {
        if label.len() <= MAX_LABEL_BYTES {
            return Ok(());
        }
        let message = format!(
            "a label has {} bytes, more than {MAX_LABEL_BYTES}: shorten it",
            label.len()
        );
        Err(Error::new(ErrorKind::Misconfigured, message))
    }

    pub(crate) fn check_fixed(&self) -> Result<()> {
        self.check(Guarantee::FixedLease)
    }

    /// `fixed_ttl`: that of a lease that is never renewed.
    pub(crate) fn check_minimum(&self, minimum: Duration, fixed_ttl: Option<Duration>) -> Result<()> {
        self.check(Guarantee::MinimumHold)?;
        if let Some(ttl) = fixed_ttl.filter(|ttl| *ttl < minimum) {
            let message = format!(
                "a fixed lease of {ttl:?} cannot be held for at least {minimum:?}: choose a ttl of at least that"
            );
            return Err(Error::new(ErrorKind::Misconfigured, message));
        }
        let longest = self.capabilities.longest_ttl;
        if minimum > longest {
            let (minimum, longest) = (Readable(minimum), Readable(longest));
            let message =
                format!("a minimum hold of {minimum} is longer than this backend can keep: choose at most {longest}");
            return Err(Error::new(ErrorKind::Misconfigured, message));
        }
        Ok(())
    }

    /// `fixed_ttl`: that of a lease that is never renewed.
    pub(crate) fn check_maximum(
        maximum: Duration,
        minimum: Option<Duration>,
        fixed_ttl: Option<Duration>,
    ) -> Result<()> {
        let refused = |message: String| Err(Error::new(ErrorKind::Misconfigured, message));
        if maximum.is_zero() {
            return refused("a maximum hold of 0 holds nothing: choose a longer one".to_owned());
        }
        if let Some(minimum) = minimum.filter(|minimum| *minimum > maximum) {
            return refused(format!(
                "a lock cannot be held for at least {minimum:?} and at most {maximum:?}: choose a maximum of at least the minimum"
            ));
        }
        match fixed_ttl.filter(|ttl| *ttl <= maximum) {
            Some(ttl) => refused(format!(
                "a fixed lease of {ttl:?} ends before a maximum hold of {maximum:?}: leave out `hold_at_most`"
            )),
            None => Ok(()),
        }
    }

    pub(crate) fn check_downgrade(&self) -> Result<()> {
        self.check(Guarantee::Downgrade)
    }

    pub(crate) fn check_extend(&self) -> Result<()> {
        self.check(Guarantee::Extend)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::Permits;

    #[test]
    fn what_a_backend_cannot_keep_is_refused_and_says_what_it_can() {
        let capabilities = Capabilities::default().ttl_between(Duration::from_secs(1), Duration::from_secs(60));
        let limits = Limits::new(capabilities);
        let refusal = |ttl| limits.check_ttl(ttl).unwrap_err();
        assert_eq!(refusal(Duration::ZERO).kind(), ErrorKind::Misconfigured);
        assert!(refusal(Duration::from_millis(999)).to_string().contains("at least 1s"));
        assert!(refusal(Duration::from_secs(61)).to_string().contains("at most 60s"));
        assert!(limits.check_ttl(Duration::from_secs(60)).is_ok());
        assert!(
            refusal(Duration::MAX)
                .to_string()
                .contains("a ttl of 213503982334601 days")
        );
        let hasty = Limits {
            operation_timeout: Duration::ZERO,
            ..limits
        };
        assert!(limits.check_operation_timeout().is_ok() && hasty.check_operation_timeout().is_err());
        assert_eq!(limits.check_fixed().unwrap_err().kind(), ErrorKind::Unsupported);
        assert_eq!(limits.check_extend().unwrap_err().kind(), ErrorKind::Unsupported);
        let permits = Mode::Permits(Permits::new(1, 5).unwrap());
        for mode in [Mode::Shared, Mode::Upgradable, permits] {
            assert_eq!(limits.check_mode(mode).unwrap_err().kind(), ErrorKind::Unsupported);
        }
        let few = Limits {
            capabilities: capabilities.permits(4),
            ..limits
        };
        assert!(few.check_mode(permits).unwrap_err().to_string().contains("at most 4"));
        assert!(limits.check_mode(Mode::Exclusive).is_ok());
        let refusal = |limits: Limits, minimum, ttl| limits.check_minimum(minimum, ttl).unwrap_err();
        let second = Duration::from_secs(1);
        let unsupported = refusal(limits, second, None);
        assert_eq!(unsupported.kind(), ErrorKind::Unsupported);
        assert!(
            unsupported.to_string().contains("use Redis, ZooKeeper"),
            "{unsupported}"
        );
        let limits = Limits {
            capabilities: capabilities.minimum_hold(),
            ..limits
        };
        assert!(refusal(limits, second * 61, None).to_string().contains("at most 60s"));
        assert!(
            refusal(limits, second * 2, Some(second))
                .to_string()
                .contains("fixed lease of 1s")
        );
        assert!(limits.check_minimum(second, Some(second)).is_ok());
        let refusal = |maximum, minimum, ttl| Limits::check_maximum(maximum, minimum, ttl).unwrap_err().to_string();
        assert!(refusal(Duration::ZERO, None, None).contains("holds nothing"));
        assert!(refusal(second, Some(second * 2), None).contains("at least 2s and at most 1s"));
        assert!(refusal(second, None, Some(second)).contains("a fixed lease of 1s ends before"));
        assert!(Limits::check_maximum(second, Some(second), Some(second * 2)).is_ok());
        assert!(Limits::check_label(&"x".repeat(255)).is_ok() && Limits::check_label(&"x".repeat(256)).is_err());
    }
}
