//! Starting a supervisor in the caller's runtime, also in place of one that nobody drives.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use lock_core::{Error, ErrorKind, Result};
use lock_kit::runtime::RuntimeCheck;
use tokio::runtime::Handle;
use tokio::sync::Notify;

use super::state::{Phase, Shared, State, SupervisorHandle};
use super::supervisor::{self, Supervisor};

/// Starts a supervisor in the caller's runtime, in place of any other, if the state meets the `condition`.
///
/// # Errors
/// Outside a runtime, and in one that is ending, which would cancel the task at once.
pub(super) fn start_supervisor(shared: &Arc<Shared>, condition: impl FnOnce(&State) -> bool) -> Result<()> {
    let runtime = Handle::try_current().map_err(|error| {
        let what = "the Redis backend works inside a tokio runtime only";
        Error::new(ErrorKind::Misconfigured, what).with_source(error)
    })?;
    let idle = || {
        let what = format!(
            "nobody drove the tokio runtime of the connection to Redis at {}",
            shared.dialer
        );
        Error::new(ErrorKind::Unavailable, what)
    };
    let (mut is_refused, mut former, mut lost) = (false, None, None);
    shared.state.send_if_modified(|state| {
        if !condition(state) {
            return false;
        }
        let (runtime_check, has_begun) = (Arc::new(RuntimeCheck::new()), Arc::new(AtomicBool::new(false)));
        let dial_requested = Arc::new(Notify::new());
        dial_requested.notify_one();
        let task = runtime.spawn(supervisor::supervise(Supervisor {
            shared: shared.clone(),
            epoch: state.epoch + 1,
            runtime_check: runtime_check.clone(),
            dial_requested: dial_requested.clone(),
            has_begun: has_begun.clone(),
        }));
        is_refused = task.is_finished() && !has_begun.load(Ordering::SeqCst);
        if is_refused {
            return false;
        }
        state.epoch += 1;
        lost = match state.phase {
            Phase::Up(_) => state.disconnect(Phase::Connecting, idle()),
            _ => None,
        };
        state.phase = Phase::Connecting;
        former = state.supervisor.replace(SupervisorHandle {
            task: task.abort_handle(),
            runtime_check,
            dial_requested,
        });
        true
    });
    if is_refused {
        let what = "the tokio runtime is ending, so no connection to Redis can be made in it";
        return Err(Error::new(ErrorKind::Unavailable, what));
    }
    if let Some(former) = former {
        former.task.abort();
    }
    if let Some(session) = lost {
        shared.end(&session, &idle());
    }
    Ok(())
}

/// Watches the supervisor: if nobody drives its runtime, another one takes over in the caller's runtime. To be polled
/// by a caller that waits for a message from the server.
pub(super) async fn watch_supervisor(shared: &Arc<Shared>) -> Infallible {
    loop {
        let elsewhere = {
            let state = shared.state.borrow();
            let supervisor = state.supervisor.as_ref();
            let elsewhere = supervisor.filter(|supervisor| !supervisor.runtime_check.is_here());
            elsewhere.map(|supervisor| (state.epoch, supervisor.runtime_check.clone()))
        };
        let Some((epoch, runtime_check)) = elsewhere else {
            // As long as this runtime is driven, the supervisor is.
            return std::future::pending().await;
        };
        runtime_check.undriven().await;
        // Fails in a runtime that is ending, where nobody waits for long.
        let _ = start_supervisor(shared, |state| state.epoch == epoch);
    }
}
