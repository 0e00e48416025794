//! What one acquire asks for.

use std::time::Duration;

use super::limits::Limits;
use crate::backend::request::{RequestControl, RequestOptions, Terms};
use crate::backend::{AcquireRequest, Mode};
use crate::error::{Error, ErrorKind, Result};
use crate::guarantee::Required;
use crate::name::LockName;
use crate::reentry::ReentryKey;
use crate::sync::Arc;
use crate::sync::time::Instant;
use crate::time::within;
use crate::token::FencingToken;

/// How many tokens a grant reserves at most: one for itself, and one for each pass.
const MOST_TOKENS: u32 = 17;

/// What an acquire asks for, checked against what the backend can do.
#[derive(Clone, Debug)]
pub(crate) struct AcquireOptions {
    pub(crate) name: LockName,
    pub(crate) mode: Mode,
    pub(crate) ttl: Duration,
    pub(crate) label: Option<Arc<str>>,
    pub(crate) fixed: bool,
    pub(crate) minimum: Option<Duration>,
    pub(crate) maximum: Option<Duration>,
    pub(crate) reentry: Option<ReentryKey>,
    /// Whether anybody can learn the token from the server.
    pub(crate) shows_token: bool,
    /// The token must be larger than this one.
    pub(crate) token_floor: Option<FencingToken>,
    pub(crate) limits: Limits,
    /// What the server must keep.
    pub(crate) required: Option<Arc<Required>>,
}

/// How long an acquire waits for a name that is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WaitLimit {
    /// Not at all, and that it is taken is no error.
    Once,
    /// So long; zero is one try, and a name that is taken is a timeout.
    Within(Duration),
    /// So long, which is what is left of the limit for several locks.
    Rest(Rest),
    Forever,
}

/// What is left for one lock of the limit that a caller gave for several.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rest {
    pub(crate) left: Duration,
    /// As the caller gave it.
    pub(crate) limit: Duration,
    /// For how many locks.
    pub(crate) locks: usize,
    /// Whether the server said just now that one of them is taken.
    pub(crate) is_crowded: bool,
}

impl WaitLimit {
    pub(crate) fn is_patient(self) -> bool {
        match self {
            Self::Once => false,
            Self::Within(limit) => !limit.is_zero(),
            Self::Rest(_) | Self::Forever => true,
        }
    }

    /// Whether most of the caller's time was spent on locks that were taken. If the server does not answer in the rest, it
    /// is not silent.
    pub(crate) fn was_spent_waiting(self) -> bool {
        matches!(self, Self::Rest(rest) if rest.is_crowded && rest.left < rest.limit / 2)
    }
}

impl Rest {
    /// The end of a sentence that says how long nothing was acquired.
    pub(crate) fn text(self) -> String {
        match self.locks {
            1 => within(self.limit),
            locks => format!("{}, the limit for all {locks} locks", within(self.limit)),
        }
    }
}

impl AcquireOptions {
    pub(crate) fn check(&self) -> Result<()> {
        self.limits.check_mode(self.mode)?;
        self.limits.check_own_ttl(self.ttl)?;
        if let Some(label) = &self.label {
            Limits::check_label(label)?;
        }
        if self.fixed {
            self.limits.check_fixed()?;
        }
        if self.mode != Mode::Exclusive {
            self.check_shareable()?;
        }
        let fixed_ttl = self.fixed.then_some(self.ttl);
        if let Some(minimum) = self.minimum {
            self.limits.check_minimum(minimum, fixed_ttl)?;
        }
        match self.maximum {
            Some(maximum) => Limits::check_maximum(maximum, self.minimum, fixed_ttl),
            None => Ok(()),
        }
    }

    /// What only an exclusive hold can have.
    fn check_shareable(&self) -> Result<()> {
        if self.minimum.is_some() {
            let message = "a minimum hold is for exclusive locks: leave out `hold_at_least`";
            return Err(Error::new(ErrorKind::Misconfigured, message));
        }
        if self.reentry.is_some() && matches!(self.mode, Mode::Permits(_)) {
            let message =
                "permits cannot be acquired again by a key: leave out `reentrant`, or take more permits at once";
            return Err(Error::new(ErrorKind::Misconfigured, message));
        }
        Ok(())
    }

    /// How long the acquire may take in all: a single try, as long as a server may take to answer.
    pub(crate) fn time_limit(&self, wait: WaitLimit) -> Option<Duration> {
        match wait {
            WaitLimit::Within(limit) if wait.is_patient() => Some(limit),
            WaitLimit::Rest(rest) => Some(rest.left),
            WaitLimit::Once | WaitLimit::Within(_) => Some(self.limits.operation_timeout),
            WaitLimit::Forever => None,
        }
    }

    /// For how long a grant holds: the minimum is kept even by a process that dies at once.
    pub(crate) fn term(&self) -> Duration {
        self.minimum.map_or(self.ttl, |minimum| minimum.max(self.ttl))
    }

    /// The terms of this plan; `deadline` is that of whoever waits longest.
    pub(crate) fn terms(&self, deadline: Option<Instant>) -> Terms {
        let mut terms = Terms::new(self.term()).until(deadline);
        if let Some(minimum) = self.minimum {
            terms = terms.minimum(minimum);
        }
        match &self.label {
            Some(label) => terms.label(label.clone()),
            None => terms,
        }
    }

    /// A request of its own. Other waiters may share it if it waits.
    pub(crate) fn request(&self, wait: WaitLimit, deadline: Option<Instant>) -> (AcquireRequest, RequestControl) {
        self.request_options(wait, deadline).start()
    }

