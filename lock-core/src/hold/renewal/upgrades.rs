//! The renewals of a hold while an upgrade replaces it.

use std::collections::VecDeque;

use super::{Renewals, State};
use crate::backend::{Hold, Renewal};
use crate::error::{Error, ErrorKind, Result};
use crate::mutant::{Mutant, is_active};
use crate::sync::Arc;
use crate::token::FencingToken;

/// The upgrades of one hold. While one is not settled, the server may have replaced the hold, whose renewals it then answers
/// with "lost".
#[derive(Default)]
pub(super) struct Upgrades {
    /// The number of the one that is not settled.
    unsettled: Option<u64>,
    last: u64,
    /// The server said meanwhile that the hold is lost.
    denied: bool,
}

impl State {
    /// Interprets the answer to a renewal. Decided under the lock: the hold may be replaced at any moment.
    pub(super) fn understood(&mut self, answer: Result<Renewal>) -> Result<Renewal> {
        match answer {
            Ok(Renewal::Lost) if self.upgrades.unsettled.is_some() && !is_active(Mutant::TakesAGrantForALoss) => {
                self.upgrades.denied = true;
                let message = "the server does not know the hold any more: it was upgraded or lost";
                Err(Error::new(ErrorKind::Unavailable, message))
            }
            answer => answer,
        }
    }
}

impl Renewals {
    /// From here on the server may replace the hold at any moment. The upgrade's number.
    pub(crate) fn begin_upgrade(&self) -> u64 {
        let mut state = self.state.lock();
        state.upgrades.last += 1;
        state.upgrades.unsettled = Some(state.upgrades.last);
        state.upgrades.denied = false;
        state.upgrades.last
    }

    /// The upgrade was granted: from here on this hold is renewed, and late answers of the former one do nothing.
    pub(in crate::hold) fn replace(&self, upgrade: u64, hold: &Arc<dyn Hold>, token: FencingToken) {
        let mut state = self.state.lock();
        state.hold = hold.clone();
        state.token = token;
        let unanswered = match is_active(Mutant::HeedsTheFormerHold) {
            true => VecDeque::new(),
            false => std::mem::take(&mut state.unanswered),
        };
        let waker = state.waker.take();
        drop(state);
        drop(unanswered);
        if let Some(waker) = waker {
            waker.wake();
        }
        self.settle_upgrade(upgrade);
    }

    /// The upgrade was granted, or is undone. Whether the server said meanwhile that the hold is lost.
    pub(crate) fn settle_upgrade(&self, upgrade: u64) -> bool {
        let mut state = self.state.lock();
        // A job that another one repeated may end late.
        if state.upgrades.unsettled != Some(upgrade) {
            return false;
        }
        state.upgrades.unsettled = None;
        let denied = std::mem::take(&mut state.upgrades.denied);
        drop(state);
        self.upgrade_settled.notify_waiters();
        denied
    }

    /// Waits until no upgrade is under way or being undone.
    pub(crate) async fn upgrade_settled(&self) {
        loop {
            if self.state.lock().upgrades.unsettled.is_none() {
                return;
            }
            let settled = self.upgrade_settled.notified();
            tokio::pin!(settled);
            settled.as_mut().enable();
            if self.state.lock().upgrades.unsettled.is_some() {
                settled.await;
            }
        }
    }
}
