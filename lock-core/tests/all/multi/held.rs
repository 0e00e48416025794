//! Several locks while they are held.

use lock_core::{Ended, HoldState, acquire_all};
use tokio::time::{Instant, sleep};

use super::{TTL, scripted, seconds};
use crate::scripted::{Answer, Request};

#[tokio::test(start_paused = true)]
async fn loss_of_one_is_loss() {
    let (backend, locks) = scripted();
    let both = acquire_all([locks.lock("b"), locks.lock("a").ttl(TTL * 2)])
        .await
        .unwrap();
    assert_eq!((both.state(), both.valid_for()), (HoldState::Held, TTL - TTL / 10));
    assert_eq!(both.run(async { 7 }).await, Ok(7));
    let running = both.run(async {
        sleep(seconds(1)).await;
        backend.server().take_away("b").unwrap();
        std::future::pending::<()>().await;
    });
    let lost = running.await.unwrap_err();
    assert_eq!(lost.name().as_str(), "b");
    assert_eq!(both.check(), Err(lost.clone()));
    assert_eq!(both.lost().await, lost);
    assert_eq!(both.state(), HoldState::Lost(lost));
    assert!(both.valid_for().is_zero());
    assert_eq!(both.guards()[1].state(), HoldState::Held);
}

#[tokio::test(start_paused = true)]
async fn suspicion_of_one_is_suspicion() {
    let (backend, locks) = scripted();
    let both = acquire_all([locks.lock("a"), locks.lock("b").ttl(TTL * 3)])
        .await
        .unwrap();
    backend.next(Request::Renew, [Answer::Fail]);
    sleep(TTL / 3 + seconds(0)).await;
    sleep(std::time::Duration::from_millis(1)).await;
    assert_eq!(both.state(), HoldState::Suspect);
    assert!(both.check().is_ok());
    sleep(seconds(1)).await;
    assert_eq!(both.state(), HoldState::Held);
}

#[tokio::test(start_paused = true)]
async fn release_tries_all() {
    let (backend, locks) = scripted();
    let all = acquire_all(["c", "a", "b"].map(|name| locks.lock(name))).await.unwrap();
    backend.server().take_away("a").unwrap();
    let error = all.release().await.unwrap_err();
    assert!(error.is_lost());
    assert_eq!(error.name().unwrap().as_str(), "a");
    for name in ["b", "c"] {
        assert!(!backend.is_held(name).await);
    }
    let all = acquire_all(["a", "b"].map(|name| locks.lock(name))).await.unwrap();
    backend.next(Request::Release, [Answer::Hang, Answer::Hang]);
    let began = Instant::now();
    let error = all.release().await.unwrap_err();
    assert_eq!(error.name().unwrap().as_str(), "a", "the first error");
    assert_eq!(began.elapsed(), seconds(5), "at the same time");
    backend.let_go();
    locks.shutdown().await.unwrap();
    assert!(!backend.is_held("a").await && !backend.is_held("b").await);
}

#[tokio::test(start_paused = true)]
async fn it_splits_into_guards_of_their_own() {
    let (backend, locks) = scripted();
    let mut guards = acquire_all([locks.lock("b"), locks.lock("a")])
        .await
        .unwrap()
        .into_guards();
    let (a, b) = (guards.pop().unwrap(), guards.pop().unwrap());
    assert_eq!((a.name().as_str(), b.name().as_str()), ("a", "b"));
    a.release().await.unwrap();
    assert!(backend.is_held("b").await && !backend.is_held("a").await);
    let watch = b.watch();
    drop(b);
    assert_eq!(watch.ended().await, Ended::Released);
}
