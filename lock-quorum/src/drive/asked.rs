//! A vote that an acquire has asked for, and what goes on with it.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{BoxFuture, join};
use lock_core::backend::Renewal;
use lock_core::{FencingToken, Result};

use crate::protocol::{Acquire, Changed, Event, News, Sound, VoteId};
use crate::terms::HoldTerms;
use crate::votes::{Call, Vote};

pub(super) struct Asked {
    pub(super) id: VoteId,
    pub(super) vote: Arc<Vote>,
    pub(super) call: Option<Call>,
    pub(super) terms: HoldTerms,
    /// A change of a vote that was granted, under way.
    pub(super) change: Option<BoxFuture<'static, Result<Changed>>>,
}

impl Asked {
    /// Whether the vote may wait in its node's queue.
    pub(super) fn may_wait(&self) -> bool {
        self.call.is_some() && self.vote.has_place
    }

    /// Hands in what a request that waits has noted.
    pub(super) fn hand_in_notes(&self, protocol: &mut Acquire<Sound>) {
        if self.may_wait() {
            let busy = self.vote.request.last_busy().map(News::Queued);
            let unreachable = self.vote.request.unreachable().map(News::Unreachable);
            for news in busy.into_iter().chain(unreachable) {
                protocol.handle(Event::Vote(self.id, news));
            }
        }
    }
}

/// Raises a vote to a token, renews it for a TTL, or both at once. `None` if it is no hold.
pub(super) fn change(
    vote: &Vote,
    raise: Option<FencingToken>,
    renew: Option<Duration>,
) -> Option<BoxFuture<'static, Result<Changed>>> {
    let hold = vote.hold()?;
    renew.inspect(|ttl| vote.prolongs(*ttl));
    Some(Box::pin(async move {
        let raising = async {
            match raise {
                Some(token) => hold.raise_token(token).await,
                None => Ok(()),
            }
        };
        let renewing = async {
            match renew {
                Some(ttl) => {
                    let renewal = hold.renew(ttl).await;
                    renewal.map(|renewal| matches!(renewal, Renewal::Renewed(_)))
                }
                None => Ok(true),
            }
        };
        let (raised, renewed) = join(raising, renewing).await;
        raised?;
        Ok(match (renewed?, raise) {
            (true, Some(token)) => Changed::Raised(token),
            (true, None) => Changed::Renewed,
            (false, _) => Changed::Lost,
        })
    }))
}
