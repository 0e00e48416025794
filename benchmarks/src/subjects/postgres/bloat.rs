//! `bloat-100`: whether the lock tables grow without end under load.

use std::time::Duration;

use async_trait::async_trait;
use benchmarks_load::{Figures, Result, Unit};

use super::super::polylock::Polylock;
use super::{Names, connect};
use crate::entry::Backend;
use crate::maker::maker;
use crate::participant::Participant;

const TABLE: &str = "bloat";
/// Some clients read, so that all tables are written.
const READERS: usize = 1;

/// The load of `names-100` on tables of its own.
pub(crate) struct Bloat {
    names: Names<Polylock>,
    url: String,
}

impl Bloat {
    pub(crate) fn new(url: &str) -> Self {
        let subject = Polylock(maker(Backend::Postgres, &format!("{url}?table={TABLE}")));
        Self {
            names: Names::new(subject, READERS),
            url: url.into(),
        }
    }
}

#[async_trait]
impl Participant for Bloat {
    async fn enter(&mut self) -> Result<()> {
        self.names.enter().await
    }

    async fn round(&mut self, time: Duration) -> Result<Figures> {
        let mut figures = self.names.round(time).await?;
        let ask = format!(
            "SELECT sum(pg_total_relation_size(relid))::float8/1024,sum(pg_indexes_size(relid))::float8/1024,\
             sum(n_dead_tup)::float8 FROM pg_stat_user_tables WHERE relname LIKE '{TABLE}\\_%'"
        );
        let row = connect(&self.url).await?.query_one(&ask, &[]).await?;
        for (column, unit) in [Unit::TableKilobytes, Unit::IndexKilobytes, Unit::DeadRows]
            .into_iter()
            .enumerate()
        {
            figures.push((unit, row.try_get(column)?));
        }
        Ok(figures)
    }

    async fn leave(&mut self) {
        self.names.leave().await;
    }
}
