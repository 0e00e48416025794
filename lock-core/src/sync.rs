//! Core's mutexes, signals, timers and tasks, in one place, so that a model checker can replace them. Built with
//! `--cfg shuttle`, shuttle decides at each of their operations which task runs next, and the test decides when time passes.

pub(crate) use std::sync::atomic::Ordering;
pub(crate) use std::sync::{Arc, Weak};
// No test of races waits for one of these: tokio's own will do.
pub(crate) use tokio::sync::{Mutex as AsyncMutex, Semaphore};

#[cfg(shuttle)]
pub(crate) use self::checked::{AtomicBool, AtomicUsize, Handle, MutexGuard, Notify, RuntimeId, oneshot, time};
#[cfg(not(shuttle))]
pub(crate) use std::sync::{MutexGuard, atomic::AtomicBool, atomic::AtomicUsize};
#[cfg(not(shuttle))]
pub(crate) use tokio::{runtime::Handle, runtime::Id as RuntimeId, sync::Notify, sync::oneshot, time};

#[cfg(shuttle)]
use self::checked::Mutex as PlainMutex;
#[cfg(not(shuttle))]
use std::sync::Mutex as PlainMutex;
use std::sync::PoisonError;

#[cfg(shuttle)]
pub(crate) mod checked;

/// A mutex that a panicking holder does not poison: every critical section in core leaves its data whole.
#[derive(Debug, Default)]
pub(crate) struct Mutex<T>(PlainMutex<T>);

impl<T> Mutex<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(PlainMutex::new(value))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
