//! From writing to reading.

use std::pin::{Pin, pin};
use std::task::Poll;

use futures_util::future::poll_fn;
use lock_core::backend::{Capabilities, Mode};
use lock_core::{ErrorKind, HoldState, Locker, ReentryKey};
use tokio::time::{Instant, sleep};

use super::{TTL, drop_after, processes, seconds, settle, with_yields};
use crate::scripted::{Answer, Request, Scripted};

#[tokio::test(start_paused = true)]
async fn nobody_writes_during_a_downgrade() {
    let all = processes();
    let mut guard = all.ours.write().acquire().await.unwrap();
    let token = guard.token();
    let writer = all.theirs().write();
    let writer = tokio::spawn(async move { writer.acquire().await });
    settle().await;
    guard.downgrade().await.unwrap();
    assert_eq!((guard.mode(), guard.token()), (Mode::Shared, token));
    assert_eq!(guard.options().mode, Mode::Shared);
    sleep(TTL * 3).await;
    assert!(!writer.is_finished(), "it is renewed as a reader");
    assert_eq!(all.modes().await, [Mode::Shared]);
    guard.release().await.unwrap();
    assert!(writer.await.unwrap().unwrap().token() > token);
}

#[tokio::test(start_paused = true)]
async fn a_downgrade_admits_waiting_readers() {
    let all = processes();
    let mut guard = all.ours.write().acquire().await.unwrap();
    let reader = all.theirs().read();
    let reader = tokio::spawn(async move { reader.acquire().await });
    settle().await;
    assert!(!reader.is_finished());
    guard.downgrade().await.unwrap();
    let reader = reader.await.unwrap().unwrap();
    assert_eq!(all.modes().await, [Mode::Shared; 2]);
    assert_eq!((reader.state(), guard.state()), (HoldState::Held, HoldState::Held));
}

