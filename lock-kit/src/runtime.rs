//! Checks whether anybody drives the runtime of a connection.

use std::convert::Infallible;
use std::future::{Future, pending};

use lock_core::backend::UNDRIVEN_AFTER;
use tokio::runtime::{Handle, Id};
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep, timeout};

/// In how many parts a caller waits for a response. If the whole process stands still, the wait loses one part of its time, and the
/// task has the others to respond.
const PARTS: u32 = 3;

/// A question to the task of a connection, to which it responds as soon as its runtime runs it.
///
/// A process may have several runtimes. One that is driven only inside `block_on` stops between two calls, and with it the
/// tasks of a connection that was made there. A caller on another runtime would wait for the server in vain, so it checks whether
/// the task responds within [`UNDRIVEN_AFTER`], and otherwise replaces the connection.
///
/// # Examples
/// ```
/// # use std::{future::pending, sync::Arc};
/// # use lock_kit::runtime::RuntimeCheck;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let check = Arc::new(RuntimeCheck::new());
/// let task = check.clone();
/// tokio::spawn(async move { task.watch(pending::<()>()).await });
/// assert!(check.is_driven().await);
/// # }
/// ```
#[derive(Debug)]
pub struct RuntimeCheck {
    /// The task's runtime.
    home: Id,
    requested: Notify,
    responded: watch::Sender<Instant>,
}

impl RuntimeCheck {
    /// For a task on the runtime of the caller.
    ///
    /// # Panics
    /// Outside a Tokio runtime.
    #[expect(clippy::new_without_default, reason = "it belongs to the runtime of the caller")]
    pub fn new() -> Self {
        Self {
            home: Handle::current().id(),
            requested: Notify::new(),
            responded: watch::Sender::new(Instant::now()),
        }
    }

    /// Runs the task, and responds to every request meanwhile.
    ///
    /// # Cancel safety
    /// When dropped, the task is dropped.
    pub async fn watch<T>(&self, task: impl Future<Output = T>) -> T {
        let _end = RespondOnDrop(self);
        tokio::select! {
            biased;
            never = self.respond() => match never {},
            done = task => done,
        }
    }

    async fn respond(&self) -> Infallible {
        loop {
            self.requested.notified().await;
            self.responded.send_replace(Instant::now());
        }
    }

    /// True if the caller runs on the task's runtime, which is driven then.
    pub fn is_here(&self) -> bool {
        Handle::try_current().is_ok_and(|runtime| runtime.id() == self.home)
    }

    /// Returns whether the task's runtime is driven. A response counts for [`UNDRIVEN_AFTER`]. Without one, this asks
    /// and waits for as long.
    ///
    /// # Cancel safety
    /// May be dropped at any point.
    pub async fn is_driven(&self) -> bool {
        let mut responses = self.responded.subscribe();
        if self.is_here() || responses.borrow_and_update().elapsed() < UNDRIVEN_AFTER {
            return true;
        }
        self.requested.notify_one();
        for _ in 0..PARTS {
            // The sender lives as long as `self`.
            if timeout(UNDRIVEN_AFTER / PARTS, responses.changed()).await.is_ok() {
                return true;
            }
        }
        false
    }

    /// Returns when the task's runtime is not driven, or the task has ended for a while. Never returns on that runtime itself.
    ///
    /// # Cancel safety
    /// May be dropped at any point.
    pub async fn undriven(&self) {
        if self.is_here() {
            pending().await
        }
        while self.is_driven().await {
            sleep(UNDRIVEN_AFTER).await;
        }
    }
}

/// No caller needs to wait for a task that has ended.
struct RespondOnDrop<'a>(&'a RuntimeCheck);

impl Drop for RespondOnDrop<'_> {
    fn drop(&mut self) {
        self.0.responded.send_replace(Instant::now());
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tokio::runtime::Builder;

    use super::*;

    #[test]
    fn a_task_responds_as_long_as_its_runtime_is_driven() {
        let runtime = || Builder::new_current_thread().enable_all().build().unwrap();
        let (home, elsewhere) = (runtime(), runtime());
        let check = home.block_on(async { Arc::new(RuntimeCheck::new()) });
        home.spawn({
            let check = check.clone();
            async move { check.watch(pending::<()>()).await }
        });
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let driving = std::thread::spawn(move || {
            let _ = home.block_on(stopped);
            home
        });
        let made = *check.responded.borrow();
        elsewhere.block_on(async {
            // A machine that stands still may take longer than the limit for one response.
            while *check.responded.borrow() == made {
                check.is_driven().await;
                sleep(UNDRIVEN_AFTER / PARTS).await;
            }
        });
        drop(stop);
        let home = driving.join().unwrap();
        elsewhere.block_on(check.undriven());
        home.block_on(async { assert!(check.is_driven().await) });
    }
}