    fn request_options(&self, wait: WaitLimit, deadline: Option<Instant>) -> RequestOptions {
        let options = RequestOptions::new(self.name.clone(), self.terms(deadline));
        let mut options = options
            .mode(self.mode)
            .waits(wait.is_patient())
            .fixed(self.fixed)
            .shows_token(self.shows_token);
        if self.can_pass() {
            options = options.reserve(self.limits.passes.saturating_add(1).min(MOST_TOKENS));
        }
        match self.token_floor {
            Some(floor) => options.token_above(floor),
            None => options,
        }
    }

    /// Whether a hold on these terms may be passed on without asking the server.
    fn can_pass(&self) -> bool {
        self.mode == Mode::Exclusive && !self.fixed && self.minimum.is_none()
    }

    /// Whether this may have a hold on the terms of `held`, passed on as it is.
    pub(crate) fn may_inherit(&self, held: &Self) -> bool {
        let terms = |options: &Self| (options.mode, options.ttl);
        self.can_pass() && held.can_pass() && terms(self) == terms(held) && self.label == held.label
    }

    /// Whether this may have a hold with this token.
    pub(crate) fn allows(&self, token: FencingToken) -> bool {
        self.token_floor.is_none_or(|floor| token > floor)
    }

    /// Whether a caller may go on with a request that another one began. The first renewal lengthens a ttl, and nothing corrects
    /// the rest.
    pub(crate) fn may_go_on_with(&self, request: &AcquireRequest) -> bool {
        let (mode, fixed, floor) = (request.mode(), request.is_fixed(), request.token_floor());
        let (longest_ttl, minimum) = request.longest_terms();
        let is_long_enough = match fixed {
            true => longest_ttl == self.term(),
            // What was sent may have been granted for the longest.
            false => longest_ttl <= self.term(),
        };
        let shows_token = self.shows_token == request.shows_token();
        (self.mode, self.fixed, self.token_floor, self.minimum) == (mode, fixed, floor, minimum)
            && shows_token
            && is_long_enough
    }

    /// Whether a reader may join the shared hold of another one, which has this token: it has all that it asked for, and
    /// looks no different to those who ask who holds the lock.
    pub(crate) fn may_join(&self, held: &Self, token: FencingToken) -> bool {
        let is_plain = |options: &Self| {
            options.mode == Mode::Shared && !options.fixed && options.reentry.is_none() && options.maximum.is_none()
        };
        is_plain(self) && is_plain(held) && self.ttl <= held.ttl && self.label == held.label && self.allows(token)
    }

    /// Whether this has the re-entry key of `held`.
    pub(crate) fn has_key_of(&self, held: &Self) -> bool {
        self.reentry.is_some() && self.reentry == held.reentry
    }

    /// Refuses to share a hold that cannot be what was asked for. `mode` is how it is held now.
    pub(crate) fn check_shared(&self, held: &Self, mode: Mode) -> Result<()> {
        let refused = |message: String| Err(Error::new(ErrorKind::Misconfigured, message).with_name(&self.name));
        if let Some(advice) = contradiction(mode, self.mode) {
            return refused(format!("this re-entry key holds the lock {advice}"));
        }
        let contradiction = if self.ttl != held.ttl {
            format!("a ttl of {:?} instead of {:?}", self.ttl, held.ttl)
        } else if self.fixed != held.fixed {
            "a fixed lease here and a renewed one there".to_owned()
        } else if self.minimum != held.minimum && self.mode == Mode::Exclusive {
            format!("a minimum hold of {:?} instead of {:?}", self.minimum, held.minimum)
        } else if self.maximum != held.maximum {
            format!("a maximum hold of {:?} instead of {:?}", self.maximum, held.maximum)
        } else if self.token_floor > held.token_floor {
            "a token floor above that of the hold".to_owned()
        } else {
            return Ok(());
        };
        refused(format!(
            "this re-entry key holds the lock on other terms, {contradiction}: acquire it with the same options"
        ))
    }
}

/// Why a caller cannot have the lock as it `asked` while its own key holds it like this, and what to do; `None` if it can.
/// It would wait for itself.
fn contradiction(held: Mode, asked: Mode) -> Option<&'static str> {
    match (held, asked) {
        (Mode::Exclusive, Mode::Exclusive | Mode::Shared)
        | (Mode::Upgradable, Mode::Upgradable | Mode::Shared)
        | (Mode::Shared, Mode::Shared) => None,
        (Mode::Shared, Mode::Exclusive) => {
            Some("for reading and would wait for itself: acquire it with `upgradable()`, or write before you read")
        }
        (Mode::Shared, Mode::Upgradable) => {
            Some("for reading and may wait for itself: acquire it with `upgradable()` before you read")
        }
        (Mode::Upgradable, Mode::Exclusive) => Some("upgradable and would wait for itself: upgrade that guard"),
        (Mode::Exclusive, Mode::Upgradable) => {
            Some("exclusively and would wait for itself: use that guard, which may write already")
        }
        (Mode::Permits(_), _) | (_, Mode::Permits(_)) => Some("by permits, which cannot be acquired again by a key"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::Permits;

    #[test]
    fn a_key_never_waits_for_itself() {
        use Mode::{Exclusive, Shared, Upgradable};
        let refused = |held, asked| contradiction(held, asked).is_some();
        for mode in [Exclusive, Shared, Upgradable] {
            assert!(!refused(mode, mode) && !refused(mode, Shared));
            assert!(refused(mode, Mode::Permits(Permits::new(1, 2).unwrap())));
        }
        assert!(refused(Shared, Exclusive) && refused(Shared, Upgradable));
        assert!(refused(Upgradable, Exclusive) && refused(Exclusive, Upgradable));
    }
}
