//! Small jobs of many callers in one text, so that a round trip serves all who wait for one.

use std::collections::{HashMap, HashSet};
use std::ops::ControlFlow::{self, Break, Continue};
use std::time::Duration;

use lock_core::backend::SentAt;
use tokio::time::Instant;

use super::super::driver::{execute, execute_into};
use super::{Exit, Phase, Reply, Worker};
use crate::error::SqlError;
use crate::protocol::lease_table::{LeaseRenewal, Rows, held};
use crate::protocol::{Job, JobDone, StatementResult};

/// The most jobs in one text, so that it stays far below any server's `max_allowed_packet`.
const MOST_JOBS: usize = 250;
/// The most commits in one text: they are answered together.
const MOST_PARTS: usize = 64;

pub(in super::super) struct Gathered {
    pub(in super::super) job: Job,
    pub(in super::super) reply: Reply<JobDone>,
}

/// Around the statements of a transaction. The server's `completion_type` does not begin another one after it.
const BEGIN: &str = "BEGIN";
const COMMIT: &str = "COMMIT AND NO CHAIN NO RELEASE";
const ROLLBACK: &str = "ROLLBACK AND NO CHAIN NO RELEASE";

/// Some statements of a text, and whom they serve.
struct Part {
    statements: Vec<String>,
    serves: Serves,
}

enum Serves {
    One(Gathered),
    /// Renewals for the same time.
    Renewals(Duration, Vec<Gathered>),
}

impl Worker {
    /// Runs the jobs in as few texts as can be. A connection that has nothing more to do counts as idle.
    pub(super) async fn gather(&mut self, mut jobs: Vec<Gathered>) -> ControlFlow<Exit> {
        self.phase = Phase::InUse;
        while !jobs.is_empty() {
            let rest = jobs.split_off(jobs.len().min(MOST_JOBS));
            jobs.retain(|job| !job.reply.is_closed());
            self.run_parts(parts(jobs)).await?;
            jobs = rest;
        }
        self.phase = Phase::Idle {
            since: Instant::now(),
            // The server keeps it for longer than that from the last statement on.
            extended: true,
        };
        Continue(())
    }

    /// Runs the parts, and those behind one that the server refused once more. Renewals run one by one if only some of them
    /// were made, or if the server refused them together.
    async fn run_parts(&mut self, mut parts: Vec<Part>) -> ControlFlow<Exit> {
        while !parts.is_empty() {
            let later = parts.split_off(parts.len().min(MOST_PARTS));
            let statements = parts.iter().flat_map(|part| part.statements.iter().map(String::as_str));
            let text = statements.collect::<Vec<_>>().join(";");
            let (sent, mut results) = (SentAt::now(), Vec::new());
            let executed = execute_into(&mut self.connection, text, None, &mut results).await;
            if executed.as_ref().err().is_none_or(|error| error.code().is_some()) {
                self.last_answer.note();
            }
            let (mut rest, mut results, mut again) = (parts.into_iter(), results.into_iter(), Vec::new());
            for part in rest.by_ref() {
                let results: Vec<_> = results.by_ref().take(part.statements.len()).collect();
                if results.len() == part.statements.len() {
                    again.append(&mut part.answer(sent, results));
                    continue;
                }
                let error = executed.err().unwrap_or(SqlError::UnexpectedAnswer("answer"));
                // Interrupted, a statement was rolled back, and the connection serves on. One that ends takes its
                // transaction along.
                let serves_on = error.is_refusal() || error.is_interrupted();
                let goes_on = serves_on && self.roll_back(&part).await;
                match part.serves {
                    // One of them may be the reason.
                    Serves::Renewals(ttl, jobs) if goes_on && renewals(&jobs).len() > 1 => {
                        again.append(&mut one_by_one(ttl, jobs));
                    }
                    serves => serves.fail(error),
                }
                if !goes_on {
                    // The others learn that the connection has ended.
                    return Break(Exit::Disconnected);
                }
                break;
            }
            parts = rest.chain(again).chain(later).collect();
        }
        Continue(())
    }

    /// Ends the transaction that a refused statement has left open, with its row locks, before anything else runs in it.
    /// Returns whether that worked.
    async fn roll_back(&mut self, part: &Part) -> bool {
        !part.is_transaction() || execute(&mut self.connection, ROLLBACK.to_owned()).await.is_ok()
    }
}

impl Gathered {
    fn renewal(&self) -> Option<&LeaseRenewal> {
        match &self.job {
            Job::Renew(_, renewal) => Some(renewal),
            Job::Statement(_) | Job::Transaction(_) => None,
        }
    }

    fn is_shared(&self) -> bool {
        self.renewal().is_some_and(|renewal| renewal.is_shared)
    }

    /// Whether it is the renewal of one of these holder ids.
    fn is_among(&self, held: &[Vec<u8>]) -> bool {
        self.renewal().is_some_and(|renewal| {
            let holder = renewal.holder.to_string();
            held.iter().any(|held| held == holder.as_bytes())
        })
    }

    fn renewed(self, sent: SentAt, is_held: bool) {
        let result = StatementResult {
            matched: u64::from(is_held),
            ..StatementResult::default()
        };
        drop(self.reply.send(Ok(JobDone { sent, result })));
    }
}

