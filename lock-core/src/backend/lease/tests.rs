use super::*;
use crate::time::tests::suspend;

const TTL: Duration = Duration::from_secs(10);

fn lease() -> Lease {
    Lease::new(LockName::new("a").unwrap())
}

async fn pass(seconds: u64) {
    tokio::time::advance(Duration::from_secs(seconds)).await;
}

fn is_expired(lease: &Lease) -> bool {
    matches!(lease.state(), HoldState::Lost(lost) if lost.cause() == LostCause::Expired)
}

#[tokio::test(start_paused = true)]
async fn counts_from_before_sending_less_a_tenth() {
    let lease = lease();
    let sent = SentAt::now();
    pass(4).await;
    lease.arm(sent, TTL).unwrap();
    assert_eq!(lease.valid_for(), Duration::from_secs(5));
    pass(5).await;
    assert!(is_expired(&lease));
}

#[tokio::test(start_paused = true)]
async fn a_late_first_answer_leaves_it_unarmed_for_another_try() {
    let lease = lease();
    let sent = SentAt::now();
    pass(9).await;
    let error = lease.arm(sent, TTL).unwrap_err();
    assert!(error.is_retryable());
    lease.lose(LostCause::NotHeld);
    lease.arm(SentAt::now(), TTL).unwrap();
    assert_eq!(lease.state(), HoldState::Held);
}

#[tokio::test(start_paused = true)]
async fn never_moves_backward_and_never_revives() {
    let lease = lease();
    lease.arm(SentAt::now(), TTL).unwrap();
    lease.arm(SentAt::now(), Duration::from_secs(1)).unwrap();
    assert_eq!(lease.valid_for(), Duration::from_secs(9));
    let sent = SentAt::now();
    pass(9).await;
    assert!(
        lease.arm(sent, 2 * TTL).unwrap_err().is_lost(),
        "nobody looked while it ran out"
    );
    assert!(is_expired(&lease));
}

#[tokio::test(start_paused = true)]
async fn a_fixed_end_stays() {
    let lease = Lease::fixed(LockName::new("a").unwrap());
    lease.arm(SentAt::now(), TTL).unwrap();
    pass(5).await;
    lease.arm(SentAt::now(), TTL).unwrap();
    assert_eq!(lease.valid_for(), Duration::from_secs(4));
}

#[tokio::test(start_paused = true)]
async fn a_fixed_lease_ends_with_what_carries_it() {
    let session = Duration::from_secs(4);
    let lease = Lease::fixed(LockName::new("a").unwrap());
    lease.bind_to_session(SentAt::now(), session);
    lease.arm(SentAt::now(), TTL).unwrap();
    assert_eq!(lease.valid_for(), Duration::from_millis(3600));
    pass(3).await;
    lease.suspect();
    lease.bind_to_session(SentAt::now(), session);
    assert_eq!(lease.state(), HoldState::Held);
    assert_eq!(lease.valid_for(), Duration::from_millis(3600));
    pass(4).await;
    assert!(is_expired(&lease), "the session was not heard of in time");
    lease.bind_to_session(SentAt::now(), session);
    assert!(is_expired(&lease));
}

#[tokio::test(start_paused = true)]
async fn only_what_was_sent_after_a_suspicion_clears_it() {
    let lease = lease();
    lease.arm(SentAt::now(), TTL).unwrap();
    let before = SentAt::now();
    lease.suspect();
    lease.arm(before, TTL).unwrap();
    assert_eq!(lease.state(), HoldState::Suspect);
    lease.arm(SentAt::now(), TTL).unwrap();
    assert_eq!(lease.state(), HoldState::Held);
}

#[tokio::test(start_paused = true)]
async fn release_is_not_loss_and_nothing_arms_after_it() {
    let lease = lease();
    lease.arm(SentAt::now(), TTL).unwrap();
    assert!(lease.begin_release());
    lease.lose(LostCause::Disconnected);
    assert!(lease.arm(SentAt::now(), TTL).is_err());
    lease.finish_release(Ok(()));
    assert_eq!(lease.ended().await, Ended::Released);
    assert!(!lease.begin_release());
}

