//! From reading to writing.

use std::time::Duration;

use lock_core::backend::Mode;
use lock_core::{Ended, ErrorKind, HoldState, LostCause};
use tokio::time::{Instant, sleep};

use super::{TTL, processes, seconds, settle};
use crate::scripted::{Answer, Request};

#[tokio::test(start_paused = true)]
async fn upgradable_is_alone_of_its_kind() {
    let all = processes();
    let first = all.ours.upgradable().acquire().await.unwrap();
    assert!(all.theirs().upgradable().try_acquire().await.unwrap().is_none());
    let reader = all.theirs().read().acquire().await.unwrap();
    assert_eq!(all.modes().await, [Mode::Upgradable, Mode::Shared]);
    let second = all.theirs().upgradable();
    let second = tokio::spawn(async move { second.acquire().await });
    settle().await;
    first.release().await.unwrap();
    second.await.unwrap().unwrap().release().await.unwrap();
    reader.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_upgrade_alone_is_one_request_and_survived_by_watches() {
    let all = processes();
    let mut guard = all.ours.upgradable().acquire().await.unwrap();
    assert_eq!(guard.mode(), Mode::Upgradable);
    let (watch, read) = (guard.watch(), guard.token());
    all.backend.sent();
    guard.upgrade().await.unwrap();
    guard.upgrade().await.unwrap();
    assert!(guard.try_upgrade().await.unwrap());
    assert_eq!(all.backend.sent(), [Request::Acquire], "it writes already");
    assert_eq!(
        (guard.mode(), all.modes().await),
        (Mode::Exclusive, vec![Mode::Exclusive])
    );
    assert!(guard.token() > read);
    assert!(all.theirs().read().try_acquire().await.unwrap().is_none());
    sleep(TTL * 4).await;
    assert_eq!((guard.state(), watch.state()), (HoldState::Held, HoldState::Held));
    let token = guard.token();
    assert_eq!(all.backend.status_of("a").await.holders[0].token, Some(token));
    guard.downgrade().await.unwrap();
    assert_eq!((guard.mode(), guard.token()), (Mode::Shared, token));
    assert_eq!(guard.upgrade().await.unwrap_err().kind(), ErrorKind::Misconfigured);
    sleep(TTL * 4).await;
    assert_eq!(watch.state(), HoldState::Held);
    guard.release().await.unwrap();
    assert_eq!(watch.ended().await, Ended::Released);
    assert!(!all.backend.is_held("a").await);
}

#[tokio::test(start_paused = true)]
async fn an_upgrade_waits_for_readers_and_passes_writers() {
    let all = processes();
    let mut guard = all.ours.upgradable().acquire().await.unwrap();
    let reader = all.theirs().read().acquire().await.unwrap();
    let writer = all.theirs().write();
    let writer = tokio::spawn(async move { writer.acquire().await.unwrap().release().await });
    let ours = all.ours.write();
    let ours = tokio::spawn(async move { ours.acquire().await.unwrap().release().await });
    settle().await;
    let upgraded = tokio::spawn(async move {
        guard.upgrade().await.unwrap();
        guard
    });
    sleep(TTL * 2).await;
    assert!(!upgraded.is_finished() && !writer.is_finished());
    assert!(
        all.theirs().read().try_acquire().await.unwrap().is_none(),
        "new readers wait"
    );
    reader.release().await.unwrap();
    let guard = upgraded.await.unwrap();
    assert_eq!((guard.mode(), guard.state()), (Mode::Exclusive, HoldState::Held));
    assert!(!writer.is_finished() && !ours.is_finished());
    guard.release().await.unwrap();
    writer.await.unwrap().unwrap();
    ours.await.unwrap().unwrap();
    assert!(!all.backend.is_held("a").await);
}

#[tokio::test(start_paused = true)]
async fn a_reader_waits_behind_an_upgrade_of_its_process() {
    let all = processes();
    let mut guard = all.ours.upgradable().acquire().await.unwrap();
    let reading = all.ours.read().acquire().await.unwrap();
    let upgraded = tokio::spawn(async move {
        guard.upgrade().await.unwrap();
        guard
    });
    settle().await;
    assert!(all.ours.read().try_acquire().await.unwrap().is_none());
    let next = all.ours.read();
    let next = tokio::spawn(async move { next.acquire().await });
    settle().await;
    reading.release().await.unwrap();
    let guard = upgraded.await.unwrap();
    assert!(!next.is_finished());
    guard.release().await.unwrap();
    let reading = next.await.unwrap().unwrap();
    // That upgrade is over.
    let joined = all.ours.read().acquire().await.unwrap();
    assert_eq!(joined.token(), reading.token());
}

#[tokio::test(start_paused = true)]
async fn readers_join_again_once_an_upgrade_of_their_process_is_undone() {
    let all = processes();
    let mut guard = all.ours.upgradable().acquire().await.unwrap();
    let reading = all.ours.read().acquire().await.unwrap();
    let upgrade = tokio::time::timeout(seconds(1), guard.upgrade());
    assert!(upgrade.await.is_err(), "it waits for the reader");
    settle().await;
    all.backend.sent();
    let joined = all.ours.read().acquire().await.unwrap();
    assert_eq!((joined.token(), all.backend.sent()), (reading.token(), vec![]));
    assert_eq!(guard.mode(), Mode::Upgradable);
}

#[tokio::test(start_paused = true)]
async fn a_failed_upgrade_keeps_the_read() {
    let all = processes();
    let mut guard = all.ours.upgradable().acquire().await.unwrap();
    let token = guard.token();
    let reader = all.theirs().read().label("them").acquire().await.unwrap();
    assert!(!guard.try_upgrade().await.unwrap());
    let began = Instant::now();
    let error = guard.upgrade_within(seconds(30)).await.unwrap_err();
    assert_eq!((error.kind(), began.elapsed()), (ErrorKind::TimedOut, seconds(30)));
    assert_eq!(error.name().unwrap().as_str(), "a");
    let error = guard.upgrade_within(Duration::ZERO).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    all.backend.next(Request::Acquire, [Answer::Deny]);
    assert_eq!(guard.upgrade().await.unwrap_err().kind(), ErrorKind::Denied);
    all.backend.next(Request::Acquire, [Answer::Hang]);
    assert_eq!(guard.try_upgrade().await.unwrap_err().kind(), ErrorKind::Unavailable);
    all.backend.let_go();
    settle().await;
    assert_eq!((guard.mode(), guard.token()), (Mode::Upgradable, token));
    assert_eq!((guard.state(), all.backend.waiting("a").await), (HoldState::Held, 0));
    assert!(
        all.theirs().read().try_acquire().await.unwrap().is_some(),
        "nobody waits before it"
    );
    sleep(TTL * 2).await;
    assert_eq!(guard.state(), HoldState::Held, "it is renewed");
    reader.release().await.unwrap();
    guard.upgrade_within(seconds(1)).await.unwrap();
    assert_eq!(guard.mode(), Mode::Exclusive);
}

#[tokio::test(start_paused = true)]
async fn an_upgrade_outlasts_an_outage() {
    let all = processes();
    let mut guard = all.ours.upgradable().acquire().await.unwrap();
    all.backend.next(Request::Acquire, [Answer::Fail, Answer::DoThenFail]);
    let began = Instant::now();
    guard.upgrade().await.unwrap();
    assert!(began.elapsed() < seconds(1));
    assert_eq!((guard.mode(), guard.state()), (Mode::Exclusive, HoldState::Held));
    guard.release().await.unwrap();
    assert!(!all.backend.is_held("a").await);
}

#[tokio::test(start_paused = true)]
async fn an_upgrade_whose_hold_ended_ends() {
    let all = processes();
    let mut guard = all.ours.upgradable().acquire().await.unwrap();
    let server = all.backend.server().clone();
    let _reader = all.theirs().read().acquire().await.unwrap();
    let began = Instant::now();
    let take_away = async {
        sleep(seconds(2)).await;
        server.take_away("a").unwrap();
    };
    let (result, ()) = tokio::join!(guard.upgrade(), take_away);
    assert!(result.unwrap_err().is_lost());
    assert_eq!(began.elapsed(), seconds(2));
    assert!(guard.upgrade().await.unwrap_err().is_lost());
    assert!(guard.release().await.unwrap_err().is_lost());
    all.locks.shutdown().await.unwrap();
    assert_eq!((all.backend.waiting("a").await, all.backend.alive()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn an_upgrade_ends_with_its_lease() {
    let all = processes();
    let mut guard = all.ours.upgradable().acquire().await.unwrap();
    all.backend.next(Request::Renew, [Answer::Hang; 10]);
    all.backend.next(Request::Acquire, [Answer::Hang]);
    let began = Instant::now();
    assert!(guard.upgrade().await.unwrap_err().is_lost());
    assert_eq!(began.elapsed(), TTL - TTL / 10);
    let lost = guard.lost().await;
    assert_eq!(lost.cause(), LostCause::Expired);
    all.backend.let_go();
    drop(guard);
    all.locks.shutdown().await.unwrap();
    assert!(!all.backend.is_held("a").await);
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_ends_an_upgrade() {
    let all = processes();
    let mut guard = all.ours.upgradable().acquire().await.unwrap();
    let _reader = all.theirs().read().acquire().await.unwrap();
    let upgraded = tokio::spawn(async move {
        let error = guard.upgrade().await.unwrap_err();
        (guard, error)
    });
    settle().await;
    all.locks.shutdown().await.unwrap();
    let (guard, error) = upgraded.await.unwrap();
    assert_eq!((error.kind(), guard.state()), (ErrorKind::ShutDown, HoldState::Held));
    assert_eq!(all.backend.waiting("a").await, 0);
    guard.release().await.unwrap();
}

/// The server has replaced the hold, and the answer is late: meanwhile it does not know the hold that we renew.
#[tokio::test(start_paused = true)]
async fn a_renewal_that_finds_the_hold_replaced_loses_nothing() {
    let all = processes();
    let mut guard = all.ours.upgradable().acquire().await.unwrap();
    all.backend.next(Request::Acquire, [Answer::DoThenWait(seconds(5))]);
    let began = Instant::now();
    let watch = guard.watch();
    let see = async {
        sleep(seconds(4)).await;
        assert_eq!(watch.state(), HoldState::Suspect, "renewed after 3 s");
    };
    let (result, ()) = tokio::join!(guard.upgrade(), see);
    result.unwrap();
    assert_eq!(began.elapsed(), seconds(5));
    settle().await;
    assert_eq!(guard.state(), HoldState::Held);
    sleep(TTL * 3).await;
    assert_eq!(guard.state(), HoldState::Held, "the new hold is renewed");
    guard.release().await.unwrap();
}

/// A renewal of the former hold is answered after the upgrade.
#[tokio::test(start_paused = true)]
async fn a_late_answer_of_the_former_hold_loses_nothing() {
    for answer in [Answer::DoThenWait(seconds(2)), Answer::DoAfter(seconds(2))] {
        let all = processes();
        let mut guard = all.ours.upgradable().acquire().await.unwrap();
        all.backend.next(Request::Renew, [answer]);
        all.backend.before(Request::Renew, "a", |_| async {
            sleep(Duration::from_millis(400)).await;
            Ok(())
        });
        sleep(TTL / 3 + Duration::from_millis(1)).await;
        assert_eq!(all.backend.count(Request::Renew), 1, "it is under way");
        guard.upgrade().await.unwrap();
        sleep(seconds(3)).await;
        assert_eq!(guard.state(), HoldState::Held, "{answer:?}");
        sleep(TTL * 3).await;
        assert_eq!(guard.state(), HoldState::Held, "{answer:?}");
        guard.release().await.unwrap();
    }
}

/// The lease goes on over an upgrade, and so must the hold at the server.
#[tokio::test(start_paused = true)]
async fn an_extended_hold_stays_extended() {
    let all = processes();
    let mut guard = all.ours.upgradable().acquire().await.unwrap();
    guard.extend(seconds(600)).await.unwrap();
    guard.upgrade().await.unwrap();
    let expires = all.backend.status_of("a").await.holders[0].expires_in.unwrap();
    assert!(guard.valid_for() >= seconds(539));
    assert!(expires >= guard.valid_for() + guard.valid_for() / 10, "{expires:?}");
}
