use std::time::Duration;

use lock_core::backend::SentAt;
use lock_core::backend::request::{RequestControl, RequestOptions, Terms};
use lock_core::{LockName, LostCause};

use super::*;

const TTL: Duration = Duration::from_secs(10);

fn request() -> (AcquireRequest, RequestControl) {
    RequestOptions::new(LockName::new("a").unwrap(), Terms::new(TTL)).start()
}

/// Live votes of three nodes, and the request that they are for.
fn three_votes() -> (Votes, Vec<Arc<Vote>>) {
    let (quorum, _control) = request();
    let votes = Votes::new(&quorum, 3);
    let granted = (0..3).map(|node| {
        let vote = Arc::new(Vote::new(node, request(), false));
        assert!(votes.record(&vote));
        drop(vote.lease().arm(SentAt::now(), TTL).unwrap());
        vote
    });
    let granted = granted.collect();
    (votes, granted)
}

fn token() -> FencingToken {
    FencingToken::new(7).unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_grant_arms_the_lease_unless_the_request_was_abandoned() {
    let (votes, granted) = three_votes();
    drop(votes.grant(token(), &granted, 2).unwrap());
    assert_eq!(votes.request.lease().state(), HoldState::Held);
    assert_eq!(votes.token(), Some(token()));

    let (votes, granted) = three_votes();
    votes.end();
    assert!(votes.grant(token(), &granted, 2).is_err());
    assert_eq!(votes.request.lease().valid_for(), Duration::ZERO, "nobody would end it");
}

#[tokio::test(start_paused = true)]
async fn a_grant_of_too_few_live_votes_holds_nothing() {
    let (votes, granted) = three_votes();
    for vote in &granted[1..] {
        vote.lease().lose(LostCause::NotHeld);
    }
    assert!(votes.grant(token(), &granted, 2).unwrap_err().is_retryable());
    assert_eq!((votes.token(), votes.of_hold().len()), (None, 0));
}
