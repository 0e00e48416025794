//! `lock_core::Election` as a candidate.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use lock_core::{Election, Result};

use super::LockerGuard;
use crate::subject::{Candidate, Elected, ElectionState, Observer, SubjectGuard, Then, Work};

#[derive(Debug)]
pub(super) struct LockerCandidate(pub(super) Election);

#[async_trait]
impl Candidate for LockerCandidate {
    fn hold_at_most(&self, maximum: Duration) -> Arc<dyn Candidate> {
        Arc::new(Self(self.0.clone().hold_at_most(maximum)))
    }

    async fn campaign(&self) -> Result<Box<dyn SubjectGuard>> {
        Ok(Box::new(LockerGuard::Term(self.0.campaign().await?)))
    }

    async fn lead(&self, work: Work) -> Result<()> {
        let leads = self.0.lead(|term| {
            let doing = work(term.token());
            async move {
                match doing.await {
                    Then::Campaign => ControlFlow::Continue(()),
                    Then::Stop => ControlFlow::Break(()),
                }
            }
        });
        leads.await
    }

    fn observe(&self) -> Box<dyn Observer> {
        Box::new(LockerObserver(self.0.observe()))
    }

    async fn state(&self) -> ElectionState {
        match self.0.state().await {
            lock_core::ElectionState::Leading { term, .. } => ElectionState::Leading(term),
            lock_core::ElectionState::Following(leader) => {
                ElectionState::Following(leader.term(), leader.value().map(str::to_owned))
            }
            lock_core::ElectionState::Electing => ElectionState::Electing,
            _ => ElectionState::Unreachable,
        }
    }
}

#[derive(Debug)]
struct LockerObserver(lock_core::Observer);

#[async_trait]
impl Observer for LockerObserver {
    async fn changed(&mut self) -> Result<Elected> {
        let leader = self.0.changed().await?;
        Ok(Elected {
            term: leader.term(),
            value: leader.value().map(str::to_owned),
        })
    }
}
