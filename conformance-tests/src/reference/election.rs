//! The candidate of the mutants whose bug is in elections.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use lock_core::{FencingToken, Result};
use tokio::time::timeout;

use crate::mutant::Mutant;
use crate::subject::{
    Ask, Candidate, Elected, ElectionState, LockerSubject, Observer, Subject, SubjectGuard, Task, Then, Work,
};

#[derive(Debug)]
pub(super) struct MutantCandidate {
    pub(super) whole: Arc<dyn Candidate>,
    pub(super) subject: Arc<LockerSubject>,
    pub(super) ask: Ask,
    pub(super) mutant: Mutant,
    pub(super) maximum: Option<Duration>,
    /// The term that began last.
    pub(super) last: Arc<Mutex<Option<FencingToken>>>,
}

impl MutantCandidate {
    /// Campaigns again before it resigns, and so passes the lock on to itself.
    async fn lead_on(&self, work: &Work) -> Result<()> {
        let mut term = elected(&self.subject, &self.ask).await?;
        while self.limited(work(term.token())).await == Then::Campaign {
            let (subject, ask) = (self.subject.clone(), self.ask.clone());
            let next = tokio::spawn(async move { elected(&subject, &ask).await });
            tokio::time::sleep(Duration::from_millis(1)).await;
            term.release().await?;
            match next.await {
                Ok(next) => term = next?,
                Err(panic) => std::panic::resume_unwind(panic.into_panic()),
            }
        }
        term.release().await.map(drop)
    }

    /// Work that ends at the maximum.
    async fn limited(&self, work: Task<Then>) -> Then {
        match self.maximum {
            Some(maximum) => timeout(maximum, work).await.unwrap_or(Then::Campaign),
            None => work.await,
        }
    }

    /// Does not end its work at the loss of a term.
    async fn lead_beside_itself(&self, work: &Work) -> Result<()> {
        loop {
            let term = elected(&self.subject, &self.ask).await?;
            tokio::spawn(work(term.token()));
            term.lost().await;
        }
    }
}

async fn elected(subject: &LockerSubject, ask: &Ask) -> Result<Box<dyn SubjectGuard>> {
    let elected = subject.acquire(ask).await?;
    Ok(elected.unwrap_or_else(|| unreachable!("it waits for ever")))
}

#[async_trait]
impl Candidate for MutantCandidate {
    fn hold_at_most(&self, maximum: Duration) -> Arc<dyn Candidate> {
        let whole = match self.mutant {
            Mutant::TermMaximumIgnored => self.whole.clone(),
            _ => self.whole.hold_at_most(maximum),
        };
        Arc::new(Self {
            whole,
            subject: self.subject.clone(),
            ask: self.ask.clone(),
            mutant: self.mutant,
            maximum: Some(maximum),
            last: Arc::default(),
        })
    }

    async fn campaign(&self) -> Result<Box<dyn SubjectGuard>> {
        self.whole.campaign().await
    }

    async fn lead(&self, work: Work) -> Result<()> {
        match self.mutant {
            Mutant::ResignerLeadsOn | Mutant::TermMaximumElectsAgain => self.lead_on(&work).await,
            Mutant::TermsOverlap => self.lead_beside_itself(&work).await,
            Mutant::CutOffLeaderLeadsOn => {
                let last = self.last.clone();
                let noting: Work = Arc::new(move |term| {
                    *last.lock().unwrap_or_else(PoisonError::into_inner) = Some(term);
                    work(term)
                });
                self.whole.lead(noting).await
            }
            _ => self.whole.lead(work).await,
        }
    }

    fn observe(&self) -> Box<dyn Observer> {
        let whole = self.whole.observe();
        match self.mutant {
            Mutant::ObserverGoesBack => Box::new(GoingBack(whole, Vec::new())),
            Mutant::ObserverMissesTheLast => Box::new(MissingTheLast(whole, None)),
            Mutant::ObserverLosesTheValue => Box::new(WithoutValues(whole)),
            _ => whole,
        }
    }

    async fn state(&self) -> ElectionState {
        match self.whole.state().await {
            ElectionState::Unreachable if self.mutant == Mutant::OutageIsAnElection => ElectionState::Electing,
            ElectionState::Unreachable if self.mutant == Mutant::CutOffLeaderLeadsOn => {
                let last = *self.last.lock().unwrap_or_else(PoisonError::into_inner);
                last.map_or(ElectionState::Unreachable, ElectionState::Leading)
            }
            state => state,
        }
    }
}

/// Tells of the leader before once more, as an answer that comes late does.
#[derive(Debug)]
struct GoingBack(Box<dyn Observer>, Vec<Elected>);

#[async_trait]
impl Observer for GoingBack {
    async fn changed(&mut self) -> Result<Elected> {
        if self.1.len() > 1 {
            return Ok(self.1.remove(0));
        }
        let elected = self.0.changed().await?;
        self.1.push(elected.clone());
        Ok(elected)
    }
}

/// Tells of a leader when the next one is there.
#[derive(Debug)]
struct MissingTheLast(Box<dyn Observer>, Option<Elected>);

#[async_trait]
impl Observer for MissingTheLast {
    async fn changed(&mut self) -> Result<Elected> {
        loop {
            let elected = self.0.changed().await?;
            if let Some(before) = self.1.replace(elected) {
                return Ok(before);
            }
        }
    }
}

/// Tells of terms alone.
#[derive(Debug)]
struct WithoutValues(Box<dyn Observer>);

#[async_trait]
impl Observer for WithoutValues {
    async fn changed(&mut self) -> Result<Elected> {
        let elected = self.0.changed().await?;
        Ok(Elected { value: None, ..elected })
    }
}
