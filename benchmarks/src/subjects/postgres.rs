//! What PostgreSQL is compared with.

use std::fs;
use std::path::Path;
use std::time::Duration;

use benchmarks_load::{Client, Lock, Result, Subject};
use lock_postgres::tokio_postgres::{Client as Session, NoTls};
use testbed::Postgres;

pub(crate) use self::advisory::Advisory;
pub(crate) use self::bare::Bare;
pub(crate) use self::bloat::Bloat;
pub(crate) use self::log::{Renewals, pairs};
pub(crate) use self::names::Names;
pub(crate) use self::updates::TwoUpdates;

mod advisory;
mod bare;
mod bloat;
mod log;
mod names;
mod updates;

/// As a server for locks would be set up.
pub(crate) fn server() -> Postgres {
    [
        // In `handoff-128`, each of 128 clients of several subjects has some of its own.
        ("max_connections", "1500"),
        // Otherwise everybody waits for checkpoints.
        ("max_wal_size", "4GB"),
        ("shared_buffers", "128MB"),
        // Every server's default, and what a lease that outlasts a crash needs; testbed's tests may do without.
        ("fsync", "on"),
        ("full_page_writes", "on"),
        ("synchronous_commit", "on"),
        ("autovacuum", "on"),
        ("autovacuum_naptime", "1min"),
    ]
    .into_iter()
    .fold(Postgres::new(), |server, (name, value)| server.setting(name, value))
}

async fn connect(url: &str) -> Result<Session> {
    let (session, connection) = lock_postgres::tokio_postgres::connect(url, NoTls).await?;
    // It ends with the session.
    tokio::spawn(connection);
    Ok(session)
}

pub(crate) async fn version(url: &str) -> Result<String> {
    Ok(connect(url)
        .await?
        .query_one("SHOW server_version", &[])
        .await?
        .try_get(0)?)
}

/// What all processes of the server have used, which run on this machine.
pub(crate) async fn cpu(url: &str) -> Result<Duration> {
    let session = connect(url).await?;
    let folder: String = session.query_one("SHOW data_directory", &[]).await?.try_get(0)?;
    let pids = fs::read_to_string(Path::new(&folder).join("postmaster.pid"))?;
    let postmaster: u32 = pids.lines().next().ok_or("postmaster.pid is empty")?.trim().parse()?;
    let mut ticks = 0;
    for process in fs::read_dir("/proc")?.flatten() {
        // Some end meanwhile.
        let Ok(stat) = fs::read_to_string(process.path().join("stat")) else {
            continue;
        };
        // The name of the program, in parentheses, may have blanks. After it come the state and the parent.
        let Some((_, fields)) = stat.rsplit_once(')') else {
            continue;
        };
        let fields: Vec<u64> = fields
            .split_whitespace()
            .map(|field| field.parse().unwrap_or(0))
            .collect();
        let is_postmaster = process.file_name().to_str() == Some(&postmaster.to_string());
        // User and system time; of the postmaster also those of its children that have ended.
        ticks += match fields.get(11..15) {
            Some(times) if is_postmaster => times.iter().sum(),
            Some(times) if fields[1] == u64::from(postmaster) => times[0] + times[1],
            _ => 0,
        };
    }
    let per_second = rustix::param::clock_ticks_per_second();
    Ok(Duration::from_secs_f64(ticks as f64 / per_second as f64))
}

/// A subject each of whose locks has a connection of its own.
pub(crate) struct Alone<L> {
    url: String,
    make: std::marker::PhantomData<fn() -> L>,
}

/// A lock with a connection of its own.
#[async_trait::async_trait]
pub(crate) trait OnSession: Lock + Sized + Send + 'static {
    async fn make(session: Session, name: &str) -> Result<Self>;
}

impl<L> Alone<L> {
    pub(crate) fn new(url: &str) -> Self {
        Self {
            url: url.into(),
            make: std::marker::PhantomData,
        }
    }
}

impl<L: OnSession> Subject for Alone<L> {
    type Client = Self;

    async fn connect(&self) -> Result<Self> {
        Ok(Self::new(&self.url))
    }
}

impl<L: OnSession> Client for Alone<L> {
    type Lock = L;

    async fn lock(&self, name: &str) -> Result<L> {
        L::make(connect(&self.url).await?, name).await
    }
}
