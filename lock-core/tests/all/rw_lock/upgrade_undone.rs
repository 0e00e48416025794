//! Upgrades that are dropped: the guard reads on, and nothing is left.

use lock_core::HoldState;
use lock_core::backend::Mode;
use tokio::time::{Instant, sleep, timeout};

use super::{TTL, drop_after, processes, seconds, settle, with_yields};
use crate::scripted::{Answer, Request};

#[tokio::test(start_paused = true)]
async fn an_upgrade_may_be_dropped_at_any_poll() {
    for is_read in [false, true] {
        for kind in 0..3 {
            for polls in 0.. {
                let all = with_yields(1);
                let mut guard = all.ours.upgradable().acquire().await.unwrap();
                let reader = match is_read {
                    true => Some(all.theirs().read().acquire().await.unwrap()),
                    false => None,
                };
                let done = match kind {
                    0 => drop_after(polls, guard.upgrade()).await.is_some(),
                    1 => drop_after(polls, guard.upgrade_within(seconds(5))).await.is_some(),
                    _ => drop_after(polls, guard.try_upgrade()).await.is_some(),
                };
                let context = format!("read {is_read}, kind {kind}, {polls} polls");
                let expected = if done && !is_read {
                    Mode::Exclusive
                } else {
                    Mode::Upgradable
                };
                assert_eq!((guard.mode(), guard.state()), (expected, HoldState::Held), "{context}");
                settle().await;
                assert_eq!(
                    all.modes().await[0] == Mode::Exclusive,
                    expected == Mode::Exclusive,
                    "{context}"
                );
                assert_eq!(all.backend.waiting("a").await, 0, "{context}");
                sleep(TTL * 2).await;
                assert_eq!(guard.state(), HoldState::Held, "{context}");
                drop(reader);
                settle().await;
                guard.upgrade_within(seconds(1)).await.unwrap();
                guard.release().await.unwrap();
                all.locks.shutdown().await.unwrap();
                assert!(!all.backend.is_held("a").await);
                assert_eq!(all.backend.alive(), 0);
                assert_eq!(all.backend.cut(Request::Acquire), 0, "never half-way");
                if done || polls > 20 {
                    break;
                }
            }
        }
    }
}

/// Dropped after the server has granted it: nobody else writes before the guard reads again.
#[tokio::test(start_paused = true)]
async fn an_upgrade_that_was_granted_is_taken_back() {
    let all = processes();
    let mut guard = all.ours.upgradable().acquire().await.unwrap();
    let token = guard.token();
    all.backend.next(Request::Acquire, [Answer::DoThenWait(seconds(2))]);
    assert!(drop_after(2, guard.upgrade()).await.is_none());
    let writer = all.theirs().write();
    let writer = tokio::spawn(async move { writer.acquire().await });
    settle().await;
    assert_eq!(all.modes().await, [Mode::Exclusive]);
    sleep(seconds(3)).await;
    assert_eq!(all.modes().await, [Mode::Upgradable]);
    assert_eq!((guard.mode(), guard.token()), (Mode::Upgradable, token));
    assert!(!writer.is_finished());
    sleep(TTL * 2).await;
    assert_eq!(guard.state(), HoldState::Held);
    guard.upgrade().await.unwrap();
    guard.release().await.unwrap();
    writer.await.unwrap().unwrap().release().await.unwrap();
}

/// The same, while the server does not know the hold that is renewed.
#[tokio::test(start_paused = true)]
async fn a_renewal_while_an_upgrade_is_taken_back_loses_nothing() {
    let all = processes();
    let mut guard = all.ours.upgradable().acquire().await.unwrap();
    all.backend.next(Request::Acquire, [Answer::DoThenHang]);
    let began = Instant::now();
    assert!(guard.upgrade_within(seconds(1)).await.unwrap_err().is_retryable());
    sleep(seconds(3)).await;
    assert_eq!(guard.state(), HoldState::Suspect, "a renewal did not find it");
    all.backend.let_go();
    settle().await;
    assert_eq!(guard.state(), HoldState::Held, "it is back, and was renewed at once");
    assert!(began.elapsed() < seconds(5));
}

/// The hold ends while its upgrade is being undone.
#[tokio::test(start_paused = true)]
async fn a_loss_while_an_upgrade_is_taken_back_is_noticed() {
    let all = processes();
    let mut guard = all.ours.upgradable().acquire().await.unwrap();
    all.backend.next(Request::Acquire, [Answer::Hang]);
    assert!(drop_after(2, guard.upgrade()).await.is_none());
    all.backend.next(Request::Renew, [Answer::NotHeld; 10]);
    sleep(TTL / 3 + seconds(1)).await;
    assert_eq!(guard.state(), HoldState::Suspect);
    all.backend.let_go();
    settle().await;
    assert!(matches!(guard.state(), HoldState::Lost(_)));
}

