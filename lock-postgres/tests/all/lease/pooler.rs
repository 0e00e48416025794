//! Behind a PgBouncer that lends its connections for a transaction.

use std::thread;

use lock_core::backend::DistributedLock;
use lock_core::{ErrorKind, Locker};
use lock_postgres::{LeaseTableBackend, Pooler, PostgresConfig};
use testbed::{PgBouncer, Postgres, Server};
use tokio::runtime::Builder;
use tokio::sync::oneshot;

use super::support::*;

fn pooled(fixture: &Fixture, pool: &Server) -> PostgresConfig {
    PostgresConfig::from_url(&pool.url())
        .unwrap()
        .with_connect_timeout(PATIENCE)
        .with_response_timeout(PATIENCE)
        .with_table(&fixture.table)
        .with_pooler(Pooler::Transaction)
}

/// A PgBouncer lends a connection on when its client leaves, and knows of one answer that is still to come.
#[testbed::test]
async fn who_leaves_with_requests_under_way_leaves_no_answer_to_others() {
    let fixture = Fixture::shared().await;
    let pool = PgBouncer::of(fixture.server.port()).setting("default_pool_size", "1");
    let pool = pool.start().await.unwrap();
    let config = pooled(&fixture, &pool);
    grant(&fixture.backend(), "a", secs(60)).await.release().await;
    let locking = fixture.lock_row("a").await;
    let (leave, left) = oneshot::channel::<()>();
    let of_leaving = config.clone();
    let leaving = thread::spawn(move || {
        // One thread: the two requests go out in their order.
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        let backend = LeaseTableBackend::new(of_leaving).unwrap();
        runtime.block_on(async {
            // The first acquire begins a clean-up beside it.
            for _ in 0..10 {
                grant(&backend, "free", secs(60)).await.release().await;
            }
            let (free, _control) = options("free", secs(60)).waits(false).start();
            let (locked, _control) = options("a", secs(60)).waits(false).start();
            let (free, locked) = (begin(&backend, &free), begin(&backend, &locked));
            assert!(granted(happens("the grant", free).await.unwrap().unwrap()).is_some());
            left.await.unwrap();
            assert!(!locked.is_finished(), "its row is locked");
        });
        // Its connections end at once.
        runtime.shutdown_background();
    });
    eventually("waiting for the row", async || fixture.waiting_for_rows().await == 1).await;
    leave.send(()).unwrap();
    leaving.join().unwrap();
    let next = LeaseTableBackend::new(config).unwrap();
    let (request, _control) = options("b", secs(60)).waits(false).start();
    // Not over the connection whose answer is still to come.
    let answer = happens("an answer", next.acquire(&request)).await;
    let hold = granted(answer.unwrap()).expect("nobody has it");
    let token = fixture.number("SELECT token FROM {}_leases WHERE name='b'").await;
    assert_eq!(hold.token().as_u64(), u64::try_from(token).unwrap());
    drop(locking);
}

/// The pooler reports that with a code of its own, which a server that refuses a statement has as well.
#[testbed::test]
async fn a_server_that_restarts_behind_the_pooler_loses_no_release_and_no_waiter() {
    let fixture = Fixture::own(Postgres::new()).await;
    let pool = PgBouncer::of(fixture.server.port()).setting("query_wait_timeout", "1");
    let pool = pool.start().await.unwrap();
    let locker = || {
        let backend = LeaseTableBackend::new(pooled(&fixture, &pool)).unwrap();
        Locker::new(backend).with_ttl(secs(600))
    };
    let (first, second) = (locker(), locker());
    let held = first.lock("a").acquire().await.unwrap();
    let token = held.token();
    let lock = second.lock("a");
    let waiting = tokio::spawn(async move { lock.acquire().await });
    eventually("waiting", async || {
        fixture.number("SELECT count(*) FROM {}_waiters").await == 1
    })
    .await;
    fixture.server.kill().unwrap();
    // Its release goes on in the background.
    drop(held);
    for locker in [&first, &second] {
        let error = happens("an answer", locker.lock("b").try_acquire()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
    }
    fixture.server.restart().await.unwrap();
    let next = happens("the grant", waiting).await.unwrap().unwrap();
    assert!(next.token() > token);
}
