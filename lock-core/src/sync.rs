//! The one place where core takes its locks and signals from, so that a model checker's can stand in for them.

pub(crate) use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
pub(crate) use std::sync::{Arc, Weak};
pub(crate) use tokio::sync::Notify;

pub(crate) use std::sync::MutexGuard;

use std::sync::PoisonError;

/// A mutex that a panicking holder does not poison: every critical section in core leaves its data whole.
#[derive(Debug, Default)]
pub(crate) struct Mutex<T>(std::sync::Mutex<T>);

impl<T> Mutex<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(std::sync::Mutex::new(value))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
