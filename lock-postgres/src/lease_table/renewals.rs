//! Renewals: those of one turn go out as one statement.

use std::sync::Arc;
use std::time::Duration;

use lock_core::backend::SentAt;
use lock_core::{Error, ErrorKind};
use lock_kit::lease_rows::{Held, Renewed};
use parking_lot::Mutex;
use tokio::runtime;
use tokio::sync::oneshot;
use tokio::task::yield_now;
use tokio::time::Instant;
use uuid::Uuid;

use super::Shared;
use crate::error::SqlError;
use crate::names::{id_of, name_bytes};
use crate::protocol::answers::column;
use crate::protocol::terms::as_micros;

/// The most renewals of one statement.
const AT_ONCE: usize = 1000;
/// For how long after a renewal that found a row locked no renewal waits for rows.
const AFTER_LOCKED: Duration = Duration::from_secs(60);

/// Renewals that wait to be sent.
#[derive(Debug, Default)]
pub(super) struct Renewals(Mutex<Queue>);

#[derive(Debug, Default)]
struct Queue {
    waiting: Vec<Entry>,
    /// The runtimes that have a task for the next statement.
    scheduled: Vec<runtime::Id>,
    locked_at: Option<Instant>,
}

/// What is to be renewed.
#[derive(Debug)]
struct Entry {
    name: Vec<u8>,
    holder: Uuid,
    /// In microseconds.
    ttl: i64,
    /// Whether it shares the name.
    is_shared: bool,
    answer: oneshot::Sender<Result<Renewed, SqlError>>,
}

impl Shared {
    /// Renews a hold, together with others. Waits for as long as the caller does.
    ///
    /// # Cancel safety
    /// May be dropped at any point: it is then renewed or not.
    pub(super) async fn renew_with_others(
        self: &Arc<Self>,
        held: &Held,
        ttl: Duration,
        is_shared: bool,
    ) -> Result<Renewed, SqlError> {
        let (answer, answered) = oneshot::channel();
        let entry = Entry {
            name: name_bytes(&held.name).to_vec(),
            holder: id_of(held.holder),
            ttl: as_micros(ttl),
            is_shared,
            answer,
        };
        let here = runtime::Handle::current();
        {
            let mut queue = self.renewals.0.lock();
            queue.waiting.push(entry);
            // Nobody depends on a runtime that is not driven.
            if !queue.scheduled.contains(&here.id()) {
                queue.scheduled.push(here.id());
                here.spawn(self.clone().renew_together());
            }
        }
        answered.await.unwrap_or(Err(SqlError::Disconnected(None)))
    }

    async fn renew_together(self: Arc<Self>) {
        // All that are due in this turn.
        yield_now().await;
        let (entries, is_locked) = {
            let mut queue = self.renewals.0.lock();
            let here = runtime::Handle::current().id();
            queue.scheduled.retain(|scheduled| *scheduled != here);
            let is_locked = queue.locked_at.is_some_and(|at| at.elapsed() < AFTER_LOCKED);
            (std::mem::take(&mut queue.waiting), is_locked)
        };
        let (shared, alone): (Vec<_>, Vec<_>) = entries.into_iter().partition(|entry| entry.is_shared);
        let batches = [batches(alone), batches(shared)].into_iter().flatten();
        let sent = batches.map(|batch| async {
            let renewed = self.renew_batch(&batch, is_locked).await;
            for entry in batch {
                // Whoever has left needs no answer.
                let _ = entry.answer.send(match &renewed {
                    Ok((sent, rows)) => Ok(renewed_of(entry.holder, *sent, rows)),
                    Err(error) => Err(error.clone()),
                });
            }
        });
        futures_util::future::join_all(sent).await;
    }

    /// The ids of which something is said, and whether they were renewed. All are of one kind.
    async fn renew_batch(&self, batch: &[Entry], is_locked: bool) -> Result<(SentAt, Vec<(Uuid, bool)>), SqlError> {
        let names: Vec<_> = batch.iter().map(|entry| entry.name.as_slice()).collect();
        let holders: Vec<_> = batch.iter().map(|entry| entry.holder).collect();
        let ttls: Vec<_> = batch.iter().map(|entry| entry.ttl).collect();
        let statements = match batch.iter().any(|entry| entry.is_shared) {
            true => &self.statements.renew_shared,
            false => &self.statements.renew,
        };
        let mut statement = match is_locked {
            true => &statements.unlocked,
            false => &statements.waiting,
        };
        let mut repeated = 0;
        loop {
            let connection = self.keeping.connection().await?;
            let was_used = connection.was_used();
            let sent = SentAt::now();
            // Whoever calls decides how long to wait.
            match connection.query(statement, &[&names, &holders, &ttls], None).await {
                Ok(rows) => {
                    let read = rows
                        .iter()
                        .map(|row| Ok((column(row, 0, "renewal")?, column(row, 1, "renewal")?)));
                    return Ok((sent, read.collect::<Result<_, SqlError>>()?));
                }
                // One of many must not keep the others from being renewed.
                Err(error) if (error.is_locked() || error.is_transient()) && repeated == 0 => {
                    self.renewals.0.lock().locked_at = Some(Instant::now());
                    statement = &statements.unlocked;
                }
                Err(error) if error.is_unprepared() && repeated == 0 => {}
                // The server had closed it while it was idle.
                Err(error) if error.is_disconnect() && was_used && repeated == 0 => {}
                // The holds went with their table, which the next acquire makes anew.
                Err(error) if error.is_missing_table() => return Ok((sent, Vec::new())),
                Err(error) => return Err(error),
            }
            repeated += 1;
        }
    }
}

/// As many at once as one statement takes.
fn batches(entries: Vec<Entry>) -> impl Iterator<Item = Vec<Entry>> {
    let mut entries = entries.into_iter();
    std::iter::from_fn(move || {
        let batch: Vec<_> = entries.by_ref().take(AT_ONCE).collect();
        (!batch.is_empty()).then_some(batch)
    })
}

/// What the rows say of this id.
fn renewed_of(holder: Uuid, sent: SentAt, rows: &[(Uuid, bool)]) -> Renewed {
    match rows.iter().find(|(id, _)| *id == holder) {
        Some((_, true)) => Renewed::At(sent),
        Some((_, false)) => {
            let message = "the lock's row is locked by others: see which transaction keeps it";
            Renewed::Locked(Error::new(ErrorKind::Unavailable, message))
        }
        None => Renewed::Lost,
    }
}