#[tokio::test(start_paused = true)]
async fn ended_follows_the_end_as_it_moves() {
    let lease = lease();
    lease.arm(SentAt::now(), TTL).unwrap();
    let started = Instant::now();
    let waiting = tokio::spawn({
        let lease = lease.clone();
        async move { lease.ended().await }
    });
    pass(5).await;
    lease.arm(SentAt::now(), TTL).unwrap();
    assert!(matches!(waiting.await.unwrap(), Ended::Lost(_)));
    assert_eq!(started.elapsed(), Duration::from_secs(14));
}

#[tokio::test(start_paused = true)]
async fn suspended_time_counts_as_soon_as_anybody_looks() {
    let lease = lease();
    lease.arm(SentAt::now(), TTL).unwrap();
    suspend(Duration::from_secs(5));
    assert_eq!(lease.state(), HoldState::Held);
    assert_eq!(lease.valid_for(), Duration::from_secs(4));
    let sent = SentAt::now();
    suspend(Duration::from_secs(4));
    assert!(
        lease.arm(sent, TTL).unwrap_err().is_lost(),
        "an answer after the end revives nothing"
    );
    assert!(is_expired(&lease));
    assert!(!lease.begin_release());
}

#[tokio::test(start_paused = true)]
async fn a_term_counts_from_before_the_suspension_in_which_its_answer_came() {
    let lease = lease();
    let sent = SentAt::now();
    suspend(Duration::from_secs(5));
    lease.arm(sent, TTL).unwrap();
    assert_eq!(lease.valid_for(), Duration::from_secs(4));
    suspend(Duration::from_secs(3));
    // Nobody has looked since: the sending counts as earlier than it was, never as later.
    lease.arm(SentAt::now(), TTL).unwrap();
    assert_eq!(lease.valid_for(), Duration::from_secs(6));
    lease.arm(SentAt::now(), TTL).unwrap();
    assert_eq!(lease.valid_for(), Duration::from_secs(9));
}

#[tokio::test(start_paused = true)]
async fn a_session_s_term_counts_suspended_time() {
    let lease = Lease::fixed(LockName::new("a").unwrap());
    lease.bind_to_session(SentAt::now(), TTL);
    lease.arm(SentAt::now(), 2 * TTL).unwrap();
    suspend(Duration::from_secs(9));
    lease.bind_to_session(SentAt::now(), TTL);
    assert!(is_expired(&lease));
}

#[tokio::test(start_paused = true)]
async fn an_heir_goes_on_where_a_release_began() {
    let (giver, heir) = (lease(), lease());
    giver.arm(SentAt::now(), TTL).unwrap();
    assert!(!heir.inherit(&giver), "held by another");
    pass(2).await;
    assert!(giver.begin_release() && heir.inherit(&giver));
    giver.finish_release(Ok(()));
    assert_eq!(
        (heir.state(), heir.valid_for()),
        (HoldState::Held, Duration::from_secs(7))
    );
    assert!(!lease().inherit(&giver), "released");
    let late = lease();
    assert!(heir.begin_release());
    pass(7).await;
    assert!(!late.inherit(&heir), "over");
}

#[tokio::test(start_paused = true)]
async fn what_is_said_during_a_pass_counts_for_the_heir() {
    for lost in [false, true] {
        let (giver, heir, late) = (lease(), lease(), lease());
        giver.arm(SentAt::now(), TTL).unwrap();
        assert!(giver.begin_release() && heir.inherit(&giver));
        match lost {
            false => giver.suspect(),
            true => giver.lose(LostCause::Disconnected),
        }
        assert_eq!(heir.state(), HoldState::Held);
        heir.catch_up(&giver);
        match heir.state() {
            HoldState::Suspect => assert!(!lost),
            HoldState::Lost(told) => assert!(lost && told.cause() == LostCause::Disconnected),
            other => panic!("{other:?}"),
        }
        assert!(!late.inherit(&giver));
        assert_eq!(giver.state(), HoldState::Released);
    }
}
