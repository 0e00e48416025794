//! Elections without async.

use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use lock_core::blocking::{Election, Locker, Observer, Term};
use lock_core::{ElectionState, ErrorKind, LostCause, MemoryBackend};
use static_assertions::assert_impl_all;

use testbed_steady::blocking::receives;

use super::{PATIENCE, two};
use crate::scripted::{Answer, Request, Scripted};

assert_impl_all!(Election: Clone, Send, Sync);
assert_impl_all!(Term: Send, Sync);
assert_impl_all!(Observer: Send);

/// A candidate pauses for a third of it after each term, and a busy machine may stand still for a third of it.
const TTL: Duration = Duration::from_secs(9);

#[test]
fn a_candidate_leads_resigns_and_leads_again() {
    let (locks, _) = two();
    let election = locks.election("a").ttl(TTL);
    let mut terms = Vec::new();
    let led = election.lead(|term| {
        assert!(election.is_leader());
        terms.push(term.token());
        match terms.len() {
            2 => ControlFlow::Break("done"),
            _ => ControlFlow::Continue(()),
        }
    });
    assert_eq!(led.unwrap(), "done");
    assert!(!election.is_leader());
    assert!(terms.is_sorted_by(|one, next| one < next), "{terms:?}");
    assert!(
        !locks.status("a").unwrap().is_held(),
        "it has resigned before it returned"
    );
}

#[test]
fn whoever_resigns_lets_another_lead() {
    let (ours, theirs) = two();
    let first = ours.election("a").value("ours").campaign().unwrap();
    let waiting = thread::spawn(move || {
        theirs.election("a").value("theirs").lead(|term| {
            assert!(term.is_held());
            ControlFlow::Break(term.token())
        })
    });
    while ours.status("a").unwrap().waiting != Some(1) {}
    let term = first.token();
    first.resign().unwrap();
    let next = waiting.join().expect("no panic").unwrap();
    assert!(next > term);
}

#[test]
fn a_lost_term_is_reported_and_the_candidate_campaigns_again() {
    let server = MemoryBackend::new();
    let locks = Locker::new(server.clone());
    let election = locks.election("a").ttl(TTL);
    let mut calls = 0;
    let told = election.lead(|term| {
        calls += 1;
        if calls == 1 {
            server.take_away("a").unwrap();
            assert!(!term.is_held());
            return ControlFlow::Continue(());
        }
        ControlFlow::Break(term.check().is_ok())
    });
    assert!(told.unwrap());
    // Another candidate, which need not pause.
    let term = locks.election("a").campaign().unwrap();
    server.take_away("a").unwrap();
    assert!(term.wait_lost(PATIENCE).unwrap().is_some());
    assert!(term.resign().unwrap_err().is_lost());
}

#[test]
fn a_term_ends_at_its_maximum() {
    let (ours, theirs) = two();
    let short = Duration::from_millis(50);
    let hung = ours.election("a").hold_at_most(short).campaign().unwrap();
    let next = theirs.election("a").campaign_within(PATIENCE).unwrap();
    assert_eq!(hung.check().unwrap_err().cause(), LostCause::MaximumHold);
    assert!(next.is_some_and(|next| next.token() > hung.token()));
}

#[test]
fn a_campaign_that_takes_too_long_is_undone() {
    let (ours, theirs) = two();
    let term = ours.election("a").campaign().unwrap();
    let other = theirs.election("a");
    assert!(other.campaign_within(Duration::from_secs(1)).unwrap().is_none());
    theirs.shutdown().unwrap();
    assert_eq!(ours.status("a").unwrap().waiting, Some(0));
    assert_eq!(other.campaign().unwrap_err().kind(), ErrorKind::ShutDown);
    term.resign().unwrap();
}

/// As of an acquire with a limit: an outage is an error, and a name that is taken is none.
#[test]
fn a_campaign_in_an_outage_says_so() {
    let server = MemoryBackend::new();
    let (ours, theirs) = (Locker::new(server.clone()), Locker::new(server.clone()));
    let limit = Duration::from_millis(50);
    let leader = theirs.election("a").campaign().unwrap();
    let election = ours.election("a");
    assert!(election.campaign_within(limit).unwrap().is_none());
    server.set_available(false);
    let elected = election.campaign_within(limit).map(drop);
    let acquired = ours.lock("a").acquire_within(limit).map(drop);
    for error in [elected.unwrap_err(), acquired.unwrap_err()] {
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        assert!(error.to_string().contains("within 50ms"), "{error}");
    }
    server.set_available(true);
    leader.resign().unwrap();
}

#[test]
fn the_pause_of_a_candidate_is_a_part_of_its_limit() {
    let (ours, _) = two();
    // It pauses for 20 minutes.
    let election = ours.election("a").ttl(Duration::from_secs(3600));
    election
        .campaign_within(PATIENCE)
        .unwrap()
        .expect("nobody leads")
        .resign()
        .unwrap();
    for limit in [Duration::ZERO, Duration::from_millis(20)] {
        assert!(election.campaign_within(limit).unwrap().is_none());
    }
    let other = ours.election("a").campaign_within(Duration::ZERO).unwrap();
    assert!(other.is_some(), "one try suffices for a free name");
}

/// What the pause leaves of a limit may be too short for an answer, which does not show that the server is silent.
#[test]
fn a_limit_that_the_pause_uses_up_shows_no_outage() {
    let is_none = |_| {
        let server = Scripted::default();
        // It pauses for a second.
        let election = Locker::new(server.clone()).election("a").ttl(Duration::from_secs(3));
        election.campaign().unwrap().resign().unwrap();
        server.next(Request::Acquire, [Answer::GiveUp]);
        matches!(election.campaign_within(Duration::from_millis(1300)), Ok(None))
    };
    // If the machine stands still, the pause may be over before.
    assert!((0..5).any(is_none));
}

#[test]
fn a_panic_of_the_work_ends_its_term() {
    let (ours, theirs) = two();
    let election = ours.election("a");
    let leading = || election.lead(|_| -> ControlFlow<()> { resume_unwind(Box::new("as planned")) });
    assert!(catch_unwind(AssertUnwindSafe(leading)).is_err());
    assert!(!election.is_leader());
    assert!(theirs.election("a").campaign_within(PATIENCE).unwrap().is_some());
}

#[test]
fn all_know_who_leads() {
    let (ours, theirs) = two();
    let (election, elsewhere) = (ours.election("a").value("our address"), theirs.election("a"));
    let mut seen = elsewhere.observe();
    assert!(seen.changed_within(Duration::from_millis(10)).unwrap().is_none());
    assert!(seen.current().is_none() && matches!(elsewhere.state(), ElectionState::Electing));
    let (tell, told) = channel();
    let observing = thread::spawn(move || {
        let leader = seen.changed().unwrap();
        assert_eq!(seen.current().map(|leader| leader.term()), Some(leader.term()));
        tell.send(leader).unwrap();
    });
    let term = election.campaign().unwrap();
    let leader = receives("the leader", &told);
    observing.join().expect("no panic");
    assert_eq!((leader.term(), leader.value()), (term.token(), Some("our address")));
    assert!(matches!(elsewhere.state(), ElectionState::Following(leader) if leader.term() == term.token()));
    assert!(matches!(election.state(), ElectionState::Leading { term: now, .. } if now == term.token()));
    term.resign().unwrap();
    let error = ours.election("").observe().changed_within(PATIENCE).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidName);
}
