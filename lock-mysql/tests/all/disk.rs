//! A server whose disk is full.

use futures_util::future::join_all;
use lock_core::{Error, ErrorKind, Locker};
use lock_mysql::Strategy;
use testbed::{Disk, MariaDb};

use crate::support::*;

#[testbed::test]
async fn a_full_disk_refuses_new_names_of_row_locks_and_loses_nothing() {
    a_full_disk_refuses_new_names_and_loses_nothing(Strategy::Row).await;
}

#[testbed::test]
async fn a_full_disk_refuses_new_names_of_leases_and_loses_nothing() {
    a_full_disk_refuses_new_names_and_loses_nothing(Strategy::Lease).await;
}

async fn a_full_disk_refuses_new_names_and_loses_nothing(strategy: Strategy) {
    let disk = Disk::new().unwrap();
    let server = MariaDb::new().disk(&disk).start().await.unwrap();
    assert!(
        !server.is_external(),
        "this test needs a server of its own: unset POLYLOCK_MYSQL_URL"
    );
    let fixture = Fixture::on(server);
    let locker = || {
        let backend = lock_mysql::backend(fixture.config().with_strategy(strategy)).unwrap();
        Locker::from_backend(backend).with_ttl(secs(600))
    };
    let (first, second) = (locker(), locker());
    first.connect().await.unwrap();
    second.connect().await.unwrap();
    let held = first.lock("held").acquire().await.unwrap();
    let mut others = Vec::new();
    for number in 0..3 {
        others.push(first.lock(format!("other {number}")).acquire().await.unwrap());
    }
    disk.fill(true).unwrap();
    // There is some room in the table's file.
    let mut last = held.token();
    let refused = disk.first_refused(async |name| {
        let guard = soon("answered", first.lock(name).try_acquire()).await?;
        let guard = guard.expect("it is free");
        last = guard.token();
        guard.release().await.unwrap();
        Ok::<_, Error>(())
    });
    let (name, error) = refused.await;
    assert_cannot_write(&error);
    // A MySQL may find room after all.
    match soon("answered", second.lock(&name).try_acquire()).await {
        Ok(guard) => drop(guard.expect("it is free").release().await.unwrap()),
        Err(error) => assert_cannot_write(&error),
    }
    // Whoever may wait does until there is room.
    let waiter = second.lock(&name);
    let waiting = tokio::spawn(async move { waiter.acquire().await });
    // Names that have a row go on.
    held.extend(secs(700)).await.unwrap();
    // Also those that are renewed together.
    let extended = join_all(others.iter().map(|guard| guard.extend(secs(700)))).await;
    assert!(extended.iter().all(Result::is_ok), "{extended:?}");
    drop(others);
    assert!(second.lock("held").try_acquire().await.unwrap().is_none());
    let token = held.token();
    held.release().await.unwrap();
    let next = second.lock("held").acquire_within(PATIENCE).await.unwrap();
    assert!(next.token() > token);

    disk.fill(false).unwrap();
    let guard = soon("granted", waiting).await.unwrap().unwrap();
    assert!(guard.token() > last);
    assert!(first.lock(&name).try_acquire().await.unwrap().is_none());
    guard.release().await.unwrap();
    let guard = first.lock(&name).acquire_within(PATIENCE).await.unwrap();
    guard.release().await.unwrap();
    next.release().await.unwrap();
    // Nor is anything left of the tries that failed.
    let mut observer = fixture.observer().await;
    let open = "SELECT COUNT(*) FROM information_schema.INNODB_TRX WHERE trx_mysql_thread_id<>CONNECTION_ID()";
    until("without a transaction", async || {
        tokio::time::sleep(std::time::Duration::from_millis(150)).await;
        observer.number(open).await == 0
    })
    .await;
}

fn assert_cannot_write(error: &Error) {
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
    assert!(
        error.is_retryable() && error.to_string().contains("cannot write"),
        "{error:?}"
    );
}
