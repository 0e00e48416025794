//! A lock's options, checked against what its backend can do.

use self::limits::Limits;
use self::wait::WaitLimit;
use crate::backend::options::LockOptions;
use crate::backend::request::{RequestControl, RequestOptions, Terms};
use crate::backend::{AcquireRequest, Mode};
use crate::error::{Error, ErrorKind, Result};
use crate::guarantee::Required;
use crate::name::LockName;
use crate::sync::Arc;
use crate::sync::time::Instant;

pub(crate) mod limits;
mod sharing;
pub(crate) mod wait;

/// A grant reserves at most this many tokens: one for itself, and one for each pass.
const MOST_TOKENS: u32 = 17;

/// A lock whose options the backend can honour.
#[derive(Clone, Debug)]
pub(crate) struct CheckedLock {
    pub(crate) name: LockName,
    pub(crate) options: LockOptions,
    pub(crate) limits: Limits,
    /// The guarantees that the server must keep.
    pub(crate) required: Option<Arc<Required>>,
}

impl CheckedLock {
    /// # Errors
    /// If the backend cannot honour an option, or if two options contradict each other.
    pub(crate) fn new(
        name: LockName,
        options: LockOptions,
        limits: Limits,
        required: Option<Arc<Required>>,
    ) -> Result<Self> {
        check(&options, &limits).map_err(|error| error.about(&name))?;
        Ok(Self {
            name,
            options,
            limits,
            required,
        })
    }

    /// The terms of a request. `deadline` is the latest deadline of its waiters.
    pub(crate) fn terms(&self, deadline: Option<Instant>) -> Terms {
        let options = LockOptions {
            ttl: self.options.term(),
            ..self.options.clone()
        };
        Terms::until(options, deadline)
    }

    /// A request of its own. Other waiters may share it if it waits.
    pub(crate) fn request(&self, wait: WaitLimit, deadline: Option<Instant>) -> (AcquireRequest, RequestControl) {
        let mut request = RequestOptions::new(self.name.clone(), self.terms(deadline)).waits(wait.is_patient());
        if self.options.can_pass() {
            request = request.reserve(self.limits.passes.saturating_add(1).min(MOST_TOKENS));
        }
        request.start()
    }
}

fn check(options: &LockOptions, limits: &Limits) -> Result<()> {
    limits.check_mode(options.mode)?;
    limits.check_own_ttl(options.ttl)?;
    limits.check_operation_timeout()?;
    if let Some(label) = &options.label {
        Limits::check_label(label)?;
    }
    if options.fixed_lease {
        limits.check_fixed()?;
    }
    if options.mode != Mode::Exclusive {
        check_shareable(options)?;
    }
    let fixed_ttl = options.fixed_lease.then_some(options.ttl);
    if let Some(minimum) = options.minimum_hold {
        limits.check_minimum(minimum, fixed_ttl)?;
    }
    match options.maximum_hold {
        Some(maximum) => Limits::check_maximum(maximum, options.minimum_hold, fixed_ttl),
        None => Ok(()),
    }
}

/// Rejects the options that only an exclusive hold can have.
fn check_shareable(options: &LockOptions) -> Result<()> {
    if options.minimum_hold.is_some() {
        let message = "a minimum hold is for exclusive locks: leave out `hold_at_least`";
        return Err(Error::new(ErrorKind::Misconfigured, message));
    }
    if options.reentry_key.is_some() && matches!(options.mode, Mode::Permits(_)) {
        let message = "permits cannot be acquired again by a key: leave out `reentrant`, or take more permits at once";
        return Err(Error::new(ErrorKind::Misconfigured, message));
    }
    Ok(())
}
