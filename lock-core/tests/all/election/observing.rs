//! Observers follow the terms.

use std::time::Duration;

use lock_core::{ErrorKind, Leader, Locker, Observer};
use static_assertions::assert_impl_all;
use tokio::runtime::Builder;
use tokio::time::{Instant, sleep, timeout};

use super::{TTL, scripted, seconds, two};
use crate::scripted::{Answer, Request};

assert_impl_all!(Observer: Send);

const PERIOD: Duration = Duration::from_secs(3);

#[tokio::test(start_paused = true)]
async fn a_new_leader_is_known_within_a_third_of_the_ttl() {
    // It reports no changes.
    let (backend, theirs) = scripted();
    let ours = Locker::new(backend.server().clone()).with_ttl(TTL);
    let mut seen = theirs.election("a").observe();
    let (tell, mut told) = tokio::sync::mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Ok(leader) = seen.changed().await {
            tell.send((leader, Instant::now())).unwrap();
        }
    });
    let mut last = None;
    for round in 0..20 {
        sleep(Duration::from_millis(350 * round)).await;
        let term = ours.election("a").value("ours").campaign().await.unwrap();
        let elected = Instant::now();
        let (leader, known) = told.recv().await.unwrap();
        assert!(known - elected <= PERIOD, "known after {:?}", known - elected);
        assert_eq!(
            (leader.term(), leader.value(), leader.is_me()),
            (term.token(), Some("ours"), false)
        );
        assert!(last.is_none_or(|last| last < leader.term()));
        last = Some(leader.term());
        term.resign().await.unwrap();
    }
}

/// Terms that come and go unseen are skipped. None is seen twice, and the last one is seen.
#[tokio::test(start_paused = true)]
async fn terms_are_seen_once_and_the_last_one_surely() {
    let (_server, ours, theirs) = two();
    let mut seen = theirs.election("a").observe();
    let (tell, mut told) = tokio::sync::mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Ok(leader) = seen.changed().await {
            assert_eq!(seen.current().map(Leader::term), Some(leader.term()));
            tell.send(leader.term()).unwrap();
        }
    });
    let mut held = None;
    for round in 0..30 {
        drop(held.take());
        // Another candidate each time: it need not pause.
        held = Some(ours.election("a").campaign().await.unwrap());
        sleep(Duration::from_millis(130 * round)).await;
    }
    let last = held.as_ref().map(|term| term.token()).unwrap();
    sleep(10 * TTL).await;
    let seen: Vec<_> = std::iter::from_fn(|| told.try_recv().ok()).collect();
    assert!(seen.is_sorted_by(|one, next| one < next), "{seen:?}");
    assert_eq!(seen.last(), Some(&last));
    assert!(seen.len() > 10, "{seen:?}");
}

#[tokio::test(start_paused = true)]
async fn the_own_election_is_known_at_once() {
    let (server, ours, _) = two();
    let election = ours.election("a").value("my address");
    let mut seen = election.observe();
    let observing = tokio::spawn(async move { seen.changed().await.map(|leader| (leader, Instant::now())) });
    sleep(seconds(1)).await;
    let term = election.campaign().await.unwrap();
    server.set_available(false);
    let elected = Instant::now();
    let (leader, known) = observing.await.unwrap().unwrap();
    assert_eq!(known, elected);
    assert_eq!(
        (leader.term(), leader.value(), leader.is_me()),
        (term.token(), Some("my address"), true)
    );
    sleep(seconds(2)).await;
    assert_eq!(leader.age(), seconds(2));
}

/// Also if it is over before the observer looks.
#[tokio::test(start_paused = true)]
async fn a_short_term_of_the_own_election_is_seen() {
    let (_server, ours, _) = two();
    let election = ours.election("a");
    let mut seen = election.observe();
    let term = election.clone().value("of a clone").campaign().await.unwrap();
    let number = term.token();
    term.resign().await.unwrap();
    let leader = seen.changed().await.unwrap();
    assert_eq!((leader.term(), leader.value()), (number, Some("of a clone")));
}

/// The request that is under way has timers of the runtime on which it began.
#[test]
fn an_observer_moves_to_another_runtime() {
    let runtime = || Builder::new_current_thread().enable_time().build().unwrap();
    let (backend, locks) = scripted();
    let mut seen = locks.election("a").observe();
    let elsewhere = Locker::new(backend.server().clone()).election("a");
    let first = runtime();
    let term = first.block_on(elsewhere.campaign()).unwrap();
    backend.next(Request::Status, vec![Answer::Hang]);
    let silent = first.block_on(async { timeout(Duration::from_millis(50), seen.changed()).await });
    assert!(silent.is_err());
    drop(first);
    let leader = runtime().block_on(async { timeout(seconds(60), seen.changed()).await });
    assert_eq!(leader.expect("in time").unwrap().term(), term.token());
}

#[tokio::test(start_paused = true)]
async fn an_observer_asks_on_through_an_outage() {
    let (server, ours, theirs) = two();
    let mut seen = theirs.election("a").observe();
    let _term = ours.election("a").campaign().await.unwrap();
    server.set_available(false);
    assert!(timeout(seconds(7), seen.changed()).await.is_err());
    server.set_available(true);
    assert!(timeout(PERIOD, seen.changed()).await.is_ok());
}

/// A call that is dropped before its answer is no request lost, and no request more.
#[tokio::test(start_paused = true)]
async fn an_observer_that_is_polled_often_asks_no_more_often() {
    let (backend, locks) = scripted();
    let mut seen = locks.election("a").observe();
    let term = Locker::new(backend.server().clone())
        .election("a")
        .campaign()
        .await
        .unwrap();
    let mut leader = None;
    for _ in 0..9 * 100 {
        let changed = timeout(Duration::from_millis(10), seen.changed()).await;
        leader = leader.or(changed.ok());
    }
    assert_eq!(leader.unwrap().unwrap().term(), term.token());
    assert!(
        (3..=5).contains(&backend.count(Request::Status)),
        "{}",
        backend.count(Request::Status)
    );
}

#[tokio::test(start_paused = true)]
async fn an_observer_ends_with_its_locker_and_by_errors_that_stay() {
    let (_server, ours, _) = two();
    assert_eq!(
        ours.election("").observe().changed().await.unwrap_err().kind(),
        ErrorKind::InvalidName
    );
    let mut unlikely = ours.election("a").ttl(Duration::ZERO).observe();
    assert_eq!(unlikely.changed().await.unwrap_err().kind(), ErrorKind::Misconfigured);
    let term = ours.election("b").campaign().await.unwrap();
    let mut patient = ours.election("b").ttl(365 * 24 * seconds(3600)).observe();
    assert_eq!(patient.changed().await.unwrap().term(), term.token());
    let mut seen = ours.election("a").observe();
    let observing = tokio::spawn(async move { seen.changed().await });
    sleep(seconds(1)).await;
    let started = Instant::now();
    ours.shutdown().await.unwrap();
    assert_eq!(observing.await.unwrap().unwrap_err().kind(), ErrorKind::ShutDown);
    assert_eq!(started.elapsed(), Duration::ZERO);
}
