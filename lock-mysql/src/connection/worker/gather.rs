//! Small jobs of many callers in one text, so that a round trip serves all who wait for one.

use std::collections::{HashMap, HashSet};
use std::ops::ControlFlow::{self, Break, Continue};
use std::time::Duration;

use lock_core::backend::SentAt;
use tokio::time::Instant;

use super::super::driver::execute_into;
use super::{Exit, Phase, Reply, Worker};
use crate::error::SqlError;
use crate::protocol::lease_table::LeaseRenewal;
use crate::protocol::{Job, JobDone, StatementResult};

/// The most jobs in one text, so that it stays far below any server's `max_allowed_packet`.
const MOST_JOBS: usize = 250;
/// The most statements in one text, each of which is a commit: they are answered together.
const MOST_STATEMENTS: usize = 64;

pub(in super::super) struct Gathered {
    pub(in super::super) job: Job,
    pub(in super::super) reply: Reply<JobDone>,
}

/// A statement of a text, and whom it serves.
enum Part {
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
            let later = parts.split_off(parts.len().min(MOST_STATEMENTS));
            let text: Vec<String> = parts.iter().map(Part::sql).collect();
            let (sent, mut results) = (SentAt::now(), Vec::new());
            let executed = execute_into(&mut self.connection, text.join(";"), None, &mut results).await;
            if executed.as_ref().err().is_none_or(|error| error.code().is_some()) {
                self.last_answer.note();
            }
            let mut rest = parts.split_off(results.len().min(parts.len())).into_iter();
            let mut again = Vec::new();
            for (part, result) in parts.into_iter().zip(results) {
                again.append(&mut part.answer(sent, result));
            }
            if let Some(failed) = rest.next() {
                let error = executed.err().unwrap_or(SqlError::UnexpectedAnswer("answer"));
                // Interrupted, a statement was rolled back, and the connection serves on.
                let ends = !error.is_refusal() && !error.is_interrupted();
                match failed {
                    // One of them may be the reason, as one whose row somebody keeps locked.
                    Part::Renewals(ttl, jobs) if !ends && renewals(&jobs).len() > 1 => {
                        again.append(&mut one_by_one(ttl, jobs));
                    }
                    failed => failed.fail(error),
                }
                if ends {
                    // The others learn that the connection has ended.
                    return Break(Exit::Disconnected);
                }
            }
            parts = rest.chain(again).chain(later).collect();
        }
        Continue(())
    }
}

impl Gathered {
    fn renewal(&self) -> Option<&LeaseRenewal> {
        match &self.job {
            Job::Renew(_, renewal) => Some(renewal),
            Job::Statement(_) => None,
        }
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
    fn sql(&self) -> String {
        match self {
            Self::One(job) => match &job.job {
                Job::Statement(sql) => sql.clone(),
                Job::Renew(statements, renewal) => statements.renew(renewal.ttl, std::slice::from_ref(renewal)),
            },
            Self::Renewals(ttl, jobs) => match jobs.first().map(|job| &job.job) {
                Some(Job::Renew(statements, _)) => statements.renew(*ttl, &renewals(jobs)),
                _ => String::new(),
            },
        }
    }

    /// Answers all whom it serves. If only some of the holds were renewed, returns them one by one: a question which these were
    /// would be answered by the server's clock of a later moment, and that may have been set back since.
    fn answer(self, sent: SentAt, result: StatementResult) -> Vec<Part> {
        match self {
            Self::One(job) => drop(job.reply.send(Ok(JobDone { sent, result }))),
            Self::Renewals(ttl, jobs) => {
                let holds = renewals(&jobs).len() as u64;
                if (1..holds).contains(&result.matched) {
                    return one_by_one(ttl, jobs);
                }
                let is_held = result.matched > 0;
                jobs.into_iter().for_each(|job| job.renewed(sent, is_held));
            }
        }
        Vec::new()
    }

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
    holds.into_iter().map(|jobs| Part::Renewals(ttl, jobs)).collect()
}

/// One part for each statement, and one for all renewals of the same time: they come first.
fn parts(jobs: Vec<Gathered>) -> Vec<Part> {
    let (mut renewals, mut parts): (Vec<(Duration, Vec<Gathered>)>, Vec<Part>) = Default::default();
    for job in jobs {
        match job.renewal().map(|renewal| renewal.ttl) {
            None => parts.push(Part::One(job)),
            Some(ttl) => match renewals.iter_mut().find(|(of, _)| *of == ttl) {
                Some((_, jobs)) => jobs.push(job),
                None => renewals.push((ttl, vec![job])),
            },
        }
    }
    let mut all: Vec<Part> = Vec::with_capacity(renewals.len() + parts.len());
    all.extend(renewals.into_iter().map(|(ttl, jobs)| Part::Renewals(ttl, jobs)));
    all.append(&mut parts);
    all
}
