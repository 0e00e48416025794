//! Readers of one process: one hold for many of them, and the bounds on that.

use std::time::Duration;

use lock_core::{
    Ended, ErrorKind, FencingToken, Guard, HoldState, Lock, Locker, LostCause, ReentryKey, Release, Result,
};
use tokio::time::{Instant, sleep};

use super::several_callers::{settle, status, waiting};
use super::{TTL, scripted, seconds};
use crate::scripted::{Answer, Request, Scripted};

mod reentry;

fn read(locks: &Locker) -> Lock {
    locks.rw_lock("a").read()
}

fn write(locks: &Locker) -> Lock {
    locks.rw_lock("a").write()
}

async fn acquire(lock: Lock) -> Result<Guard> {
    lock.acquire().await
}

/// A locker of another process.
fn elsewhere(backend: &Scripted) -> Locker {
    Locker::new(backend.server().clone())
}

#[tokio::test(start_paused = true)]
async fn local_readers_share_one_hold() {
    let (backend, locks) = scripted();
    let (one, other) = tokio::join!(acquire(read(&locks)), acquire(read(&locks)));
    let (one, other) = (one.unwrap(), other.unwrap());
    let third = read(&locks).try_acquire().await.unwrap().expect("joins");
    assert_eq!(backend.sent(), [Request::Acquire]);
    assert!(one.token() == other.token() && other.token() == third.token());
    assert_eq!(status(&backend).await.holders.len(), 1);
    drop((one, other, third));
    locks.shutdown().await.unwrap();
    assert_eq!(backend.sent(), [Request::Release]);
}

#[tokio::test(start_paused = true)]
async fn a_joined_hold_ends_with_its_last_guard() {
    let (backend, locks) = scripted();
    let first = read(&locks).acquire().await.unwrap();
    let second = read(&locks).acquire().await.unwrap();
    assert_eq!(first.release().await.unwrap(), Release::StillShared);
    let third = read(&locks).acquire().await.unwrap();
    drop(second);
    sleep(TTL * 2).await;
    assert_eq!(third.state(), HoldState::Held, "it is renewed for the last one");
    assert_eq!(third.release().await.unwrap(), Release::Released);
    assert!(!status(&backend).await.is_held());
    let next = read(&locks).acquire().await.unwrap();
    assert_eq!(next.release().await.unwrap(), Release::Released);
}

