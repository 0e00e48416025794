//! The tokio runtime that a call runs on.

use std::time::Duration;

use crate::error::{Error, ErrorKind, Result};
use crate::sync::{Handle, RuntimeId};

/// After this time without a response from a task, nobody drives its runtime: 750 ms. Core then renews and releases on another
/// runtime, and a backend replaces its connection by one there.
///
/// Core notices within twice this time, and then the backend within this time: a hold of 5 s that is to be renewed at 2 s
/// is renewed at 4.3 s. If it were longer, such a hold would be lost. If it were shorter, a runtime that the application
/// blocks for a moment would lose its connection, and with a session all its holds.
pub const UNDRIVEN_AFTER: Duration = Duration::from_millis(750);

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
