//! An acquire that found the lock taken is counted once, however often the server says so.

use std::time::Duration;

use async_trait::async_trait;
use lock_core::backend::{AcquireRequest, Attempt, Busy, Capabilities, DistributedLock, LockStatus};
use lock_core::{Error, ErrorKind, LockName, Locker, MemoryBackend, Result};
use metrics_util::debugging::DebugValue;
use tokio::time::sleep;

use super::measured;

/// A server on which the name is taken, and to which the connection breaks each second second.
#[derive(Debug)]
struct Unsteady;

#[async_trait]
impl DistributedLock for Unsteady {
    fn capabilities(&self) -> Capabilities {
        Capabilities::default()
    }

    async fn connect(&self) -> Result<()> {
        Ok(())
    }

    async fn acquire(&self, request: &AcquireRequest) -> Result<Attempt> {
        let saying_so = async {
            loop {
                request.note_busy(Busy::new());
                sleep(Duration::from_secs(1)).await;
                request.note_unreachable(Error::new(ErrorKind::Unavailable, "the connection broke"));
                sleep(Duration::from_secs(1)).await;
            }
        };
        tokio::select! {
            () = saying_so => {}
            () = request.given_up() => {}
        }
        Ok(Attempt::Busy(Busy::new()))
    }

    async fn abandon(&self, _request: &AcquireRequest) -> Result<()> {
        Ok(())
    }

    async fn status(&self, name: &LockName) -> Result<LockStatus> {
        MemoryBackend::new().status(name).await
    }
}

/// How many acquires were counted that found the name taken at the server.
fn contended(life: impl Future<Output = ()>) -> u64 {
    let at_server = measured(life).into_iter().filter_map(|(key, value)| {
        let is_it =
            key.key().name() == "polylock_contended_total" && key.key().labels().any(|label| label.value() == "server");
        match value {
            DebugValue::Counter(count) if is_it => Some(count),
            _ => None,
        }
    });
    at_server.sum()
}

#[test]
fn an_acquire_is_contended_once_however_often_its_connection_breaks() {
    let counted = contended(async {
        let lock = Locker::new(Unsteady).lock("a");
        lock.acquire_within(Duration::from_secs(9)).await.unwrap_err();
    });
    assert_eq!(counted, 1);
}

/// The second one has waited in this process, and goes on with the request of the first one.
#[test]
fn two_acquires_with_one_request_are_contended_once_at_the_server() {
    let counted = contended(async {
        let lock = Locker::new(Unsteady).lock("a");
        let (first, second) = tokio::join!(
            lock.acquire_within(Duration::from_secs(4)),
            lock.acquire_within(Duration::from_secs(15))
        );
        first.unwrap_err();
        second.unwrap_err();
    });
    assert_eq!(counted, 1);
}
