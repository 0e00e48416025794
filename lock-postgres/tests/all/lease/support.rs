//! A server for the tests of this binary, and what they do with it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use lock_core::backend::request::{RequestControl, RequestOptions, Terms};
use lock_core::backend::{
    AcquireRequest, Attempt, DistributedLock, Hold, HolderId, Mode, ReleaseOptions, ReleaseOutcome,
};
use lock_core::{FencingToken, LockName};
use lock_postgres::tokio_postgres::{Client, SimpleQueryMessage};
use lock_postgres::{LeaseTableBackend, PostgresConfig, SessionBackend, Strategy};
use testbed::{Postgres, Server};

pub(crate) use testbed::{eventually, happens, in_some_run};

use crate::fence::stock::{connect, shared_server};

/// A timeout of a client that is not to be reached.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) const fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

/// Lock tables of one test's own.
pub(crate) struct Fixture {
    pub(crate) server: Server,
    pub(crate) table: String,
    observer: Client,
}

impl Fixture {
    /// On the server that all tests share.
    pub(crate) async fn shared() -> Self {
        Self::on(shared_server().await.clone()).await
    }

    /// On a server that the test may break.
    pub(crate) async fn own(server: Postgres) -> Self {
        let server = server.start().await.unwrap();
        assert!(
            !server.is_external(),
            "this test needs a server of its own: unset POLYLOCK_POSTGRES_URL"
        );
        Self::on(server).await
    }

    async fn on(server: Server) -> Self {
        static TABLES: AtomicU32 = AtomicU32::new(0);
        let number = TABLES.fetch_add(1, Ordering::Relaxed);
        // The server may be one that ran before, with the tables of an earlier run.
        let table = format!("locks_{}_{number}", &HolderId::random().to_string()[..8]);
        let observer = connect(&server.url()).await;
        let fixture = Self {
            server,
            table,
            observer,
        };
        fixture.backend().connect().await.unwrap();
        fixture
    }

    pub(crate) fn config(&self) -> PostgresConfig {
        PostgresConfig::from_url(&self.server.url())
            .unwrap()
            .with_connect_timeout(PATIENCE)
            .with_response_timeout(PATIENCE)
            .with_table(&self.table)
    }

    /// A client with connections of its own.
    pub(crate) fn backend(&self) -> LeaseTableBackend {
        LeaseTableBackend::new(self.config()).unwrap()
    }

    /// The same with sessions that the server ends after a minute of silence.
    pub(crate) fn session_config(&self) -> PostgresConfig {
        self.config()
            .with_strategy(Strategy::Session)
            .with_session_timeout(secs(60))
            .with_restart_delay(Duration::ZERO)
    }

    pub(crate) fn sessions(&self) -> SessionBackend {
        SessionBackend::new(self.session_config()).unwrap()
    }

    pub(crate) async fn observer(&self) -> Client {
        connect(&self.server.url()).await
    }

    /// The first value of what a statement finds, in which `{}` is what the names of the tables begin with.
    pub(crate) async fn value(&self, sql: &str) -> Option<String> {
        let sql = sql.replace("{}", &self.table);
        let found = self.observer.simple_query(&sql).await.unwrap();
        found.into_iter().find_map(|message| match message {
            SimpleQueryMessage::Row(row) => row.get(0).map(str::to_owned),
            _ => None,
        })
    }

    pub(crate) async fn number(&self, sql: &str) -> i64 {
        let value = self.value(sql).await.expect("a value");
        value.parse().expect("a number")
    }

    /// Changes a setting of the server, for all connections.
    pub(crate) async fn turn_off(&self, setting: &str) {
        let observer = self.observer().await;
        let change = format!("ALTER SYSTEM SET {setting}=off");
        observer.batch_execute(&change).await.unwrap();
        observer.batch_execute("SELECT pg_reload_conf()").await.unwrap();
        let show = format!("SHOW {setting}");
        eventually("it to be off", async || {
            self.value(&show).await.as_deref() == Some("off")
        })
        .await;
    }

    /// Locks the row of a name, in a transaction of the client that it returns.
    pub(super) async fn lock_row(&self, name: &str) -> Client {
        let client = self.observer().await;
        let lock = format!("BEGIN;SELECT FROM {}_leases WHERE name='{name}' FOR UPDATE", self.table);
        client.batch_execute(&lock).await.unwrap();
        client
    }

    /// How many statements of these tables wait for a row.
    pub(crate) async fn waiting_for_rows(&self) -> i64 {
        self.number("SELECT count(*) FROM pg_stat_activity WHERE wait_event_type='Lock' AND query LIKE '%{}%'")
            .await
    }
}

pub(crate) fn name(name: &str) -> LockName {
    LockName::new(name).unwrap()
}

pub(crate) fn options(of: &str, ttl: Duration) -> RequestOptions {
    RequestOptions::new(name(of), Terms::new(ttl))
}

/// A hold that was granted.
pub(crate) struct Granted {
    pub(crate) hold: Arc<dyn Hold>,
    _control: RequestControl,
}

impl Granted {
    pub(crate) fn token(&self) -> FencingToken {
        self.hold.token()
    }

    pub(crate) async fn release(&self) -> ReleaseOutcome {
        self.hold.release(ReleaseOptions::default()).await.unwrap()
    }
}

pub(crate) async fn acquire(backend: &impl DistributedLock, options: RequestOptions) -> Option<Granted> {
    let (request, control) = options.start();
    let attempt = happens("an answer to the acquire", backend.acquire(&request))
        .await
        .unwrap();
    granted(attempt).map(|hold| Granted {
        hold,
        _control: control,
    })
}

pub(crate) fn granted(attempt: Attempt) -> Option<Arc<dyn Hold>> {
    match attempt {
        Attempt::Granted(hold, _) => Some(hold),
        _ => None,
    }
}

pub(crate) async fn grant(backend: &impl DistributedLock, of: &str, ttl: Duration) -> Granted {
    let granted = acquire(backend, options(of, ttl).waits(false)).await;
    granted.expect("the name is free")
}

/// The answer to a request that is sent again while that may help: on a busy machine an answer may take longer than the lease.
pub(crate) async fn answer_in_time(backend: &impl DistributedLock, request: &AcquireRequest) -> Attempt {
    eventually("an answer within the lease", async || {
        match backend.acquire(request).await {
            Err(error) if error.is_retryable() => Err(error),
            attempt => Ok(attempt.unwrap()),
        }
    })
    .await
}

pub(crate) async fn grant_in_time(backend: &impl DistributedLock, of: &str, ttl: Duration) -> Granted {
    let (request, control) = options(of, ttl).waits(false).start();
    let hold = granted(answer_in_time(backend, &request).await).expect("the name is free");
    Granted {
        hold,
        _control: control,
    }
}

pub(crate) async fn try_in(backend: &impl DistributedLock, of: &str, mode: Mode) -> Option<Granted> {
    acquire(backend, options(of, secs(60)).mode(mode).waits(false)).await
}

/// An acquire that goes on in the background.
pub(crate) fn begin(
    backend: &(impl DistributedLock + Clone),
    request: &AcquireRequest,
) -> tokio::task::JoinHandle<lock_core::Result<Attempt>> {
    let (backend, request) = (backend.clone(), request.clone());
    tokio::spawn(async move { backend.acquire(&request).await })
}
