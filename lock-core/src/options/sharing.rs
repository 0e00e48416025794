//! Decides which holds and requests of its process a caller may share, inherit or continue.

use std::time::Duration;

use crate::backend::options::LockOptions;
use crate::backend::{AcquireRequest, Mode};
use crate::error::{Error, ErrorKind, Result};
use crate::token::FencingToken;

impl LockOptions {
    /// For how long a grant holds: the minimum is kept even by a process that dies at once.
    pub(crate) fn term(&self) -> Duration {
        self.minimum_hold.map_or(self.ttl, |minimum| minimum.max(self.ttl))
    }

    /// True if a hold with these options may be passed on without a request.
    pub(super) fn can_pass(&self) -> bool {
        self.mode == Mode::Exclusive && !self.fixed_lease && self.minimum_hold.is_none()
    }

    /// True if a caller with these options may take over a hold with the options `held`, as it is.
    pub(crate) fn may_inherit(&self, held: &Self) -> bool {
        let terms = |options: &Self| (options.mode, options.ttl, options.shows_token);
        self.can_pass() && held.can_pass() && terms(self) == terms(held) && self.label == held.label
    }

    /// True if the token is above the floor.
    pub(crate) fn allows(&self, token: FencingToken) -> bool {
        self.token_floor.is_none_or(|floor| token > floor)
    }

    /// True if a caller may continue a request that another one began.
    pub(crate) fn may_go_on_with(&self, request: &AcquireRequest) -> bool {
        let begun = request.longest_options();
        let is_long_enough = match begun.fixed_lease {
            true => begun.ttl == self.term(),
            // The server may have granted the longest TTL. The first renewal lengthens a shorter one.
            false => begun.ttl <= self.term(),
        };
        // The next request sends the new label. Maximum hold and re-entry key never reach the server.
        let own = self.clone();
        let begun = Self {
            ttl: own.ttl,
            label: own.label,
            maximum_hold: own.maximum_hold,
            reentry_key: own.reentry_key,
            ..begun
        };
        is_long_enough && *self == begun
    }

    /// True if a reader may join a shared hold with the options `held` and this token. It gets all that it asks for,
    /// and whoever reads the status sees no difference.
    pub(crate) fn may_join(&self, held: &Self, token: FencingToken) -> bool {
        let is_plain = |options: &Self| {
            options.mode == Mode::Shared
                && !options.fixed_lease
                && options.reentry_key.is_none()
                && options.maximum_hold.is_none()
        };
        is_plain(self) && is_plain(held) && self.ttl <= held.ttl && self.label == held.label && self.allows(token)
    }

    /// True if both have the same re-entry key.
    pub(crate) fn has_key_of(&self, held: &Self) -> bool {
        self.reentry_key.is_some() && self.reentry_key == held.reentry_key
    }

    /// Refuses to share a hold that lacks an option that the caller asked for. `mode` is its current mode.
    pub(crate) fn check_shared(&self, held: &Self, mode: Mode) -> Result<()> {
        let refused = |message: String| Err(Error::new(ErrorKind::Misconfigured, message));
        if let Some(advice) = contradiction(mode, self.mode) {
            return refused(format!("this re-entry key holds the lock {advice}"));
        }
        let contradiction = if self.ttl != held.ttl {
            format!("a ttl of {:?} instead of {:?}", self.ttl, held.ttl)
        } else if self.fixed_lease != held.fixed_lease {
            "a fixed lease here and a renewed one there".to_owned()
        } else if self.minimum_hold != held.minimum_hold && self.mode == Mode::Exclusive {
            format!(
                "a minimum hold of {:?} instead of {:?}",
                self.minimum_hold, held.minimum_hold
            )
        } else if self.maximum_hold != held.maximum_hold {
            format!(
                "a maximum hold of {:?} instead of {:?}",
                self.maximum_hold, held.maximum_hold
            )
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
