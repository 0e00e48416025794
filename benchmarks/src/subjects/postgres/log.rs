//! `wal-1`: how many bytes of the server's log a pair and a renewal write, and how far the table grows.

use std::time::Duration;

use async_trait::async_trait;
use benchmarks_load::{Client, Figures, Lock, Result, Subject, Unit};
use lock_core::{Guard, Locker};
use lock_postgres::tokio_postgres::Client as Session;
use tokio::time::Instant;

use super::super::TTL;
use super::super::polylock::Polylock;
use super::{Bare, TwoUpdates, connect};
use crate::entry::MakeBackend;
use crate::participant::Participant;

/// As many names as a renewal of a process has at once.
const NAMES: usize = 1000;

/// Pairs of one task, of those whose pairs write anything.
pub(crate) fn pairs(make: &MakeBackend, url: &str) -> Vec<(&'static str, Box<dyn Participant>)> {
    vec![
        (
            "polylock",
            Box::new(Pairs::new(Polylock(make.clone()), url, "polylock_leases")),
        ),
        ("bare", Box::new(Pairs::new(Bare::new(url), url, "polylock_leases"))),
        (
            "two-updates",
            Box::new(Pairs::new(TwoUpdates::new(url), url, "two_updates")),
        ),
    ]
}

struct Pairs<S> {
    subject: S,
    url: String,
    table: &'static str,
}

impl<S> Pairs<S> {
    fn new(subject: S, url: &str, table: &'static str) -> Self {
        let url = url.into();
        Self { subject, url, table }
    }
}

#[async_trait]
impl<S: Subject> Participant for Pairs<S> {
    async fn round(&mut self, time: Duration) -> Result<Figures> {
        let session = connect(&self.url).await?;
        let mut lock = self.subject.connect().await?.lock("logged").await?;
        // Makes what it needs.
        let held = lock.acquire().await?;
        lock.release(held).await?;
        let (before, started, mut pairs) = (written(&session).await?, Instant::now(), 0_u32);
        while started.elapsed() < time {
            let held = lock.acquire().await?;
            lock.release(held).await?;
            pairs += 1;
        }
        let bytes = written(&session).await? - before;
        let size: i64 = session
            .query_one("SELECT pg_total_relation_size($1::text::regclass)", &[&self.table])
            .await?
            .try_get(0)?;
        Ok(vec![
            (Unit::LogBytesPerPair, bytes as f64 / f64::from(pairs)),
            (Unit::TableKilobytes, size as f64 / 1024.0),
        ])
    }
}

/// Renewals of many names at once.
pub(crate) struct Renewals {
    make: MakeBackend,
    url: String,
}

impl Renewals {
    pub(crate) fn new(make: MakeBackend, url: &str) -> Self {
        let url = url.into();
        Self { make, url }
    }
}

#[async_trait]
impl Participant for Renewals {
    async fn round(&mut self, _time: Duration) -> Result<Figures> {
        const ROUNDS: usize = 10;
        let session = connect(&self.url).await?;
        let locker = Locker::from_backend((self.make)()?).without_label();
        let acquire = |number| {
            let lock = locker.lock(format!("renewed/{number}"));
            async move { lock.acquire().await }
        };
        let guards: Vec<Guard> = futures_util::future::try_join_all((0..NAMES).map(acquire)).await?;
        let before = written(&session).await?;
        for _ in 0..ROUNDS {
            futures_util::future::try_join_all(guards.iter().map(|guard| guard.extend(TTL))).await?;
        }
        let bytes = written(&session).await? - before;
        for guard in guards {
            guard.release().await.map(drop)?;
        }
        locker.shutdown().await?;
        Ok(vec![(Unit::LogBytesPerRenewal, bytes as f64 / (NAMES * ROUNDS) as f64)])
    }
}

/// How many bytes the log has so far.
async fn written(session: &Session) -> Result<i64> {
    let ask = "SELECT (pg_current_wal_insert_lsn()-'0/0')::bigint";
    Ok(session.query_one(ask, &[]).await?.try_get(0)?)
}
