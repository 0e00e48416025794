//! The workloads of polylock's benchmarks, for any lock.
//!
//! A lock becomes a [`Subject`]; a [`Stage`] is one workload on it, and runs it in [rounds](Stage::round), so that
//! several subjects take turns. [`serve`] does the same for a process that reads its orders from standard input, which
//! is how the peers run.

#![forbid(unsafe_code)]

use std::future::Future;

pub use self::figures::{Figures, Unit};
pub use self::serve::{Offer, Subjects, offer, serve};
pub use self::stage::Stage;
pub use self::workload::{BACKGROUND_NAMES, PERMITS, RW_TASKS, Workload};

mod clocked;
mod figures;
mod hand_off;
mod inside;
mod one;
mod own;
mod seat;
mod serve;
mod stage;
mod workload;

/// Whatever goes wrong ends a subject's part, and is shown as it is.
pub type Error = Box<dyn std::error::Error + Send + Sync>;
/// What may go wrong with that.
pub type Result<T> = std::result::Result<T, Error>;

/// Something that locks.
pub trait Subject: Send + Sync + 'static {
    /// What a process keeps: a connection or several.
    type Client: Client;

    /// A new client.
    fn connect(&self) -> impl Future<Output = Result<Self::Client>> + Send;
}

/// A client of the lock server, shared by the tasks of a process.
pub trait Client: Send + Sync + 'static {
    /// What a task keeps.
    type Lock: Lock;

    /// Gets ready to lock this name. Not timed.
    fn lock(&self, name: &str) -> impl Future<Output = Result<Self::Lock>> + Send;

    /// Gets ready to hold this name in a mode. Not timed.
    fn lock_in(&self, name: &str, mode: Mode) -> impl Future<Output = Result<Self::Lock>> + Send {
        async move {
            match mode {
                Mode::Exclusive => self.lock(name).await,
                mode => Err(format!("it has nothing like {mode:?}").into()),
            }
        }
    }
}

/// How a name is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Mode {
    /// Alone. The write side of a name that is also read.
    Exclusive,
    /// Beside other readers.
    Shared,
    /// As one of so many permits.
    Permit {
        /// How many.
        of: u32,
    },
}

/// One task's way to one name.
pub trait Lock: Send + 'static {
    /// What is to be released.
    type Held: Send + 'static;

    /// Waits for the lock for as long as it takes.
    fn acquire(&mut self) -> impl Future<Output = Result<Self::Held>> + Send;

    /// Releases it, and waits until the server has said so.
    fn release(&mut self, held: Self::Held) -> impl Future<Output = Result<()>> + Send;

    /// Sends the release, or has it sent, without waiting for the answer.
    ///
    /// # Errors
    /// Where there is no such thing.
    fn release_in_background(&mut self, held: Self::Held) -> Result<()> {
        drop(held);
        Err("it has no release in the background".into())
    }
}
