//! The lease table: a row of each name says who holds it until when, by the server's clock.
//!
//! Every request of an exclusive hold is one statement on the name's row, which the primary key locks; an acquire that this
//! refuses sends a second one, which decides. Holds that share a name are rows of a second table, and their requests are
//! transactions that lock the name's row first. Holds are rows and not connections, so two groups of connections serve them
//! all: one for acquires and questions, one for what keeps or ends holds, which never waits behind an acquire. A release goes
//! over the first one if that has nothing to do.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use lock_core::{Error, LockName, Result};
use lock_kit::claims::Claims;
use lock_kit::clean_up::Schedule;
use lock_kit::downgrades::Downgrades;
use lock_kit::locked_rows::LockedRows;

use self::sleeper::Sleeper;
use self::waits::Waits;
use crate::clean_up::delete_dead;
use crate::config::MySqlConfig;
use crate::connection::{CheckNew, ConnectionGroup, Dialer, LastAnswer, Member, Session};
use crate::error::{RequestError, SqlError};
use crate::probe::LeaseServer;
use crate::protocol::lease_table::LeaseStatements;
use crate::protocol::{Job, JobDone, StatementResult};

pub use self::backend::LeaseTableBackend;

mod acquire;
mod backend;
mod end;
mod hold;
mod queue;
mod revoke;
mod sleeper;
mod tables;
mod waits;

/// The state that the backend and all its holds share.
struct Shared {
    config: MySqlConfig,
    /// The group of acquires.
    asking: ConnectionGroup,
    /// The group of renewals and releases.
    keeping: ConnectionGroup,
    statements: Arc<LeaseStatements>,
    /// Of acquires that were never answered. Their connections are ended at the server before their holder id is retired.
    claims: Claims<Arc<Session>>,
    waits: Waits,
    locked_rows: LockedRows,
    dialer: Arc<Dialer>,
    sleeper: Sleeper,
    downgrades: Downgrades,
    clean_ups: Schedule,
    /// True if the tables existed when they were last checked.
    prepared: AtomicBool,
    /// What was last read of the server.
    server: Arc<LeaseServer>,
}

impl Shared {
    fn new(config: MySqlConfig) -> Self {
        let dialer = Arc::new(Dialer::new(config.clone(), "", Arc::new(LastAnswer::new())));
        let server = Arc::<LeaseServer>::default();
        let check_new: CheckNew = {
            let (server, dialer) = (server.clone(), dialer.clone());
            Box::new(move |session| {
                let (server, dialer) = (server.clone(), dialer.clone());
                Box::pin(async move { server.check(&session, dialer.config()).await })
            })
        };
        Self {
            asking: ConnectionGroup::new(dialer.clone(), 1, 1, Some(check_new)),
            // Unchecked: holds stay, whatever becomes of the server.
            keeping: ConnectionGroup::new(dialer.clone(), 2, 2, None),
            statements: Arc::new(
                LeaseStatements::new(&config.table).in_database(config.options.get_database().unwrap_or_default()),
            ),
            claims: Claims::default(),
            waits: Waits::default(),
            locked_rows: LockedRows::default(),
            sleeper: Sleeper::default(),
            downgrades: Downgrades::default(),
            clean_ups: Schedule::new(),
            dialer,
            prepared: AtomicBool::new(false),
            server,
            config,
        }
    }

    /// Runs a statement over the connection of acquires.
    async fn query(&self, sql: String) -> Result<StatementResult, RequestError> {
        let member = self.asking.member(None).await?;
        Ok(self.run(&self.asking, &member, sql).await?.result)
    }

    /// Runs a job about a hold.
    async fn keep_job(&self, job: Job) -> Result<JobDone, RequestError> {
        let member = self.keeping.member(None).await?;
        Ok(self.run_job(&self.keeping, &member, job, self.limit()).await?)
    }

