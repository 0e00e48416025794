//! Reads and writes with the same re-entry key.

use lock_core::{ErrorKind, ReentryKey, Release};
use tokio::time::sleep;

use super::{acquire, elsewhere, read, write};
use crate::policy::several_callers::waiting;
use crate::policy::{TTL, scripted, seconds};

#[tokio::test(start_paused = true)]
async fn write_under_own_read_is_an_error() {
    let (backend, locks) = scripted();
    let key = ReentryKey::new();
    let reading = read(&locks).reentrant(&key).acquire().await.unwrap();
    backend.sent();
    let error = write(&locks).reentrant(&key).acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Misconfigured);
    assert!(error.to_string().contains("`upgradable()`"), "{error}");
    assert_eq!(backend.sent(), [], "at once");
    let again = read(&locks).reentrant(&key).try_acquire().await.unwrap();
    assert_eq!(again.expect("its own").token(), reading.token());
    reading.release().await.unwrap();
    // Nothing of the key is left.
    let writing = write(&locks).reentrant(&key).acquire().await.unwrap();
    writing.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn read_under_own_write_shares() {
    let (backend, locks) = scripted();
    let key = ReentryKey::new();
    let writing = write(&locks).hold_at_least(seconds(1)).reentrant(&key);
    let writing = writing.acquire().await.unwrap();
    backend.sent();
    let reading = read(&locks).reentrant(&key).acquire().await.unwrap();
    assert_eq!((reading.token(), backend.sent()), (writing.token(), vec![]));
    // Others read after that.
    assert!(read(&locks).try_acquire().await.unwrap().is_none());
    assert_eq!(writing.release().await.unwrap(), Release::StillShared);
    assert_eq!(reading.release().await.unwrap(), Release::Released);
}

#[tokio::test(start_paused = true)]
async fn a_waiting_reader_shares_the_write_of_its_key() {
    let (backend, locks) = scripted();
    let (key, others) = (ReentryKey::new(), elsewhere(&backend));
    let writing = others.lock("a").acquire().await.unwrap();
    let writer = waiting(acquire(write(&locks).reentrant(&key))).await;
    // One asks the server, behind its own process's writer; the other waits behind it.
    let asking = waiting(acquire(read(&locks))).await;
    let reader = waiting(acquire(read(&locks).reentrant(&key))).await;
    writing.release().await.unwrap();
    let (writing, reading) = (writer.await.unwrap().unwrap(), reader.await.unwrap().unwrap());
    assert_eq!(writing.token(), reading.token());
    assert!(!asking.is_finished());
    drop((writing, reading));
    assert!(asking.await.unwrap().is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_key_reads_again_before_a_writer_that_waits_for_it() {
    let (backend, locks) = scripted();
    let lock = read(&locks).reentrant(&ReentryKey::new());
    let outer = lock.acquire().await.unwrap();
    let mut inner = Vec::new();
    let writer = waiting(acquire(write(&elsewhere(&backend)))).await;
    // Neither its age nor the number of its guards matters.
    sleep(TTL).await;
    for _ in 0..30 {
        inner.push(lock.acquire().await.unwrap());
    }
    assert_eq!(outer.release().await.unwrap(), Release::StillShared);
    let error = lock.clone().ttl(TTL * 2).acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Misconfigured);
    drop(inner);
    assert!(writer.await.unwrap().is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_key_reads_again_before_a_writer_of_its_process_that_waits() {
    let (_, locks) = scripted();
    let lock = read(&locks).reentrant(&ReentryKey::new());
    let outer = lock.acquire().await.unwrap();
    let writer = waiting(acquire(write(&locks))).await;
    let inner = lock.acquire().await.unwrap();
    assert_eq!(inner.token(), outer.token());
    drop((outer, inner));
    assert!(writer.await.unwrap().is_ok());
}
