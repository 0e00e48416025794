//! What the tests of the lease table share.

use lock_core::Locker;
use lock_mysql::{LeaseTableBackend, MySqlConfig, Strategy};

use crate::support::{Fixture, Observer};

pub(super) fn config(fixture: &Fixture) -> MySqlConfig {
    fixture.config().with_strategy(Strategy::Lease)
}

/// A client with connections of its own.
pub(super) fn backend(fixture: &Fixture) -> LeaseTableBackend {
    LeaseTableBackend::new(config(fixture)).unwrap()
}

pub(super) fn locker(fixture: &Fixture) -> Locker {
    Locker::new(backend(fixture))
}

/// A number in the row of a name.
pub(super) async fn in_row(observer: &mut Observer, fixture: &Fixture, name: &str, what: &str) -> u64 {
    let sql = format!("SELECT {what} FROM {}_leases WHERE name='{name}'", fixture.table);
    observer.number(&sql).await
}

/// Whether the row says that somebody has the name.
pub(super) async fn is_held(observer: &mut Observer, fixture: &Fixture, name: &str) -> bool {
    let sql = format!(
        "SELECT COUNT(*) FROM {}_leases WHERE name='{name}' AND holder IS NOT NULL AND expires>UNIX_TIMESTAMP(NOW(6))*1000000",
        fixture.table
    );
    observer.number(&sql).await > 0
}

/// How many processes have an entry in the queue of a name.
pub(super) async fn queued(observer: &mut Observer, fixture: &Fixture, name: &str) -> u64 {
    let used = queue_entries(fixture, name).map(|entry| format!("(IS_USED_LOCK({entry}) IS NOT NULL)"));
    observer.number(&used.collect::<Vec<_>>().join("+")).await
}

/// The named locks that are the queue entries of a name.
pub(super) fn queue_entries(fixture: &Fixture, name: &str) -> impl Iterator<Item = String> {
    // There are 16, with a hash of database, table and name: FNV-1a.
    let hashed = format!("app\0{}_leases\0{name}\0", fixture.table);
    let hash = hashed.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    (0..16).map(move |entry| format!("'polylock:queue:{hash:016x}:{entry}'"))
}

/// A counter of the server.
pub(super) async fn counted(observer: &mut Observer, variable: &str) -> u64 {
    observer.counter(variable).await
}

/// How many deadlocks the server has met.
pub(super) async fn deadlocks(observer: &mut Observer) -> u64 {
    let sql = "SELECT `COUNT` FROM information_schema.INNODB_METRICS WHERE NAME='lock_deadlocks'";
    observer.number(sql).await
}

/// Has two connections of the raw driver wait for each other, which the server ends.
pub(super) async fn provoke_deadlock(fixture: &Fixture) {
    let table = format!("{}_deadlock", fixture.table);
    let (mut one, mut other) = (fixture.observer().await, fixture.observer().await);
    one.run(&format!(
        "CREATE TABLE {table} (n INT PRIMARY KEY) ENGINE=InnoDB;INSERT INTO {table} VALUES (1),(2)"
    ))
    .await;
    let lock = |number: u32| format!("SELECT n FROM {table} WHERE n={number} FOR UPDATE");
    one.run(&format!("BEGIN;{}", lock(1))).await;
    other.run(&format!("BEGIN;{}", lock(2))).await;
    // One of both fails, and the other goes on.
    let crosswise = [lock(2), lock(1)];
    tokio::join!(one.try_run(&crosswise[0]), other.try_run(&crosswise[1]));
}

/// How many connections there are besides the observer's.
pub(super) async fn connections(observer: &mut Observer) -> u64 {
    let sql = "SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE USER='app' AND ID<>CONNECTION_ID()";
    observer.number(sql).await
}
