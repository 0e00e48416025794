//! A server whose disk is full.

use futures_util::future::join_all;
use lock_core::{Error, ErrorKind, Guard, Locker, LostCause};
use lock_postgres::{PostgresConfig, backend};
use testbed::{Disk, Postgres};
use tokio::net::TcpStream;

use crate::lease::support::*;

/// A page has room for some fifty versions of a row.
const RENEWALS: usize = 200;

/// Two clients of a server on a disk that a test fills.
struct Full {
    disk: Disk,
    fixture: Fixture,
    first: Locker,
    second: Locker,
}

impl Full {
    async fn start(config: fn(&Fixture) -> PostgresConfig) -> Self {
        let disk = Disk::new().unwrap();
        let fixture = Fixture::own(Postgres::new().disk(&disk)).await;
        let locker = || Locker::from_backend(backend(config(&fixture)).unwrap()).with_ttl(secs(600));
        Self {
            first: locker(),
            second: locker(),
            disk,
            fixture,
        }
    }

    /// Fills the disk. The server's log has room for some hundred transactions, and no table has any.
    async fn fill(&self) {
        self.fixture.value("SELECT pg_switch_wal()").await;
        // Makes the file.
        self.fixture.value("SELECT pg_logical_emit_message(true,'','')").await;
        self.disk.fill(true).unwrap();
    }

    /// Has the server write to its log until that needs another file. Without room for one it crashes, and cannot start.
    async fn crash(&self) {
        let (observer, mut writes) = (self.fixture.observer().await, 0);
        let write = "SELECT pg_logical_emit_message(true,'',repeat('x',50000))";
        while observer.batch_execute(write).await.is_ok() {
            writes += 1;
            assert!(writes < 2000, "there is room");
        }
        let address = self.fixture.server.address();
        eventually("ending", async || TcpStream::connect(address).await.is_err()).await;
    }

    async fn make_room_and_restart(&self) {
        self.disk.fill(false).unwrap();
        self.fixture.server.restart().await.unwrap();
    }
}

#[testbed::test]
async fn a_full_disk_refuses_new_names_of_leases_and_loses_nothing() {
    new_names_are_refused_and_nothing_is_lost(Fixture::config, true).await;
}

#[testbed::test]
async fn a_full_disk_refuses_new_names_of_sessions_and_loses_nothing() {
    new_names_are_refused_and_nothing_is_lost(Fixture::session_config, false).await;
}

async fn new_names_are_refused_and_nothing_is_lost(config: fn(&Fixture) -> PostgresConfig, extends: bool) {
    let full = Full::start(config).await;
    let (first, second) = (&full.first, &full.second);
    let held = first.lock("held").acquire().await.unwrap();
    let other = second.lock("other").acquire().await.unwrap();
    full.fill().await;
    let mut last = held.token();
    let refused = full.disk.first_refused(async |name| {
        let guard = happens("an answer", first.lock(name).try_acquire()).await?;
        let guard = guard.expect("it is free");
        last = guard.token();
        guard.release().await.unwrap();
        Ok::<_, Error>(())
    });
    let (name, error) = refused.await;
    assert_is_full(&error);
    assert_is_full(&second.lock(&name).try_acquire().await.unwrap_err());
    // Whoever may wait does until there is room.
    let waiting = begin_to_wait(second, &name);
    // Names that have a row go on, also to those who cannot enter a queue.
    assert!(second.lock("held").try_acquire().await.unwrap().is_none());
    assert!(first.lock("other").try_acquire().await.unwrap().is_none());
    let next = begin_to_wait(second, "held");
    let token = held.token();
    if extends {
        // More versions of their rows than a page has room for.
        for _ in 0..RENEWALS {
            let extended = join_all([&held, &other].map(|guard| guard.extend(secs(600)))).await;
            assert!(extended.iter().all(Result::is_ok), "{extended:?}");
        }
    }
    held.release().await.unwrap();
    let next = happens("the next grant", next).await.unwrap();
    assert!(next.token() > token);
    assert!(first.lock("held").try_acquire().await.unwrap().is_none());

    full.disk.fill(false).unwrap();
    let granted = happens("the grant", waiting).await.unwrap();
    assert!(granted.token() > last);
    assert!(first.lock(&name).try_acquire().await.unwrap().is_none());
    for guard in [granted, next, other] {
        guard.release().await.unwrap();
    }
    // Nor is anything left of the tries that failed.
    for name in [name.as_str(), "held", "other"] {
        let again = first.lock(name).acquire_within(PATIENCE).await.unwrap();
        again.release().await.unwrap();
    }
}

#[testbed::test]
async fn leases_survive_a_server_that_crashes_for_want_of_disk() {
    let full = Full::start(Fixture::config).await;
    let (first, second) = (&full.first, &full.second);
    let held = first.lock("held").acquire().await.unwrap();
    let short = first.lock("short").ttl(secs(2)).acquire().await.unwrap();
    full.fill().await;
    full.crash().await;
    for locker in [first, second] {
        let error = happens("an answer", locker.lock("new").try_acquire())
            .await
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    }
    let lost = happens("the loss", short.lost()).await;
    assert_eq!(lost.cause(), LostCause::Expired);
    assert!(held.check().is_ok(), "its TTL is not over");

    full.make_room_and_restart().await;
    eventually("renewing", async || held.extend(secs(600)).await.is_ok()).await;
    assert!(second.lock("held").try_acquire().await.unwrap().is_none());
    let next = second.lock("short").acquire_within(PATIENCE).await.unwrap();
    assert!(next.token() > short.token());
    drop(short.release().await);
    assert!(first.lock("short").try_acquire().await.unwrap().is_none());
    next.release().await.unwrap();
    let token = held.token();
    held.release().await.unwrap();
    let next = second.lock("held").acquire_within(PATIENCE).await.unwrap();
    assert!(next.token() > token);
}

#[testbed::test]
async fn sessions_learn_at_once_of_a_server_that_crashes_for_want_of_disk() {
    let full = Full::start(Fixture::session_config).await;
    let held = full.first.lock("held").acquire().await.unwrap();
    full.fill().await;
    full.crash().await;
    let lost = happens("the loss", held.lost()).await;
    assert_eq!(lost.cause(), LostCause::Disconnected);
    full.make_room_and_restart().await;
    let next = full.second.lock("held").acquire_within(PATIENCE).await.unwrap();
    assert!(next.token() > held.token());
    drop(held.release().await);
    assert!(full.first.lock("held").try_acquire().await.unwrap().is_none());
    next.release().await.unwrap();
}

fn begin_to_wait(locker: &Locker, name: &str) -> impl Future<Output = lock_core::Result<Guard>> {
    let lock = locker.lock(name);
    let waiting = tokio::spawn(async move { lock.acquire().await });
    async { waiting.await.unwrap() }
}

fn assert_is_full(error: &Error) {
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
    assert!(error.is_retryable() && error.is_not_executed(), "{error:?}");
    assert!(error.to_string().contains("disk is full: make room"), "{error:?}");
}
