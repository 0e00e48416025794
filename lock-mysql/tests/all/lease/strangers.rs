//! A row that a stranger keeps locked.

use lock_core::ErrorKind;
use lock_core::backend::{DistributedLock, Mode, Wait};

use super::sharing::permits;
use super::support::*;
use crate::support::*;

/// All other acquires wait behind a statement that waits for a row.
#[testbed::test]
async fn acquires_of_a_row_that_a_stranger_locks_wait_for_it_only_once() {
    let fixture = Fixture::own().await;
    let (backend, mut stranger, mut observer) = (backend(&fixture), fixture.observer().await, fixture.observer().await);
    grant(&backend, "a", secs(60)).await.release().await;
    let table = &fixture.table;
    let refused = async |mode: Mode| {
        let (request, control) = options("a", secs(60)).wait(Wait::No).mode(mode).start();
        let error = soon("refused", backend.acquire(&request)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        assert!(error.is_not_executed() && error.is_retryable(), "{error}");
        control.give_up();
    };
    for _ in 0..2 {
        let before = counted(&mut observer, "Innodb_row_lock_waits").await;
        stranger
            .run(&format!("BEGIN;SELECT 1 FROM {table}_leases WHERE name='a' FOR UPDATE"))
            .await;
        for _ in 0..3 {
            for mode in [Mode::Exclusive, Mode::Shared, permits(1, 2)] {
                refused(mode).await;
                grant(&backend, "b", secs(60)).await.release().await;
            }
        }
        let waits = counted(&mut observer, "Innodb_row_lock_waits").await - before;
        assert_eq!(waits, 1, "the first acquire waits");
        stranger.run("ROLLBACK").await;
        // It is forgotten then.
        grant(&backend, "a", secs(60)).await.release().await;
    }
}
