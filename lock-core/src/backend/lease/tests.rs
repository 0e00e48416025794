use super::*;
use crate::lost::LostCause;
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
    lease.finish_release();
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
    giver.finish_release();
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
async fn a_hold_lasts_no_longer_than_its_session_and_so_does_its_heir() {
    let (giver, heir) = (lease(), lease());
    assert_eq!(giver.term(TTL), TTL);
    giver.bind_to_session(SentAt::now(), TTL / 3);
    giver.arm(SentAt::now(), TTL).unwrap();
    assert!(giver.begin_release() && heir.inherit(&giver));
    for lease in [giver, heir] {
        assert_eq!(lease.term(TTL), TTL / 3);
        assert_eq!(lease.term(TTL / 6), TTL / 6);
    }
}

#[tokio::test(start_paused = true)]
async fn a_hold_on_several_others_lasts_as_long_as_enough_of_them() {
    let bound = |session: Option<Duration>| {
        let child = lease();
        if let Some(session) = session {
            child.bind_to_session(SentAt::now(), session);
        }
        drop(child.arm(SentAt::now(), TTL).unwrap());
        child
    };
    for (sessions, term) in [
        ([Some(TTL / 3), None, Some(TTL / 2)], TTL / 2),
        ([Some(TTL / 3), None, None], TTL),
        ([Some(TTL / 3), Some(TTL / 4), None], TTL / 3),
    ] {
        let parent = lease();
        drop(parent.arm_by(&sessions.map(bound), 2).unwrap());
        assert_eq!(parent.term(TTL), term);
    }
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

#[tokio::test(start_paused = true)]
async fn a_lease_on_several_others_ends_with_the_last_that_it_needs() {
    let children = [20, 15, 10].map(|secs| {
        let child = lease();
        child.arm(SentAt::now(), Duration::from_secs(secs)).unwrap();
        child
    });
    let parent = lease();
    assert_eq!(parent.arm_by(&children, 4).unwrap_err().kind(), ErrorKind::Unavailable);
    drop(parent.arm_by(&children, 2).unwrap());
    assert_eq!(parent.valid_for(), Duration::from_millis(13_500));
    pass(2).await;
    // A longer end of the one that was not needed moves nothing, one of those that are does.
    drop(children[0].arm(SentAt::now(), Duration::from_secs(30)).unwrap());
    drop(parent.arm_by(&children, 2).unwrap());
    assert_eq!(parent.valid_for(), Duration::from_millis(11_500));
    drop(children[2].arm(SentAt::now(), Duration::from_secs(20)).unwrap());
    drop(parent.arm_by(&children, 2).unwrap());
    assert_eq!(parent.valid_for(), Duration::from_secs(18));
    children[0].lose(LostCause::Disconnected);
    children[1].lose(LostCause::Disconnected);
    assert_eq!(parent.arm_by(&children, 2).unwrap_err().kind(), ErrorKind::Unavailable);
    assert_eq!(parent.state(), HoldState::Held, "until its own end");
    pass(18).await;
    assert!(is_expired(&parent));
    let fresh = lease();
    drop(fresh.arm(SentAt::now(), TTL).unwrap());
    assert_eq!(parent.arm_by(&[fresh], 1).unwrap_err().kind(), ErrorKind::Lost);
}

#[tokio::test(start_paused = true)]
async fn a_fixed_lease_on_several_others_ends_with_their_terms_and_follows_their_sessions() {
    let session = TTL / 3;
    let fixed = |secs| {
        let child = Lease::fixed(LockName::new("a").unwrap());
        child.bind_to_session(SentAt::now(), session);
        drop(child.arm(SentAt::now(), Duration::from_secs(secs)).unwrap());
        child
    };
    let children = [10, 30, 20].map(fixed);
    let parent = Lease::fixed(LockName::new("a").unwrap());
    drop(parent.arm_by(&children, 2).unwrap());
    assert_eq!(
        parent.valid_for(),
        rules::lease_time(session),
        "so long the sessions live"
    );
    for _ in 0..8 {
        pass(2).await;
        for child in &children {
            child.bind_to_session(SentAt::now(), session);
        }
        // Nothing moves the end of its term.
        let late = fixed(100);
        drop(
            parent
                .arm_by(&[children[1].clone(), children[2].clone(), late], 2)
                .unwrap(),
        );
    }
    assert_eq!(parent.valid_for(), Duration::from_secs(2), "the second latest term");
    pass(2).await;
    assert!(is_expired(&parent));
}

#[tokio::test(start_paused = true)]
async fn enough_others_that_are_trusted_clear_a_suspicion() {
    let children = [lease(), lease(), lease()];
    let arm = |child: usize| drop(children[child].arm(SentAt::now(), TTL).unwrap());
    let parent = lease();
    let state_after = || {
        drop(parent.arm_by(&children, 2).unwrap());
        parent.state()
    };
    (0..3).for_each(arm);
    assert_eq!(state_after(), HoldState::Held);
    parent.suspect();
    assert_eq!(state_after(), HoldState::Suspect, "nothing was heard since");
    arm(0);
    assert_eq!(state_after(), HoldState::Suspect, "one was, and two are needed");
    arm(1);
    children[1].suspect();
    assert_eq!(state_after(), HoldState::Suspect, "of these one is suspect itself");
    arm(2);
    assert_eq!(state_after(), HoldState::Held);
    pass(1).await;
    parent.renewal_failed(SentAt::now(), Error::new(ErrorKind::Unavailable, "no answer"));
    assert_eq!(
        state_after(),
        HoldState::Suspect,
        "all that was heard is older than the request"
    );
    arm(0);
    arm(1);
    assert_eq!(state_after(), HoldState::Held);
}