impl Part {
    fn one(job: Gathered) -> Self {
        let statements = match &job.job {
            Job::Statement(sql) => vec![sql.clone()],
            Job::Transaction(statements) => transaction(statements.clone()),
            // Renewals are served by the part of their time.
            Job::Renew(..) => Vec::new(),
        };
        Self {
            statements,
            serves: Serves::One(job),
        }
    }

    /// One statement that leaves out rows that somebody has locked. For a hold alone, a transaction that fails then.
    fn renewals(ttl: Duration, jobs: Vec<Gathered>) -> Self {
        let all = renewals(&jobs);
        let statements = match (jobs.first().map(|first| &first.job), &all[..]) {
            (Some(Job::Renew(statements, _)), [one]) => transaction(statements.renew_at_once(ttl, one)),
            (Some(Job::Renew(statements, renewal)), all) if renewal.is_shared => {
                statements.renew_shared(ttl, all, Rows::SkipLocked).into()
            }
            (Some(Job::Renew(statements, _)), all) => vec![statements.renew(ttl, all, Rows::SkipLocked)],
            _ => Vec::new(),
        };
        Self {
            statements,
            serves: Serves::Renewals(ttl, jobs),
        }
    }

    fn is_transaction(&self) -> bool {
        match &self.serves {
            Serves::One(job) => matches!(job.job, Job::Transaction(_)),
            Serves::Renewals(_, jobs) => renewals(jobs).len() == 1,
        }
    }

    /// Answers all whom it serves, and returns the renewals that are to be asked for one by one: those that left out a hold,
    /// whose row may be locked. If it is not known which that was, the others are asked for again as well: a question which
    /// these were would be answered by the server's clock of a later moment, and that may have been set back since.
    fn answer(self, sent: SentAt, mut results: Vec<StatementResult>) -> Vec<Self> {
        if self.is_transaction() {
            // Of its commit.
            results.pop();
        }
        let result = results.pop().unwrap_or_default();
        match self.serves {
            Serves::One(job) => drop(job.reply.send(Ok(JobDone { sent, result }))),
            Serves::Renewals(ttl, jobs) if jobs.iter().any(Gathered::is_shared) => match held(&result) {
                Ok(held) => {
                    let is_alone = renewals(&jobs).len() == 1;
                    let (there, missing): (Vec<_>, Vec<_>) = jobs.into_iter().partition(|job| job.is_among(&held));
                    there.into_iter().for_each(|job| job.renewed(sent, true));
                    match is_alone {
                        false => return one_by_one(ttl, missing),
                        true => missing.into_iter().for_each(|job| job.renewed(sent, false)),
                    }
                }
                Err(error) => Serves::Renewals(ttl, jobs).fail(error),
            },
            Serves::Renewals(ttl, jobs) => match (result.matched, renewals(&jobs).len()) {
                (matched, holds) if matched == holds as u64 => jobs.into_iter().for_each(|job| job.renewed(sent, true)),
                (_, 0 | 1) => jobs.into_iter().for_each(|job| job.renewed(sent, false)),
                _ => return one_by_one(ttl, jobs),
            },
        }
        Vec::new()
    }
}

impl Serves {
    fn fail(self, error: SqlError) {
        match self {
            Self::One(job) => drop(job.reply.send(Err(error))),
            Self::Renewals(_, jobs) => {
                for job in jobs {
                    drop(job.reply.send(Err(error.for_another())));
                }
            }
        }
    }
}

/// Each hold once: on a slow line, core renews one again that waits for an answer.
fn renewals(jobs: &[Gathered]) -> Vec<LeaseRenewal> {
    let mut seen = HashSet::new();
    let renewals = jobs.iter().filter_map(Gathered::renewal);
    renewals
        .filter(|renewal| seen.insert(renewal.holder))
        .cloned()
        .collect()
}

/// The texts of a transaction.
fn transaction(statements: Vec<String>) -> Vec<String> {
    let mut all = vec![BEGIN.to_owned()];
    all.extend(statements);
    all.push(COMMIT.to_owned());
    all
}

/// A part for each hold.
fn one_by_one(ttl: Duration, jobs: Vec<Gathered>) -> Vec<Part> {
    let mut holds: Vec<Vec<Gathered>> = Vec::new();
    let mut places = HashMap::new();
    for job in jobs {
        let Some(holder) = job.renewal().map(|renewal| renewal.holder) else {
            continue;
        };
        let place = *places.entry(holder).or_insert(holds.len());
        match holds.get_mut(place) {
            Some(hold) => hold.push(job),
            None => holds.push(vec![job]),
        }
    }
    holds.into_iter().map(|jobs| Part::renewals(ttl, jobs)).collect()
}

/// One part for each statement or transaction, and one for all renewals of the same time and kind: they come first.
fn parts(jobs: Vec<Gathered>) -> Vec<Part> {
    let (mut renewals, mut parts): (Vec<(_, Vec<Gathered>)>, Vec<Part>) = Default::default();
    for job in jobs {
        match job.renewal().map(|renewal| (renewal.ttl, renewal.is_shared)) {
            None => parts.push(Part::one(job)),
            Some(kind) => match renewals.iter_mut().find(|(of, _)| *of == kind) {
                Some((_, jobs)) => jobs.push(job),
                None => renewals.push((kind, vec![job])),
            },
        }
    }
    let mut all: Vec<Part> = Vec::with_capacity(renewals.len() + parts.len());
    all.extend(renewals.into_iter().map(|((ttl, _), jobs)| Part::renewals(ttl, jobs)));
    all.append(&mut parts);
    all
}
