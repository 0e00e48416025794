//! Re-entry.

use lock_core::{ReentryKey, Release};

use super::support::*;

#[tokio::test(start_paused = true)]
async fn a_lost_hold_contradicts_nobody() {
    let (backend, locks) = hostile();
    let key = ReentryKey::new();
    let guard = locks.lock("a").reentrant(&key).acquire().await.unwrap();
    backend.server().take_away("a").unwrap();
    assert!(guard.check().is_err());
    let again = locks.lock("a").ttl(seconds(20)).reentrant(&key).acquire().await;
    assert!(again.is_ok(), "a hold that is lost is not shared: {again:?}");
}

#[tokio::test(start_paused = true)]
async fn a_suspect_hold_is_shared() {
    let (backend, locks) = hostile();
    let key = ReentryKey::new();
    backend.next(Request::Renew, [Answer::Fail; 100]);
    let guard = locks.lock("a").reentrant(&key).acquire().await.unwrap();
    sleep(seconds(4)).await;
    assert_eq!(guard.state(), HoldState::Suspect);
    let again = locks.lock("a").reentrant(&key).acquire().await.unwrap();
    assert_eq!(again.token(), guard.token());
    assert_eq!(again.release().await.unwrap(), Release::StillShared);
    assert_eq!(guard.release().await.unwrap(), Release::Released);
}

#[tokio::test(start_paused = true)]
async fn those_of_one_key_come_in_with_the_first_however_it_is_granted() {
    for heir in [false, true] {
        let (backend, locks) = hostile();
        let key = ReentryKey::new();
        let guard = locks.lock("a").acquire().await.unwrap();
        let tasks: Vec<_> = (0..6)
            .map(|number| {
                let lock = locks.lock("a");
                let lock = if number % 2 == 0 { lock.reentrant(&key) } else { lock };
                tokio::spawn(async move { (number, lock.acquire().await.unwrap()) })
            })
            .collect();
        sleep(seconds(1)).await;
        match heir {
            true => drop(guard.release().await.unwrap()),
            false => {
                backend.next(Request::Release, [Answer::Fail]);
                guard.release().await.unwrap();
            }
        }
        sleep(seconds(1)).await;
        let in_now: Vec<_> = tasks.iter().map(tokio::task::JoinHandle::is_finished).collect();
        assert_eq!(in_now, [true, false, true, false, true, false]);
        let (sharing, others): (Vec<_>, Vec<_>) =
            tasks.into_iter().enumerate().partition(|(number, _)| number % 2 == 0);
        for (_, task) in sharing.into_iter().chain(others) {
            drop(timeout(seconds(60), task).await.unwrap().unwrap());
        }
        locks.shutdown().await.unwrap();
        assert!(!backend.is_held("a").await);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sharing_races_with_the_last_release() {
    let (backend, locks) = hostile();
    let key = ReentryKey::new();
    let tasks: Vec<_> = (0..6)
        .map(|task| {
            let lock = locks.lock("a").reentrant(&key);
            tokio::spawn(async move {
                for turn in 0..3000 {
                    let guard = lock.acquire().await.unwrap();
                    assert!(guard.check().is_ok());
                    if (turn + task) % 3 == 0 {
                        yield_now().await;
                    }
                    assert!(guard.check().is_ok(), "as long as anybody shares it");
                    match (turn + task) % 2 {
                        0 => drop(guard),
                        _ => drop(guard.release().await.unwrap()),
                    }
                }
            })
        })
        .collect();
    for task in tasks {
        happens("the end of all turns", task).await.unwrap();
    }
    locks.shutdown().await.unwrap();
    assert!(!backend.is_held("a").await);
    assert_eq!(backend.alive(), 0);
}
