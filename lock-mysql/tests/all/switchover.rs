//! A planned switchover: the primary becomes read-only, and a replica takes its place behind the same address.

use lock_core::{Locker, LostCause};
use lock_mysql::RowLockBackend;
use testbed::MariaDb;

use crate::support::proxy::Proxy;
use crate::support::*;

/// A primary and its replica, which has the same tables.
async fn replicated() -> (Fixture, Fixture) {
    let binlog = ["--log-bin=log", "--binlog-format=ROW"];
    let start = async |number: &str| {
        let server = binlog
            .iter()
            .fold(MariaDb::new(), |server, option| server.option(*option));
        server.option(format!("--server-id={number}")).start().await.unwrap()
    };
    let old = Fixture::on(start("1").await);
    let new = Fixture {
        server: start("2").await,
        table: old.table.clone(),
    };
    old.observer()
        .await
        .run("CREATE USER 'repl'@'%' IDENTIFIED BY 's3cret';GRANT REPLICATION SLAVE ON *.* TO 'repl'@'%'")
        .await;
    let follow = format!(
        "CHANGE MASTER TO MASTER_HOST='127.0.0.1',MASTER_PORT={},MASTER_USER='repl',MASTER_PASSWORD='s3cret',\
         MASTER_USE_GTID=slave_pos;START SLAVE",
        old.server.port()
    );
    new.observer().await.run(&follow).await;
    (old, new)
}

/// Makes a user whom a read-only server refuses. Its locks end 2 s after the server became read-only.
async fn plain_user(fixture: &Fixture) {
    let mut observer = fixture.observer().await;
    observer
        .run("CREATE USER 'plain'@'%' IDENTIFIED BY 's3cret';GRANT SELECT,INSERT,UPDATE,CREATE ON app.* TO 'plain'@'%'")
        .await;
}

fn locks_at(address: &str, fixture: &Fixture) -> Locker {
    let url = format!("mysql://plain:s3cret@{address}/app?max_read_only=2s");
    let config = patient(&url).with_table(&fixture.table);
    Locker::new(RowLockBackend::new(config).unwrap()).with_ttl(secs(600))
}

#[testbed::test]
async fn the_holds_of_the_old_server_are_lost_and_all_clients_follow_to_the_new_one() {
    let (old, new) = replicated().await;
    plain_user(&old).await;
    let proxy = Proxy::of(&old).await;
    let (locks, others) = (locks_at(proxy.address(), &old), locks_at(proxy.address(), &old));
    let held = locks.lock("x").acquire().await.unwrap();
    let read = locks.rw_lock("r").read().acquire().await.unwrap();
    // It has a connection to the old server.
    others.lock("y").acquire().await.unwrap().release().await.unwrap();

    old.observer().await.run("SET GLOBAL read_only=1").await;
    for guard in [&held, &read] {
        assert_eq!(soon("lost", guard.lost()).await.cause(), LostCause::ReadOnly);
    }
    let committed = old.observer().await.text("SELECT @@gtid_binlog_pos").await;
    let caught_up = format!("SELECT MASTER_GTID_WAIT('{committed}',30)");
    assert_eq!(new.observer().await.number(&caught_up).await, 0);
    new.observer().await.run("STOP SLAVE").await;
    proxy.lead_to(&new);

    let next = soon("granted by the new server", others.lock("x").acquire())
        .await
        .unwrap();
    assert!(next.token() > held.token());
    assert!(new.observer().await.is_locked("x").await);
    assert!(!old.observer().await.is_locked("x").await);
    let reader = locks.rw_lock("r").read();
    let read_again = soon("read at the new server", reader.acquire()).await.unwrap();
    assert!(read_again.token() > read.token());
    let waiting = tokio::spawn(async move { locks.lock("x").acquire().await.unwrap() });
    until("waiting at the new server", async || {
        new.observer().await.waiters().await > 0
    })
    .await;
    let token = next.token();
    next.release().await.unwrap();
    assert!(soon("granted in turn", waiting).await.unwrap().token() > token);
}

#[testbed::test]
async fn a_release_that_a_read_only_server_refuses_is_a_loss() {
    let fixture = Fixture::own().await;
    plain_user(&fixture).await;
    let locks = locks_at(fixture.server.address(), &fixture);
    let held = locks.lock("x").acquire().await.unwrap();
    let mut observer = fixture.observer().await;
    observer.run("SET GLOBAL read_only=1").await;
    let error = held.release().await.unwrap_err();
    assert!(error.is_lost(), "{error}");
    let cause = error.cause().and_then(|cause| cause.downcast_ref::<LostCause>());
    assert_eq!(cause, Some(&LostCause::ReadOnly), "{error}");
    assert!(!observer.is_locked("x").await);
}

/// As during an administrator's short maintenance.
#[testbed::test]
async fn a_server_that_is_read_only_for_a_moment_loses_nothing() {
    let fixture = Fixture::own().await;
    plain_user(&fixture).await;
    let url = format!("mysql://plain:s3cret@{}/app", fixture.server.address());
    let config = patient(&url).with_table(&fixture.table).with_max_read_only(secs(3));
    let locks = Locker::new(RowLockBackend::new(config).unwrap()).with_ttl(secs(600));
    let held = locks.lock("x").acquire().await.unwrap();
    let mut observer = fixture.observer().await;
    // Longer than the limit together.
    for _ in 0..4 {
        observer.run("SET GLOBAL read_only=1").await;
        tokio::time::sleep(secs(1)).await;
        observer.run("SET GLOBAL read_only=0").await;
        // So that it is seen.
        tokio::time::sleep(secs(2)).await;
    }
    held.release().await.unwrap();
}
