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

/// After that the node may have voted for somebody else, and have forgotten that as well.
#[tokio::test(start_paused = true)]
async fn a_lost_vote_is_restored_for_as_long_as_it_would_have_lived() {
    let (votes, granted) = three_votes();
    drop(votes.grant(token(), &granted, 2).unwrap());
    let lose = |node: usize| votes.lose(&granted[node], Some(Instant::now() + TTL));
    let has_lost = || [0, 1, 2].map(|node| votes.has_lost(node));
    (0..3).for_each(lose);
    assert_eq!(has_lost(), [true; 3]);
    votes.note_taken(1);
    let again = Arc::new(Vote::new(2, request(), false));
    assert!(votes.record_missing(&again) && votes.add(&again));
    assert_eq!(has_lost(), [true, false, false]);
    // Another renewal is told only now.
    lose(2);
    assert_eq!(has_lost(), [true, false, false]);
    votes.lose(&again, None);
    assert_eq!(has_lost(), [true, false, false], "one that was revoked is not restored");
    tokio::time::advance(TTL).await;
    assert_eq!(has_lost(), [false; 3]);
}

#[tokio::test(start_paused = true)]
async fn a_renewal_hears_what_becomes_of_a_vote_beside_it() {
    let (votes, granted) = three_votes();
    drop(votes.grant(token(), &granted[..1], 1).unwrap());
    assert!(votes.added(&granted[0]).await);
    let (is_added, ()) = tokio::join!(votes.added(&granted[1]), async { assert!(votes.add(&granted[1])) });
    let (is_added_too, ()) = tokio::join!(votes.added(&granted[2]), async { votes.forget(&granted[2]) });
    assert_eq!((is_added, is_added_too), (true, false));
}
