//! The same for tests without async.

use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::thread::sleep;
use std::time::Instant;

use crate::{AT_MOST, Answer, PAUSE, longer};

/// Asks again and again until it is so: `true`, `Some`, or `Ok`.
///
/// # Panics
/// If it takes longer than [`AT_MOST`], with `what` is not so, and the last answer.
#[track_caller]
pub fn eventually<A: Answer>(what: &str, mut ask: impl FnMut() -> A) -> A::Value {
    let (start, mut pause) = (Instant::now(), PAUSE);
    loop {
        match ask().into_value() {
            Ok(value) => return value,
            Err(last) if start.elapsed() >= AT_MOST => {
                panic!("not so within {AT_MOST:?}: {what}; at last: {last}")
            }
            Err(_) => {
                sleep(pause);
                pause = longer(pause);
            }
        }
    }
}

/// The next message, or `None` if its last sender has gone.
///
/// # Panics
/// If there is neither within [`AT_MOST`], with `what` was not sent.
#[track_caller]
pub fn next<T>(what: &str, receiver: &Receiver<T>) -> Option<T> {
    match receiver.recv_timeout(AT_MOST) {
        Ok(message) => Some(message),
        Err(RecvTimeoutError::Disconnected) => None,
        Err(RecvTimeoutError::Timeout) => panic!("not sent within {AT_MOST:?}: {what}"),
    }
}

/// The next message.
///
/// # Panics
/// If there is none within [`AT_MOST`], or its last sender has gone, with `what` was not sent.
#[track_caller]
pub fn receives<T>(what: &str, receiver: &Receiver<T>) -> T {
    next(what, receiver).unwrap_or_else(|| panic!("nobody is left to send: {what}"))
}
