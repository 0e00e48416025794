//! Synchronization under shuttle, which may run another task before each operation.

use std::cell::Cell;
use std::fmt;
use std::future::poll_fn;
use std::pin::pin;
use std::time::Duration;

pub(crate) use shuttle::sync::atomic::{AtomicBool, AtomicUsize};
pub(crate) use shuttle::sync::{Mutex, MutexGuard};

pub(crate) mod oneshot;
pub(crate) mod time;

/// Another task may go on here.
fn point() {
    shuttle::thread::sleep(Duration::ZERO);
}

/// tokio's own, whose operations are single steps here.
#[derive(Debug, Default)]
pub(crate) struct Notify(tokio::sync::Notify);

impl Notify {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    pub(crate) fn notify_one(&self) {
        point();
        self.0.notify_one();
    }

    pub(crate) fn notify_waiters(&self) {
        point();
        self.0.notify_waiters();
    }

    pub(crate) fn notified(&self) -> tokio::sync::futures::Notified<'_> {
        point();
        self.0.notified()
    }
}

thread_local! {
    /// Shuttle runs all tasks of a test on one thread.
    static RUNTIME: Cell<RuntimeId> = const { Cell::new(0) };
}

/// Runs the task on this runtime, and the tasks that it spawns. Others run on runtime 0.
pub async fn on_runtime<F: Future>(runtime: usize, task: F) -> F::Output {
    let mut task = pin!(task);
    poll_fn(|context| {
        let before = RUNTIME.replace(runtime);
        let polled = task.as_mut().poll(context);
        RUNTIME.set(before);
        polled
    })
    .await
}

/// We are always on a runtime.
#[derive(Clone, Debug)]
pub(crate) struct Handle(RuntimeId);

pub(crate) type RuntimeId = usize;

impl Handle {
    pub(crate) fn try_current() -> Result<Self, NoRuntime> {
        Ok(Self(RUNTIME.get()))
    }

    pub(crate) fn id(&self) -> RuntimeId {
        self.0
    }

    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        drop(shuttle::future::spawn(on_runtime(self.0, task)));
    }
}

#[derive(Debug)]
pub(crate) enum NoRuntime {}

impl fmt::Display for NoRuntime {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {}
    }
}

impl std::error::Error for NoRuntime {}
