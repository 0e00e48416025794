//! Deletes dead rows, now and then in the background. Each strategy says which rows are dead.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use lock_core::{Error, ErrorKind, Result};
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::time::Instant;

use crate::error::SqlError;
use crate::protocol::{DeadRows, Job, JobDone};

/// How many rows are looked at with one statement.
const AT_ONCE: usize = 1000;

/// Deletes the dead rows of these tables, and returns how many. `run` runs a job in one round trip.
///
/// # Errors
/// [`ErrorKind::Denied`] without the permission `DELETE`, and those of `run`.
pub(crate) async fn delete_dead<F>(tables: &[DeadRows<'_>], run: impl Fn(Job) -> F) -> Result<u64>
where
    F: Future<Output = Result<JobDone, SqlError>>,
{
    for table in tables {
        match run(table.check_delete()).await {
            Err(error) if error.is_missing_table() => return Ok(0),
            checked => drop(checked.map_err(denied)?),
        }
    }
    let mut deleted = 0;
    for table in tables {
        let mut last = table.first_key();
        loop {
            let found = run(table.after(&last, AT_ONCE)).await;
            let rows = found.map_err(SqlError::into_lock_error)?.result.rows;
            for row in &rows {
                let (key, is_dead) = table.read(row).map_err(SqlError::into_lock_error)?;
                if is_dead {
                    deleted += match run(table.delete(&key)).await {
                        // Somebody uses the row at this moment.
                        Err(error) if error.is_busy() || error.is_deadlock() => 0,
                        done => done.map_err(SqlError::into_lock_error)?.result.matched,
                    };
                }
                last = key;
            }
            if rows.len() < AT_ONCE {
                break;
            }
        }
    }
    Ok(deleted)
}

/// The time between two clean-ups in the background, and so much more by chance, so that processes take turns.
const INTERVAL: Duration = Duration::from_secs(6 * 3600);

/// When the next clean-up in the background is due.
#[derive(Debug)]
pub(crate) struct Schedule(Arc<State>);

#[derive(Debug)]
struct State {
    due: Mutex<Instant>,
    is_denied: AtomicBool,
}

impl Schedule {
    /// The first one comes within an hour.
    pub(crate) fn new() -> Self {
        let first = Duration::from_secs(3600).mul_f64(rand::random());
        Self(Arc::new(State {
            due: Mutex::new(Instant::now() + first),
            is_denied: AtomicBool::new(false),
        }))
    }

    /// Begins a clean-up in the background if one is due, and none once the server has denied one. Outside a runtime it does
    /// nothing.
    pub(crate) fn run_if_due<F>(&self, clean_up: impl FnOnce() -> F)
    where
        F: Future<Output = Result<u64>> + Send + 'static,
    {
        if let Ok(runtime) = Handle::try_current()
            && self.0.is_due(Instant::now())
        {
            let (state, clean_up) = (self.0.clone(), clean_up());
            runtime.spawn(async move {
                if clean_up.await.is_err_and(|error| error.kind() == ErrorKind::Denied) {
                    state.is_denied.store(true, Ordering::Relaxed);
                }
            });
        }
    }
}

impl State {
    /// Whether one is due now. The next one is then due after the interval.
    fn is_due(&self, now: Instant) -> bool {
        if self.is_denied.load(Ordering::Relaxed) {
            return false;
        }
        let mut due = self.due.lock();
        let is_due = *due <= now;
        if is_due {
            *due = now + INTERVAL + INTERVAL.mul_f64(rand::random());
        }
        is_due
    }
}

/// The error of a clean-up.
fn denied(error: SqlError) -> Error {
    if !error.is_denied() {
        return error.into_lock_error();
    }
    let message = "the MySQL user may not delete from the lock tables: grant it DELETE, or leave dead rows there";
    Error::new(ErrorKind::Denied, message).with_source(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_due_within_an_hour_and_then_a_few_times_a_day() {
        let (schedule, start) = (Schedule::new().0, Instant::now());
        let hour = Duration::from_secs(3600);
        assert!(schedule.is_due(start + hour));
        assert!(!schedule.is_due(start + 6 * hour));
        assert!(schedule.is_due(start + 14 * hour));
        schedule.is_denied.store(true, Ordering::Relaxed);
        assert!(!schedule.is_due(start + 99 * hour));
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_is_denied_is_the_last() {
        let schedule = Schedule::new();
        let (begun, mut ran) = tokio::sync::mpsc::unbounded_channel();
        for kind in [ErrorKind::Unavailable, ErrorKind::Denied, ErrorKind::Unavailable] {
            tokio::time::advance(2 * INTERVAL).await;
            schedule.run_if_due(|| {
                let begun = begun.clone();
                async move {
                    begun.send(kind).unwrap();
                    Err(Error::new(kind, "refused"))
                }
            });
            tokio::task::yield_now().await;
        }
        drop(begun);
        assert_eq!(ran.recv().await, Some(ErrorKind::Unavailable));
        assert_eq!(ran.recv().await, Some(ErrorKind::Denied));
        assert_eq!(ran.recv().await, None);
    }
}
