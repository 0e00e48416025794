//! A subject on one workload, whatever it is and wherever it runs.

use std::time::Duration;

use async_trait::async_trait;
use benchmarks_load::{self as load, Figures, Offer, Result, Subject};

/// Takes part in the rounds of one workload.
#[async_trait]
pub(crate) trait Participant: Send {
    /// Gets ready.
    async fn enter(&mut self) -> Result<()> {
        Ok(())
    }

    /// Runs for so long, where the time is not its own.
    async fn round(&mut self, time: Duration) -> Result<Figures>;

    /// Lets go of all that it needed.
    async fn leave(&mut self) {}
}

/// Runs in this process.
struct Local {
    offer: Box<dyn Offer>,
    workload: load::Workload,
}

pub(crate) fn local(subject: impl Subject, workload: load::Workload) -> Box<dyn Participant> {
    let offer = load::offer(subject);
    Box::new(Local { offer, workload })
}

#[async_trait]
impl Participant for Local {
    async fn enter(&mut self) -> Result<()> {
        self.offer.enter(self.workload).await
    }

    async fn round(&mut self, time: Duration) -> Result<Figures> {
        self.offer.round(time).await
    }

    async fn leave(&mut self) {
        self.offer.leave();
    }
}
