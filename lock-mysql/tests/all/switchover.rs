//! A planned switchover: the primary becomes read-only, and a replica takes its place behind the same address.

use lock_core::{FencingToken, Guard, Locker, LostCause};
use lock_mysql::RowLockBackend;
use testbed::{Edition, MariaDb, Port, Server, in_some_run};

use crate::support::proxy::Proxy;
use crate::support::*;

/// A primary and its replica, which has the same tables.
pub(crate) async fn replicated() -> (Fixture, Fixture) {
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

/// Makes a user whom a read-only server refuses.
pub(crate) async fn plain_user(fixture: &Fixture) {
    let mut observer = fixture.observer().await;
    observer
        .run("CREATE USER 'plain'@'%' IDENTIFIED BY 's3cret';GRANT SELECT,INSERT,UPDATE,CREATE ON app.* TO 'plain'@'%'")
        .await;
}

/// Makes the primary read-only, and its replica a server of its own that has all transactions.
pub(crate) async fn switch_over(old: &Fixture, new: &Fixture) {
    demote(old).await;
    promote(old, new).await;
}

async fn demote(old: &Fixture) {
    old.observer().await.run("SET GLOBAL read_only=1").await;
}

async fn promote(old: &Fixture, new: &Fixture) {
    let committed = old.observer().await.text("SELECT @@gtid_binlog_pos").await;
    let caught_up = format!("SELECT MASTER_GTID_WAIT('{committed}',30)");
    assert_eq!(new.observer().await.number(&caught_up).await, 0);
    new.observer().await.run("STOP SLAVE").await;
}

/// False, and the test counts as skipped, on a MySQL: that is replicated by other statements.
pub(crate) async fn is_mariadb() -> bool {
    let mut observer = Fixture::shared().await.observer().await;
    let is_so = observer.text("SELECT VERSION()").await.contains("MariaDB");
    if !is_so {
        testbed::skip("a MySQL is replicated by other statements; its groups have a test of their own");
    }
    is_so
}

/// Its locks end 2 s after the server became read-only.
fn locks_at(address: &str, fixture: &Fixture) -> Locker {
    let url = format!("mysql://plain:s3cret@{address}/app?max_read_only=2s");
    let config = patient(&url).with_table(&fixture.table);
    Locker::new(RowLockBackend::new(config).unwrap()).with_ttl(secs(600))
}

/// Two servers of a group with a single primary, which is the first one.
async fn grouped(servers: [Server; 2], seeds: &str) -> (Fixture, Fixture) {
    let [old, new] = servers;
    let old = Fixture::on(old);
    let table = old.table.clone();
    let new = Fixture { server: new, table };
    for (fixture, begin, end) in [
        (
            &old,
            "SET GLOBAL group_replication_bootstrap_group=ON",
            "SET GLOBAL group_replication_bootstrap_group=OFF",
        ),
        (&new, "DO 0", "DO 0"),
    ] {
        let join = format!(
            "RESET BINARY LOGS AND GTIDS;SET GLOBAL group_replication_group_seeds='{seeds}';\
             SET GLOBAL group_replication_recovery_get_public_key=ON;\
             CHANGE REPLICATION SOURCE TO SOURCE_USER='app',SOURCE_PASSWORD='secret' \
             FOR CHANNEL 'group_replication_recovery';{begin};START GROUP_REPLICATION;{end}"
        );
        fixture.observer().await.run(&join).await;
    }
    let online = "SELECT COUNT(*) FROM performance_schema.replication_group_members WHERE MEMBER_STATE='ONLINE'";
    let are_online = async || {
        let mut observers = [old.observer().await, new.observer().await];
        observers[0].number(online).await == 2 && observers[1].number(online).await == 2
    };
    until("a group", are_online).await;
    (old, new)
}

/// The administrator's steps: `demote` makes the old server read-only, and `promote` lets the new one take writes.
async fn a_switchover_ends_the_old_holds_and_all_clients_follow(
    old: &Fixture,
    new: &Fixture,
    demote: impl AsyncFnOnce(),
    promote: impl AsyncFnOnce(),
) {
    plain_user(old).await;
    let proxy = Proxy::of(old).await;
    let (locks, others) = (locks_at(proxy.address(), old), locks_at(proxy.address(), old));
    let held = locks.lock("x").acquire().await.unwrap();
    let read = locks.rw_lock("r").read().acquire().await.unwrap();
    // It has a connection to the old server.
    others.lock("y").acquire().await.unwrap().release().await.unwrap();

    demote().await;
    for guard in [&held, &read] {
        assert_eq!(soon("lost", guard.lost()).await.cause(), LostCause::ReadOnly);
    }
    promote().await;
    proxy.lead_to(new);

    let next = soon("granted by the new server", others.lock("x").acquire())
        .await
        .unwrap();
    assert!(next.token() > held.token());
    assert!(new.observer().await.is_locked("x").await);
    assert_eq!(old.observer().await.holder("x").await, None);
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
async fn a_replica_takes_the_primarys_place() {
    if !is_mariadb().await {
        return;
    }
    let (old, new) = replicated().await;
    let demote = async || demote(&old).await;
    let promote = async || promote(&old, &new).await;
    a_switchover_ends_the_old_holds_and_all_clients_follow(&old, &new, demote, promote).await;
}

/// The group makes the old primary read-only by itself.
#[testbed::test]
async fn a_group_changes_its_primary() {
    let ports = [Port::reserve().unwrap(), Port::reserve().unwrap()];
    let addresses = ports.each_ref().map(|port| format!("127.0.0.1:{}", port.number()));
    let start = async |number: usize| {
        let options = [
            "--performance-schema=ON",
            "--log-bin=log",
            "--log-replica-updates=ON",
            "--gtid-mode=ON",
            "--enforce-gtid-consistency=ON",
            "--report-host=127.0.0.1",
            "--plugin-load-add=group_replication.so",
            "--loose-group-replication-group-name=aaaaaaaa-aaaa-aaaa-aaaa-aaaaaaaaaaaa",
            "--loose-group-replication-start-on-boot=OFF",
        ];
        let server = MariaDb::new().edition(Edition::MySql9);
        let server = options.iter().fold(server, |server, option| server.option(*option));
        let address = &addresses[number];
        let server = server
            .option(format!("--server-id={}", number + 1))
            .option(format!("--loose-group-replication-local-address={address}"));
        testbed::skip_left_out(server.start().await)
    };
    let (Some(first), Some(second)) = (start(0).await, start(1).await) else {
        return;
    };
    let (old, new) = grouped([first, second], &addresses.join(",")).await;
    let demote = async || {
        let uuid = new.observer().await.text("SELECT @@server_uuid").await;
        let change = format!("SELECT group_replication_set_as_primary('{uuid}')");
        old.observer().await.text(&change).await;
    };
    let promote = async || {
        let takes_writes = async || new.observer().await.number("SELECT @@GLOBAL.read_only").await == 0;
        until("the new primary", takes_writes).await;
    };
    a_switchover_ends_the_old_holds_and_all_clients_follow(&old, &new, demote, promote).await;
}

/// A process of which no statement has met the read-only server, and the hold that it lost there.
async fn that_met_no_read_only_server(old: &Fixture, new: &Fixture) -> (Locker, Guard) {
    plain_user(old).await;
    let proxy = Proxy::of(old).await;
    let locks = locks_at(proxy.address(), old);
    let held = locks.lock("x").acquire().await.unwrap();
    demote(old).await;
    assert_eq!(soon("lost", held.lost()).await.cause(), LostCause::ReadOnly);
    promote(old, new).await;
    proxy.lead_to(new);
    (locks, held)
}

#[testbed::test]
async fn a_grant_of_the_new_server_is_shown_by_its_process() {
    if !is_mariadb().await {
        return;
    }
    let (old, new) = replicated().await;
    let (locks, held) = that_met_no_read_only_server(&old, &new).await;
    let next = soon("granted by the new server", locks.lock("x").acquire())
        .await
        .unwrap();
    assert!(next.token() > held.token());
    let status = locks.status("x").await.unwrap();
    let tokens: Vec<_> = status.holders.iter().map(|holder| holder.token).collect();
    assert_eq!(tokens, [Some(next.token())]);
}

/// It is committed over the other connection.
#[testbed::test]
async fn a_token_ahead_of_the_clock_is_granted_by_the_new_server() {
    if !is_mariadb().await {
        return;
    }
    let (old, new) = replicated().await;
    let (locks, held) = that_met_no_read_only_server(&old, &new).await;
    let floor = FencingToken::new(held.token().as_u64() + 3_600_000_000).unwrap();
    let locks = locks.with_token_floor(floor);
    let next = soon("granted by the new server", locks.lock("x").acquire())
        .await
        .unwrap();
    assert!(next.token() > floor);
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
    let mut observer = fixture.observer().await;
    // A busy machine may make a moment longer than the limit.
    in_some_run("the hold is lost", async || {
        let held = locks.lock("x").acquire().await.unwrap();
        // Longer than the limit together.
        for _ in 0..4 {
            observer.run("SET GLOBAL read_only=1").await;
            tokio::time::sleep(secs(1)).await;
            observer.run("SET GLOBAL read_only=0").await;
            // So that it is seen.
            tokio::time::sleep(secs(2)).await;
        }
        held.release().await
    })
    .await;
}
