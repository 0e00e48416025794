//! What the server does for a pair, beside what the client sees.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use async_trait::async_trait;
use benchmarks_load::{Figures, Result, Unit};

use crate::participant::Participant;

/// Asks a server for the commands that it has run and for the microseconds that they took.
pub(crate) type Work = Box<dyn Fn() -> Pin<Box<dyn Future<Output = Result<(u64, u64)>> + Send>> + Send + Sync>;

/// A participant that has the server to itself in its round.
pub(crate) struct Counted {
    participant: Box<dyn Participant>,
    work: Work,
}

impl Counted {
    pub(crate) fn new(participant: Box<dyn Participant>, work: Work) -> Self {
        Self { participant, work }
    }
}

#[async_trait]
impl Participant for Counted {
    async fn enter(&mut self) -> Result<()> {
        self.participant.enter().await
    }

    async fn round(&mut self, time: Duration) -> Result<Figures> {
        let before = (self.work)().await?;
        let mut figures = self.participant.round(time).await?;
        let after = (self.work)().await?;
        if let Some((_, pairs)) = figures.iter().find(|(unit, _)| *unit == Unit::Pairs).copied() {
            figures.extend([
                (Unit::CommandsPerPair, (after.0 - before.0) as f64 / pairs),
                (Unit::ServerMicrosPerPair, (after.1 - before.1) as f64 / pairs),
            ]);
        }
        Ok(figures)
    }

    async fn leave(&mut self) {
        self.participant.leave().await;
    }
}