/// The next upgrade waits for the undo, but not beyond the hold.
#[tokio::test(start_paused = true)]
async fn a_loss_ends_an_upgrade_that_waits_for_an_undo() {
    let all = processes();
    let mut guard = all.ours.upgradable().acquire().await.unwrap();
    let _reader = all.theirs().read().acquire().await.unwrap();
    all.backend.next(Request::Abandon, [Answer::Hang]);
    assert!(drop_after(2, guard.upgrade()).await.is_none());
    let server = all.backend.server().clone();
    let began = Instant::now();
    let take_away = async {
        sleep(seconds(2)).await;
        server.take_away("a").unwrap();
    };
    let upgrade = timeout(TTL * 10, guard.upgrade());
    let (result, ()) = tokio::join!(upgrade, take_away);
    let error = result.expect("it does not hang").unwrap_err();
    assert!(error.is_lost());
    assert_eq!(began.elapsed(), seconds(2));
    assert!(guard.upgrade_within(seconds(3)).await.unwrap_err().is_lost());
    assert!(guard.try_upgrade().await.unwrap_err().is_lost());
    assert_eq!((began.elapsed(), all.backend.hung()), (seconds(2), 1), "not undone yet");
    all.backend.let_go();
    drop(guard);
    all.locks.shutdown().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_undo_that_panics_keeps_nobody_waiting() {
    for answer in [Answer::Panic, Answer::PanicAtOnce, Answer::DoThenPanic] {
        for is_released in [false, true] {
            let all = processes();
            let mut guard = all.ours.upgradable().acquire().await.unwrap();
            let reader = all.theirs().read().acquire().await.unwrap();
            let began = Instant::now();
            all.backend.next(Request::Abandon, [answer]);
            assert!(drop_after(2, guard.upgrade()).await.is_none());
            let context = format!("{answer:?}, released {is_released}");
            if !is_released {
                drop(reader);
                guard.upgrade_within(seconds(5)).await.unwrap();
                assert_eq!(guard.mode(), Mode::Exclusive, "{context}");
            }
            guard.release().await.unwrap();
            all.locks.shutdown().await.unwrap();
            assert!(began.elapsed() < seconds(1), "{context}: {:?}", began.elapsed());
            assert_eq!(
                (all.backend.waiting("a").await, all.backend.alive()),
                (0, 0),
                "{context}"
            );
            // One that panics at once is not counted.
            let counted = if answer == Answer::PanicAtOnce { 1 } else { 2 };
            assert_eq!(all.backend.count(Request::Abandon), counted, "{context}");
            let expected: &[Mode] = if is_released { &[Mode::Shared] } else { &[] };
            assert_eq!(all.modes().await, expected, "{context}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_next_upgrade_waits_until_the_former_one_is_undone() {
    let all = processes();
    let mut guard = all.ours.upgradable().acquire().await.unwrap();
    all.backend.next(Request::Acquire, [Answer::DoThenWait(seconds(2))]);
    assert!(drop_after(2, guard.upgrade()).await.is_none());
    let began = Instant::now();
    let error = guard.upgrade_within(seconds(1)).await.unwrap_err();
    assert!(error.is_retryable() && began.elapsed() == seconds(1));
    guard.upgrade().await.unwrap();
    assert_eq!(began.elapsed(), seconds(2));
    assert_eq!(
        (guard.mode(), all.modes().await),
        (Mode::Exclusive, vec![Mode::Exclusive])
    );
}

#[tokio::test(start_paused = true)]
async fn a_release_after_a_dropped_upgrade_leaves_nothing() {
    for answer in [
        Answer::DoThenWait(seconds(2)),
        Answer::DoAfter(seconds(2)),
        Answer::DoThenFailAfter(seconds(2)),
        Answer::FailAfter(seconds(2)),
    ] {
        for is_dropped in [false, true] {
            let all = processes();
            let mut guard = all.ours.upgradable().acquire().await.unwrap();
            all.backend.next(Request::Acquire, [answer]);
            assert!(drop_after(2, guard.upgrade()).await.is_none());
            let began = Instant::now();
            match is_dropped {
                true => drop(guard),
                false => drop(guard.release().await.unwrap()),
            }
            all.locks.shutdown().await.unwrap();
            assert_eq!(began.elapsed(), seconds(2), "{answer:?}");
            assert!(!all.backend.is_held("a").await, "{answer:?}, {is_dropped}");
            assert_eq!((all.backend.waiting("a").await, all.backend.alive()), (0, 0));
            assert!(all.theirs().write().try_acquire().await.unwrap().is_some());
        }
    }
}
