//! The state of an election, as its candidate knows it.

use std::time::Duration;

use super::Election;
use super::observer::Leader;
use crate::error::Error;
use crate::token::FencingToken;

/// The state of an election as its candidate knows it, for a health endpoint.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum ElectionState {
    /// This candidate leads.
    #[non_exhaustive]
    Leading {
        /// Its term.
        term: FencingToken,
        /// The time for which the term lasts if nothing renews it, by this process's clock.
        valid_for: Duration,
    },
    /// Somebody else leads, as the server answered.
    Following(Leader),
    /// Nobody leads.
    Electing,
    /// The server did not say who leads, for this reason.
    Unreachable(Error),
}

impl Election {
    /// Returns the state of the election as this candidate knows it, for a health endpoint. While the candidate leads,
    /// no network is needed; otherwise this asks the server once, for up to the locker's operation timeout.
    ///
    /// # Cancel safety
    /// May be dropped at any point.
    ///
    /// # Examples
    /// ```
    /// # use lock_core::{ElectionState, Locker, MemoryBackend};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
    /// # let server = MemoryBackend::new();
    /// # let election = Locker::new(server.clone()).election("scheduler");
    /// assert!(matches!(election.state().await, ElectionState::Electing));
    /// let _term = election.campaign().await?;
    /// assert!(matches!(election.state().await, ElectionState::Leading { .. }));
    /// # let elsewhere = Locker::new(server.clone()).election("scheduler");
    /// assert!(matches!(elsewhere.state().await, ElectionState::Following(_)));
    /// server.set_available(false);
    /// assert!(matches!(elsewhere.state().await, ElectionState::Unreachable(_)));
    /// # Ok(()) }
    /// ```
    pub async fn state(&self) -> ElectionState {
        let leading = || {
            self.term().map(|term| ElectionState::Leading {
                term: term.token(),
                valid_for: term.valid_for(),
            })
        };
        if let Some(leading) = leading() {
            return leading;
        }
        let answer = Leader::ask(self.clone()).await;
        // It may have been elected meanwhile.
        if let Some(leading) = leading() {
            return leading;
        }
        match answer {
            // It knows better: its own term is over.
            Ok(Some(leader)) if !leader.is_me() => ElectionState::Following(leader),
            Ok(_) => ElectionState::Electing,
            Err(error) => ElectionState::Unreachable(error),
        }
    }
}