    /// Runs a job about a hold that may be executed twice: if the server had closed the connection while it was idle, this runs it
    /// over another one. Without a `limit` it waits for as long as the caller does.
    async fn keep_on(&self, job: Job, limit: Option<Duration>) -> Result<JobDone, RequestError> {
        let member = self.keeping.member(None).await?;
        let mut done = self.run_job(&self.keeping, &member, job.clone(), limit).await;
        if member.is_reused() && done.as_ref().is_err_and(SqlError::is_disconnect) {
            let member = self.keeping.member(None).await?;
            done = self.run_job(&self.keeping, &member, job, limit).await;
        }
        Ok(done?)
    }

    /// The limit for a job's answer, unless its caller decides that.
    fn limit(&self) -> Option<Duration> {
        Some(self.config.response_timeout)
    }

    /// Runs a job that ends a hold: over the connection of acquires if that has nothing to do. A server answers sooner over a
    /// connection that it has just served, since the thread and its data are at hand. The other connections are used often enough
    /// to stay open.
    async fn end_job(&self, job: Job) -> Result<JobDone, RequestError> {
        match self.asking.idle().filter(|_| self.keeping.is_fresh()) {
            Some(member) => Ok(self.run_job(&self.asking, &member, job, self.limit()).await?),
            None => self.keep_job(job).await,
        }
    }

    /// The job as one that changes this name's row. If a stranger is known to keep the row locked, the job fails at
    /// once instead of waiting, and so does all that follows over the connection.
    fn without_waiting(&self, name: &LockName, job: Job) -> Job {
        if !self.locked_rows.contains(name) {
            return job;
        }
        let statements = match job {
            Job::Statement(sql) => vec![sql],
            Job::Transaction(statements) => statements,
            renewal @ Job::Renew(..) => return renewal,
        };
        let mut all = vec![self.statements.lock_row_at_once(name)];
        all.extend(statements);
        Job::Transaction(all)
    }

    /// Notes whether this name's row was locked, as an answer shows.
    fn note_row(&self, name: &LockName, done: &Result<JobDone, RequestError>) {
        match done {
            Ok(_) => self.locked_rows.remove(name),
            Err(RequestError::Sql(error)) if error.is_busy() => self.locked_rows.insert(name),
            Err(_) => {}
        }
    }

    /// Runs a statement on this connection of a group.
    async fn run(&self, group: &ConnectionGroup, member: &Member, sql: String) -> Result<JobDone, SqlError> {
        self.run_job(group, member, Job::Statement(sql), self.limit()).await
    }

    async fn run_job(
        &self,
        group: &ConnectionGroup,
        member: &Member,
        job: Job,
        limit: Option<Duration>,
    ) -> Result<JobDone, SqlError> {
        let done = group.run(member, job, limit).await;
        if done.as_ref().is_err_and(SqlError::is_disconnect) {
            // Perhaps with all others.
            self.asking.check();
            self.keeping.check();
        }
        done
    }

    /// Begins a clean-up in the background from time to time.
    fn clean_up_if_due(self: &Arc<Self>) {
        self.clean_ups.run_if_due(|| {
            let shared = self.clone();
            async move { shared.clean_up().await }
        });
    }

    /// Deletes dead rows of both tables, and returns how many.
    async fn clean_up(&self) -> Result<u64> {
        let member = self.asking.member(None).await?;
        let tables = self.statements.dead_rows(self.config.retention);
        let run = |job| self.run_job(&self.asking, &member, job, self.limit());
        delete_dead(&tables, run).await
    }

    fn is_prepared(&self) -> bool {
        self.prepared.load(Ordering::Relaxed)
    }

    fn set_prepared(&self, prepared: bool) {
        self.prepared.store(prepared, Ordering::Relaxed);
    }
}

/// A connection equals itself alone.
impl PartialEq for Session {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self, other)
    }
}

/// The error for a caller: a statement that the server refused was not executed.
fn lock_error(error: RequestError) -> Error {
    match error {
        RequestError::Sql(error) if error.is_refusal() => error.into_lock_error().not_executed(),
        error => error.into_lock_error(),
    }
}
