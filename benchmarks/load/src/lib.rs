//! The workloads of polylock's benchmarks, for any lock.
//!
//! A lock becomes a [`Subject`]; a [`Stage`] is one workload on it, and runs it in [rounds](Stage::round), so that
//! several subjects take turns. [`serve`] does the same for a process that reads its orders from standard input, which
//! is how the peers run.

#![forbid(unsafe_code)]

use std::future::Future;
use std::time::Duration;

pub use self::figures::{Figures, Unit};
pub use self::serve::{Offer, Subjects, offer, serve};
pub use self::workload::Workload;

mod clocked;
mod figures;
mod hand_off;
mod one;
mod own;
mod serve;
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

/// A workload on a subject: clients that are connected and locks that are ready.
#[derive(Debug)]
pub struct Stage<L> {
    workload: Workload,
    locks: Vec<L>,
}

impl<L: Lock> Stage<L> {
    /// Connects and prepares.
    ///
    /// # Errors
    /// The subject's.
    pub async fn enter<S>(subject: &S, workload: Workload) -> Result<Self>
    where
        S: Subject,
        S::Client: Client<Lock = L>,
    {
        let mut locks = Vec::new();
        match workload {
            Workload::Own { tasks, .. } => {
                let client = subject.connect().await?;
                for task in 0..tasks {
                    locks.push(client.lock(&format!("own/{task}")).await?);
                }
            }
            Workload::One { tasks } => {
                let client = subject.connect().await?;
                for _ in 0..tasks {
                    locks.push(client.lock("one").await?);
                }
            }
            Workload::HandOff { clients } => {
                for _ in 0..clients {
                    locks.push(subject.connect().await?.lock("hand-off").await?);
                }
            }
        }
        Ok(Self { workload, locks })
    }

    /// Runs the workload for so long.
    ///
    /// # Errors
    /// The subject's.
    pub async fn round(&mut self, time: Duration) -> Result<Figures> {
        let locks = std::mem::take(&mut self.locks);
        let (locks, figures) = match self.workload {
            Workload::Own { background, .. } => own::play(locks, background, time).await?,
            Workload::One { .. } => one::play(locks, time).await?,
            Workload::HandOff { .. } => hand_off::play(locks, time).await?,
        };
        self.locks = locks;
        Ok(figures)
    }
}