#[tokio::test(start_paused = true)]
async fn local_writers_wait_at_the_server_after_a_downgrade() {
    let all = processes();
    let mut guard = all.ours.write().acquire().await.unwrap();
    let writer = all.ours.write();
    let writer = tokio::spawn(async move { writer.acquire().await });
    settle().await;
    assert_eq!(all.backend.waiting("a").await, 0, "it waits here");
    guard.downgrade().await.unwrap();
    settle().await;
    assert_eq!(all.backend.waiting("a").await, 1, "in its turn among all others");
    assert!(all.ours.write().try_acquire().await.unwrap().is_none());
    guard.release().await.unwrap();
    writer.await.unwrap().unwrap().release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_lost_hold_is_not_downgraded() {
    let all = processes();
    let mut guard = all.ours.write().acquire().await.unwrap();
    all.backend.server().take_away("a").unwrap();
    all.backend.sent();
    assert!(guard.downgrade().await.unwrap_err().is_lost());
    assert_eq!(all.backend.sent(), [], "it knew");
    let mut guard = all.ours.write().acquire().await.unwrap();
    all.backend.next(Request::Downgrade, [Answer::NotHeld]);
    assert!(guard.downgrade().await.unwrap_err().is_lost());
    assert!(guard.check().is_err());
}

#[tokio::test(start_paused = true)]
async fn an_unanswered_downgrade_counts_and_can_be_repeated() {
    for answer in [Answer::Fail, Answer::DoThenFail, Answer::Hang, Answer::DoThenHang] {
        let all = processes();
        let mut guard = all.ours.write().acquire().await.unwrap();
        all.backend.next(Request::Downgrade, [answer]);
        let began = Instant::now();
        let error = guard.downgrade().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{answer:?}");
        assert!(began.elapsed() <= seconds(5));
        assert_eq!((guard.mode(), guard.state()), (Mode::Shared, HoldState::Suspect));
        guard.downgrade().await.unwrap();
        assert_eq!(
            (all.modes().await, guard.state()),
            (vec![Mode::Shared], HoldState::Held)
        );
        all.backend.sent();
        guard.downgrade().await.unwrap();
        assert_eq!(all.backend.sent(), [], "it is known to be shared");
        guard.release().await.unwrap();
        all.backend.let_go();
        all.locks.shutdown().await.unwrap();
        assert!(!all.backend.is_held("a").await);
    }
}

#[tokio::test(start_paused = true)]
async fn a_downgrade_may_be_dropped_at_any_poll() {
    for polls in 0..8 {
        let all = with_yields(1);
        let mut guard = all.ours.write().acquire().await.unwrap();
        let writer = all.ours.write();
        let writer = tokio::spawn(async move { writer.acquire().await });
        settle().await;
        let done = drop_after(polls, guard.downgrade()).await.is_some();
        let asked = all.backend.count(Request::Downgrade) > 0;
        assert_eq!(guard.mode() == Mode::Shared, asked, "{polls} polls");
        assert_eq!(guard.state(), HoldState::Held);
        settle().await;
        assert!(!writer.is_finished());
        sleep(TTL * 2).await;
        assert_eq!(guard.state(), HoldState::Held, "it is renewed");
        guard.release().await.unwrap();
        writer.await.unwrap().unwrap().release().await.unwrap();
        all.locks.shutdown().await.unwrap();
        assert!(!all.backend.is_held("a").await);
        assert_eq!((all.backend.alive(), all.backend.waiting("a").await), (0, 0));
        assert!(done || polls < 7);
    }
}

/// The hold was lost, and its clean-up releases it when the downgrade ends.
#[tokio::test(start_paused = true)]
async fn a_local_writer_waits_on_when_a_downgrade_ends_after_a_loss() {
    let all = processes();
    let mut guard = all.ours.write().acquire().await.unwrap();
    let writer = all.ours.write();
    let writer = tokio::spawn(async move { writer.acquire().await });
    settle().await;
    all.backend.next(Request::Downgrade, [Answer::Hang]);
    all.backend.next(Request::Release, [Answer::Hang]);
    {
        let mut downgrade = pin!(guard.downgrade());
        assert!(poll_once(downgrade.as_mut()).await.is_none());
        all.backend.server().take_away("a").unwrap();
        settle().await;
        assert_eq!(all.backend.count(Request::Release), 1);
    }
    sleep(TTL * 2).await;
    all.backend.let_go();
    let writer = writer.await.unwrap().unwrap();
    assert_eq!(writer.state(), HoldState::Held);
    drop((guard, writer));
    all.locks.shutdown().await.unwrap();
    assert!(!all.backend.is_held("a").await);
}

async fn poll_once<F: Future>(mut future: Pin<&mut F>) -> Option<F::Output> {
    poll_fn(|context| match future.as_mut().poll(context) {
        Poll::Ready(output) => Poll::Ready(Some(output)),
        Poll::Pending => Poll::Ready(None),
    })
    .await
}

#[tokio::test(start_paused = true)]
async fn what_is_not_exclusive_is_not_downgraded() {
    let all = processes();
    let mut reader = all.ours.read().acquire().await.unwrap();
    reader.downgrade().await.unwrap();
    reader.release().await.unwrap();
    let mut upgradable = all.ours.upgradable().acquire().await.unwrap();
    assert_eq!(
        upgradable.downgrade().await.unwrap_err().kind(),
        ErrorKind::Misconfigured
    );
    upgradable.release().await.unwrap();
    let mut permits = all.locks.semaphore("a", 2).permits(2).acquire().await.unwrap();
    assert_eq!(permits.downgrade().await.unwrap_err().kind(), ErrorKind::Misconfigured);
    permits.release().await.unwrap();
    assert_eq!(all.backend.count(Request::Downgrade), 0);
}

#[tokio::test(start_paused = true)]
async fn a_hold_that_others_share_as_exclusive_is_not_downgraded() {
    let all = processes();
    let lock = all.ours.write().reentrant(&ReentryKey::new());
    let mut outer = lock.acquire().await.unwrap();
    let inner = lock.acquire().await.unwrap();
    assert_eq!(outer.downgrade().await.unwrap_err().kind(), ErrorKind::Misconfigured);
    assert_eq!((outer.mode(), inner.mode()), (Mode::Exclusive, Mode::Exclusive));
    inner.release().await.unwrap();
    outer.downgrade().await.unwrap();
    assert_eq!(outer.mode(), Mode::Shared);
}

#[tokio::test(start_paused = true)]
async fn a_key_that_only_reads_by_now_does_not_write() {
    let all = processes();
    let key = ReentryKey::new();
    let mut guard = all.ours.write().reentrant(&key).acquire().await.unwrap();
    guard.downgrade().await.unwrap();
    let reader = all.ours.read().reentrant(&key).acquire().await.unwrap();
    assert_eq!((reader.token(), reader.mode()), (guard.token(), Mode::Shared));
    let error = all.ours.write().reentrant(&key).acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Misconfigured);
    guard.release().await.unwrap();
    reader.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn who_tries_after_a_drop_gets_it() {
    let all = processes();
    let mut guard = all.ours.write().acquire().await.unwrap();
    guard.downgrade().await.unwrap();
    drop(guard);
    let mut guard = all.ours.upgradable().acquire().await.unwrap();
    guard.upgrade().await.unwrap();
    drop(guard);
    assert!(all.ours.write().try_acquire().await.unwrap().is_some());
}

#[tokio::test(start_paused = true)]
async fn a_backend_without_downgrades_is_not_asked() {
    let backend = Scripted::new(Capabilities::default().shared(), 0);
    let locks = Locker::new(backend.clone());
    let mut guard = locks.lock("a").acquire().await.unwrap();
    let error = guard.downgrade().await.unwrap_err();
    assert_eq!((error.kind(), guard.mode()), (ErrorKind::Unsupported, Mode::Exclusive));
    assert_eq!(backend.count(Request::Downgrade), 0);
}
