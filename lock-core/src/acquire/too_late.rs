//! The error of an acquire whose time is up.

use std::time::Duration;

use crate::error::{Error, ErrorKind};
use crate::options::CheckedLock;
use crate::options::wait::WaitLimit;
use crate::queue::last_word::LastWord;
use crate::time::within;

/// The error for a caller whose time is up, from the last known state of the name. It states the limit as the caller
/// gave it.
pub(super) fn too_late(lock: &CheckedLock, verb: &str, wait: WaitLimit, word: LastWord) -> Error {
    let limit = match wait {
        WaitLimit::Rest(rest) => rest.limit,
        _ => wait.time_limit(lock.limits.operation_timeout).unwrap_or_default(),
    };
    let taken = || Error::new(ErrorKind::TimedOut, format!("not {verb} {}", in_time(wait)));
    let error = match word {
        LastWord::Taken(Some(holder)) => taken().with_holder(holder),
        LastWord::Taken(None) => taken(),
        LastWord::Nothing if wait.was_spent_waiting() => taken(),
        LastWord::Failed(cause) => {
            let message = format!("not {verb} {}, as the lock server cannot be asked", within(limit));
            Error::new(ErrorKind::Unavailable, message).with_source(cause)
        }
        LastWord::Nothing => {
            let message = format!(
                "the lock server did not answer {}: check that it is there",
                within(limit)
            );
            Error::new(ErrorKind::Unavailable, message)
        }
    };
    error.with_name(&lock.name)
}

/// In which time a name that is taken was not acquired.
fn in_time(wait: WaitLimit) -> String {
    match wait {
        WaitLimit::Rest(rest) => rest.text(),
        WaitLimit::Within(limit) => within(limit),
        WaitLimit::Once | WaitLimit::Forever => within(Duration::ZERO),
    }
}
