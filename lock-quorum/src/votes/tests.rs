use std::time::Duration;

use futures_util::FutureExt;
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
    assert_eq!(
        has_lost(),
        [true, false, false],
        "one that was not live is not restored"
    );
    tokio::time::advance(TTL).await;
    assert_eq!(has_lost(), [false; 3]);
}

#[tokio::test(start_paused = true)]
async fn a_vote_that_was_revoked_stays_so() {
    let (votes, granted) = three_votes();
    drop(votes.grant(token(), &granted, 2).unwrap());
    votes.revoke(&granted[1]);
    assert_eq!([0, 1, 2].map(|node| votes.was_revoked_at(node)), [false, true, false]);
    assert!(!votes.has_lost(1), "it is not restored");
    assert!(!votes.may_be_at(1), "the node has nothing of it");
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

fn vote(node: usize) -> Arc<Vote> {
    Arc::new(Vote::new(node, request(), false))
}

#[tokio::test(start_paused = true)]
async fn a_vote_is_recorded_until_the_request_ends() {
    let (votes, granted) = three_votes();
    assert!(votes.record(&vote(0)), "beside another one of its node");
    assert!(!votes.record_missing(&vote(0)), "the node would refuse it");
    votes.forget(&granted[1]);
    assert!(votes.record_missing(&vote(1)));
    assert_eq!(votes.asked().len(), 4);
    assert!(!votes.has_ended());
    votes.end();
    votes.forget(&granted[2]);
    assert!(votes.has_ended() && !votes.record(&vote(2)) && !votes.record_missing(&vote(2)));
}

#[tokio::test(start_paused = true)]
async fn a_request_knows_what_may_be_at_each_node() {
    let (votes, granted) = three_votes();
    let may_be_at = || [0, 1, 2].map(|node| votes.may_be_at(node));
    assert_eq!((votes.clean_nodes(), may_be_at()), (0, [true; 3]));
    votes.forget(&granted[1]);
    assert_eq!((votes.clean_nodes(), may_be_at()), (1, [true, false, true]));
    assert!(granted[0].begin_clean_up());
    let asked_at = [0, 1, 2].map(|node| votes.asked_at(node).map(|vote| vote.node));
    assert_eq!(asked_at, [None, None, Some(2)], "a vote that is being ended is no hope");
}

#[tokio::test(start_paused = true)]
async fn a_request_may_be_at_its_nodes_once_it_was_sent() {
    let (votes, _granted) = three_votes();
    assert!(!votes.was_sent());
    votes.note_sent();
    assert!(votes.was_sent());
}

#[tokio::test(start_paused = true)]
async fn a_vote_is_added_to_a_hold_that_has_none_of_its_node() {
    let (votes, granted) = three_votes();
    assert!(!votes.add(&granted[2]), "no hold yet");
    drop(votes.grant(token(), &granted[..2], 2).unwrap());
    let of_hold = || votes.of_hold().iter().map(|vote| vote.node).collect::<Vec<_>>();
    assert_eq!((of_hold(), votes.leases().len()), (vec![0, 1], 2));
    assert!(!votes.add(&vote(0)) && votes.add(&granted[2]));
    assert_eq!((of_hold(), votes.leases().len()), (vec![0, 1, 2], 3));
    assert!(!votes.remove(&vote(0)), "another one of the node");
    assert!(votes.remove(&granted[0]) && !votes.remove(&granted[0]));
    assert_eq!(of_hold(), [1, 2]);
    votes.end();
    assert!(!votes.add(&granted[0]));
    assert_eq!(votes.token(), None);
}

#[tokio::test(start_paused = true)]
async fn a_release_counts_the_nodes_that_ended_a_vote_and_those_that_have_none() {
    let (votes, granted) = three_votes();
    assert_eq!(votes.released(), (0, 0));
    votes.note_released(&granted[1], ReleaseOutcome::AlreadyLost);
    assert_eq!(votes.released(), (0, 1));
    votes.note_released(&granted[0], ReleaseOutcome::Released);
    assert_eq!(votes.released(), (1, 1));
    votes.forget(&granted[2]);
    assert_eq!(votes.released(), (1, 2));
    assert!(!votes.was_release_reported());
    votes.note_release_reported();
    assert!(votes.was_release_reported());
}

#[tokio::test(start_paused = true)]
async fn a_release_without_an_answer_may_have_ended_the_vote() {
    let (votes, granted) = three_votes();
    assert_eq!(votes.perhaps_released(), 0);
    assert!(!granted[0].begin_release());
    assert_eq!(votes.perhaps_released(), 1);
    votes.note_released(&granted[1], ReleaseOutcome::Released);
    assert_eq!(votes.perhaps_released(), 2);
    votes.note_released(&granted[0], ReleaseOutcome::AlreadyLost);
    assert_eq!(votes.perhaps_released(), 1);
}

#[tokio::test(start_paused = true)]
async fn the_last_handle_is_known() {
    let (votes, _granted) = three_votes();
    assert!(!votes.has_handle());
    votes.add_handle();
    votes.add_handle();
    assert!(votes.has_handle() && !votes.drop_handle());
    assert!(votes.has_handle() && votes.drop_handle());
    assert!(!votes.has_handle());
}

#[tokio::test(start_paused = true)]
async fn one_task_follows_a_hold() {
    let (votes, _granted) = three_votes();
    assert!(votes.begin_following() && !votes.begin_following());
    votes.end_following();
    assert!(votes.begin_following());
}

#[tokio::test(start_paused = true)]
async fn a_request_is_over_when_it_has_ended_or_its_lease_has() {
    let (votes, granted) = three_votes();
    drop(votes.grant(token(), &granted, 2).unwrap());
    assert!(votes.over().now_or_never().is_none() && votes.ended().now_or_never().is_none());
    votes.end();
    assert!(votes.over().now_or_never().is_some() && votes.ended().now_or_never().is_some());

    let (votes, granted) = three_votes();
    drop(votes.grant(token(), &granted, 2).unwrap());
    votes.request.lease().lose(LostCause::NotHeld);
    assert!(votes.over().now_or_never().is_some() && votes.ended().now_or_never().is_none());
}

#[tokio::test(start_paused = true)]
async fn waiters_hear_that_the_request_ends_and_a_vote_is_forgotten() {
    let (votes, granted) = three_votes();
    let mut forgotten = Box::pin(votes.forgotten(&granted[0]));
    assert!(forgotten.as_mut().now_or_never().is_none());
    votes.forget(&granted[1]);
    assert!(forgotten.as_mut().now_or_never().is_none());
    votes.forget(&granted[0]);
    assert!(forgotten.now_or_never().is_some());
    let mut ended = Box::pin(votes.ended());
    assert!(ended.as_mut().now_or_never().is_none());
    votes.end();
    assert!(ended.now_or_never().is_some());
}

#[tokio::test(start_paused = true)]
async fn votes_are_needed_while_an_acquire_runs() {
    let votes = Votes::new(&request().0, 3);
    assert!(votes.is_over(), "nothing was asked");
    votes.begin_acquire();
    votes.begin_acquire();
    assert!(!votes.is_over());
    votes.end_acquire();
    assert!(!votes.is_over());
    votes.end_acquire();
    assert!(votes.is_over());
}

/// Others need not know of votes that are only undone.
#[tokio::test(start_paused = true)]
async fn votes_are_used_while_they_are_a_hold_or_may_become_one() {
    let (votes, granted) = three_votes();
    assert!(!votes.are_used(), "no acquire runs");
    votes.begin_acquire();
    assert!(votes.are_used());
    drop(votes.grant(token(), &granted, 2).unwrap());
    votes.end_acquire();
    assert!(votes.are_used());
    votes.end();
    assert!(!votes.are_used() && !votes.is_over());

    let (votes, granted) = three_votes();
    drop(votes.grant(token(), &granted, 2).unwrap());
    votes.request.lease().lose(LostCause::NotHeld);
    assert!(!votes.are_used());
    votes.begin_acquire();
    assert!(votes.are_used(), "it is asked for again");
    votes.end();
    assert!(!votes.are_used(), "it is granted nothing any more");
}

#[tokio::test(start_paused = true)]
async fn votes_are_needed_until_they_have_expired_at_their_nodes() {
    let (votes, granted) = three_votes();
    assert!(!votes.is_over(), "the next attempt needs them");
    votes.end();
    tokio::time::advance(granted[0].lasts_at_node()).await;
    assert!(!votes.is_over(), "a clean-up may be under way");
    tokio::time::advance(Duration::from_millis(1)).await;
    assert!(votes.is_over());
}

#[tokio::test(start_paused = true)]
async fn votes_are_needed_while_the_hold_lives() {
    let (votes, granted) = three_votes();
    drop(votes.grant(token(), &granted, 2).unwrap());
    assert!(!votes.is_over());
    votes.request.lease().lose(LostCause::NotHeld);
    assert!(votes.is_over());
}
