//! Permits.

use std::time::Duration;

use lock_core::ErrorKind;
use lock_core::Locker;
use lock_core::backend::{Capabilities, Mode, Permits};

use super::{processes, settle};
use crate::scripted::Scripted;

#[tokio::test(start_paused = true)]
async fn a_semaphore_limits() {
    let all = processes();
    let api = all.locks.semaphore("a", 3);
    let two = api.permits(2).acquire().await.unwrap();
    assert_eq!(two.mode(), Mode::Permits(Permits::new(2, 3).unwrap()));
    let elsewhere = || Locker::new(all.backend.server().clone()).semaphore("a", 3);
    assert!(elsewhere().permits(2).try_acquire().await.unwrap().is_none());
    let one = elsewhere().permits(1).try_acquire().await.unwrap().unwrap();
    let error = elsewhere()
        .permits(1)
        .acquire_within(Duration::from_millis(10))
        .await
        .unwrap_err();
    assert!(error.is_timed_out());
    let status = all.locks.status("a").await.unwrap();
    assert_eq!(status.holders.len(), 2);
    let api = elsewhere();
    let waiting = tokio::spawn(async move { api.permits(2).acquire().await });
    settle().await;
    two.release().await.unwrap();
    let two = waiting.await.unwrap().unwrap();
    drop((one, two));
}

#[tokio::test(start_paused = true)]
async fn more_than_the_limit_is_misconfigured() {
    let all = processes();
    let api = all.locks.semaphore("a", 3);
    for take in [0, 4] {
        assert_eq!(
            api.permits(take).acquire().await.unwrap_err().kind(),
            ErrorKind::Misconfigured
        );
        assert_eq!(
            api.permits(take).try_acquire().await.unwrap_err().kind(),
            ErrorKind::Misconfigured
        );
    }
    let none = all.locks.semaphore("a", 0);
    assert_eq!(
        none.permits(1).acquire().await.unwrap_err().kind(),
        ErrorKind::Misconfigured
    );
    let few = Locker::new(Scripted::new(Capabilities::default().permits(2), 0));
    assert_eq!(
        few.semaphore("a", 3).permits(1).acquire().await.unwrap_err().kind(),
        ErrorKind::Unsupported
    );
    assert_eq!(all.backend.sent(), []);
}