#[tokio::test(start_paused = true)]
async fn joins_are_bounded() {
    let (backend, locks) = scripted();
    let locks = locks.with_passes(3);
    let first = read(&locks).acquire().await.unwrap();
    for _ in 0..3 {
        // Gone at once: those who ever joined count.
        let joined = read(&locks).acquire().await.unwrap();
        assert_eq!(joined.token(), first.token());
    }
    let writer = waiting(acquire(write(&elsewhere(&backend)))).await;
    let next = waiting(acquire(read(&locks))).await;
    drop(first);
    let writing = writer.await.unwrap().unwrap();
    assert!(!next.is_finished(), "it asked the server, behind the writer");
    writing.release().await.unwrap();
    assert!(next.await.unwrap().is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_hold_is_joined_for_a_third_of_its_ttl() {
    let (_, locks) = scripted();
    let first = read(&locks).acquire().await.unwrap();
    sleep(TTL / 3 - Duration::from_millis(1)).await;
    let joined = read(&locks).acquire().await.unwrap();
    assert_eq!(joined.token(), first.token());
    sleep(Duration::from_millis(1)).await;
    let next = read(&locks).acquire().await.unwrap();
    assert!(next.token() > first.token(), "a hold of its own, beside the other");
    let joined = read(&locks).acquire().await.unwrap();
    assert_eq!(joined.token(), next.token());
}

#[tokio::test(start_paused = true)]
async fn waiting_readers_enter_together_up_to_the_bound() {
    let (backend, locks) = scripted();
    let locks = locks.with_passes(3);
    let writing = elsewhere(&backend).lock("a").acquire().await.unwrap();
    let mut readers = Vec::new();
    for _ in 0..6 {
        readers.push(waiting(acquire(read(&locks))).await);
    }
    assert_eq!(status(&backend).await.waiting, Some(1));
    // Behind the process's place.
    let writer = waiting(acquire(write(&elsewhere(&backend)))).await;
    backend.sent();
    writing.release().await.unwrap();
    settle().await;
    let entered: Vec<_> = readers.iter().filter(|reader| reader.is_finished()).collect();
    assert_eq!((entered.len(), status(&backend).await.holders.len()), (4, 1));
    let late = readers.split_off(4);
    for reader in readers {
        drop(reader.await.unwrap().unwrap());
    }
    let writing = writer.await.unwrap().unwrap();
    assert!(late.iter().all(|reader| !reader.is_finished()));
    writing.release().await.unwrap();
    let mut tokens = Vec::new();
    for reader in late {
        tokens.push(reader.await.unwrap().unwrap().token());
    }
    assert_eq!(tokens[0], tokens[1]);
}

#[tokio::test(start_paused = true)]
async fn a_suspect_hold_is_not_joined() {
    let (backend, locks) = scripted();
    let first = read(&locks).acquire().await.unwrap();
    backend.next(Request::Renew, [Answer::Fail]);
    first.extend(TTL).await.unwrap_err();
    assert_eq!(first.state(), HoldState::Suspect);
    let other = read(&locks).acquire().await.unwrap();
    assert!(other.token() > first.token());
}

#[tokio::test(start_paused = true)]
async fn other_terms_are_not_joined() {
    let (backend, locks) = scripted();
    let floor = FencingToken::new(1_000).unwrap();
    let key = ReentryKey::new();
    let others = [
        read(&locks).label("another"),
        read(&locks).fixed_lease(),
        read(&locks.clone().with_token_floor(floor)),
        read(&locks).reentrant(&key),
    ];
    for other in others {
        let first = read(&locks).acquire().await.unwrap();
        let (one, two) = tokio::join!(acquire(other.clone()), acquire(read(&locks).label("ours")));
        let (one, two) = (one.unwrap(), two.unwrap());
        assert!(first.token() < one.token() && one.token() < two.token(), "{other:?}");
        drop((first, one, two));
        sleep(seconds(1)).await;
        assert!(!status(&backend).await.is_held());
    }
    let longer = read(&locks).ttl(TTL + seconds(1));
    let (first, longer) = (read(&locks).acquire().await.unwrap(), longer.acquire().await.unwrap());
    assert_ne!(first.token(), longer.token());
    drop((first, longer));
    sleep(seconds(1)).await;
    let first = read(&locks).acquire().await.unwrap();
    let shorter = read(&locks).ttl(TTL / 3).acquire().await.unwrap();
    assert_eq!(shorter.token(), first.token(), "it gets more than it asked for");
    // Nor does anybody join a fixed one.
    let fixed = read(&locks).fixed_lease().acquire().await.unwrap();
    let other = read(&locks).fixed_lease().acquire().await.unwrap();
    assert_ne!(fixed.token(), other.token());
}

#[tokio::test(start_paused = true)]
async fn loss_reaches_every_joined_guard() {
    let (backend, locks) = scripted();
    let mut guards = Vec::new();
    for _ in 0..3 {
        guards.push(read(&locks).acquire().await.unwrap());
    }
    let lost = guards[2].lost();
    backend.server().take_away("a").unwrap();
    assert_eq!(lost.await.cause(), LostCause::NotHeld);
    for guard in guards {
        assert!(matches!(guard.state(), HoldState::Lost(_)));
        assert!(guard.release().await.unwrap_err().is_lost());
    }
    let again = read(&locks).acquire().await.unwrap();
    assert_eq!(again.state(), HoldState::Held, "what is lost is not joined");
}

#[tokio::test(start_paused = true)]
async fn a_place_of_readers_outlives_its_first_owner() {
    let (backend, locks) = scripted();
    let writing = elsewhere(&backend).lock("a").acquire().await.unwrap();
    let first = waiting(acquire(read(&locks))).await;
    let second = waiting(acquire(read(&locks).label("second"))).await;
    let fixed = waiting(acquire(read(&locks).fixed_lease())).await;
    let last = waiting(acquire(read(&locks))).await;
    backend.sent();
    first.abort();
    settle().await;
    assert_eq!((backend.sent(), status(&backend).await.waiting), (vec![], Some(1)));
    // A fixed lease cannot come of a request for another, nor the other way round.
    second.abort();
    settle().await;
    assert_eq!(backend.sent(), [Request::Abandon, Request::Acquire]);
    fixed.abort();
    settle().await;
    assert_eq!(backend.sent(), [Request::Abandon, Request::Acquire]);
    writing.release().await.unwrap();
    let guard = last.await.unwrap().unwrap();
    sleep(TTL * 2).await;
    assert_eq!(guard.state(), HoldState::Held);
}

#[tokio::test(start_paused = true)]
async fn a_grant_on_a_former_readers_terms_is_renewed_at_once() {
    let (backend, locks) = scripted();
    // The server grants it on the first one's terms; its answer is late.
    backend.next(Request::Acquire, [Answer::DoThenWait(seconds(1))]);
    let first = waiting(acquire(read(&locks).ttl(seconds(3)))).await;
    let second = waiting(acquire(read(&locks).ttl(seconds(60)))).await;
    first.abort();
    let guard = second.await.unwrap().unwrap();
    settle().await;
    assert_eq!(backend.sent(), [Request::Acquire, Request::Renew]);
    assert_eq!(guard.valid_for(), seconds(54));
}

#[tokio::test(start_paused = true)]
async fn a_try_to_read_is_busy_behind_a_reader_that_waits() {
    let (backend, locks) = scripted();
    let others = elsewhere(&backend).with_label("writer");
    let _writing = others.lock("a").acquire().await.unwrap();
    assert!(read(&locks).try_acquire().await.unwrap().is_none());
    assert_eq!(backend.sent(), [Request::Acquire], "the server knows");
    let reader = waiting(acquire(read(&locks))).await;
    backend.sent();
    assert!(read(&locks).try_acquire().await.unwrap().is_none());
    assert_eq!(backend.sent(), [], "the process knows");
    let error = read(&locks).acquire_within(Duration::ZERO).await.unwrap_err();
    assert_eq!(error.holder(), Some("writer"));
    reader.abort();
}

#[tokio::test(start_paused = true)]
async fn a_try_to_read_beside_a_hold_that_is_full_asks_the_server() {
    let (backend, locks) = scripted();
    let locks = locks.with_passes(0);
    let first = read(&locks).acquire().await.unwrap();
    let second = read(&locks).try_acquire().await.unwrap().expect("readers fit");
    assert_ne!(first.token(), second.token());
    let writer = waiting(acquire(write(&elsewhere(&backend)))).await;
    assert!(read(&locks).try_acquire().await.unwrap().is_none());
    writer.abort();
}

#[tokio::test(start_paused = true)]
async fn a_try_after_a_drop_succeeds_in_another_mode() {
    let (backend, locks) = scripted();
    let semaphore = locks.semaphore("a", 2);
    let modes = [read(&locks), write(&locks), semaphore.permits(2)];
    for before in &modes {
        for after in &modes {
            // The release goes out late, and the first try before it.
            backend.next(Request::Release, [Answer::DoAfter(seconds(1))]);
            drop(before.acquire().await.unwrap());
            let guard = after.try_acquire().await.unwrap();
            assert!(guard.is_some(), "{after:?} after {before:?}");
            drop(guard);
            sleep(seconds(10)).await;
            assert!(!status(&backend).await.is_held());
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_try_waits_for_no_release_that_began_after_it() {
    let (backend, locks) = scripted();
    let _reading = elsewhere(&backend).rw_lock("a").read().acquire().await.unwrap();
    let ours = locks.clone().with_passes(0);
    let (first, second) = (
        read(&ours).acquire().await.unwrap(),
        read(&ours).acquire().await.unwrap(),
    );
    backend.next(
        Request::Release,
        [Answer::DoAfter(seconds(1)), Answer::DoAfter(seconds(4))],
    );
    drop(first);
    let lock = write(&locks);
    let started = Instant::now();
    let tried = tokio::spawn(async move { lock.try_acquire().await });
    settle().await;
    drop(second);
    assert!(tried.await.unwrap().unwrap().is_none());
    assert_eq!(started.elapsed(), seconds(1));
}

#[tokio::test(start_paused = true)]
async fn a_writer_and_readers_of_one_process_wait_for_each_other_at_the_server() {
    let (backend, locks) = scripted();
    let reading = read(&locks).acquire().await.unwrap();
    let writer = waiting(acquire(write(&locks))).await;
    let watch = reading.watch();
    drop(reading);
    let writing = writer.await.unwrap().unwrap();
    assert_eq!(watch.ended().await, Ended::Released);
    let reader = waiting(acquire(read(&locks))).await;
    assert_eq!(status(&backend).await.waiting, Some(1));
    writing.release().await.unwrap();
    assert!(reader.await.unwrap().is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_reader_waits_behind_a_writer_of_its_process_that_waits() {
    let (backend, locks) = scripted();
    for other in [write(&locks), locks.semaphore("a", 2).permits(1)] {
        let reading = read(&locks).acquire().await.unwrap();
        let waits = waiting(acquire(other.clone())).await;
        let next = waiting(acquire(read(&locks))).await;
        assert_eq!(status(&backend).await.waiting, Some(2), "beside {other:?}");
        assert!(read(&locks).try_acquire().await.unwrap().is_none());
        drop(reading);
        let other = waits.await.unwrap().unwrap();
        assert!(!next.is_finished());
        other.release().await.unwrap();
        next.await.unwrap().unwrap().release().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn readers_join_again_once_the_writer_of_their_process_has_gone() {
    let (backend, locks) = scripted();
    let reading = read(&locks).acquire().await.unwrap();
    let writer = waiting(acquire(write(&locks))).await;
    writer.abort();
    settle().await;
    backend.sent();
    let joined = read(&locks).acquire().await.unwrap();
    assert_eq!((joined.token(), backend.sent()), (reading.token(), vec![]));
}

#[tokio::test(start_paused = true)]
async fn an_upgradable_reader_that_waits_keeps_nobody_from_joining() {
    let (_, locks) = scripted();
    let upgradable = locks.rw_lock("a").upgradable();
    let _first = upgradable.acquire().await.unwrap();
    let reading = read(&locks).acquire().await.unwrap();
    let second = tokio::spawn(async move { upgradable.acquire().await });
    settle().await;
    let joined = read(&locks).acquire().await.unwrap();
    assert_eq!(joined.token(), reading.token());
    second.abort();
}

#[tokio::test(start_paused = true)]
async fn a_minimum_hold_is_not_downgraded() {
    let (backend, locks) = scripted();
    let mut guard = write(&locks).hold_at_least(seconds(20)).acquire().await.unwrap();
    backend.sent();
    let error = guard.downgrade().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Misconfigured);
    assert!(error.to_string().contains("hold_at_least"), "{error}");
    assert_eq!(backend.sent(), []);
    guard.release().await.unwrap();
    assert!(read(&elsewhere(&backend)).try_acquire().await.unwrap().is_none());
}
