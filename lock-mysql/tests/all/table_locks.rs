//! Whole tables that are locked: by backups, and by changes of the lock table.

use lock_core::{ErrorKind, Locker, Release};
use lock_mysql::RowLockBackend;
use testbed::{Edition, MariaDb};
use tokio::task::JoinSet;

use crate::support::*;

/// Each of these functions on a MariaDB and on a MySQL of its own.
macro_rules! on_servers_of_their_own {
    ($($case:ident),+ $(,)?) => {
        mod mariadb {
            $(#[testbed::test]
            async fn $case() {
                super::$case(super::Fixture::own().await).await;
            })+
        }

        mod mysql9 {
            $(#[testbed::test]
            async fn $case() {
                let server = super::MariaDb::new().edition(super::Edition::MySql9).start().await;
                if let Some(server) = testbed::skip_left_out(server) {
                    super::$case(super::Fixture::on(server)).await;
                }
            })+
        }
    };
}

on_servers_of_their_own!(
    a_waiter_does_not_stop_the_server_for_long,
    readers_of_a_server_that_is_locked_keep_no_connection_from_being_ended,
    a_change_of_the_table_is_named
);

fn locks(fixture: &Fixture) -> Locker {
    Locker::new(fixture.backend()).with_ttl(secs(600))
}

/// A backup's lock waits for statements that wait for a row, and all writes of the server wait for that lock.
async fn a_waiter_does_not_stop_the_server_for_long(fixture: Fixture) {
    let (locks, others) = (locks(&fixture), locks(&fixture));
    let held = locks.lock("held").acquire().await.unwrap();
    locks.lock("free").acquire().await.unwrap().release().await.unwrap();
    let waiting = others.lock("held");
    let waiting = tokio::spawn(async move { waiting.acquire().await.unwrap() });
    let mut observer = fixture.observer().await;
    until("waiting", async || observer.waiters().await > 0).await;
    let mut backup = fixture.observer().await;
    let locking = tokio::spawn(async move {
        backup.run("FLUSH TABLES WITH READ LOCK").await;
        backup
    });
    let mut backup = soon("locked by the backup", locking).await.unwrap();

    // Nobody has these names.
    for name in ["free", "never used"] {
        let tried = soon("tried", locks.lock(name).try_acquire()).await.unwrap_err();
        let waited = soon("waited", locks.lock(name).acquire_within(secs(3)))
            .await
            .unwrap_err();
        for error in [tried, waited] {
            assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
            assert!(error.to_string().contains("lets nobody write"), "{error}");
        }
    }
    assert_eq!(soon("released", held.release()).await.unwrap(), Release::Released);
    assert!(!waiting.is_finished());
    backup.run("UNLOCK TABLES").await;
    soon("granted", waiting).await.unwrap().release().await.unwrap();
    for name in ["free", "never used"] {
        assert!(locks.lock(name).try_acquire().await.unwrap().is_some());
    }
}

/// Each reader's token is written over the connection that ends others, one after the other.
async fn readers_of_a_server_that_is_locked_keep_no_connection_from_being_ended(fixture: Fixture) {
    let config = fixture.config().with_response_timeout(secs(5));
    let locks = Locker::new(RowLockBackend::new(config).unwrap()).with_ttl(secs(600));
    let names: Vec<String> = (0..10).map(|number| number.to_string()).collect();
    for name in &names {
        let reader = locks.rw_lock(name).read().acquire().await.unwrap();
        reader.release().await.unwrap();
    }
    let held = self::locks(&fixture).lock("held").acquire().await.unwrap();
    let waiting = locks.lock("held");
    let waiting = tokio::spawn(async move { waiting.acquire().await });
    let (mut observer, mut backup) = (fixture.observer().await, fixture.observer().await);
    until("waiting", async || observer.waiters().await > 0).await;
    backup.run("FLUSH TABLES WITH READ LOCK").await;

    let mut reading = JoinSet::new();
    for name in names {
        let reader = locks.rw_lock(&name).read();
        reading.spawn(async move { reader.try_acquire().await.unwrap_err() });
    }
    waiting.abort();
    until("ended", async || observer.waiters().await == 0).await;
    for error in all_soon("refused", reading.join_all()).await {
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        assert!(error.to_string().contains("lets nobody write"), "{error}");
    }
    backup.run("UNLOCK TABLES").await;
    let reader = soon("read", locks.rw_lock("0").read().acquire()).await.unwrap();
    reader.release().await.unwrap();
    held.release().await.unwrap();
}

/// It waits for all holds, and all new locks wait for it.
async fn a_change_of_the_table_is_named(fixture: Fixture) {
    let locks = locks(&fixture);
    let held = locks.lock("held").acquire().await.unwrap();
    let (mut dba, table) = (fixture.observer().await, fixture.table.clone());
    let change = tokio::spawn(async move { dba.run(&format!("ALTER TABLE {table} COMMENT='locks'")).await });
    let mut error = None;
    until("waiting for the hold", async || {
        error = locks.lock("free").try_acquire().await.err();
        error.is_some()
    })
    .await;
    let error = error.expect("there was one");
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(error.to_string().contains("ALTER TABLE"), "{error}");
    assert!(!change.is_finished());
    held.check().unwrap();
    held.release().await.unwrap();
    soon("changed", change).await.unwrap();
    locks.lock("free").acquire().await.unwrap().release().await.unwrap();
}
