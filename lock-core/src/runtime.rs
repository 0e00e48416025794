//! The tokio runtime that a call runs on.

use crate::error::{Error, ErrorKind, Result};
use crate::sync::{Handle, RuntimeId};

/// # Errors
/// Outside a runtime, where timers would panic.
pub(crate) fn current() -> Result<Handle> {
    Handle::try_current().map_err(|error| {
        let message = "locks need a tokio runtime: call this from a task, or within Runtime::block_on";
        Error::new(ErrorKind::Misconfigured, message).with_source(error)
    })
}

/// `None` outside a runtime.
pub(crate) fn current_id() -> Option<RuntimeId> {
    Handle::try_current().ok().map(|runtime| runtime.id())
}
